"""Jobs: commands that need each other, run side by side, and resumed if stopped."""

import contextlib
import ctypes
import datetime
import fcntl
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from keras_vqem.files import read_json, read_json_lines, write_json
from keras_vqem.training.interruption import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Of Linux. It is looked up here, since little is safe between fork and exec.
_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)


class Job(NamedTuple):
    """A command, and what it needs and makes.

    Attributes:
        name: Name of the job.
        command: List of the program and its arguments. A command that was stopped is
            run again as it is, and has to go on where it stopped.
        output: File or folder that the command makes. A file must be complete as soon
            as it exists.
        needs: Names of the jobs that must be done first.
        minutes: Estimated duration in minutes, or None.
        epochs: Number of epochs if `output` is the folder of a `Run`, or None.
        again: Whether to run the job again if its settings, or what it needs, have
            changed. Otherwise the changes are refused.
    """

    name: str
    command: Sequence[str]
    output: pathlib.Path
    needs: Sequence[str] = ()
    minutes: float | None = None
    epochs: int | None = None
    again: bool = False


class Jobs:
    """Jobs in the order in which they are run, and the record of those that were.

    `folder` gets `jobs.json`, which is complete after every change, and the outputs of
    the commands in `logs`. A job is done if the record says so and its output exists.

    Args:
        jobs: List of `Job`, each after those that it needs.
        folder: Folder of the record.
        parallel: Number of jobs to run side by side. If more than 1, TensorFlow gets
            one thread per job.
        log: Function that is called with each line of progress.

    Raises:
        ValueError: If a job needs one that is not before it, or a job that was run
            before, and whose output exists, had other settings.

    Example:

    >>> import pathlib, tempfile
    >>> from keras_vqem.training.jobs import Job, Jobs
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> job = Job("greeting", ["touch", str(folder / "hello")], folder / "hello")
    >>> Jobs([job], folder, log=lambda line: None).run()
    {'greeting': 'done'}
    >>> Jobs([job], folder).is_done("greeting")
    True
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        folder: str | os.PathLike,
        parallel: int = 1,
        log: Callable[[str], None] = print,
    ):
        self.jobs = {}
        for job in jobs:
            if missing := [need for need in job.needs if need not in self.jobs]:
                raise ValueError(
                    f"Job {job.name} needs {', '.join(missing)}, which must come "
                    f"before it in the list of jobs."
                )
            self.jobs[job.name] = job
        self.folder = pathlib.Path(folder)
        self.parallel, self.log = parallel, log
        self._path = self.folder / "jobs.json"
        self.record = read_json(self._path) if self._path.exists() else {}
        self._running, self._told = {}, None
        for name in self.jobs:
            self._check(name)

    def settings(self, name: str) -> dict[str, str]:
        """Returns the settings of a job and of all that it needs, by name and flag."""
        job = self.jobs[name]
        found = {}
        for need in job.needs:
            found |= self.settings(need)
        flag, inside = "command", f"{self.folder}{os.sep}"
        for word in map(str, job.command):
            if word.startswith("--"):
                flag, word = word, ""
            key = f"{name} {flag}"
            # The folder may have another name next time.
            found[key] = f"{found.get(key, '')} {word.replace(inside, '')}".strip()
        return found

    def _check(self, name):
        job, before = self.jobs[name], self.record.get(name)
        if before is None or job.again or not job.output.exists():
            return
        changes = self._changes(name)
        if changes:
            raise ValueError(
                f"{name} was {before['status']} with other settings in {self.folder}: "
                f"{'; '.join(changes)}. Go back to these settings, choose another "
                f"folder, or remove {job.output} to run it anew."
            )

    def _changes(self, name):
        before, now = self.record[name]["settings"], self.settings(name)
        none = "not given"
        return [
            f"{key} was {before.get(key, none)!r}, is {now.get(key, none)!r}"
            for key in {**before, **now}
            if before.get(key) != now.get(key)
        ]

    def is_done(self, name: str) -> bool:
        """Returns whether a job was run to its end with its present settings."""
        job, before = self.jobs[name], self.record.get(name)
        if before is None or not job.output.exists() or self._changes(name):
            return False
        if job.again and not all(self._is_before(need, name) for need in job.needs):
            return False
        # A file is complete, even if there was no time to record that.
        return before["status"] == "done" or job.output.is_file()

    def _is_before(self, need, name):
        ends = [self.record.get(job, {}).get("ended", 0) for job in (need, name)]
        return self.is_done(need) and ends[0] <= ends[1]

    def plan(self) -> Iterator[tuple[Job, str]]:
        """Yields all jobs, each with its state: done, or how long it may take."""
        for name, job in self.jobs.items():
            state = "done" if self.is_done(name) else "to do"
            if state == "to do" and job.minutes is not None:
                state += f", about {_clock(60 * job.minutes)} (estimate)"
            if self.record.get(name, {}).get("status") in ("started", "stopped"):
                state = state.replace("to do", "to go on")
            yield job, state

    def minutes_left(self, names: Iterable[str] | None = None) -> float | None:
        """Returns the estimated minutes of jobs to do, one after the other.

        Args:
            names: Names of the jobs to count, or None for all.

        Returns:
            The minutes, or None if those of a job are unknown.
        """
        names = self.jobs if names is None else names
        found = [self.jobs[name].minutes for name in names if not self.is_done(name)]
        return None if None in found else sum(found)

    def run(self) -> dict[str, str]:
        """Runs all jobs that are not done.

        A job that fails does not stop the others, but those that need it are left out.
        Ctrl-C and SIGTERM are passed on to the commands, which may save their state.

        Returns:
            Dict from names to `"done"`, `"failed: ..."` or `"left out: ..."`.

        Raises:
            Interrupted: If it was stopped by a signal.
            RuntimeError: If another process runs jobs in the folder.
        """
        states = {name: "done" for name in self.jobs if self.is_done(name)}
        for name in states:
            self.log(f"{name}: done already")
        with self._alone(), self._signals():
            while len(states) < len(self.jobs):
                if self._told is None:
                    self._start_next(states)
                elif not self._running:
                    break
                time.sleep(0.1)
                for name in list(self._running):
                    self._look_after(name, states)
        if self._told is not None:
            raise Interrupted(
                f"{signal.Signals(self._told).name} stopped the jobs; they have saved "
                f"what they had. The same command goes on.",
                self._told,
            )
        return {name: states[name] for name in self.jobs}

    def _start_next(self, states):
        for name, job in self.jobs.items():
            if name in states or name in self._running:
                continue
            bad = [n for n in job.needs if states.get(n, "done") != "done"]
            if bad:
                states[name] = f"left out: {', '.join(bad)} is missing"
                self.log(f"{name}: {states[name]}")
            elif len(self._running) < self.parallel and all(
                need in states for need in job.needs
            ):
                self._start(job)

    def _start(self, job):
        if job.again:
            job.output.unlink(missing_ok=True)
        log = self.folder / "logs" / f"{job.name.replace(' ', '_')}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        settings = self.settings(job.name)
        self._write(job.name, status="started", settings=settings, error=None)
        threads = {}
        if self.parallel > 1:
            threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
        with open(log, "ab") as file:
            try:
                # In a group of its own, or Ctrl-C would reach it twice, and a second
                # signal lets a run stop without saving.
                process = subprocess.Popen(
                    list(map(str, job.command)),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=os.environ | threads,
                    start_new_session=True,
                    preexec_fn=_end_with_parent if _prctl else None,
                )
            except OSError as error:
                file.write(f"{job.command[0]}: {error.strerror}\n".encode())
                process = None
        first = _epochs(job)
        self._running[job.name] = _Process(process, log, first, time.monotonic(), first)
        self.log(f"{job.name}: started, {log}")

    def _look_after(self, name, states):
        job, child = self.jobs[name], self._running[name]
        code = 127 if child.process is None else child.process.poll()
        if code is None:
            epochs = _epochs(job)
            if epochs != child.shown:
                self._running[name] = child._replace(shown=epochs)
                self.log(
                    f"{name}: epoch {epochs}/{job.epochs}, {_told(self._left(name))} "
                    f"left; {self._count(states)}"
                )
            return
        seconds = time.monotonic() - child.start
        before = self.record[name].get("seconds", 0)
        state = "done"
        if code or not job.output.exists():
            state = f"failed: {_last_line(child.log) or f'exit status {code}'}"
            if self._told is not None:
                state = "stopped"
        self._write(
            name,
            status=state.partition(":")[0],
            error=state.partition(": ")[2] or None,
            seconds=before + seconds,
            ended=time.time(),
        )
        del self._running[name]
        if state != "stopped":
            states[name] = state
        self.log(f"{name}: {state} after {_clock(seconds)}; {self._count(states)}")

    def _count(self, states):
        waiting = [n for n in self.jobs if n not in states and n not in self._running]
        left = [self._left(name) for name in self._running]
        left += [self._estimate(name) for name in waiting]
        total = None if None in left else sum(left) / self.parallel
        if len(left) == len(self._running) and left and total is not None:
            total = max(left)
        return f"{len(states)} of {len(self.jobs)} jobs, {_told(total)} left"

    def _estimate(self, name):
        """Returns the seconds of a job, by those that have ended on this machine."""
        minutes = self.jobs[name].minutes
        if minutes is None:
            return None
        ended = [
            (self.record[n]["seconds"], 60 * job.minutes)
            for n, job in self.jobs.items()
            if job.minutes and self.record.get(n, {}).get("status") == "done"
        ]
        ratio = 1.0
        if ended:
            measured, estimated = map(sum, zip(*ended, strict=True))
            ratio = measured / estimated
        return 60 * minutes * ratio

    def _left(self, name):
        job, child = self.jobs[name], self._running[name]
        past, now = time.monotonic() - child.start, child.shown
        if job.epochs and now and now > child.first:
            return past / (now - child.first) * (job.epochs - now)
        estimate = self._estimate(name)
        return None if estimate is None else max(estimate - past, 0.0)

    def _write(self, name, **values):
        self.record[name] = {**self.record.get(name, {}), **values}
        write_json(self._path, self.record)

    @contextlib.contextmanager
    def _alone(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / ".lock", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RuntimeError(
                    f"Another process runs jobs in {self.folder}. Wait for it, stop "
                    f"it, or choose another folder."
                ) from None
            yield

    @contextlib.contextmanager
    def _signals(self):
        before = {number: signal.signal(number, self._pass_on) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _pass_on(self, number, frame):
        self._told = number
        for child in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                if child.process is not None and child.process.poll() is None:
                    os.killpg(child.process.pid, signal.SIGTERM)


class _Process(NamedTuple):
    process: subprocess.Popen | None
    log: pathlib.Path
    first: int | None  # epochs when it was started
    start: float
    shown: int | None  # epochs when it was last looked after


def _end_with_parent():
    """Lets the kernel stop a command, which then saves, if this process is killed."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _epochs(job: Job) -> int | None:
    if job.epochs is None:
        return None
    lines: list[Mapping[str, Any]] = read_json_lines(job.output / "metrics.jsonl")
    return lines[-1]["epoch"] if lines else 0


def _last_line(log):
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _clock(seconds):
    return str(datetime.timedelta(seconds=round(seconds)))


def _told(seconds):
    return "?" if seconds is None else _clock(seconds)
