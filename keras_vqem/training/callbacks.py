"""Callbacks: BLEU of translations, one line of metrics an epoch, progress to watch.

Keras hands one dict `logs` from callback to callback at the end of an epoch, and to
its own History last. `ValidationBLEU` adds to it, so it goes first:

    callbacks=[ValidationBLEU(...), keras.callbacks.TensorBoard(...), Progress(...),
               MetricsLog(...), Checkpoints(...)]
"""

import shutil
import sys
import time

import keras

from keras_vqem.evaluation import translation_scores


class ValidationBLEU(keras.callbacks.Callback):
    """Translates at the end of an epoch and adds BLEU to the logs.

    List it before the callbacks that are to see the scores.

    Args:
        references: The true translations, a list of str.
        translators: Dict from a metric's name to a function that takes the model and
            returns as many translations. `"bleu"` is logged as `val_bleu`.
        every: Translate after each `every`-th epoch; after the last one in any case.

    Example:

    >>> from keras_vqem.training import ValidationBLEU
    >>> references = ["ein kleiner Test ist gut", "zwei kleine Tests sind besser"]
    >>> bleu = ValidationBLEU(references, {"bleu": lambda model: references})
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> x, y = np.zeros((4, 2)), np.zeros((4, 1))
    >>> history = model.fit(x, y, verbose=0, callbacks=[bleu])
    >>> [round(score) for score in history.history["val_bleu"]]
    [100]
    """

    def __init__(self, references, translators, every=1):
        super().__init__()
        if not translators:
            raise ValueError(
                "`translators` is empty. Give a function from the model to a list of "
                'str, for example {"bleu": lambda model: model.translate(sources)}.'
            )
        if every < 1:
            raise ValueError(f"`every` must be at least 1, received {every!r}.")
        self.references = list(references)
        self.translators = dict(translators)
        self.every = every

    def on_epoch_end(self, epoch, logs=None):
        done = epoch + 1
        if done % self.every and done != self.params.get("epochs"):
            return
        for name, translate in self.translators.items():
            translations = translate(self.model)
            logs[f"val_{name}"] = translation_scores.bleu(translations, self.references)


class MetricsLog(keras.callbacks.Callback):
    """Writes one line an epoch to a run's `metrics.jsonl`.

    The line holds `epoch` (from 1), all logs, `epoch_seconds` and `training_seconds`,
    the sum over all epochs of the run, those before a resume included. Both count
    what happens from the start of an epoch to its end, validation too.

    Args:
        run_folder: A `keras_vqem.training.RunFolder`, started.
    """

    def __init__(self, run_folder):
        super().__init__()
        self.run_folder = run_folder

    def on_train_begin(self, logs=None):
        lines = self.run_folder.metrics()
        self._training_seconds = lines[-1]["training_seconds"] if lines else 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.monotonic() - self._begin
        self._training_seconds += seconds
        self.run_folder.add_metrics(
            {
                "epoch": epoch + 1,
                **{name: float(value) for name, value in (logs or {}).items()},
                "epoch_seconds": round(seconds, 3),
                "training_seconds": round(self._training_seconds, 3),
            }
        )


class Progress(keras.callbacks.Callback):
    """Shows how far training is; to be used with `fit(verbose=0)`.

    Each epoch ends in one line with its metrics. Within an epoch, a terminal shows a
    line that is drawn anew in its place; elsewhere (a file, a pipe) a line is printed
    each `interval` seconds.

    Args:
        epochs: The `epochs` given to `fit`.
        steps_per_epoch: Steps in an epoch. If None, what Keras knows, else as many as
            the epoch before had.
        log: Function that takes each epoch's line as well, such as `RunFolder.log`.
        interval: Seconds between lines where there is no terminal.
    """

    def __init__(self, epochs, steps_per_epoch=None, log=None, interval=30.0):
        super().__init__()
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.log = log
        self.interval = interval

    def on_train_begin(self, logs=None):
        self._steps = self.steps_per_epoch or self.params.get("steps")
        self._epoch_seconds = None

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch
        self._step = 0
        self._begin = self._shown = time.monotonic()
        self._timed_from = None

    def on_train_batch_end(self, batch, logs=None):
        self._step = batch + 1
        now = time.monotonic()
        if self._timed_from is None:
            # The first step may compile: it says nothing about the others.
            self._timed_from = self._step, now
        in_place = sys.stdout.isatty()
        if now - self._shown < (0.2 if in_place else self.interval):
            return
        self._shown = now
        self._print(self._line(now, logs or {}), in_place)

    def on_epoch_end(self, epoch, logs=None):
        now = time.monotonic()
        # Compiling and all, the last epoch is what we know about the next.
        self._epoch_seconds = now - self._begin
        self._steps = self._steps or self._step
        left = (self.epochs - epoch - 1) * self._epoch_seconds
        line = (
            f"epoch {epoch + 1}/{self.epochs}  {_metrics(logs or {})}  "
            f"{_duration(self._epoch_seconds)}"
        )
        if self.log is not None:
            self.log(line)
        self._print(f"{line}, {_duration(left)} left")

    def _line(self, now, logs):
        parts = [f"epoch {self._epoch + 1}/{self.epochs}"]
        if self._steps:
            filled = round(20 * min(1.0, self._step / self._steps))
            parts.append(f"[{'=' * filled}{' ' * (20 - filled)}]")
            parts.append(f"{self._step}/{self._steps}")
        else:
            parts.append(f"step {self._step}")
        if "loss" in logs:
            parts.append(f"loss {logs['loss']:.4f}")
        first_step, first_time = self._timed_from
        if self._steps and self._step > first_step:
            per_step = (now - first_time) / (self._step - first_step)
            epoch_left = max(0, self._steps - self._step) * per_step
            an_epoch = self._epoch_seconds or self._steps * per_step
            run_left = epoch_left + (self.epochs - self._epoch - 1) * an_epoch
            parts.append(
                f"epoch {_duration(epoch_left)} left, run {_duration(run_left)} left"
            )
        return "  ".join(parts)

    def _print(self, line, in_place=False):
        if in_place:
            # A line that wraps could not be drawn anew.
            line = line[: shutil.get_terminal_size().columns - 1]
        # The escape erases what a longer line before left behind.
        start = "\r\x1b[K" if sys.stdout.isatty() else ""
        print(f"{start}{line}", end="" if in_place else "\n", flush=True)


def _metrics(logs):
    return "  ".join(f"{name} {value:.4g}" for name, value in logs.items())


def _duration(seconds):
    """Seconds for people: 42s, 3m05s, 2h07m."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
