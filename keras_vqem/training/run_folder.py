"""RunFolder: the files of a training run, and how a run is resumed."""

import contextlib
import datetime
import fcntl
import json
import math
import os
import pathlib
import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

import keras_vqem
from keras_vqem.files import read_json_lines, replacing, write_json


class RunFolder:
    """Folder of one training run.

    - `config.json`: arguments of the run, and versions of the packages.
    - `log.txt`: log, with date and time of each line.
    - `metrics.jsonl`: one JSON object per epoch, with `epoch` counted from 1.
    - `checkpoints`: folder of `keras_vqem.training.Checkpoints`.

    Args:
        path: Folder of the run, created by `start`.

    Example:

    >>> import tempfile
    >>> from keras_vqem.training import RunFolder
    >>> run = RunFolder(tempfile.mkdtemp())
    >>> run.start({"hidden_dim": 8, "epochs": 1})
    False
    >>> run.add_metrics({"epoch": 1, "loss": 0.5})
    >>> again = RunFolder(run.path)
    >>> again.start({"hidden_dim": 8, "epochs": 2}, resume=True, may_differ=["epochs"])
    True
    >>> again.metrics()
    [{'epoch': 1, 'loss': 0.5}]
    """

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        self.config_path = self.path / "config.json"
        self.log_path = self.path / "log.txt"
        self.metrics_path = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"

    def start(
        self,
        arguments: Mapping[str, Any],
        resume: bool = False,
        may_differ: Iterable[str] = (),
    ) -> bool:
        """Starts a run in the folder, or resumes the one that is there.

        Args:
            arguments: Dict of the run's arguments, written to `config.json`. Values
                that JSON cannot hold, such as paths, are stored as strings.
            resume: Whether to resume an existing run. If there is none, a new run
                starts, so the same command starts and resumes a run.
            may_differ: Names of arguments that may change when a run is resumed, such
                as `"epochs"`.

        Returns:
            Whether a run was resumed.

        Raises:
            FileExistsError: If the folder has a run and `resume` is False.
            ValueError: If the run in the folder has other arguments.
        """
        config = {
            "arguments": json.loads(json.dumps(dict(arguments), default=str)),
            "versions": _versions(),
        }
        facts, notes = {}, []
        exists = self.config_path.exists()
        if exists:
            if not resume:
                raise FileExistsError(
                    f"{self.path} already holds a run. Use --resume (resume=True) to "
                    f"continue it, or choose another folder."
                )
            before = self.config()
            self._check_arguments(
                before["arguments"], config["arguments"], set(may_differ)
            )
            notes = [
                f"{key} is {config[part].get(key)!r} now, was {before[part].get(key)!r}"
                for part in config
                for key in _differing(before[part], config[part])
            ]
            facts = before.get("facts", {})
            self._keep_metrics(self.metrics())
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(self.config_path, {**config, "facts": facts})
        self.log(f"{'resumed' if exists else 'started'}: {config['arguments']}")
        for note in notes:
            self.log(note)
        return exists

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Context manager that keeps other processes out of the folder.

        The kernel frees the folder when the process ends, even if it is killed. Files
        that a killed process left half-written are removed.

        Raises:
            RuntimeError: If another process has the folder.
        """
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise RuntimeError(
                    f"Another process ({file.read().strip() or 'unknown'}) is running "
                    f"in {self.path}. Wait for it to end, stop it, or choose another "
                    f"folder."
                ) from None
            except OSError as error:
                # Some network file systems have no locks; the run can do without.
                print(f"{self.path} is not locked ({error})", flush=True)
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}")
            file.flush()
            for folder in (self.path, self.checkpoints):
                for left in folder.glob(".*.partial*"):
                    left.unlink()
            yield

    def take_back(self) -> None:
        """Frees the folder for another run, unless it has metrics or checkpoints."""
        if not self.metrics() and not any(self.checkpoints.iterdir()):
            self.config_path.unlink(missing_ok=True)

    def _check_arguments(self, before, now, may_differ):
        differing = [key for key in _differing(before, now) if key not in may_differ]
        if differing:
            lines = [
                f"  {key}: the run has {_shown(before, key)}, received "
                f"{_shown(now, key)}"
                for key in differing
            ]
            raise ValueError(
                f"{self.path} holds a run with other arguments:\n"
                + "\n".join(lines)
                + "\nResume with the arguments of the run, or choose another folder."
            )

    def remember(self, name: str, value: Any, remedy: str) -> None:
        """Records a fact about the run, or checks it when the run is resumed.

        Args:
            name: Name of the fact.
            value: Value that JSON can hold.
            remedy: Sentence for the error message if the values differ.

        Raises:
            ValueError: If the run was started with another value.
        """
        before = self.exchange(name, value, keep=True)
        if before != value:
            raise ValueError(
                f"{self.path} was started with another {name} ({before}, now {value}). "
                f"{remedy}"
            )

    def exchange(self, name: str, value: Any, keep: bool = False) -> Any:
        """Records a fact about the run that may change.

        Args:
            name: Name of the fact.
            value: Value that JSON can hold.
            keep: Whether a value that is there already stays.

        Returns:
            The value before, or `value` if there was none.
        """
        config = self.config()
        before = config["facts"].get(name, value)
        config["facts"][name] = before if keep else value
        write_json(self.config_path, config)
        return before

    def config(self) -> dict[str, dict[str, Any]]:
        """Returns the dicts `arguments`, `versions` and `facts` of `config.json`.

        Raises:
            ValueError: If the file is damaged.
        """
        try:
            config = json.loads(self.config_path.read_text(encoding="utf-8"))
            return {**config, "arguments": dict(config["arguments"])}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.config_path} is damaged ({error}). Restore it, or choose "
                f"another folder."
            ) from error

    def log(self, line: str) -> None:
        """Appends a line to `log.txt`, with date and time before it."""
        now = datetime.datetime.now().isoformat(sep=" ", timespec="seconds")
        with open(self.log_path, "a", encoding="utf-8") as file:
            file.write(f"{now} {line}\n")

    def add_metrics(self, metrics: Mapping[str, float]) -> None:
        """Appends the dict `metrics`, which must have `epoch`, to `metrics.jsonl`."""
        with open(self.metrics_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(metrics) + "\n")

    def metrics(self) -> list[dict[str, float]]:
        """Returns the dicts in `metrics.jsonl`, without an incomplete last line."""
        return read_json_lines(self.metrics_path)

    def best_epoch(self, metric: str) -> int | None:
        """Returns the epoch with the best value of a metric, the first of equal ones.

        Args:
            metric: Name of the metric. Higher is better if it ends in `bleu`,
                `accuracy`, `perplexity` or `usage`, lower is better else.

        Returns:
            Number of the epoch, counted from 1, or None before it was measured.

        Raises:
            ValueError: If epochs were validated, but none has the metric.
        """
        higher = metric.endswith(("bleu", "accuracy", "perplexity", "usage"))
        lines = self.metrics()
        found = [line for line in lines if math.isfinite(line.get(metric, math.nan))]
        names = {name for line in lines for name in line}
        if not found and any(name.startswith("val_") for name in names):
            raise ValueError(
                f"There is no metric {metric!r} to keep the best epoch by. Choose one "
                f"of {', '.join(sorted(names - {'epoch'}))}, and resume the run."
            )
        best = (max if higher else min)(
            found, key=lambda line: line[metric], default=None
        )
        return best and best["epoch"]

    def rewind(self, epoch: int) -> None:
        """Removes the metrics of epochs after a restored checkpoint.

        Args:
            epoch: Number of complete epochs of the checkpoint.
        """
        self._keep_metrics(line for line in self.metrics() if line["epoch"] <= epoch)

    def _keep_metrics(self, metrics):
        text = "".join(json.dumps(line) + "\n" for line in metrics)
        with replacing(self.metrics_path) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _versions():
    return {
        "python": platform.python_version(),
        "keras": keras.version(),
        "tensorflow": tf.__version__,
        "keras_vqem": keras_vqem.__version__,
    }


def _differing(before, now):
    # A missing argument counts as None, so runs of older versions can be resumed.
    return [key for key in {**before, **now} if before.get(key) != now.get(key)]


def _shown(arguments, key):
    return repr(arguments[key]) if key in arguments else "no such argument"
