"""TransformerDecoder: a stack of blocks that also attend to a memory."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.layers.cached_attention import causal_bias, padding_bias
from keras_vqem.layers.transformer_stack import TransformerStack


@keras.saving.register_keras_serializable(package="keras_vqem")
class TransformerDecoder(TransformerStack):
    """A stack of Transformer blocks with self-attention and attention to a memory.

    Each block has self-attention, cross-attention to the memory and a feed-forward
    network, each after a layer normalisation; another layer normalisation follows the
    last block. To train, or to decode all positions in parallel, call the layer on
    whole sequences. To decode position by position, call `memories(memory)` and
    `empty_caches(N)` once, then `step` for each position: the results are the same,
    and nothing is computed twice.

    Args:
        num_layers: Number of Transformer blocks.
        num_heads: Number of attention heads in each attention.
        intermediate_dim: Size of the hidden layer of the feed-forward networks.
        dropout: Dropout rate after each attention and feed-forward network.
        causal: Whether a position attends only to itself and to earlier positions.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[B, T, D]` that include a position signal.
        memory: Vectors to attend to, `[B, S, D]`.
        mask: Booleans `[B, T]`, False for padding. A causal decoder does not use it:
            padding comes last, where no other position attends to it.
        memory_mask: Booleans `[B, S]`, False for padding of the memory.
        training: Whether to apply dropout.
        return_middle: Whether to return the vectors after half of the blocks as well.

    Returns:
        Normalised vectors `[B, T, D]`. With `return_middle`, a tuple of these and of
        the vectors after half of the blocks, which the same layer normalises.

    Example:

    >>> layer = keras_vqem.layers.TransformerDecoder(
    ...     num_layers=2, num_heads=2, intermediate_dim=16)
    >>> x = np.random.default_rng(0).normal(size=(1, 3, 8)).astype("float32")
    >>> whole = layer(x, x)
    >>> memories, caches = layer.memories(x), layer.empty_caches(1)
    >>> for t in range(3):
    ...     last, caches = layer.step(x[:, t : t + 1], caches, memories)
    >>> bool(np.allclose(whole[:, 2:], last, atol=1e-5))
    True
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.0,
        causal: bool = True,
        **kwargs: Any,
    ):
        super().__init__(
            num_layers,
            num_heads,
            intermediate_dim,
            dropout,
            block={"cross": True},
            **kwargs,
        )
        self.causal = causal

    def call(
        self,
        inputs: tf.Tensor,
        memory: tf.Tensor,
        mask: tf.Tensor | None = None,
        memory_mask: tf.Tensor | None = None,
        training: bool | None = None,
        return_middle: bool = False,
    ) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
        x = inputs
        bias = causal_bias(ops.shape(x)[1]) if self.causal else padding_bias(mask)
        memory_bias = padding_bias(memory_mask)
        middle = None
        for number, block in enumerate(self.blocks):
            if number == len(self.blocks) // 2:
                middle = x
            x = block(x, bias, memory, memory_bias, training=training)
        return (self.norm(x), self.norm(middle)) if return_middle else self.norm(x)

    def memories(self, memory: ArrayLike) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Computes the keys and values of a memory for all blocks.

        Args:
            memory: Vectors to attend to, `[N, S, D]`.

        Returns:
            List of tuples `(keys, values)` with one tuple per block.
        """
        return [block.cross.keys_values(memory) for block in self.blocks]

    def step(
        self,
        x: tf.Tensor,
        caches: list[tuple[tf.Tensor, tf.Tensor]],
        memories: list[tuple[tf.Tensor, tf.Tensor]],
        memory_mask: ArrayLike | None = None,
        num_beams: int = 1,
        position: int | tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, list[tuple[tf.Tensor, tf.Tensor]]]:
        """Computes the output of the next position.

        Args:
            x: Vectors `[N, 1, D]` of the position, including the position signal.
            caches: List of caches, from `empty_caches` or from the previous step.
            memories: Keys and values of the memory, from `memories`.
            memory_mask: Booleans `[N, S]`, False for padding of the memory.
            num_beams: Number of adjacent rows of `x` for each row of the memory, if
                hypotheses share one.
            position: Place of the position, if the caches have a fixed length. None
                appends it to them.

        Returns:
            A tuple `(outputs, caches)`: normalised vectors `[N, 1, D]`, and the caches
            for the next step.
        """
        bias, kept = padding_bias(memory_mask), []
        for block, cache, memory in zip(self.blocks, caches, memories, strict=True):
            x, cache = block.step(x, cache, memory, bias, num_beams, position)
            kept.append(cache)
        return self.norm(x), kept

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "causal": self.causal}
