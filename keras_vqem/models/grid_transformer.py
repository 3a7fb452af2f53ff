"""GridTransformer: an autoregressive model of symbols on a grid, such as codes."""

import keras

from keras_vqem.models.grid_model import GridModel


@keras.saving.register_keras_serializable(package="keras_vqem")
class GridTransformer(GridModel):
    """Predicts a grid of symbols one by one: the prior over an image's codes.

    A grid has `rows` x `columns` cells with `slots` symbols each, read row by row,
    cell by cell, slot by slot: 8 x 8 x 10 codes of the paper's CIFAR-10 model, or
    32 x 32 x 3 numbers of an image. Each slot has symbols of its own, and each symbol
    a vector. A symbol's prediction sees the symbols before it through masked local
    attention, and the vectors of those that know most of it also directly: the
    symbols before it in its cell, and the cells to the left and in the row above.

    Args:
        grid: `(rows, columns, slots)`.
        num_symbols: How many symbols there are in each slot.
        hidden_dim: Of embeddings and hidden states.
        num_layers: How many Transformer blocks.
        num_heads: Of each attention.
        intermediate_dim: Of the feed-forward layers.
        block_length: Positions in a block of the local attention.
        dropout: After embeddings, attentions and feed-forward layers.
        vector_dim: Of a symbol's vector.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: A dict with `symbols`, integers [B, rows, columns, slots]. To train on
            soft labels it also holds `samples` [B, rows, columns, slots, m], draws of
            which each counts 1 / m.

    Returns:
        Logits [B, rows, columns, slots, num_symbols].

    Metrics: `bits_per_symbol`, the cross entropy.

    Example:

    >>> model = keras_vqem.models.GridTransformer(
    ...     grid=(2, 2, 3), num_symbols=16, hidden_dim=8, num_layers=1, num_heads=2,
    ...     intermediate_dim=16, block_length=4)
    >>> model.compile()
    >>> symbols = np.random.default_rng(0).integers(16, size=(8, 2, 2, 3))
    >>> history = model.fit({"symbols": symbols}, batch_size=4, verbose=0)
    >>> model.sample(5, seed=(0, 1)).shape
    TensorShape([5, 2, 2, 3])

    References:
        - Parmar et al., 2018. Image Transformer. arXiv:1802.05751.
    """

    input_name = "symbols"
    metric_name = "bits_per_symbol"

    def __init__(
        self,
        grid: tuple[int, int, int],
        num_symbols: int,
        hidden_dim: int = 128,
        num_layers: int = 6,
        num_heads: int = 4,
        intermediate_dim: int = 512,
        block_length: int = 160,
        dropout: float = 0.0,
        vector_dim: int = 16,
        **kwargs,
    ):
        super().__init__(
            grid,
            num_symbols,
            hidden_dim,
            num_layers,
            num_heads,
            intermediate_dim,
            block_length,
            dropout,
            vector_dim,
            **kwargs,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "grid": self.grid,
            "num_symbols": self.num_symbols,
        }
