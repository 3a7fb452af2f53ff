"""What benchmark_bottleneck.py runs on: its contestants' processes, the machine."""

import contextlib
import datetime
import json
import os
import pathlib
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time

SECONDS_TO_ANSWER = 900.0
WORKER = pathlib.Path(__file__).with_name("bottleneck_worker.py")


class WorkerFailed(Exception):
    """A contestant cannot take part; the message is what its row says."""


class Worker:
    """A contestant's process. Any failure to answer ends it and raises WorkerFailed."""

    def __init__(self, python, folder, threads, timeout=SECONDS_TO_ANSWER):
        self.timeout = timeout
        self.answers = queue.Queue()
        self.errors = tempfile.TemporaryFile("w+", dir=folder, errors="replace")
        command = [python, WORKER, "--folder", folder, "--threads", str(threads)]
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

    def send(self, **request):
        # A worker that has died shows when its answer is awaited.
        with contextlib.suppress(OSError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()

    def receive(self):
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
            last = said[-1].strip() if said else "without a word"
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

    def ask(self, **request):
        self.send(**request)
        return self.receive()

    def close(self, patience=5.0):
        # The end of its input ends a worker that is well.
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


class Progress:
    """Lines on stderr: what is being done, and when it will be over."""

    def __init__(self, total):
        self.total, self.done, self.start = total, 0, time.monotonic()
        self.live, self.last = sys.stderr.isatty(), -60.0

    def show(self, text):
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

    def close(self):
        if self.live:
            print("\r" + " " * 78 + "\r", end="", file=sys.stderr, flush=True)


class OtherProcesses:
    """How much of the machine went to processes that are not ours, since it began."""

    def __init__(self):
        self.start = self._now()

    @staticmethod
    def _now():
        """Seconds: on the clock, of all processors at work, of our ended processes."""
        try:
            line = pathlib.Path("/proc/stat").read_text().split("\n")[0]
        except OSError:
            return None
        ticks = [int(x) for x in line.split()[1:9]]
        idle = ticks[3] + ticks[4]
        busy = (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy, sum(os.times()[:4])

    def share(self):
        """From 0 to 1; None where the system does not tell."""
        if self.start is None:
            return None
        clock, busy, ours = (
            b - a for a, b in zip(self.start, self._now(), strict=True)
        )
        return max(0.0, (busy - ours) / (clock * os.cpu_count()))


def describe_machine():
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(x.split(":")[1].strip() for x in lines if x.startswith("model name"))
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.platform()}


def usable_cores():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
