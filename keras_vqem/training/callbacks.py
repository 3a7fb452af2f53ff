"""Callbacks: BLEU of translations, one line of metrics per epoch, progress.

At the end of an epoch, Keras passes the same dict `logs` to one callback after
another, and to its own History last. `ValidationBLEU` and `LossInBits` change it, so
they come first:

    callbacks=[ValidationBLEU(...), StopOnDivergence(), CodebookWatch(),
               keras.callbacks.TensorBoard(...), Progress(...), MetricsLog(...),
               Checkpoints(...)]
"""

import math
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vqem.evaluation import translation_scores
from keras_vqem.text import ParallelCorpus
from keras_vqem.training.run_folder import RunFolder


class ValidationBLEU(keras.callbacks.Callback):
    """Translates a corpus at the end of an epoch and adds BLEU to the logs.

    `val_bleu` is the BLEU of `model.translate(corpus.sources)`. Long lines are cut
    before they are translated, as in exported models; the references are whole. List
    this callback before those that use the scores.

    Args:
        corpus: A `keras_vqem.text.ParallelCorpus` with sources to translate and their
            references.
        translators: Dict of other ways to translate, from the name of a metric to a
            function that takes the model, the list of sources and the list of targets
            and returns a list of translations. `"random_codes_bleu"` is logged as
            `val_random_codes_bleu`.
        every: Number of epochs from one translation to the next. There is always one
            after the last epoch.
        max_tokens: Number of tokens after which lines are cut, if the model has a
            `tokenizer`.

    Raises:
        ValueError: If the corpus is empty.

    Example:

    >>> from keras_vqem.text import ParallelCorpus
    >>> from keras_vqem.training import ValidationBLEU
    >>> corpus = ParallelCorpus.from_lists(
    ...     ["a small test is good"], ["ein kleiner Test ist gut"])
    >>> validation = ValidationBLEU(
    ...     corpus, {"bleu": lambda model, sources, targets: targets})
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> x, y = np.zeros((4, 2)), np.zeros((4, 1))
    >>> history = model.fit(x, y, verbose=0, callbacks=[validation])
    >>> [round(score) for score in history.history["val_bleu"]]
    [100]
    """

    def __init__(
        self,
        corpus: ParallelCorpus,
        translators: Mapping[str, Callable] | None = None,
        every: int = 1,
        max_tokens: int = 256,
    ):
        super().__init__()
        if every < 1:
            raise ValueError(f"`every` must be at least 1, received {every!r}.")
        if not len(corpus):
            raise ValueError(
                "There are no sentences to validate on. Prepare a val split that is "
                "not empty."
            )
        self.corpus = corpus
        self.max_tokens = max_tokens
        self.translators = {"bleu": _translate, **(translators or {})}
        self.every = every

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        tokenizer = getattr(self.model, "tokenizer", None)
        self._sources, self._targets = (
            cut_lines(lines, tokenizer, self.max_tokens)
            for lines in (self.corpus.sources, self.corpus.targets)
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        done = epoch + 1
        if done % self.every and done != self.params.get("epochs"):
            return
        for name, translate in self.translators.items():
            found = translate(self.model, self._sources, self._targets)
            logs[f"val_{name}"] = translation_scores.bleu(found, self.corpus.targets)


def _translate(model, sources, targets):
    return model.translate(sources)


def cut_lines(lines: Sequence[str], tokenizer: Any, max_tokens: int = 256) -> list[str]:
    """Cuts lines after a number of tokens, because attention needs their square.

    Args:
        lines: List of strings.
        tokenizer: Object with `encode` and `decode`, or None, with which nothing is
            cut.
        max_tokens: Number of tokens after which lines are cut, the end symbol included.

    Returns:
        A list of strings. How many were cut is printed.
    """
    lines = list(lines)
    if tokenizer is None or not lines:
        return lines
    rows = tokenizer.encode(lines)
    long = np.flatnonzero(rows.row_lengths().numpy() > max_tokens)
    for place in long:
        [text] = tokenizer.decode(rows[place][None, : max_tokens - 1]).numpy()
        lines[place] = text.decode("utf-8", "replace")
    if len(long):
        print(
            f"{len(long)} of {len(lines)} lines to validate on cut to {max_tokens} "
            f"tokens",
            flush=True,
        )
    return lines


class LossInBits(keras.callbacks.Callback):
    """Logs the loss of an image model in bits, the unit of its other metrics.

    The model still learns in nats, so gradients do not change. List this callback
    before those that use the logs. See `loss_in_bits`.
    """

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        logs.update(loss_in_bits(logs))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs.update(loss_in_bits(logs))


def loss_in_bits(logs: Mapping[str, float]) -> dict[str, float]:
    """Converts `loss` and `bottleneck_loss` from nats to bits.

    Args:
        logs: Dict from names of metrics, with or without `val_` before them, to
            numbers.

    Returns:
        A new dict with the same names.

    Example:

    >>> from keras_vqem.training import loss_in_bits
    >>> loss_in_bits({"loss": math.log(2), "bits_per_symbol": 1.0})
    {'loss': 1.0, 'bits_per_symbol': 1.0}
    """
    nats = ("loss", "bottleneck_loss")
    return {
        name: value / math.log(2) if name.removeprefix("val_") in nats else value
        for name, value in logs.items()
    }


class MetricsLog(keras.callbacks.Callback):
    """Writes one line per epoch to the `metrics.jsonl` of a run.

    The line has `epoch`, counted from 1, all logs, `epoch_seconds`, the time from the
    start of the epoch to its end with validation, and `training_seconds`, its sum over
    all epochs of the run, also those before a resume.

    Args:
        run_folder: A `keras_vqem.training.RunFolder` that was started.
        seconds: Time that was spent in the first epoch before a resume.
    """

    def __init__(self, run_folder: RunFolder, seconds: float = 0.0):
        super().__init__()
        self.run_folder = run_folder
        self.seconds = seconds

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        lines = self.run_folder.metrics()
        self._training_seconds = lines[-1]["training_seconds"] if lines else 0.0
        self._before = self.seconds

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._begin = time.monotonic() - self._before
        self._before = 0.0

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
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
    """Prints the progress of training, for use with `fit(verbose=0)`.

    At the end of each epoch it prints one line with the metrics. Within an epoch it
    updates one line on a terminal; elsewhere, such as in a file or pipe, it prints a
    line every `interval` seconds. Estimates of the remaining time leave out steps in
    which XLA compiles.

    Args:
        epochs: Number of epochs that `fit` was called with.
        steps_per_epoch: Number of steps per epoch. None takes the number that Keras
            knows, or else that of the previous epoch.
        log: Function that is also called with the line of each epoch, such as
            `RunFolder.log`, or None.
        interval: Seconds between lines if the output is not a terminal.
        compiling: Steps of the first epoch in which XLA compiles, which are announced;
            see `first_of_each_shape`. None leaves the first step out of estimates and
            announces nothing.
    """

    def __init__(
        self,
        epochs: int,
        steps_per_epoch: int | None = None,
        log: Callable[[str], object] | None = None,
        interval: float = 30.0,
        compiling: Collection[int] | None = None,
    ):
        super().__init__()
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.log = log
        self.interval = interval
        self.compiling = compiling

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._steps = self.steps_per_epoch or self.params.get("steps")
        self._compiling = {0} if self.compiling is None else set(self.compiling)
        self._shapes = 0
        self._epoch_seconds = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        self._step = 0
        self._first = None  # Not 0 in an epoch that was resumed.
        self._begin = self._shown = self._last = time.monotonic()
        self._compiled = []  # Seconds of each step that compiled.
        self._timed = []  # Seconds of the other steps, except an epoch's first.

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self.compiling is not None and batch in self._compiling:
            self._shapes += 1
            line = f"compiling shape {self._shapes} of {len(self.compiling)}"
            self._print(f"epoch {self._epoch + 1}/{self.epochs}  {line}", _terminal())

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._step = batch + 1
        self._first = batch if self._first is None else self._first
        now = time.monotonic()
        if batch in self._compiling:
            self._compiled.append(now - self._last)
        elif batch != self._first:
            self._timed.append(now - self._last)
        self._last = now
        if now - self._shown < (0.2 if _terminal() else self.interval):
            return
        self._shown = now
        self._print(self._line(logs or {}), _terminal())

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        seconds = time.monotonic() - self._begin
        # In the next epoch, steps that compiled will take as long as the others.
        self._epoch_seconds = seconds
        if self._timed:
            saved = sum(self._compiled) - len(self._compiled) * self._per_step()
            self._epoch_seconds += self._first * self._per_step() - max(saved, 0.0)
        self._steps = self._steps or self._step
        self._compiling = set()
        left = (self.epochs - epoch - 1) * self._epoch_seconds
        line = (
            f"epoch {epoch + 1}/{self.epochs}  {_metrics(logs or {})}  "
            f"{_duration(seconds)}"
        )
        if self.log is not None:
            self.log(line)
        self._print(f"{line}, {_duration(left)} left")

    def _per_step(self):
        return sum(self._timed) / len(self._timed)

    def _line(self, logs):
        parts = [f"epoch {self._epoch + 1}/{self.epochs}"]
        if self._steps:
            filled = round(20 * min(1.0, self._step / self._steps))
            parts.append(f"[{'=' * filled}{' ' * (20 - filled)}]")
            parts.append(f"{self._step}/{self._steps}")
        else:
            parts.append(f"step {self._step}")
        if "loss" in logs:
            parts.append(f"loss {logs['loss']:.4f}")
        if self._steps and self._timed:
            per_step = self._per_step()
            epoch_left = max(0, self._steps - self._step) * per_step
            an_epoch = self._epoch_seconds or self._steps * per_step
            run_left = epoch_left + (self.epochs - self._epoch - 1) * an_epoch
            parts.append(
                f"epoch {_duration(epoch_left)} left, run {_duration(run_left)} left"
            )
        return "  ".join(parts)

    def _print(self, line, in_place=False):
        if in_place:
            # A line that wraps could not be updated.
            line = line[: shutil.get_terminal_size().columns - 1]
        # The escape sequence erases the line before.
        start = "\r\x1b[K" if _terminal() else ""
        print(f"{start}{line}", end="" if in_place else "\n", flush=True)


def _terminal():
    return sys.stdout.isatty()


def _metrics(logs):
    shown = {
        # Vectors that are not finite are news only if there are any.
        name: value
        for name, value in logs.items()
        if value or not name.endswith("nonfinite")
    }
    return "  ".join(f"{name} {value:.4g}" for name, value in shown.items())


def _duration(seconds):
    """Formats seconds: 42s, 3m05s, 2h07m."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
