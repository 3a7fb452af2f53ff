"""What the translators share: source encoder, token loss, compile, translate."""

import functools
import inspect

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_vqem import replicas
from keras_vqem.ids import PAD_ID
from keras_vqem.layers import (
    ReplicaDropout,
    TiedEmbedding,
    TransformerEncoder,
)
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.models import translation_endpoints as endpoints
from keras_vqem.models.schedules import WarmupInverseSquareRoot
from keras_vqem.models.task_model import TaskModel

# Sentences with more ids than this are translated in smaller batches.
LONG = 128


def cross_entropy(logits, ids, smoothing=0.0):
    """Minus the log probability of `ids` [...] under `logits` [..., V].

    Returns:
        Two tensors [...]: with `smoothing` of each label spread evenly over all ids,
        and without.
    """
    logits = ops.cast(logits, "float32")
    total = ops.logsumexp(logits, axis=-1)
    picked = ops.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
    label = picked
    if smoothing:
        label = (1.0 - smoothing) * picked + smoothing * ops.mean(logits, axis=-1)
    return total - label, total - picked


def mean_log_prob(logits, ids):
    """[B], of `ids` [B, L] under `logits` [B, L, V]; -1e9 for rows of padding only."""
    there = ops.cast(ids != PAD_ID, "float32")
    total = -ops.sum(cross_entropy(logits, ids)[1] * there, axis=1)
    number = ops.sum(there, axis=1)
    return ops.where(number > 0, total / ops.maximum(number, 1.0), -1e9)


def with_generation_config(generate):
    """Makes `generate` take what is not given from the model's `generation_config`."""

    @functools.wraps(generate)
    def merged(self, source_ids, **options):
        return generate(self, source_ids, **{**self.generation_config, **options})

    merged.options = list(inspect.signature(generate).parameters)[2:]
    # `tf.function` would read defaults off the original and pass them as if given.
    del merged.__wrapped__
    return merged


class _Graphs:
    """Graphs by their options. Not a dict: TensorFlow would want to export that."""

    def __init__(self):
        self.by_options = {}


class Translator(TaskModel):
    """Base of the models that read `source_ids` and learn or write `target_ids`.

    A subclass has `call`, `_loss_terms(inputs, outputs)` for training, and
    `generate(source_ids, **options)`, which must work inside a graph and is decorated
    with `with_generation_config`.

    Args:
        generation_config: Dict of options of `generate` that apply wherever a call
            does not say otherwise, in `translate` and `export` as well. It is saved
            with the model. None for the defaults of `generate` itself.
        low_score: Score of `generate` below which a translation is probably wrong,
            as measured with `generation_config` on text that the model knows; None
            if that is not known.
    """

    def __init__(
        self,
        tokenizer,
        hidden_dim,
        num_encoder_layers,
        num_heads,
        intermediate_dim,
        dropout,
        generation_config=None,
        low_score=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.generation_config = generation_config or {}
        self.low_score = low_score
        self.hidden_dim = hidden_dim
        self.num_encoder_layers = num_encoder_layers
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.label_smoothing = 0.0
        self.embedding = TiedEmbedding(
            tokenizer.vocabulary_size,
            hidden_dim,
            name="embedding",
            dtype=self.dtype_policy,
        )
        self.encoder = TransformerEncoder(
            num_encoder_layers,
            num_heads,
            intermediate_dim,
            dropout,
            name="encoder",
            dtype=self.dtype_policy,
        )
        self.embedding_dropout = ReplicaDropout(dropout, dtype=self.dtype_policy)
        self.token_nll = keras.metrics.Mean(name="token_nll")
        self._graphs = _Graphs()

    def build(self, input_shape=None):
        self.embedding.build()
        self.encoder.build((None, None, self.hidden_dim))

    # Training.

    def compile(self, optimizer="auto", label_smoothing=0.1, **kwargs):
        """As `keras.Model.compile`, with defaults that train a translator.

        Args:
            optimizer: `"auto"`: Adam as in the Transformer paper, a linear warm-up
                over 1,000 steps to 0.002 and then the inverse square root of the step.
            label_smoothing: Share of each target label that is spread evenly over the
                vocabulary.
            **kwargs: Arguments of `keras.Model.compile`. There is no `loss`: the
                model knows what it learns.
        """
        self.label_smoothing = label_smoothing
        super().compile(optimizer=optimizer, **kwargs)

    def _default_optimizer(self):
        rate = WarmupInverseSquareRoot(peak=0.002, warmup_steps=1000)
        return keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9)

    def get_compile_config(self):
        config = super().get_compile_config()
        if config:  # Empty if not compiled, and must stay so.
            config["label_smoothing"] = self.label_smoothing
        return config

    def task_loss(self, inputs, outputs):
        total = 0.0
        for tracker, values, weights in self._loss_terms(inputs, outputs):
            # The mean over the whole batch, all replicas'; Keras sums gradients.
            count = ops.sum(weights)
            everywhere = ops.maximum(replicas.sum_over_replicas(count), 1.0)
            total += ops.sum(values["loss"] * weights) / everywhere
            local = ops.sum(values["metric"] * weights) / ops.maximum(count, 1.0)
            tracker.update_state(local, sample_weight=count)
        return total

    def _token_loss(self, logits, target_ids):
        """The term of `_loss_terms` for the words of the translation."""
        loss, plain = cross_entropy(logits, target_ids, self.label_smoothing)
        weights = ops.cast(target_ids != PAD_ID, "float32")
        return self.token_nll, {"loss": loss, "metric": plain}, weights

    def warm_start(self, teacher: keras.Model) -> None:
        """Takes over what a trained `Transformer` of the same sizes has learned.

        Embedding and source encoder are the same in both; the decoder's attention to
        the source and its feed-forward layers are a good start. Call it before `fit`.

        Args:
            teacher: A built `Transformer` with the same tokenizer, width and depths.
        """
        if not self.built:
            self.build()
        for name in ("embedding", "encoder", "decoder"):
            mine, other = getattr(self, name), getattr(teacher, name)
            if [w.shape for w in mine.weights] != [w.shape for w in other.weights]:
                raise ValueError(
                    f"The {name} of the teacher has other sizes than that of this "
                    f"model. Give both the same vocabulary, hidden_dim, num_heads, "
                    f"intermediate_dim and numbers of layers."
                )
            mine.set_weights(other.get_weights())

    # The source.

    def _embed(self, ids, training=None):
        x = self.embedding(ids)
        x = x + position_signal(ops.shape(ids)[1], self.hidden_dim, dtype=x.dtype)
        return self.embedding_dropout(x, training=training)

    def encode_source(self, source_ids, training=None):
        """The memory [B, S, D] that decoders attend to, and its mask [B, S]."""
        mask = source_ids != PAD_ID
        x = self._embed(source_ids, training)
        return self.encoder(x, mask=mask, training=training), mask

    # Translation.

    @property
    def generation_options(self):
        """Names of the options of `generate`."""
        return self.generate.options

    @property
    def generation_config(self):
        """Options of `generate` that apply wherever a call does not say otherwise."""
        return dict(self._generation_config)

    @generation_config.setter
    def generation_config(self, options):
        unknown = sorted(options.keys() - set(self.generation_options))
        if unknown:
            raise ValueError(
                f"`generation_config` holds {unknown}, which {type(self).__name__} "
                f"does not have. Its options are {self.generation_options}."
            )
        self._generation_config = dict(options)

    def translate_ids(self, source_ids, **options):
        """The `target_ids` [B, L] of `generate`, whose options it takes."""
        return self.generate(source_ids, **options)["target_ids"]

    def _rescored(self, rescorer, source_ids, ids, num_beams):
        """Scores [B * num_beams] by a `Transformer` of ids [B * num_beams, L]."""
        words = self.tokenizer.vocabulary_size
        if rescorer.tokenizer.vocabulary_size != words:
            raise ValueError(
                f"The rescorer has {rescorer.tokenizer.vocabulary_size} words, this "
                f"model {words}. Use a Transformer with the same tokenizer."
            )
        seen = rescorer.encode_source(source_ids)
        return rescorer.score(ids, *(ops.repeat(x, num_beams, axis=0) for x in seen))

    def translation_graph(self, **options):
        """`translate_ids` with these options as a graph, traced once.

        Args:
            **options: Options of `generate`, before those of `generation_config`.

        Returns:
            A `tf.function` from `source_ids` [B, S], of any B and S, to ids [B, L].
        """
        return self._graph(self.translate_ids, options)

    def _graph(self, method, options):
        """A method from `source_ids` to anything as a graph, traced once."""
        if not self.built:
            self.build()
        graphs = self._graphs.by_options
        options = {**self.generation_config, **options}
        key = (method.__name__, *sorted(options.items()))
        try:
            hash(key)
        except TypeError:
            raise ValueError(
                f"Options of a translation cannot be {options}. To give "
                f"each row a limit of its own call `translate_ids`."
            ) from None
        if key not in graphs:
            graphs[key] = tf.function(
                lambda source_ids: method(source_ids, **options),
                input_signature=[tf.TensorSpec([None, None], "int32")],
                autograph=False,
            )
        return graphs[key]

    def translate(self, texts, batch_size=64, return_scores=False, **options):
        """Translates strings.

        Args:
            texts: A list of strings, in any order and of any lengths: they are sorted
                by length inside, and come back in the order given.
            batch_size: Number of texts translated at a time; fewer if they are very
                long.
            return_scores: Whether to return the scores of `generate` too.
            **options: Options of `generate`, before those of `generation_config`.

        Returns:
            A list of strings; with `return_scores` that list and a list of floats, NaN
            for texts without words.
        """
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, received {batch_size}.")
        if isinstance(texts, (str, bytes)):
            raise ValueError(
                "`texts` must be a list of strings, received a single one. "
                f"Write translate([{texts!r}])."
            )
        texts = list(texts)
        if not texts:
            return ([], []) if return_scores else []
        rows_of_ids = self.tokenizer.encode(texts)
        lengths = rows_of_ids.row_lengths().numpy()
        order = np.argsort(-lengths, kind="stable")
        if return_scores:
            graph = self._graph(self.generate, options)
        else:
            graph = self.translation_graph(**options)
        found, scores = [""] * len(texts), [float("nan")] * len(texts)
        while len(order):
            # The longest comes first; attention takes memory by the square of it.
            rows = batch_size * LONG**2 // max(lengths[order[0]], LONG) ** 2
            places, order = np.split(order, [max(rows, 1)])
            source_ids = tf.gather(rows_of_ids, places).to_tensor(PAD_ID)
            output = graph(source_ids)
            ids = output["target_ids"] if return_scores else output
            for row, text in enumerate(self.tokenizer.decode(ids).numpy()):
                place = places[row]
                # What holds nothing but its end is not to be translated.
                if lengths[place] > 1:
                    found[place] = text.decode("utf-8", errors="replace")
                    if return_scores:
                        scores[place] = float(output["scores"][row])
        return (found, scores) if return_scores else found

    # Export.

    def export(self, filepath, max_tokens=256, **options):
        """Writes a SavedModel that TensorFlow Serving loads as it is.

        Its signatures, with any number of rows:

        - `serving_default`: `texts`, strings [B], to `translations`, strings [B], and
          what `generate` returns beside ids;
        - `translate_ids`: `source_ids` [B, S] to what `generate` returns;
        - of a `LatentNMT` also `encode`: `sources` and `targets`, strings, to `codes`,
          and `decode`: `sources` and `codes` to `translations`.

        The runtime needs the operations of tensorflow-text. A text without words gives
        an empty translation; bytes that are not UTF-8 are read as U+FFFD.

        Args:
            filepath: The folder; TensorFlow Serving wants one named by a version,
                such as `models/translator/1`.
            max_tokens: Texts and ids are cut after that many tokens.
            **options: Options of `generate`, such as `num_beams`, before those of
                `generation_config`.
        """
        if max_tokens < 2:
            raise ValueError(
                f"`max_tokens` must be at least 2, a token and the end; received "
                f"{max_tokens!r}."
            )
        if not self.built:
            self.build()
        options = {**self.generation_config, **options}
        rescorers = [x for x in options.values() if isinstance(x, keras.Model)]
        self._export(filepath, self._endpoints(max_tokens, options), *rescorers)

    def _endpoints(self, max_tokens, options):
        """A dict from names to functions and their signatures; the first is default."""
        return endpoints.of_translator(self, max_tokens, options)

    def get_config(self):
        return {
            **super().get_config(),
            "tokenizer": keras.saving.serialize_keras_object(self.tokenizer),
            "hidden_dim": self.hidden_dim,
            "num_encoder_layers": self.num_encoder_layers,
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "generation_config": self.generation_config,
            "low_score": self.low_score,
        }

    @classmethod
    def from_config(cls, config):
        tokenizer = keras.saving.deserialize_keras_object(config["tokenizer"])
        return super().from_config({**config, "tokenizer": tokenizer})
