"""TaskModel: base of the models that know what they learn."""

import keras
from numpy.typing import ArrayLike

from keras_vqem.models.preset import Presets


class TaskModel(Presets, keras.Model):
    """Compiles without a loss, built and ready; saves and loads presets.

    A subclass has `task_loss(inputs, outputs)`, a `build` that needs no shape, and may
    have another default optimizer.
    """

    def _default_optimizer(self):
        return keras.optimizers.Adam(0.001)

    def compile(
        self, optimizer: keras.optimizers.Optimizer | str = "auto", **kwargs
    ) -> None:
        """As `keras.Model.compile`, but the loss is the model's own.

        Args:
            optimizer: As in `keras.Model.compile`, or `"auto"` for one that fits.
            **kwargs: Arguments of `keras.Model.compile`, other than `loss`.
        """
        if kwargs.get("loss") is not None:
            raise ValueError(
                f"{type(self).__name__} computes its own loss. Leave `loss` out; the "
                f"optimizer can be chosen."
            )
        if optimizer == "auto":
            optimizer = self._default_optimizer()
        super().compile(optimizer=optimizer, **kwargs)
        # Variables made in the first step would have it traced, and under XLA
        # compiled, twice.
        if not self.built:
            self.build()
        self.optimizer.build(self.trainable_variables)

    # Keras drops weights that come without `y` before `compute_loss` could see them.

    def fit(
        self,
        *args,
        sample_weight: ArrayLike | None = None,
        class_weight: dict | None = None,
        **kwargs,
    ) -> keras.callbacks.History:
        """As `keras.Model.fit`, with inputs alone: neither targets nor weights."""
        self._refuse_weights(sample_weight, class_weight)
        return super().fit(*args, **kwargs)

    def evaluate(
        self, *args, sample_weight: ArrayLike | None = None, **kwargs
    ) -> float | list | dict:
        """As `keras.Model.evaluate`, with inputs alone: neither targets nor weights."""
        self._refuse_weights(sample_weight)
        return super().evaluate(*args, **kwargs)

    def _refuse_weights(self, *weights):
        if any(weight is not None for weight in weights):
            raise ValueError(
                f"{type(self).__name__} weighs all examples alike, and received "
                f"`sample_weight` or `class_weight`. Leave it out; to have examples "
                f"count more, put them into the data more than once."
            )

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """`task_loss`, and what layers added to the loss."""
        self._refuse_weights(sample_weight)
        total = self.task_loss(x, y_pred)
        if self.losses:
            total += super().compute_loss(x=x, y_pred=y_pred, training=training)
        return total

    def _export(self, filepath, endpoints, *others):
        """Writes a SavedModel of endpoints that use this model, and others."""
        archive = keras.export.ExportArchive()
        for model in (self, *others):  # first: endpoints must find the weights
            archive.track(model)
        for name, endpoint in endpoints.items():
            archive.add_endpoint(name, *endpoint)
        archive.write_out(str(filepath), verbose=False)

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
