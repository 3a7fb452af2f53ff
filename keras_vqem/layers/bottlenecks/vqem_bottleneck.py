"""VQEMBottleneck: a codebook trained with hard EM or Monte-Carlo soft EM."""

from typing import Any

import keras
from keras.optimizers.schedules import LearningRateSchedule

from keras_vqem.layers.bottlenecks import draws as drawing
from keras_vqem.layers.bottlenecks import starts, strategies
from keras_vqem.layers.bottlenecks.averages import MovingAverages
from keras_vqem.layers.bottlenecks.codebook import EMACodebook
from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.bottlenecks.commitments import SquaredCommitment
from keras_vqem.layers.bottlenecks.gradients import StraightThrough
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.layers.bottlenecks.scheduled import Scheduled
from keras_vqem.layers.bottlenecks.similarities import Euclidean
from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class VQEMBottleneck(CodebookBottleneck):
    """Vector quantization with a codebook that is learned by EM, not by gradient.

    Vectors are modelled as draws from a mixture of `num_codes` spherical Gaussians with
    equal weights and equal variances. The means of the Gaussians are the codebook. Each
    training step is one step of EM for that mixture, as a moving average over batches:

    - **E step.** Hard EM (`num_samples=None`) assigns a vector to the nearest code.
      Monte-Carlo soft EM draws `num_samples` codes from the posterior, which is the
      softmax of minus the squared distances divided by `temperature`. Exact soft EM
      (`num_samples="exact"`) uses the posterior itself.
    - **M step.** Each code moves to the moving average of the vectors assigned to it.
      With `m` samples, a vector counts `1 / m` for each draw; in exact soft EM, it
      counts its posterior probability for each code. A code without vectors stays where
      it is.

    The decoder gets the mean of the chosen codebook vectors (in exact soft EM, that of
    all of them, weighted by the posterior), and its gradient passes
    straight through to the inputs. A step quantises with the codebook of the previous
    step, then updates it. The auxiliary loss is the commitment loss,
    `commitment_weight` times the mean squared distance between inputs and quantized
    vectors, which keeps the encoder close to the codebook.

    **How the codebook starts.** By default, each code starts at a vector of the first
    training batch; the vectors chosen are spread evenly over the batch. If the batch
    has fewer vectors than there are codes, the next batches place the remaining codes.
    Until then, only placed codes are used. Before any training the codebook is empty:
    all its vectors are 0. With `initializer="kmeans"`, the codes start as the centres
    of k-means of the first training batch, or of any data given to `adapt` before.

    **Dead codes.** With `dead_code_threshold` above 0, a code that is used less than
    that fraction of the average use is moved to a vector of the current batch.

    **A prior over codes.** The equal weights of the mixture are a uniform prior. If
    something predicts codes from a context, such as a latent predictor, call the layer
    with its `prior_logits`. The posterior is then the softmax of

        -|x - e|^2 / temperature + prior_logits

    and all codes follow it by one rule. Draws of soft EM are from this posterior, and
    wherever else the nearest code is taken, in hard EM and outside training, it is now
    the likeliest code. No gradient reaches the logits.

    **Replicas.** Under `tf.distribute`, all of this acts on the whole batch. Every
    replica holds the codebook that a single replica would get from the whole batch.

    **Metrics.** `perplexity` and `usage` of the codebook over the epoch;
    `commitment`, the commitment loss of the epoch without its weight; and
    `nonfinite`, the number of vectors left out because of NaN or infinity. If the user
    names the layer, its name comes first, as in `image_codes_perplexity`.

    Args:
        num_codes: Number of codes, `K`. At least 2.
        num_samples: Number of draws per vector, `m`, for Monte-Carlo soft EM. None for
            hard EM. `"exact"` for soft EM without draws, which is the limit of many
            draws: `quantized` is then the posterior mean in training. Or
            `keras_vqem.layers.Draws`, which says what of the draws the decoder and a
            latent predictor get; by default, their mean and all of them.
        temperature: Number that divides squared distances in the posterior of soft EM,
            or a `keras.optimizers.schedules` schedule over training steps. Distances
            grow with the size and scale of the vectors: if the `samples` of a vector
            are almost always equal, raise the temperature. A falling schedule makes
            soft EM end near hard EM, whose codes are those used after training. Hard
            EM and inference use it only to weigh distances against `prior_logits`: the
            higher it is, the more the prior counts.
        groups: Number of codes per vector, or a grouping. None for one code per vector.
            An integer, or `keras_vqem.layers.Slices`, for product quantization with one
            codebook per slice. `keras_vqem.layers.Projections` for product quantization
            of random projections. `keras_vqem.layers.SharedSlices` for several codes
            from one codebook. `keras_vqem.layers.LearnedProjections` for codes of
            smaller vectors.
        decay: Decay of the moving averages, at least 0 and below 1. With 0, each step
            forgets all previous steps; with hard EM it is then one step of Lloyd's
            k-means. Or averages of another form: `keras_vqem.layers.PaperAverages` for
            equation 4 of the paper to the letter, and
            `keras_vqem.layers.ReferenceAverages` for the start of the authors' code.
        commitment_weight: Weight of the commitment loss; beta in the paper. Or
            `keras_vqem.layers.NormCommitment` for the norm of equation 2, where the
            default has the mean of squares.
        initializer: `"data"` to start from training batches, `"kmeans"` to start from
            k-means, both as described above, or a Keras initializer. To set the codes
            yourself, use `keras.initializers.Constant(codes[None])`; with groups, use
            an array `[num_codebooks, num_codes, size of a piece]`. Codes from an
            initializer start with a count of 1, as if each had been assigned one vector
            of every batch so far. A layer that is never trained (`trainable=False` from
            the start) needs an initializer, because it never learns from data.
        dead_code_threshold: Fraction of the average use below which a code is dead and
            is moved. 0 never moves a code; sensible values are 0.01 to 0.1.
        seed: Integer seed of the draws and of the choice of new places for dead codes.
            None draws one at random.
        similarity: `"euclidean"` for the nearest code by distance, or `"cosine"` for
            unit vectors and the nearest code by angle; or an object, such as
            `keras_vqem.layers.Cosine()`.
        gradient: `"straight_through"`, or `"rotation"` for the rotation trick, which
            needs hard EM; or an object, such as `keras_vqem.layers.RotationTrick()`.
        **kwargs: Other arguments of `keras.layers.Layer`, such as `name` and `dtype`.
            `trainable=False` freezes the codebook; calls with `training=True` still
            draw samples and add the commitment loss.

    Call arguments:
        inputs: Vectors `[..., D]`. For example, `[16, 32, 32, 64]` holds 16,384 vectors
            of size 64.
        mask: Booleans `[...]`. Vectors where it is False change neither codebook, nor
            loss, nor metrics. The same is true of vectors with NaN or infinity, which
            the metric `nonfinite` counts.
        training: True draws samples, updates the codebook and updates metrics. False
            uses the nearest codes and updates metrics. None, as in `model.export`, uses
            the nearest codes and updates nothing.
        prior_logits: Logits `[..., K]`, or `[..., G, K]` with `G` groups, of a prior
            over codes. None for a uniform prior. Only differences within a row matter.
            Pass `gamma * logits` to weigh the prior, which is entropy-constrained
            quantization. A logit of minus infinity forbids a code. Rows with NaN or
            plus infinity, and rows that forbid all codes, count as uniform, and their
            vectors are left out like vectors with NaN.

    Returns:
        A dict with the same keys, shapes and dtypes in training and inference:

        - `quantized`: Vectors `[..., D]` in the compute dtype, for the decoder.
        - `codes`: Nearest codes, int32 `[...]`, or `[..., G]` with `G` groups. With
          `prior_logits`, the likeliest codes.
        - `samples`: Codes whose mean vector is `quantized`, int32 `[..., m]`, or
          `[..., G, m]` with `G` groups; `m` is 1 for hard EM. They are the soft labels
          of a latent predictor, each code with weight `1 / m`. `assignments(samples)`
          turns them into probabilities of all codes. In exact soft EM, they are the
          likeliest codes, `m` is 1, and `posterior(inputs)` has the soft labels.
          `keras_vqem.layers.Draws` may say otherwise.

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
        num_samples: int | str | drawing.Draws | None = None,
        temperature: float | LearningRateSchedule = 1.0,
        groups: int | Whole | None = None,
        decay: float | MovingAverages = 0.999,
        commitment_weight: float | SquaredCommitment = 0.25,
        initializer: keras.initializers.Initializer | str = "data",
        dead_code_threshold: float = 0.0,
        seed: int | None = None,
        similarity: str | Euclidean = "euclidean",
        gradient: str | StraightThrough = "straight_through",
        **kwargs: Any,
    ):
        if "penalties" in kwargs:
            raise ValueError(
                f"VQEMBottleneck takes no `penalties`, received "
                f"{kwargs['penalties']!r}: no gradient reaches its codebook. To keep "
                f"more codes in use, set dead_code_threshold=0.05 or use soft EM; or "
                f"use VQBottleneck, whose codebook learns by gradient."
            )
        super().__init__(
            num_codes,
            groups=groups,
            commitment_weight=commitment_weight,
            similarity=similarity,
            gradient=gradient,
            **kwargs,
        )
        self.draws = drawing.get(num_samples)
        if drawing.sends_means(self.draws) and not self.gradient.means:
            raise ValueError(
                f"gradient={gradient!r} needs one code per vector, but soft EM with "
                f"num_samples={num_samples!r} gives the decoder the mean of several. "
                f"Use num_samples=None, or gradient='straight_through'."
            )
        if temperature == 0:
            raise ValueError(
                "`temperature` must be above 0, received 0. For the limit at 0, which "
                "is the nearest code, use hard EM: num_samples=None."
            )
        if not 0 <= dead_code_threshold < 1:
            raise ValueError(
                f"`dead_code_threshold` must be at least 0 and below 1, because it is "
                f"a fraction of the average use of a code; received "
                f"{dead_code_threshold!r}. Use 0 to never move a code."
            )
        self.temperature = Scheduled(temperature, "temperature", above=0.0)
        self.averages = strategies.of_number("decay", decay, MovingAverages)
        self.initializer = starts.get(initializer)
        self.dead_code_threshold = dead_code_threshold
        self.seed = seed
        self.seed_generator = ReplicaSeedGenerator(seed)
        self.ema = EMACodebook(
            self.num_codes,
            self.groups.num_codebooks,
            decay=self.averages,
            initializer=self.initializer,
            dead_code_threshold=dead_code_threshold,
            seed=seed,
            similarity=self.similarity,
            name="ema",
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        self.ema.build(self.groups.build(self, self._dim))
        self.temperature.build(self)

    @property
    def decay(self) -> float:
        """Decay of the moving averages."""
        return self.averages.decay

    @property
    def codebook(self) -> keras.Variable:
        """The codebooks `[C, K, d]`. `C` is 1 unless `groups` has several codebooks."""
        return self.ema.vectors

    @property
    def counts(self) -> keras.Variable:
        """Moving averages `[C, K]` of the number of vectors per batch and code."""
        return self.ema.counts

    @property
    def codebook_weights(self) -> list[keras.Variable]:
        return [self.ema.vectors, self.ema.counts]

    def _read_codebook(self):
        return self.ema.read()

    def _begin_step(self, pieces, keep, per_replica, learning):
        if not learning:
            return self.ema.read()
        return self.ema.seed(pieces, keep, per_replica)

    def _end_step(self, vectors, counts, pieces, samples, batch_counts, sums=None):
        self.ema.update(vectors, counts, pieces, samples, batch_counts, sums)
        self.temperature.step()

    def _adopt(self, centres, counts):
        self.ema.adopt(centres, counts)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_samples": drawing.serialize(self.draws),
            "temperature": self.temperature.serialize(),
            "decay": strategies.number_or_config(self.averages, MovingAverages),
            "initializer": starts.serialize(self.initializer),
            "dead_code_threshold": self.dead_code_threshold,
            "seed": self.seed,
        }
