"""VQEMBottleneck: a codebook trained with hard EM or Monte-Carlo soft EM."""

from typing import Any

import keras
import numpy as np
from keras.optimizers.schedules import LearningRateSchedule

from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks.codebook import EMACodebook
from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.layers.bottlenecks.scheduled import Scheduled
from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class VQEMBottleneck(CodebookBottleneck):
    """Vector quantization with a codebook that is learned by EM, not by gradient.

    Vectors are seen as draws from a mixture of `num_codes` round Gaussians with equal
    weights and one variance, whose means are the codebook. Each training step is one
    step of EM over that mixture, as a moving average over batches:

    - **E step.** Hard EM (`num_samples=None`) gives a vector to the nearest code.
      Monte-Carlo soft EM draws `num_samples` codes from the posterior, the softmax of
      minus the squared distances over `temperature`.
    - **M step.** Each code moves to the (moving) average of the vectors it got; with m
      samples a vector counts 1/m for each draw. A code that got nothing stays.

    The decoder receives the mean of the chosen entries; its gradient passes straight
    through to the inputs. The step quantises with the codebook as it was before, then
    updates it. A commitment loss, `commitment_weight` times the mean squared distance
    between inputs and their quantized vectors, holds the encoder to the codebook.

    **How the codebook starts.** By default from the first training batch: each code
    takes the place of one vector, spread evenly over the batch. With fewer vectors
    than codes, later batches place the rest; until then only placed codes are used.
    Before any training the codebook is empty: all codes are 0.

    **Dead codes.** With `dead_code_threshold` above 0, a code used less than that share
    of the average use is put in the place of a vector of the current batch.

    **Replicas.** Under `tf.distribute` all of this acts on the whole batch: every
    replica holds the same codebook, the one that a single replica would have got.

    Args:
        num_codes: K, the size of the codebook; at least 2.
        num_samples: None for hard EM, or m, the number of draws a vector.
        temperature: Divides squared distances in the posterior of soft EM. Distances
            grow with the size and scale of the vectors: when draws hardly ever differ
            (`samples` of one vector are all alike), raise it. A schedule of
            `keras.optimizers.schedules` lets it fall over the training steps: soft EM
            that ends near hard EM, whose codes are those used after training.
        groups: How many codes a vector gets. None: one. A number, or
            `keras_vqem.layers.Slices`: product quantization, a codebook a slice.
            `Projections`: the same over random projections. `SharedSlices`: several
            codes from one codebook.
        decay: Of the moving averages, from 0 (each step forgets all before it: with
            hard EM one step of Lloyd's k-means) to below 1.
        commitment_weight: beta, the weight of the commitment loss.
        initializer: `"data"` (see above), or a Keras initializer. For codes of your
            own: `keras.initializers.Constant(codes[None])`, or with groups an array
            [num_codebooks, num_codes, size of a piece]. Each starts with a count of
            1, as if it had got one vector of every batch so far. (A layer that is
            never trained, `trainable=False` from the start, never sees data: give it
            codes.)
        dead_code_threshold: Share of the average use below which a code counts as dead
            and is moved; 0 never moves one. 0.01 to 0.1 are sensible.
        seed: Seed of the draws and of revival.
        **kwargs: `name`, `dtype`, `trainable` and other arguments of
            `keras.layers.Layer`. `trainable=False` freezes the codebook (draws and
            the commitment loss go on in training).

    Call arguments:
        inputs: Vectors [..., D]; for example [16, 32, 32, 64] holds 16,384 vectors of
            size 64.
        mask: Booleans [...]; vectors where it is False change nothing: neither
            codebook, nor loss, nor metrics. Vectors with NaN or infinity are treated
            alike, and counted in the metric `nonfinite`.
        training: True updates the codebook and draws samples. Otherwise vectors become
            their nearest codes. With None (as in `model.export`) metrics rest as well.

    Returns:
        A dict with the same keys, shapes and dtypes in training and inference:

        - `quantized` [..., D], in the compute dtype;
        - `codes` [...] int32, the nearest codes ([..., G] with groups);
        - `samples` [..., m] int32, the codes whose mean is `quantized` ([..., G, m]):
          the soft labels of a latent predictor, as a list of codes with weight 1/m
          each. `assignments(samples)` makes rows over the codebook of them.

    Metrics, over the epoch: `perplexity` and `usage` of the codebook, and `nonfinite`,
    the number of vectors left out. A layer with a name of its own puts that before
    them, as in `image_codes_perplexity`.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(num_codes=8, num_samples=10, seed=0)
    >>> x = np.random.default_rng(0).normal(size=(4, 16, 2)).astype("float32")
    >>> outputs = layer(x, training=True)
    >>> outputs["quantized"].shape, outputs["codes"].shape, outputs["samples"].shape
    (TensorShape([4, 16, 2]), TensorShape([4, 16]), TensorShape([4, 16, 10]))
    >>> codes = layer.encode(x)
    >>> bool(np.all(layer.decode(codes) == layer(x)["quantized"]))
    True

    References:
        - Roy, Vaswani, Neelakantan, Parmar, 2018. Theory and Experiments on Vector
          Quantized Autoencoders. arXiv:1805.11063.
    """

    def __init__(
        self,
        num_codes: int,
        num_samples: int | None = None,
        temperature: float | LearningRateSchedule = 1.0,
        groups: int | Whole | None = None,
        decay: float = 0.999,
        commitment_weight: float = 0.25,
        initializer: keras.initializers.Initializer | str = "data",
        dead_code_threshold: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(
            num_codes, groups=groups, commitment_weight=commitment_weight, **kwargs
        )
        if num_samples is not None:
            remedy = "Use None for hard EM."
            num_samples = whole_number("num_samples", num_samples, 1, remedy)
        if isinstance(initializer, np.ndarray):
            raise ValueError(
                "`initializer` must be 'data' or a Keras initializer. For codes of "
                "your own use keras.initializers.Constant(codes[None])."
            )
        if temperature == 0:
            raise ValueError(
                "`temperature` must be above 0. For its limit, the nearest code, use "
                "hard EM: num_samples=None."
            )
        if not 0 <= decay < 1:
            raise ValueError(
                f"`decay` must be at least 0 and below 1, received {decay!r}. To keep "
                f"the codebook as it is use trainable=False."
            )
        if not 0 <= dead_code_threshold < 1:
            raise ValueError(
                f"`dead_code_threshold` is a share of the average use of a code, at "
                f"least 0 and below 1; received {dead_code_threshold!r}."
            )
        self.num_samples = num_samples
        self.temperature = Scheduled(temperature, "temperature", above=0.0)
        self.decay = decay
        self.initializer = (
            initializer
            if initializer == "data"
            else keras.initializers.get(initializer)
        )
        self.dead_code_threshold = dead_code_threshold
        self.seed = seed
        self.seed_generator = ReplicaSeedGenerator(seed)
        self.ema = EMACodebook(
            self.num_codes,
            self.groups.num_codebooks,
            decay=decay,
            initializer=self.initializer,
            dead_code_threshold=dead_code_threshold,
            seed=seed,
            name="ema",
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        self.ema.build(self.groups.build(self, self._dim))
        self.temperature.build(self)

    @property
    def codebook(self) -> keras.Variable:
        """The codebooks [C, K, d]; C is 1 unless `groups` has several of them."""
        return self.ema.vectors

    @property
    def counts(self) -> keras.Variable:
        """Moving averages [C, K] of how many vectors of a batch each code gets."""
        return self.ema.counts

    @property
    def codebook_weights(self) -> list[keras.Variable]:
        return [self.ema.vectors, self.ema.counts]

    def _read_codebook(self):
        return self.ema.read()

    def _begin_step(self, pieces, keep, learning):
        return self.ema.seed(pieces, keep) if learning else self.ema.read()

    def _end_step(self, vectors, counts, pieces, samples, batch_counts):
        self.ema.update(vectors, counts, pieces, samples, batch_counts)
        self.temperature.step()

    def get_config(self) -> dict[str, Any]:
        initializer = self.initializer
        if initializer != "data":
            initializer = keras.initializers.serialize(initializer)
        return {
            **super().get_config(),
            "num_samples": self.num_samples,
            "temperature": self.temperature.serialize(),
            "decay": self.decay,
            "initializer": initializer,
            "dead_code_threshold": self.dead_code_threshold,
            "seed": self.seed,
        }
