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
    average_weights,
    list_checkpoints,
    save_model,
)
from keras_vqem.training.checkpoints import resume as resume_run
from keras_vqem.training.data import Batches, fingerprint, first_of_each_shape
from keras_vqem.training.numerics import numerics
from keras_vqem.training.run_folder import RunFolder
from keras_vqem.training.strategies import distribute_batches, strategy_scope


class Run:
    """A training run: enter it, build data and model, call `fit`.

    Entering the `with` block sets up devices, then sets random seeds, then claims the
    folder. Within the block the dtype policy of Keras is `precision`, and TF32 is off
    (see `docs/decisions/0005-e-step.md`). Entering also opens the scope of the
    distribution strategy, until `fit`, so the code that builds and compiles the model
    is the same with and without a strategy. If the block fails before the first epoch
    is complete, the folder is free for another run.

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
        self._scope = contextlib.ExitStack()
        self._settings = contextlib.ExitStack()
        self._saved = "model"

    def __enter__(self):
        # Devices come first, since TensorFlow sets them up only once.
        strategy = self._strategy = strategy_scope(self.strategy)
        self.num_replicas = strategy.num_replicas_in_sync
        keras.utils.set_random_seed(self.seed)
        resumed = self.folder.start(
            self.arguments, resume=self.resume, may_differ=self.may_differ
        )
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
        if error is not None:
            # Recipes show users one sentence; the rest is for whoever has to find out.
            if self.folder.path.is_dir():
                self.folder.log("".join(traceback.format_exception(error)))
            self.folder.take_back()
            multi_worker.explain(self._strategy, error)

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
    ) -> keras.callbacks.History:
        """Trains the model, or continues a resumed run, and saves the model.

        Each epoch writes a checkpoint and a line of metrics. At the end, the weights of
        the model are the mean of the last checkpoints, and the model is saved as
        `model.keras`.

        Args:
            model: A compiled model, built within the `with` block.
            batches: Object with `steps_per_epoch`, `summary()`, `epoch(number)` and
                `dataset(first_epoch)`, such as `keras_vqem.text.TokenBatches` or
                `keras_vqem.array_batches.ArrayBatches`. A resumed run checks that the
                batches are those it was started with.
            epochs: Number of epochs of the whole run.
            validation_data: Dataset to evaluate on after each epoch, or None.
            callbacks: Keras callbacks. They see the logs of an epoch before these are
                written, and may add to them.
            average: Number of checkpoints to average at the end.

        Returns:
            The `History` of `model.fit`, with the epochs since the start or resume.
        """
        if average < 1:
            raise ValueError(f"`average` must be at least 1, received {average}.")
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
        first = resume_run(model, folder) if self.resume else 0
        (first,) = multi_worker.share_state(model, [first])
        compiling = first_of_each_shape(batches, first) if model.jit_compile else None
        dataset = batches.dataset(first_epoch=first).apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        if validation_data is not None:
            validation_data = distribute_batches(validation_data, self._strategy)
        writers = []
        if self.is_chief:
            writers = [
                *self._tensorboard(),
                Progress(epochs, steps, log=folder.log, compiling=compiling),
                MetricsLog(folder),
                Checkpoints(folder.checkpoints, keep=max(average, 2)),
            ]
        history = model.fit(
            distribute_batches(dataset, self._strategy),
            steps_per_epoch=steps,
            initial_epoch=first,
            epochs=epochs,
            validation_data=validation_data,
            shuffle=False,
            verbose=0,
            callbacks=[*callbacks, *writers],
        )
        checkpoints = list_checkpoints(folder.checkpoints)[-average:]
        if self.is_chief:
            average_weights(model, checkpoints)
        multi_worker.share_state(model)
        if not self.is_chief:
            return history
        self._saved = "the last checkpoint"
        if len(checkpoints) > 1:
            self._saved = f"the mean of the last {len(checkpoints)} checkpoints"
        path = self.path / "model.keras"
        save_model(model, path)
        self.log(f"saved {path}: {self._saved}")
        return history

    def report(self, measured: Mapping[str, float]) -> None:
        """Prints and logs measurements of the saved model.

        Args:
            measured: Dict from names to numbers.
        """
        values = "  ".join(f"{name} {value:.4g}" for name, value in measured.items())
        self.log(f"{self._saved}: {values}")

    def _tensorboard(self):
        # TensorFlow does not install it, and a run does not need it.
        if importlib.util.find_spec("tensorboard") is None:
            self.log("no TensorBoard events: pip install '.[recipes]' in a checkout")
            return []
        return [keras.callbacks.TensorBoard(self.path / "tensorboard")]
