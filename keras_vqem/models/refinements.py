"""How a RefinementNAT improves a translation: by denoising, or by masking and filling.

A refinement says what the decoder reads in training, what is learned from it, and what
it reads in each pass of a translation. All words are written in every pass.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.ids import EOS_ID, PAD_ID, UNKNOWN_ID
from keras_vqem.layers import TiedEmbedding
from keras_vqem.layers.bottlenecks.strategies import Strategy
from keras_vqem.models.token_scores import cross_entropy

if TYPE_CHECKING:
    from keras_vqem.models.refinement_nat import RefinementNAT

# What the corruption does at a word.
KEEP, REPEAT, REPLACE, SWAP = range(4)


class Refinement(Strategy):
    """Base class of `Denoising` and `MaskPredict`."""

    # Number of terms of the loss, each of which weighs target tokens alike.
    num_losses = 1

    def attach(self, model: "RefinementNAT") -> list[keras.layers.Layer]:
        """Creates what the refinement adds to a model, and returns its layers."""
        return []

    def teach(
        self,
        model: "RefinementNAT",
        inputs: dict[str, tf.Tensor],
        decode: Callable,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        """Writes the words of known targets.

        Args:
            model: The `RefinementNAT`.
            inputs: Dict with `source_ids` `[B, S]` and `target_ids` `[B, T]`.
            decode: Function from vectors `[B, T, D]` to logits `[B, T, V]`.
            training: Whether the model is learning.

        Returns:
            Dict of tensors for `losses`, among them `logits` `[B, T, V]`.
        """
        raise NotImplementedError

    def losses(
        self, model: "RefinementNAT", target_ids: tf.Tensor, outputs: dict
    ) -> Iterator[tuple]:
        """Yields terms of the model's loss for the outputs of `teach`."""
        yield model._token_loss(outputs["logits"], target_ids)

    def write(
        self,
        model: "RefinementNAT",
        source_ids: tf.Tensor,
        mask: tf.Tensor,
        decode: Callable,
        num_iterations: int,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Writes translations of known lengths, and refines them.

        Args:
            model: The `RefinementNAT`.
            source_ids: int32 `[B, S]`, padded with 0.
            mask: Booleans `[B, T]`, False after the end of a translation.
            decode: Function from vectors `[B, T, D]` to logits `[B, T, V]`.
            num_iterations: Number of passes of the decoder.

        Returns:
            A tuple `(ids, log_probs)`: int32 `[B, T]`, and the log probability of each
            id when it was written, `[B, T]`.
        """
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="keras_vqem")
class Denoising(Refinement):
    """The decoder reads a translation with mistakes, and writes a better one.

    In the first pass it reads the source, stretched or shrunk to the length of the
    translation; in each later pass what it wrote in the pass before. Passes end early
    when they no longer change any sentence of the batch. More of them would not either,
    so the result is that of all `num_iterations` passes.

    Training takes two passes. The second reads what the first wrote, without gradients
    through that choice, or a corrupted target, and the losses of both passes are added.
    The corruption goes through the words from left to right. At a share of them it
    does, with equal probability, one of three things: write the word over the next one,
    replace it by a random one, or swap it with the next one. In evaluation the second
    pass reads what the first wrote.

    The paper trains with more than two passes, and its first pass has a decoder of its
    own.

    Args:
        corruption: Share of words, from 0 to 1, at which the corruption changes
            something.
        denoising_share: Share of sentences, from 0 to 1, whose second pass reads the
            corrupted target. The others read what the model wrote itself.

    Example:

    >>> keras_vqem.models.Denoising(corruption=0.2).get_config()
    {'corruption': 0.2, 'denoising_share': 0.5}

    Reference:
        - Lee, Mansimov, Cho, 2018. Deterministic Non-Autoregressive Neural Sequence
          Modeling by Iterative Refinement. arXiv:1802.06901.
    """

    num_losses = 2

    def __init__(self, corruption: float = 0.3, denoising_share: float = 0.5):
        for name, value in (
            ("corruption", corruption),
            ("denoising_share", denoising_share),
        ):
            if not 0 <= value <= 1:
                raise ValueError(
                    f"`{name}` must be a number from 0 to 1, received {value!r}."
                )
        self.corruption = corruption
        self.denoising_share = denoising_share

    def attach(self, model: "RefinementNAT") -> list[keras.layers.Layer]:
        model.first_nll = keras.metrics.Mean(name="first_nll")
        return []

    def teach(
        self,
        model: "RefinementNAT",
        inputs: dict[str, tf.Tensor],
        decode: Callable,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        target_ids = inputs["target_ids"]
        mask = target_ids != PAD_ID
        first = decode(model.embedding(stretched(inputs["source_ids"], mask)))
        read, _ = most_probable(first, mask)
        if training and self.denoising_share:
            rows, length = ops.shape(target_ids)

            def draw(*shape):
                return keras.random.uniform(
                    shape, dtype="float32", seed=model.seed_generator
                )

            kinds = ops.where(
                draw(rows, length) < self.corruption,
                1 + ops.cast(3 * draw(rows, length), "int32"),
                KEEP,
            )
            words = model.tokenizer.vocabulary_size - UNKNOWN_ID - 1
            others = ops.cast(words * draw(rows, length), "int32") + UNKNOWN_ID + 1
            noisy = corrupted(target_ids, kinds, others)
            read = ops.where(draw(rows, 1) < self.denoising_share, noisy, read)
        return {"first_logits": first, "logits": decode(model.embedding(read))}

    def losses(
        self, model: "RefinementNAT", target_ids: tf.Tensor, outputs: dict
    ) -> Iterator[tuple]:
        yield from super().losses(model, target_ids, outputs)
        _, values, weights = model._token_loss(outputs["first_logits"], target_ids)
        yield model.first_nll, values, weights

    def write(
        self,
        model: "RefinementNAT",
        source_ids: tf.Tensor,
        mask: tf.Tensor,
        decode: Callable,
        num_iterations: int,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        def running(number, read, log_probs, changed):
            return (number < num_iterations) & changed

        def refine(number, read, log_probs, changed):
            ids, log_probs = most_probable(decode(model.embedding(read)), mask)
            return number + 1, ids, log_probs, tf.reduce_any(mask & (ids != read))

        read = stretched(source_ids, mask)
        _, ids, log_probs, _ = _loop(
            running, refine, 0, read, tf.zeros(tf.shape(read)), True
        )
        return ids, log_probs

    def get_config(self) -> dict[str, Any]:
        return {
            "corruption": self.corruption,
            "denoising_share": self.denoising_share,
        }


@keras.saving.register_keras_serializable(package="keras_vqem")
class MaskPredict(Refinement):
    """The decoder fills in masked words; those it is least sure of are masked again.

    Of a translation of `T` tokens, pass `t` of `N`, counted from 0, masks the
    `T * (N - t) // N` tokens with the lowest probability, in the first pass all of
    them. The decoder reads a learned vector in their place, which is no id of the
    vocabulary, and writes these tokens anew; the others keep their ids and
    probabilities.

    Training masks a uniform number of tokens of each target, from 1 to all of them,
    and learns from the masked ones alone. Each of them weighs `2 * T / (T + 1)`, so
    that the weights of a sentence add up to `T` in the mean over draws. `token_nll` is
    then that of a masked token. In evaluation all tokens are masked.

    Example:

    >>> keras_vqem.models.MaskPredict().get_config()
    {}

    Reference:
        - Ghazvininejad et al., 2019. Mask-Predict: Parallel Decoding of Conditional
          Masked Language Models. arXiv:1904.09324.
    """

    def attach(self, model: "RefinementNAT") -> list[keras.layers.Layer]:
        # A vocabulary of one id, so that it starts and learns as words do.
        model.mask_embedding = TiedEmbedding(
            1, model.hidden_dim, name="mask_embedding", dtype=model.dtype_policy
        )
        return [model.mask_embedding]

    def teach(
        self,
        model: "RefinementNAT",
        inputs: dict[str, tf.Tensor],
        decode: Callable,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        target_ids = inputs["target_ids"]
        masked = mask = target_ids != PAD_ID
        weights = ops.cast(mask, "float32")
        if training:
            numbers, order = (
                keras.random.uniform(shape, dtype="float32", seed=model.seed_generator)
                for shape in ((ops.shape(mask)[0],), ops.shape(mask))
            )
            lengths = ops.sum(weights, axis=1)
            masked = lowest(order, mask, 1 + ops.cast(numbers * lengths, "int32"))
            weights = 2 * lengths / (lengths + 1)
            weights = ops.cast(masked, "float32") * weights[:, None]
        logits = decode(_hidden(model, target_ids, masked))
        return {"logits": logits, "token_weights": weights}

    def losses(
        self, model: "RefinementNAT", target_ids: tf.Tensor, outputs: dict
    ) -> Iterator[tuple]:
        for tracker, values, weights in super().losses(model, target_ids, outputs):
            masked = outputs["token_weights"]
            yield tracker, {key: x * masked for key, x in values.items()}, weights

    def write(
        self,
        model: "RefinementNAT",
        source_ids: tf.Tensor,
        mask: tf.Tensor,
        decode: Callable,
        num_iterations: int,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        lengths = ops.sum(ops.cast(mask, "int32"), axis=1)

        def running(number, ids, log_probs):
            return number < num_iterations

        def refine(number, ids, log_probs):
            count = lengths * (num_iterations - number) // num_iterations
            masked = lowest(log_probs, mask, count)
            logits = decode(_hidden(model, ids, masked))
            written, sure = most_probable(logits, mask)
            ids = ops.where(masked, written, ids)
            return number + 1, ids, ops.where(masked, sure, log_probs)

        shape = tf.shape(mask)
        nothing = tf.zeros(shape, "int32"), tf.zeros(shape)
        _, ids, log_probs = _loop(running, refine, 0, *nothing)
        return ids, log_probs


def stretched(source_ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Copies source ids evenly to the positions of a translation.

    Position `t` of `T` gets the source id at `t * (S - 1) / (T - 1)`, rounded, so that
    the first and the last ids stay the first and the last.

    Args:
        source_ids: int32 `[B, S]`, padded with 0.
        mask: Booleans `[B, T]`, False after the end of a translation.

    Returns:
        int32 `[B, T]`, padded with 0.
    """
    steps, most = (
        ops.sum(ops.cast(there, "int32"), axis=1, keepdims=True) - 1
        for there in (mask, source_ids != PAD_ID)
    )
    steps, most = ops.maximum(steps, 1), ops.maximum(most, 0)
    places = (2 * ops.arange(ops.shape(mask)[1]) * most + steps) // (2 * steps)
    copied = tf.gather(source_ids, ops.minimum(places, most), batch_dims=1)
    return ops.where(mask, copied, PAD_ID)


def corrupted(ids: tf.Tensor, kinds: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Makes mistakes in sentences, from left to right.

    Args:
        ids: int32 `[B, T]`, each row ended by id 1 and padded with 0.
        kinds: int32 `[B, T]`, what happens at each word: nothing (0), it is written
            over the next word (1), it is replaced (2), or swapped with the next word
            (3). What would change the end of the sentence does nothing.
        others: int32 `[B, T]`, ids that replace words.

    Returns:
        int32 `[B, T]`.
    """
    following = ops.pad(ids[:, 1:], [[0, 0], [0, 1]])
    kinds = ops.where(ids > EOS_ID, kinds, KEEP)
    moves = (kinds == REPEAT) | (kinds == SWAP)
    moves = moves & (following > EOS_ID)
    # A word that is repeated or swapped is what the next place has when its turn comes.
    # So a place has the word of the last place to its left that did not get one.
    places = ops.arange(ops.shape(ids)[1])
    got = ops.pad(ops.cast(moves, "int32"), [[0, 0], [1, 0]])[:, :-1]
    own = ops.where(got == 0, places, 0)
    left = places[:, None] >= places
    carried = ops.max(ops.where(left, own[:, None], 0), axis=2, initial=0)
    written = tf.gather(ids, carried, batch_dims=1)
    written = ops.where(moves & (kinds == SWAP), following, written)
    return ops.where(kinds == REPLACE, others, written)


def lowest(values: tf.Tensor, mask: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Finds the lowest values of each row.

    Args:
        values: Floats `[B, T]`.
        mask: Booleans `[B, T]`, False for values that do not count.
        numbers: int32 `[B]`, how many values of each row to find.

    Returns:
        Booleans `[B, T]`. Of equal values, the earlier are found first.
    """
    order = ops.argsort(ops.where(mask, values, float("inf")), axis=1)
    return mask & (ops.argsort(order, axis=1) < numbers[:, None])


def most_probable(logits: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads one id off each position: a word, or the end at the last position.

    Args:
        logits: Floats `[B, T, V]`.
        mask: Booleans `[B, T]`, False after the end.

    Returns:
        A tuple `(ids, log_probs)`: int32 `[B, T]`, padded with 0, and the log
        probabilities of the ids, float32 `[B, T]`.
    """
    logits = ops.cast(logits, "float32")
    words = ops.arange(logits.shape[-1]) > EOS_ID
    ids = tf.argmax(tf.where(words, logits, -float("inf")), -1, output_type=tf.int32)
    lengths = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
    is_end = ops.arange(ops.shape(mask)[1]) == lengths - 1
    ids = ops.where(mask, ops.where(is_end, EOS_ID, ids), PAD_ID)
    return ids, -cross_entropy(logits, ids)[1]


def _hidden(model, ids, masked):
    """Vectors [B, T, D] of ids, some of them masked."""
    hidden = model.mask_embedding(ops.zeros_like(ids))
    return ops.where(masked[..., None], hidden, model.embedding(ids))


def _loop(running, body, *state):
    """A loop over scalars and tensors [B, T] of which neither B nor T is known."""
    state = [tf.convert_to_tensor(x) for x in state]
    shapes = [tf.TensorShape([None] * x.shape.rank) for x in state]
    return tf.while_loop(running, body, state, shape_invariants=shapes)
