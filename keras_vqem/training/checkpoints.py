"""Checkpoints: the states of a run on disk, which to keep and which to resume from."""

import os
import pathlib
import re
import time
import warnings
from collections.abc import Callable
from typing import Any

import keras

from keras_vqem.training.run_folder import RunFolder
from keras_vqem.training.training_state import (
    Position,
    load_state,
    problem_of,
    save_state,
)

# Number of states within an epoch that are kept: if one is damaged, there is another.
_KEEP_WITHIN = 2


class Checkpoints(keras.callbacks.Callback):
    """Saves the state of training at the end of each epoch, and within epochs.

    `epoch-0012.npz` is the state after 12 complete epochs. It is written after the last
    batch and before validation, which may fail or be killed without costing the epoch.
    `epoch-0012-batch-00000345.npz` is the state after 345 batches more. The two newest
    of these are kept until their epoch is complete.

    List this callback after those that may stop training and before those that save by
    it. `params["steps"]`, the number of batches per epoch, must be known to `fit` for
    the state to be written before validation.

    Args:
        folder: Folder to write to, created if missing.
        keep: Number of complete epochs whose checkpoints are kept. Older ones are
            removed once the new epoch has been validated.
        every_steps: Number of steps from one checkpoint within an epoch to the next.
            None writes none by steps.
        every_minutes: Number of minutes from one checkpoint to the next. None writes
            none by time.
        keep_also: Function that returns the number of an epoch whose checkpoint is kept
            too, or None.
        first: The `Position` at which training begins.

    Example:

    >>> import tempfile
    >>> from keras_vqem.training import Checkpoints, latest, load_state
    >>> folder = tempfile.mkdtemp()
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> x, y = np.zeros((4, 2)), np.zeros((4, 1))
    >>> history = model.fit(
    ...     x, y, epochs=3, verbose=0, callbacks=[Checkpoints(folder, keep=2)]
    ... )
    >>> latest(folder).name
    'epoch-0003.npz'
    >>> load_state(model, latest(folder)).epoch
    3
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        keep: int = 10,
        every_steps: int | None = None,
        every_minutes: float | None = None,
        keep_also: Callable[[], int | None] = lambda: None,
        first: Position | None = None,
    ):
        super().__init__()
        for name, value in (("keep", keep), ("every_steps", every_steps)):
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, received {value!r}.")
        if every_minutes is not None and not every_minutes > 0:
            raise ValueError(
                f"`every_minutes` must be above 0, received {every_minutes!r}."
            )
        self.folder = pathlib.Path(folder)
        self.keep = keep
        self.every_steps = every_steps
        self.every_minutes = every_minutes
        self.keep_also = keep_also
        self.first = first or Position()
        self._epoch, self._batch = self.first.epoch, self.first.batch

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._seconds = self.first.seconds
        self._written(self.first.batch)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        # An epoch that was resumed has batches behind it.
        self._batch = self.first.batch if epoch == self.first.epoch else 0
        self._last_batch = self._batch
        self._begin = time.monotonic() - self._seconds
        self._seconds = 0.0

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._batch = batch + 1
        if self._batch == self.params.get("steps") or self._due():
            self.save()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # The number of steps is unknown, or a callback ended the epoch early.
        if self._batch != self.params.get("steps"):
            self._write(epoch + 1)
        self._prune(epoch + 1)

    @property
    def place(self) -> str:
        """Present place in the run, in words."""
        if self._batch == self.params.get("steps"):
            return f"in the validation of epoch {self._epoch + 1}, which is saved"
        return f"in batch {self._batch + 1} of epoch {self._epoch + 1}"

    def save(self) -> pathlib.Path:
        """Saves the present state, unless it is saved already.

        Returns:
            Path of the checkpoint.
        """
        position = self._epoch, self._batch
        if self._batch == self.params.get("steps"):
            position = self._epoch + 1, 0
        path = self.folder / checkpoint_name(*position)
        if self._batch != self._last_batch or not path.exists():
            self._write(*position)
        return path

    def _due(self):
        by_steps = (
            self.every_steps and self._batch - self._last_batch >= self.every_steps
        )
        by_time = (
            self.every_minutes
            and time.monotonic() - self._last_time >= 60 * self.every_minutes
        )
        return by_steps or by_time

    def _write(self, epoch, batch=0):
        seconds = time.monotonic() - self._begin
        path = self.folder / checkpoint_name(epoch, batch)
        save_state(self.model, path, epoch, batch, seconds)
        self._written(self._batch)
        within = [path for path, (_, b) in _positions(self.folder).items() if b]
        for old in within[:-_KEEP_WITHIN]:
            old.unlink()

    def _written(self, batch):
        self._last_batch, self._last_time = batch, time.monotonic()

    def _prune(self, done):
        kept = set(list_checkpoints(self.folder)[-self.keep :])
        if (epoch := self.keep_also()) is not None:
            kept.add(self.folder / checkpoint_name(epoch))
        for path, (epoch, batch) in _positions(self.folder).items():
            if path not in kept and (not batch or epoch < done):
                path.unlink()


def checkpoint_name(epoch: int, batch: int = 0) -> str:
    """Returns the name of the file of a checkpoint.

    Args:
        epoch: Number of complete epochs.
        batch: Number of batches of the next epoch.
    """
    within = f"-batch-{batch:08d}" if batch else ""
    return f"epoch-{epoch:04d}{within}.npz"


def _positions(folder):
    """Returns all checkpoints with their epochs and batches, oldest first."""
    found = {}
    for path in pathlib.Path(folder).glob("epoch-*.npz"):
        if match := re.fullmatch(r"epoch-(\d+)(?:-batch-(\d+))?", path.stem):
            found[path] = int(match[1]), int(match[2] or 0)
    return dict(sorted(found.items(), key=lambda item: item[1]))


def list_checkpoints(folder: str | os.PathLike) -> list[pathlib.Path]:
    """Returns the checkpoints of complete epochs in a folder, oldest first.

    Args:
        folder: Folder of `Checkpoints`.
    """
    return [path for path, (_, batch) in _positions(folder).items() if not batch]


def good_checkpoints(folder: str | os.PathLike) -> list[pathlib.Path]:
    """Returns the checkpoints of complete epochs that are good, oldest first.

    Args:
        folder: Folder of `Checkpoints`. Files that are damaged, or have values that are
            NaN or infinite, are left out with a warning.
    """
    good = []
    for path in list_checkpoints(folder):
        if problem := problem_of(path):
            warnings.warn(f"{path} is damaged and left out ({problem}).", stacklevel=2)
        else:
            good.append(path)
    return good


def latest(folder: str | os.PathLike) -> pathlib.Path | None:
    """Finds the newest good checkpoint in a folder.

    Args:
        folder: Folder of `Checkpoints`. Files that are damaged, or have values that are
            NaN or infinite, are skipped with a warning.

    Returns:
        Path of the file, or None if there is none.
    """
    for path in reversed(_positions(folder)):
        problem = problem_of(path)
        if problem is None:
            return path
        warnings.warn(
            f"{path} is damaged ({problem}). The checkpoint before it is used instead.",
            stacklevel=2,
        )
    return None


def resume(
    model: keras.Model, run_folder: RunFolder, steps_per_epoch: int | None = None
) -> Position:
    """Restores the last good checkpoint of a run.

    Args:
        model: A built and compiled model.
        run_folder: A `keras_vqem.training.RunFolder` that was started. The metrics of
            epochs after the checkpoint are removed from it.
        steps_per_epoch: Number of batches per epoch. If it is given, and the metrics of
            the checkpoint's epoch were not written because its validation did not end,
            the position is after the last batch of that epoch.

    Returns:
        The `Position` to go on from, at the start if there is no checkpoint.
    """
    path = latest(run_folder.checkpoints)
    position = Position() if path is None else load_state(model, path)
    if path is not None:
        run_folder.log(
            f"restored {path.name}: {position.epoch} epochs, {position.batch} batches "
            f"of the next, {position.step} steps"
        )
        logged = {line["epoch"] for line in run_folder.metrics()}
        if steps_per_epoch and not position.batch and position.epoch not in logged:
            run_folder.log(f"epoch {position.epoch} is validated again")
            position = position._replace(
                epoch=position.epoch - 1, batch=steps_per_epoch
            )
        elif not position.batch:
            position = position._replace(seconds=0.0)
        files = _positions(run_folder.checkpoints)
        for later in list(files)[list(files).index(path) + 1 :]:
            # Damaged. An epoch is written anew, but other batches have other names.
            if files[later][1]:
                later.unlink()
    run_folder.rewind(position.epoch)
    return position
