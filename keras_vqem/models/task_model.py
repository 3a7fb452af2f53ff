"""TaskModel: base class of models that compute their own loss."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import micro_batches, replicas
from keras_vqem.checks import whole_number
from keras_vqem.models.preset import Presets


class TaskModel(Presets, keras.Model):
    """Base class of models that compile without a loss and have presets.

    The loss is a sum of weighted means over the batch of all replicas. A subclass has a
    `build` that needs no shape, and these:

    - `_loss_terms(inputs, outputs)` yields a metric, a dict of tensors and their
      weights per term of the loss. The dict has `loss`, which is learned from, and
      `metric`, which is reported.
    - `_loss_counts(inputs)` returns the sum of weights per term, then that of the
      losses of layers. They depend on inputs alone, so that they are known for the
      whole batch before the first part of it is worked through.

    It may have another default optimizer, and `bottleneck_loss`, a metric of the losses
    that layers add. `compile` builds the model and its optimizer.
    """

    bottleneck_loss = None
    accumulation_steps = 1

    def _default_optimizer(self):
        return keras.optimizers.Adam(0.001)

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer | str = "auto",
        accumulation_steps: int = 1,
        **kwargs: Any,
    ) -> None:
        """Configures training, as `keras.Model.compile` does, without a loss.

        Args:
            optimizer: Optimizer as in `keras.Model.compile`, or `"auto"` for the
                default of the model.
            accumulation_steps: Number of parts into which each batch is divided, to
                save memory. Gradients and the statistics of codebooks are summed over
                the parts. A step is then the same as with the whole batch at once,
                apart from noise, and from codes without a vector, which start from
                vectors of the first part that has some.
            **kwargs: Arguments of `keras.Model.compile` except `loss`.
        """
        if kwargs.get("loss") is not None:
            raise ValueError(
                f"{type(self).__name__} computes its own loss. Leave `loss` out; only "
                f"the optimizer can be chosen."
            )
        self.accumulation_steps = whole_number(
            "accumulation_steps", accumulation_steps, 1
        )
        if optimizer == "auto":
            optimizer = self._default_optimizer()
        super().compile(optimizer=optimizer, **kwargs)
        self._refuse_with_replicas()
        # If the first step created variables, TensorFlow would trace it twice, and
        # XLA would compile it twice.
        if not self.built:
            self.build()
        self.optimizer.build(self.trainable_variables)

    def _refuse_with_replicas(self):
        """Raises for settings with which Keras fails on several replicas."""
        count = self.distribute_strategy.num_replicas_in_sync
        settings = {
            "jit_compile=True": self.jit_compile,
            f"steps_per_execution={self.steps_per_execution}": (
                self.steps_per_execution > 1
            ),
            "gradient_accumulation_steps of the optimizer": (
                self.optimizer.gradient_accumulation_steps
            ),
        }
        for setting, is_set in settings.items():
            if count > 1 and is_set:
                remedy = "Leave it out, or train on one device."
                if setting.startswith("gradient"):
                    remedy = "Use compile(accumulation_steps=...), which is exact."
                raise ValueError(
                    f"Keras cannot train with {setting} on several replicas, and this "
                    f"model is in the scope of a strategy with {count}. {remedy}"
                )

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

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # `compile` has built everything. Keras would average a batch over replicas to
        # see its shape, which fails if their shares differ in size.
        pass

    # A step.

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Takes one step on a batch, in `accumulation_steps` parts."""
        inputs = self._inputs(data)
        number = self.accumulation_steps
        parts = [inputs] if number == 1 else _split(inputs, number)
        counts = self._counts(parts)
        weights = self.trainable_weights
        total, gradients, sums = 0.0, None, {}
        for i, part in enumerate(parts):
            if gradients is not None:
                # Without this the parts would run, and need memory, at the same time.
                done = [g for g in gradients if g is not None]
                with tf.control_dependencies(done):
                    part = tf.nest.map_structure(tf.identity, part)
            with micro_batches.part(i, number, sums), tf.GradientTape() as tape:
                outputs = self(part, training=True)
                loss = self._loss(part, outputs, counts, i)
                scaled = self.optimizer.scale_loss(loss)
            found = tape.gradient(scaled, weights)
            total = total + loss
            gradients = found if gradients is None else _added(gradients, found)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self._track(total, counts)
        return self.compute_metrics(inputs, None, outputs)

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Evaluates one batch."""
        inputs = self._inputs(data)
        counts = self._counts([inputs])
        outputs = self(inputs, training=False)
        self._track(self._loss(inputs, outputs, counts), counts)
        return self.compute_metrics(inputs, None, outputs)

    def compute_loss(
        self,
        x: dict[str, tf.Tensor] | None = None,
        y: None = None,
        y_pred: dict[str, tf.Tensor] | tf.Tensor | None = None,
        sample_weight: None = None,
        training: bool = True,
    ) -> tf.Tensor:
        """Returns the share of this replica in the loss, layers' losses included."""
        self._refuse_weights(sample_weight)
        return self._loss(x, y_pred, self._counts([x]))

    def _inputs(self, data):
        inputs, _, weights = keras.utils.unpack_x_y_sample_weight(data)
        self._refuse_weights(weights)
        return inputs

    def _counts(self, parts):
        """Returns numbers of rows and sums of weights of parts over all replicas."""
        counts = [
            ops.stack(
                [
                    ops.cast(tf.shape(tf.nest.flatten(part)[0])[0], "float32"),
                    *(ops.cast(x, "float32") for x in self._loss_counts(part)),
                ]
            )
            for part in parts
        ]
        return replicas.sum_over_replicas(ops.stack(counts))

    def _loss(self, inputs, outputs, counts, part=0):
        """Returns the share of this replica and part in the loss of the batch."""
        totals = ops.maximum(ops.sum(counts, axis=0), 1.0)
        total = 0.0
        terms = self._loss_terms(inputs, outputs)
        for i, (tracker, values, weights) in enumerate(terms):
            # The mean is over the batch of all replicas: Keras sums gradients.
            total += ops.sum(values["loss"] * weights) / totals[1 + i]
            count = ops.sum(weights)
            local = ops.sum(values["metric"] * weights) / ops.maximum(count, 1.0)
            tracker.update_state(local, sample_weight=count)
        if self.losses:
            # Layers take the mean over the vectors of a part.
            share = counts[part, -1] / totals[-1] if counts.shape[0] > 1 else 1.0
            added = keras.Model.compute_loss(self, x=inputs, y_pred=outputs)
            total += share * added
            if self.bottleneck_loss is not None:
                # By rows, as Keras weighs the loss: a last step may have none.
                self.bottleneck_loss.update_state(
                    sum(self.losses), sample_weight=share * ops.sum(counts[:, 0])
                )
        return total

    def _track(self, loss, counts):
        # Replicas weigh alike, as each `loss` is a share of one mean. Keras would weigh
        # them by their rows, which is wrong where these differ.
        number = replicas.num_replicas()
        self._loss_tracker.update_state(
            number * loss, sample_weight=ops.sum(counts[:, 0]) / number
        )

    def _export(self, filepath, endpoints, *others):
        """Writes a SavedModel of endpoints that use this model and `others`."""
        archive = keras.export.ExportArchive()
        # An archive stores the weights that endpoints use. It would store those of a
        # model that it tracks once more; inside a module only resources are found.
        resources = tf.Module()
        resources.models = [self, *others]
        archive.track(resources)
        for name, endpoint in endpoints.items():
            archive.add_endpoint(name, *endpoint)
        archive.write_out(str(filepath), verbose=False)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))


def _added(gradients, more):
    """Adds two lists of gradients, some of which may be None or sparse."""
    return [
        a if b is None else tf.convert_to_tensor(a) + tf.convert_to_tensor(b)
        for a, b in zip(gradients, more, strict=True)
    ]


def _split(inputs, count):
    """Divides the rows of a batch into parts that differ by at most one row."""
    known = tf.nest.flatten(inputs)[0].shape[0]
    if known is not None and known < count:
        # TensorFlow's convolutions have no gradient for a part without rows.
        raise ValueError(
            f"A replica gets {known} rows of a batch, too few for "
            f"accumulation_steps={count}. Lower it, or use larger batches."
        )

    def cut(x, number):
        rows = ops.shape(x)[0]
        return x[rows * number // count : rows * (number + 1) // count]

    return [
        tf.nest.map_structure(lambda x, number=number: cut(x, number), inputs)
        for number in range(count)
    ]
