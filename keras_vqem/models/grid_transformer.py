"""GridTransformer: an autoregressive model of symbols on a grid, such as codes."""

from typing import Any

import keras

from keras_vqem.models.grid_model import GridModel


@keras.saving.register_keras_serializable(package="keras_vqem")
class GridTransformer(GridModel):
    """Predicts a grid of symbols one by one: the prior over an image's codes.

    A grid has `rows` x `columns` cells with `slots` symbols each, such as the
    8 x 8 x 10 codes of the paper's CIFAR-10 model, or the 32 x 32 x 3 values of an
    image. It is read row by row, cell by cell, slot by slot. Each slot has its own set
    of symbols, and each symbol has a vector. The prediction of a symbol depends on the
    symbols before it in two ways: on all of them through masked local attention, and
    directly on the vectors of the most informative ones, those before it in its cell,
    in the cell to the left and in the neighbouring cells of the row above. With
    `context="previous"` only the symbol before it is seen directly, as in the paper.

    Args:
        grid: Tuple `(rows, columns, slots)`.
        num_symbols: Number of symbols per slot.
        hidden_dim: Size of embeddings and hidden states.
        num_layers: Number of Transformer blocks.
        num_heads: Number of attention heads.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        block_length: Number of positions per block of the local attention.
        dropout: Dropout rate after embeddings, attention and feed-forward layers.
        vector_dim: Size of a symbol's vector.
        context: Symbols whose vectors a position sees directly, besides what attention
            brings: `"neighbours"`, or `"previous"`, the one before it alone.
        num_classes: Number of classes of grids, such as what images show. All
            predictions then depend on the class of a grid, which calls and `sample`
            take as `labels`. None for a model without classes.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: Dict with `symbols`, integers `[B, rows, columns, slots]`. To train on
            soft labels, it also has `samples`, integers
            `[B, rows, columns, slots, m]`, of which each counts 1 / m. A model with
            classes needs `labels`, integers `[B]`.

    Returns:
        Logits `[B, rows, columns, slots, num_symbols]`.

    Metrics:
        - `bits_per_symbol`: Cross entropy in bits per symbol, given the label if there
          are classes.

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
        context: str = "neighbours",
        num_classes: int | None = None,
        **kwargs: Any,
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
            context,
            num_classes,
            **kwargs,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "grid": self.grid,
            "num_symbols": self.num_symbols,
            "num_classes": self.num_classes,
        }
