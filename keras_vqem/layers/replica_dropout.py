"""ReplicaDropout: dropout with noise of its own on every replica."""

import keras

from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class ReplicaDropout(keras.layers.Layer):
    """As `keras.layers.Dropout`, but replicas of `tf.distribute` drop different units.

    Args:
        rate: Share of the units to drop, from 0 to below 1; the others are scaled up.
        seed: Of the noise.
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    >>> layer = keras_vqem.layers.ReplicaDropout(0.5, seed=0)
    >>> sorted(set(np.asarray(layer(np.ones((8, 8)), training=True)).ravel().tolist()))
    [0.0, 2.0]
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(
                f"`rate` must be at least 0 and below 1, received {rate!r}."
            )
        self.rate = rate
        self.seed = seed
        self.supports_masking = True
        self.seed_generator = ReplicaSeedGenerator(seed) if rate else None
        self.built = True

    def call(self, inputs, training=None):
        if not training or not self.rate:
            return inputs
        return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
