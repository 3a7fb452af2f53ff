"""Run: one training run, from devices and seeds to the saved model."""

import contextlib
import importlib.util
import os
import tempfile
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_vqem.training import multi_worker
from keras_vqem.training.callbacks import MetricsLog, Progress
from keras_vqem.training.checkpoints import (
    Checkpoints,
    checkpoint_name,
    good_checkpoints,
    latest,
)
from keras_vqem.training.checkpoints import resume as resume_run
from keras_vqem.training.compilation import Compilation
from keras_vqem.training.data import Batches, fingerprint, first_of_each_shape
from keras_vqem.training.guards import CodebookWatch, StopOnDivergence, memory_told
from keras_vqem.training.interruption import Interrupted, Interruption
from keras_vqem.training.numerics import numerics
from keras_vqem.training.resumed_callbacks import ResumedCallbacks
from keras_vqem.training.run_folder import RunFolder
from keras_vqem.training.strategies import distribute_batches, strategy_scope
from keras_vqem.training.training_state import Position, average_weights, save_model


class Run:
    """A training run: enter it, build data and model, call `fit`.

    Entering the `with` block sets up devices, then sets random seeds, then claims the
    folder. Within the block the dtype policy of Keras is `precision`, and TF32 is off
    (see `docs/decisions/0005-e-step.md`). Entering also opens the scope of the
    distribution strategy, until `fit`, so the code that builds and compiles the model
    is the same with and without a strategy. If the block fails before the first
    checkpoint, the folder is free for another run. No other process can use the folder
    while the block lasts.

    Args:
        path: Folder of the run; see `keras_vqem.training.RunFolder` for its files.
        seed: Seed of weights and noise.
        strategy: Name of the distribution strategy: `"auto"`, `"none"`, `"mirrored"`,
            `"mirrored:N"` or `"multi_worker"`; see
            `keras_vqem.training.strategy_scope`.
        precision: Dtype policy of the layers that are made in the block: `"float32"`,
            `"mixed_bfloat16"` or `"mixed_float16"`. None leaves the global policy of
            Keras as it is.
        resume: Whether to resume the run in the folder. If there is none, a new run
            starts.
        arguments: Dict of the settings of the run, written to `config.json`. A run can
            only be resumed with the same settings.
        may_differ: Names of settings that may change when a run is resumed.

    Attributes:
        path: Folder of the run. With several workers only the chief writes there; the
            others have a temporary folder.
        is_chief: Whether this process writes the files of the run. It is False on the
            workers other than the first.
        num_replicas: Number of replicas that share each batch.

    Example:

    >>> import tempfile
    >>> from keras_vqem.array_batches import ArrayBatches
    >>> from keras_vqem.training import Run
    >>> symbols = np.arange(64).reshape(16, 2, 2, 1) % 5
    >>> folder = tempfile.mkdtemp()
    >>> with Run(folder, seed=1) as run:  # doctest: +ELLIPSIS
    ...     batches = ArrayBatches({"symbols": symbols}, batch_size=4)
    ...     model = keras_vqem.models.GridTransformer(
    ...         (2, 2, 1), 5, hidden_dim=8, num_layers=1, num_heads=2,
    ...         intermediate_dim=16, block_length=2)
    ...     model.compile()
    ...     history = run.fit(model, batches, epochs=2, average=2)
    /...: started with seed 1 on 1 replica
    16 examples, 4 batches of 4 per epoch
    epoch 1/2  bits_per_symbol ...
    epoch 2/2  bits_per_symbol ...
    saved /.../model.keras: the mean of the last 2 checkpoints
    >>> [line["epoch"] for line in run.folder.metrics()]
    [1, 2]
    """

    def __init__(
        self,
        path: str | os.PathLike,
        seed: int = 0,
        strategy: str = "none",
        resume: bool = False,
        arguments: Mapping[str, Any] | None = None,
        may_differ: Iterable[str] = (),
        precision: str | None = None,
    ):
        worker = multi_worker.worker()[0] if strategy == "multi_worker" else 0
        self.is_chief = worker == 0
        if not self.is_chief:
            self._temporary = tempfile.TemporaryDirectory(prefix=f"worker-{worker}-")
            path = self._temporary.name
        self.folder = RunFolder(path)
        self.path = self.folder.path
        self.seed = seed
        self.strategy = strategy
        self.resume = resume
        self.arguments = {
            **(arguments or {}),
            "seed": seed,
            "strategy": strategy,
            "precision": precision,
        }
        self.may_differ = may_differ
        self.precision = precision
        self._lock, self._scope = contextlib.ExitStack(), contextlib.ExitStack()
        self._settings = contextlib.ExitStack()
        self._saved = "model"

    def __enter__(self):
        # Devices come first, since TensorFlow sets them up only once.
        strategy = self._strategy = strategy_scope(self.strategy)
        self.num_replicas = strategy.num_replicas_in_sync
        keras.utils.set_random_seed(self.seed)
        with contextlib.ExitStack() as lock:
            lock.enter_context(self.folder.alone())
            resumed = self.folder.start(
                self.arguments, resume=self.resume, may_differ=self.may_differ
            )
            self._lock = lock.pop_all()
        self._scope.enter_context(strategy.scope())
        self._settings.enter_context(numerics(self.precision))
        replicas = "1 replica"
        if self.num_replicas > 1:
            replicas = f"{self.num_replicas} replicas"
        print(
            f"{self.path}: {'resumed' if resumed else 'started'} with seed "
            f"{self.seed} on {replicas}",
            flush=True,
        )
        return self

    def __exit__(self, kind, error, trace):
        self._scope.close()
        self._settings.close()
        with self._lock:
            if error is not None:
                # If the disk is full, this must not hide the error.
                with contextlib.suppress(OSError):
                    self._log_error(error)
                self.folder.take_back()
        multi_worker.explain(self._strategy, error)

    def _log_error(self, error):
        # Recipes show users one sentence; the rest is for whoever has to find out.
        told = isinstance(error, Interrupted)
        lines = [str(error)] if told else traceback.format_exception(error)
        self.folder.log("".join(lines))

    def log(self, line: str) -> None:
        """Prints a line, and appends it to `log.txt`."""
        print(line, flush=True)
        self.folder.log(line)

    def fit(
        self,
        model: keras.Model,
        batches: Batches,
        epochs: int,
        validation_data: tf.data.Dataset | None = None,
        callbacks: Iterable[keras.callbacks.Callback] = (),
        average: int = 1,
        keep_best: str | None = None,
        checkpoint_steps: int | None = None,
        checkpoint_minutes: float | None = 30.0,
    ) -> keras.callbacks.History:
        """Trains the model, or continues a resumed run, and saves the model.

        Each epoch writes a checkpoint after its last batch, and a line of metrics after
        its validation. A resumed run goes on after the last batch that a checkpoint has
        seen, with the metrics of its epoch so far; a validation that did not end is
        done again. At the end, the weights of the model are the mean of the last
        checkpoints, and the model is saved as `model.keras`.

        Ctrl-C and SIGTERM save a checkpoint and raise `Interrupted`. A loss that is NaN
        or infinite raises `DivergedError`; such states are never saved.

        Args:
            model: A compiled model, built within the `with` block.
            batches: Object with `steps_per_epoch`, `summary()`, `epoch(number)` and
                `dataset(first_epoch)`, such as `keras_vqem.text.TokenBatches` or
                `keras_vqem.array_batches.ArrayBatches`. A resumed run checks that the
                batches are those it was started with.
            epochs: Number of epochs of the whole run. A resumed run may have another
                number, but schedules that were made for the first one then differ.
            validation_data: Dataset to evaluate on after each epoch, or None.
            callbacks: Keras callbacks. They see the logs of an epoch before these are
                written, and may add to them. They must not change the model's state.
            average: Number of checkpoints to average at the end.
            keep_best: Name of a metric, such as `"val_bleu"` or `"val_loss"`, by which
                the best epoch is kept. The saved model then is that epoch's instead of
                a mean. See `RunFolder.best_epoch`.
            checkpoint_steps: Number of steps from one checkpoint to the next within an
                epoch, or None.
            checkpoint_minutes: Number of minutes from one checkpoint to the next within
                an epoch, or None.

        Returns:
            The `History` of `model.fit`, with the epochs since the start or resume.
        """
        for name, value in (("average", average), ("epochs", epochs)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, received {value}.")
        self._scope.close()
        folder, steps = self.folder, batches.steps_per_epoch
        data = fingerprint(batches)
        folder.remember(
            "data",
            data,
            "Restore the data that it was started with, or start a new run.",
        )
        multi_worker.check_agreement(
            self._strategy, "batches", data, "Give all workers the same data and seed."
        )
        folder.log("batches\n" + batches.summary())
        print(batches.summary(), flush=True)
        first = resume_run(model, folder, steps) if self.resume else Position()
        first = Position(*multi_worker.share_state(model, first))
        self._check_epochs(epochs, first)
        checkpoints = Checkpoints(
            folder.checkpoints,
            keep=max(average, 2),
            every_steps=checkpoint_steps,
            every_minutes=checkpoint_minutes,
            keep_also=lambda: keep_best and folder.best_epoch(keep_best),
            first=first,
        )
        interruption = Interruption(checkpoints)
        compiling = None
        if model.jit_compile:
            compiling = first_of_each_shape(batches, first.epoch, first.batch)
        callbacks = [StopOnDivergence(kept=self._kept), *callbacks]
        compilation = Compilation(compiling or ())
        if self.is_chief:
            callbacks += [
                CodebookWatch(self.log),
                *self._tensorboard(),
                Progress(epochs, steps, log=folder.log, compiling=compiling),
                MetricsLog(folder, first.seconds),
                checkpoints,
                interruption,
            ]
        callbacks = ResumedCallbacks(
            [*callbacks, compilation],
            first.batch,
            model=model,
            epochs=epochs,
            steps=steps,
        )
        # An epoch whose validation alone is missing needs none of its batches.
        begun = first.batch % steps
        dataset = batches.dataset(
            first_epoch=first.epoch + first.batch // steps, first_step=begun
        ).apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        if validation_data is not None:
            validation_data = distribute_batches(validation_data, self._strategy)
        settings = {
            name: getattr(batches, name)
            for name in ("tokens_per_batch", "batch_size")
            if hasattr(batches, name)
        }
        with contextlib.ExitStack() as stack:
            if self.is_chief:  # Another worker has nothing to save.
                stack.enter_context(interruption)
            stack.callback(compilation.end)
            stack.enter_context(memory_told(settings, lambda: checkpoints.place))
            history = model.fit(
                distribute_batches(dataset, self._strategy),
                steps_per_epoch=steps,
                initial_epoch=first.epoch,
                epochs=epochs,
                validation_data=validation_data,
                shuffle=False,
                verbose=0,
                callbacks=callbacks,
            )
        self._save(model, average, keep_best)
        return history

    def _check_epochs(self, epochs, first):
        if epochs < first.epoch + (first.batch > 0):
            raise ValueError(
                f"{self.path} has trained for more than {epochs} epochs already. Pass "
                f"a higher number of epochs."
            )
        before = self.folder.exchange("epochs", epochs)
        if before != epochs:
            self.log(
                f"The run has {epochs} epochs now, and had {before}. What depends on "
                f"the number of steps (schedules of learning rate and temperature, "
                f"default warm-up and bypass) follows the new number from here on: the "
                f"result differs from a run that had {epochs} from its start."
            )

    def _kept(self):
        path = latest(self.folder.checkpoints)
        if path is None:
            return "There is no checkpoint yet."
        return f"The last good weights are in {path}."

    def _save(self, model, average, keep_best):
        if self.is_chief:
            self._take_best(model, average, keep_best)
        multi_worker.share_state(model)
        if not self.is_chief:
            return
        path = self.path / "model.keras"
        save_model(model, path)
        self.log(f"saved {path}: {self._saved}")

    def _take_best(self, model, average, keep_best):
        """Gives the model the weights to save: the best epoch's, or a mean."""
        good = good_checkpoints(self.folder.checkpoints)
        best = keep_best and self.folder.best_epoch(keep_best)
        chosen = [path for path in good if path.name == checkpoint_name(best or 0)]
        if chosen:
            self._saved = f"epoch {best}, the best by {keep_best}"
        else:
            chosen = good[-average:]
            self._saved = "the last checkpoint"
            if len(chosen) > 1:
                self._saved = f"the mean of the last {len(chosen)} checkpoints"
        average_weights(model, chosen)

    def report(self, measured: Mapping[str, float | str]) -> None:
        """Prints and logs measurements of the saved model.

        Args:
            measured: Dict from names to numbers, or to names such as that of an
                option that was chosen.
        """
        values = "  ".join(
            f"{name} {value if isinstance(value, str) else f'{value:.4g}'}"
            for name, value in measured.items()
        )
        self.log(f"{self._saved}: {values}")

    def _tensorboard(self):
        # TensorFlow does not install it, and a run does not need it.
        if importlib.util.find_spec("tensorboard") is None:
            self.log("no TensorBoard events: pip install '.[recipes]' in a checkout")
            return []
        return [keras.callbacks.TensorBoard(self.path / "tensorboard")]
