"""Benchmarks of libraries: each contestant in its own process, timed in turns.

All contestants get the same data and the same number of threads. They take turns,
round after round, and only one computes at a time, so that a slow minute of the
machine affects all of them. `benchmark_worker.py` runs in the processes.
"""

import contextlib
import datetime
import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

SECONDS_TO_ANSWER = 900.0
WORKER = pathlib.Path(__file__).with_name("benchmark_worker.py")
# Seconds for the threads of the previous contestant to go idle.
PAUSE = 0.05


class Entry(NamedTuple):
    """A row of the benchmark.

    Attributes:
        label: Name of the row, as printed.
        contestant: Name of the contestant in its file.
        options: Dict of options of the contestant.
        peer: Whether it needs the interpreter of the peers.
        process: Name of the process. Entries with the same name share one, which
            holds the contestant of one entry at a time; what is costly to make, the
            file of the contestants has to keep. None for a process of its own.
    """

    label: str
    contestant: str
    options: dict = {}
    peer: bool = False
    process: str | None = None


class WorkerFailed(Exception):
    """Raised if a contestant cannot take part; its row shows the message."""


class Worker:
    """The process of one contestant.

    Any failure to answer ends the process and raises `WorkerFailed`.

    Args:
        python: Interpreter that has the contestant's library.
        contestants: File of the contestants, see `benchmark_worker.py`.
        folder: Folder of the data.
        threads: Number of threads the contestant may use.
        timeout: Seconds to wait for an answer.
    """

    def __init__(
        self,
        python: str,
        contestants: str | os.PathLike,
        folder: str | os.PathLike,
        threads: int,
        timeout: float = SECONDS_TO_ANSWER,
    ):
        self.timeout = timeout
        self.answers = queue.Queue()
        self.errors = tempfile.TemporaryFile("w+", dir=folder, errors="replace")
        # With -P, Python does not import from the folder of the worker.
        command = [python, "-P", WORKER, contestants, folder, threads]
        environment = os.environ | {
            "CUDA_VISIBLE_DEVICES": "-1",
            "KERAS_BACKEND": "tensorflow",
            "OMP_NUM_THREADS": str(threads),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        try:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                text=True,
                env=environment,
            )
        except OSError as error:
            self.errors.close()
            raise WorkerFailed(f"not installed: {python}: {error.strerror}") from error
        # Pipes cannot be read with a time limit on every system; queues can.
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def send(self, **request: Any) -> None:
        """Sends a request without waiting for the answer."""
        # If the worker has ended, `receive` raises.
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()

    def receive(self) -> dict:
        """Waits for the answer to a request."""
        try:
            line = self.answers.get(timeout=self.timeout)
        except queue.Empty:
            self.close(patience=0)
            raise WorkerFailed(f"failed: no answer in {self.timeout:g} s") from None
        if line is None:
            code = self.process.wait()
            self.errors.seek(0)
            said = [text for text in self.errors.read().splitlines() if text.strip()]
            self.close()
            last = said[-1].strip() if said else "no message"
            raise WorkerFailed(f"failed: exit code {code}: {last}")
        try:
            answer = json.loads(line)
        except ValueError:
            self.close(patience=0)
            raise WorkerFailed(f"failed: answered {line.strip()!r}") from None
        if "error" in answer:
            self.close()
            kind = "not installed" if answer["missing"] else "failed"
            raise WorkerFailed(f"{kind}: {answer['error']}")
        return answer

    def ask(self, **request: Any) -> dict:
        """Sends a request and waits for its answer."""
        self.send(**request)
        return self.receive()

    def close(self, patience: float = 5.0) -> None:
        """Ends the process, by force after `patience` seconds."""
        # A working process ends at the end of its input.
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


class Progress:
    """Prints the current stage and the remaining time to stderr.

    Args:
        total: Number of calls of `show` to come.
    """

    def __init__(self, total: int):
        self.total, self.done, self.start = total, 0, time.monotonic()
        self.live, self.last = sys.stderr.isatty(), -60.0

    def show(self, text: str) -> None:
        """Prints the stage that starts now."""
        now = time.monotonic()
        eta = "?"
        if self.done:
            left = (now - self.start) / self.done * (self.total - self.done)
            eta = str(datetime.timedelta(seconds=round(left)))
        line = f"[{self.done:>4}/{self.total}] {text}  ETA {eta}"
        if self.live:
            print(f"\r{line:<78}"[:79], end="", file=sys.stderr, flush=True)
        elif now - self.last > 10 or self.done == self.total:
            print(line, file=sys.stderr, flush=True)
            self.last = now
        self.done += 1

    def close(self) -> None:
        """Clears the line on a terminal."""
        if self.live:
            print("\r" + " " * 78 + "\r", end="", file=sys.stderr, flush=True)


class Contest:
    """Contestants, in processes of their own unless they share one, and their results.

    As a context manager it ends the processes. `results` is a dict from names of
    entries to dicts with `label`, the answers of the contestant, and, if it failed,
    `status` with the reason.

    Args:
        contestants: File of the contestants, see `benchmark_worker.py`.
        folder: Folder of the data.
        threads: Number of threads per contestant.
        peers: Interpreter of the entries with `peer=True`, or None to leave them out.
    """

    def __init__(
        self,
        contestants: str | os.PathLike,
        folder: str | os.PathLike,
        threads: int,
        peers: str | None = None,
    ):
        self.contestants, self.folder = contestants, folder
        self.threads, self.peers = threads, peers
        self.workers, self.results, self.specs = {}, {}, {}
        self.current = {}  # from workers to the entries that they hold
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._stack.close()

    def build(self, entries: Mapping[str, Entry], **sizes: int) -> None:
        """Builds entries, reusing their processes, and drops earlier results.

        Args:
            entries: Dict from names to `Entry`.
            **sizes: Arguments of the contestants' `load_data`.
        """
        self.results = {name: {"label": entry.label} for name, entry in entries.items()}
        for name, entry in entries.items():
            python = self.peers if entry.peer else sys.executable
            try:
                if python is None:
                    raise WorkerFailed("left out: no --peers interpreter")
                if name not in self.workers:
                    self.workers[name] = self._worker(python, entry, entries)
                spec = {"contestant": entry.contestant, "options": entry.options}
                self.specs[name] = spec | {"sizes": sizes}
                self.workers[name].send(build=self.specs[name])
                self.current[self.workers[name]] = name
            except WorkerFailed as error:
                self.results[name]["status"] = str(error)
        for name in [name for name in entries if name in self.workers]:
            self.ask(name)

    def _worker(self, python, entry, entries):
        """Returns the process of an entry, which another one may have started."""
        if entry.process is not None:
            for name, worker in self.workers.items():
                if name in entries and entries[name].process == entry.process:
                    return worker
        worker = Worker(python, self.contestants, self.folder, self.threads)
        self._stack.callback(worker.close)
        return worker

    def ask(self, name: str, **request: Any) -> None:
        """Sends a request, if one is given, and merges the answer into the results."""
        if name not in self.workers:  # It shared a process that has failed.
            return
        result, worker = self.results[name], self.workers[name]
        try:
            if request:
                if self.current[worker] != name:
                    worker.ask(build=self.specs[name])
                    self.current[worker] = name
                worker.send(**request)
            answer = worker.receive()
        except WorkerFailed as error:
            for other in [n for n, found in self.workers.items() if found is worker]:
                self.results[other].setdefault("status", str(error))
                del self.workers[other]
            return
        if "seconds" in answer:
            answer["seconds"] = result.get("seconds", []) + answer["seconds"]
        result |= answer

    def race(
        self,
        rounds: int,
        steps: int,
        warmup: int,
        progress: Progress,
        title: str = "",
        untimed: int = 1,
    ) -> None:
        """Times all contestants in turns, and stores `seconds` in the results.

        Args:
            rounds: Number of turns per contestant.
            steps: Number of timed steps per turn.
            warmup: Number of steps before the first round, not timed. 0 leaves it out.
            progress: Progress to show, once per contestant for each round and for the
                warm-up.
            title: Text before the names of the rounds.
            untimed: Number of steps at the start of each turn that are not timed.
        """
        for number in range(0 if warmup else 1, rounds + 1):
            stage = f"{title}round {number}/{rounds}" if number else f"{title}warm-up"
            timed = {"run": {"steps": steps, "untimed": untimed}}
            request = timed if number else {"warm": warmup}
            for name in list(self.workers):
                progress.show(f"{stage}: {name}")
                time.sleep(PAUSE)
                self.ask(name, **request)
