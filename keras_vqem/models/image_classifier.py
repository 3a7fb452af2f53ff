"""ImageClassifier: a small network whose features samples are judged by."""

import os
from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import in_range, integers, whole_number
from keras_vqem.layers.image_block import ImageBlock
from keras_vqem.layers.image_compressor import check_divisible
from keras_vqem.models.task_model import TaskModel


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageClassifier(TaskModel):
    """Tells what an image shows, and gives features to compare sets of images by.

    Each stage is a convolution of stride 2, which doubles the number of channels, and
    residual blocks. The mean over all places are the features, and the classes are
    linear in these. It is small enough to be trained in a few minutes, for
    `keras_vqem.evaluation.sample_quality`.

    Args:
        num_classes: Number of classes.
        channels: Number of channels of the first stage.
        num_stages: Number of stages. Each halves height and width.
        num_blocks: Number of residual blocks per stage.
        image_size: Tuple `(height, width)` of the images in pixels.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: Dict with `images`, uint8 `[B, H, W, 3]`. To train or evaluate, it also
            has `labels`, integers `[B]` from 0 to `num_classes - 1`.

    Returns:
        Logits `[B, num_classes]`.

    Metrics:
        - `accuracy`: Share of images whose most probable class is their label.

    Example:

    >>> from keras_vqem.images import shapes
    >>> images, labels = shapes.images(16, size=16)
    >>> model = keras_vqem.models.ImageClassifier(
    ...     num_classes=8, channels=4, num_stages=2, image_size=(16, 16))
    >>> model.compile()
    >>> inputs = {"images": images, "labels": labels}
    >>> history = model.fit(inputs, batch_size=8, verbose=0)
    >>> model.features(images).shape
    TensorShape([16, 8])
    """

    def __init__(
        self,
        num_classes: int,
        channels: int = 32,
        num_stages: int = 3,
        num_blocks: int = 1,
        image_size: tuple[int, int] = (32, 32),
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_classes = whole_number("num_classes", num_classes, 2)
        self.channels = whole_number("channels", channels, 1)
        self.num_stages = whole_number("num_stages", num_stages, 1)
        self.num_blocks = whole_number("num_blocks", num_blocks, 0)
        self.image_size = tuple(image_size)
        self.accuracy = keras.metrics.Mean(name="accuracy")

    def build(self, input_shape: Any = None) -> None:
        policy, shape = self.dtype_policy, (None, *self.image_size, 3)
        check_divisible(shape, 2**self.num_stages)
        self.parts = []
        for stage in range(self.num_stages):
            size = self.channels * 2**stage
            layer = keras.layers.Conv2D(
                size,
                3,
                strides=2,
                padding="same",
                name=f"convolution_{stage}",
                dtype=policy,
            )
            layer.build(shape)
            self.parts.append(layer)
            shape = (None, None, None, size)
            for block in range(self.num_blocks):
                layer = ImageBlock(name=f"block_{stage}_{block}", dtype=policy)
                layer.build(shape)
                self.parts.append(layer)
        self.dense = keras.layers.Dense(self.num_classes, name="dense", dtype=policy)
        self.dense.build((None, shape[-1]))
        self.built = True

    def features(self, images: ArrayLike) -> tf.Tensor:
        """Returns the features of images.

        Args:
            images: uint8 `[B, H, W, 3]`.

        Returns:
            Floats `[B, channels * 2 ** (num_stages - 1)]`.
        """
        if not self.built:
            self.build()
        images = integers("images", images, 255)
        x = ops.cast(images, self.compute_dtype) / 127.5 - 1.0
        for number, part in enumerate(self.parts):
            # A block has a ReLU of its own before its first convolution.
            relu = number and isinstance(part, keras.layers.Conv2D)
            x = part(ops.relu(x) if relu else x)
        return ops.mean(ops.relu(x), axis=(1, 2))

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> tf.Tensor:
        return self.dense(self.features(inputs["images"]))

    def _loss_terms(self, inputs, outputs):
        most = self.num_classes - 1
        labels = in_range("labels", integers("labels", inputs["labels"], most), most)
        labels = ops.cast(labels, "int32")
        logits = ops.cast(outputs, "float32")
        picked = ops.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
        nats = ops.logsumexp(logits, axis=-1) - picked
        right = ops.cast(ops.argmax(logits, axis=-1), "int32") == labels
        values = {"loss": nats, "metric": ops.cast(right, "float32")}
        yield self.accuracy, values, ops.ones_like(nats)

    def _loss_counts(self, inputs):
        rows = ops.shape(inputs["images"])[0]
        return [rows, rows]

    def export(self, filepath: str | os.PathLike) -> None:
        """Writes a SavedModel that TensorFlow Serving can load.

        Its signature `serving_default` takes `images`, uint8 `[B, H, W, 3]`, to
        `features` and `logits`, with any number of rows.

        Args:
            filepath: Folder to write. TensorFlow Serving expects its name to be a
                version number, such as `models/classes/1`.
        """

        def serve(images):
            features = self.features(images)
            return {"features": features, "logits": self.dense(features)}

        images = tf.TensorSpec([None, *self.image_size, 3], "uint8", name="images")
        self._export(filepath, {"serve": (serve, [images])})

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "channels": self.channels,
            "num_stages": self.num_stages,
            "num_blocks": self.num_blocks,
            "image_size": self.image_size,
        }
