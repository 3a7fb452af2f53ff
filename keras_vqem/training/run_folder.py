"""RunFolder: what a training run writes down, and how it is taken up again."""

import datetime
import json
import pathlib
import platform

import keras
import tensorflow as tf

import keras_vqem
from keras_vqem.files import read_json_lines, replacing, write_json


class RunFolder:
    """The folder of one training run.

    - `config.json`: the arguments of the run, and the versions it ran with;
    - `log.txt`: lines to read;
    - `metrics.jsonl`: one JSON object per epoch, `epoch` counting from 1;
    - `checkpoints/`: see `keras_vqem.training.Checkpoints`.

    Args:
        path: The folder. It is created by `start`.

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

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.config_path = self.path / "config.json"
        self.log_path = self.path / "log.txt"
        self.metrics_path = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"

    def start(self, arguments, resume=False, may_differ=()):
        """Begin a run here, or go on with the one that is here.

        Args:
            arguments: Dict of the run's arguments, for `config.json`. What JSON does
                not know (a path, say) is stored as its `str`.
            resume: Whether to go on with an existing run. Where there is none, one
                begins: the same command starts a run and takes it up again.
            may_differ: Names of arguments that may change from start to start, such
                as `"epochs"`.

        Returns:
            Whether a run was here before.

        Raises:
            FileExistsError: If a run is here and `resume` is False.
            ValueError: If the run here has other arguments.
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
                    f"{self.path} holds a run already. Use --resume (resume=True) to "
                    f"go on with it, or choose another folder."
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

    def take_back(self):
        """Undo a start that led to nothing, so that another can begin here.

        A run that has metrics or checkpoints stays as it is.
        """
        if not self.metrics() and not any(self.checkpoints.iterdir()):
            self.config_path.unlink()

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

    def remember(self, name, value, remedy):
        """Keep a fact about the run; when it is resumed, check that it still holds.

        Args:
            name: Of the fact.
            value: What JSON can hold.
            remedy: What to do where the run was started with another value.

        Raises:
            ValueError: If the run has another value.
        """
        config = self.config()
        before = config["facts"].setdefault(name, value)
        if before != value:
            raise ValueError(
                f"{self.path} was started with another {name} ({before}, now {value}). "
                f"{remedy}"
            )
        write_json(self.config_path, config)

    def config(self):
        """The content of `config.json`: dicts `arguments`, `versions` and `facts`."""
        return json.loads(self.config_path.read_text())

    def log(self, line):
        """Append a line to `log.txt`, with date and time before it."""
        now = datetime.datetime.now().isoformat(sep=" ", timespec="seconds")
        with open(self.log_path, "a", encoding="utf-8") as file:
            file.write(f"{now} {line}\n")

    def add_metrics(self, metrics):
        """Append the dict `metrics`, which must have `epoch`, to `metrics.jsonl`."""
        with open(self.metrics_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(metrics) + "\n")

    def metrics(self):
        """The dicts in `metrics.jsonl`, without a last line that was cut off."""
        return read_json_lines(self.metrics_path)

    def rewind(self, epoch):
        """Forget the metrics of epochs after `epoch`, whose checkpoint was restored.

        Args:
            epoch: The number of complete epochs.
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
    # An argument that is not given is None, as it was before there was such a one.
    return [key for key in {**before, **now} if before.get(key) != now.get(key)]


def _shown(arguments, key):
    return repr(arguments[key]) if key in arguments else "no such argument"
