"""TaskModel: base class of models that compute their own loss."""

from typing import Any

import keras
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_vqem.models.preset import Presets


class TaskModel(Presets, keras.Model):
    """Base class of models that compile without a loss and have presets.

    A subclass has `task_loss(inputs, outputs)` and a `build` that needs no shape. It
    may have another default optimizer. `compile` builds the model and its optimizer.
    """

    def _default_optimizer(self):
        return keras.optimizers.Adam(0.001)

    def compile(
        self, optimizer: keras.optimizers.Optimizer | str = "auto", **kwargs: Any
    ) -> None:
        """Configures training, as `keras.Model.compile` does, without a loss.

        Args:
            optimizer: Optimizer as in `keras.Model.compile`, or `"auto"` for the
                default of the model.
            **kwargs: Arguments of `keras.Model.compile` except `loss`.
        """
        if kwargs.get("loss") is not None:
            raise ValueError(
                f"{type(self).__name__} computes its own loss. Leave `loss` out; only "
                f"the optimizer can be chosen."
            )
        if optimizer == "auto":
            optimizer = self._default_optimizer()
        super().compile(optimizer=optimizer, **kwargs)
        # If the first step created variables, TensorFlow would trace it twice, and
        # XLA would compile it twice.
        if not self.built:
            self.build()
        self.optimizer.build(self.trainable_variables)

    # Keras drops weights that come without `y`, so `compute_loss` never sees them.

    def fit(
        self,
        *args: Any,
        sample_weight: ArrayLike | None = None,
        class_weight: dict | None = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains as `keras.Model.fit` does, on inputs without targets or weights."""
        self._refuse_weights(sample_weight, class_weight)
        return super().fit(*args, **kwargs)

    def evaluate(
        self, *args: Any, sample_weight: ArrayLike | None = None, **kwargs: Any
    ) -> float | list | dict:
        """Evaluates as `keras.Model.evaluate` does, without targets or weights."""
        self._refuse_weights(sample_weight)
        return super().evaluate(*args, **kwargs)

    def _refuse_weights(self, *weights):
        if any(weight is not None for weight in weights):
            raise ValueError(
                f"{type(self).__name__} weighs all examples alike, but received "
                f"`sample_weight` or `class_weight`. Leave it out. To give examples "
                f"more weight, repeat them in the data."
            )

    def compute_loss(
        self,
        x: dict[str, tf.Tensor] | None = None,
        y: None = None,
        y_pred: dict[str, tf.Tensor] | tf.Tensor | None = None,
        sample_weight: None = None,
        training: bool = True,
    ) -> tf.Tensor:
        """Returns the sum of `task_loss` and the losses that layers added."""
        self._refuse_weights(sample_weight)
        total = self.task_loss(x, y_pred)
        if self.losses:
            total += super().compute_loss(x=x, y_pred=y_pred, training=training)
        return total

    def _export(self, filepath, endpoints, *others):
        """Writes a SavedModel of endpoints that use this model and `others`."""
        archive = keras.export.ExportArchive()
        for model in (self, *others):  # Before endpoints are added, which use weights.
            archive.track(model)
        for name, endpoint in endpoints.items():
            archive.add_endpoint(name, *endpoint)
        archive.write_out(str(filepath), verbose=False)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
