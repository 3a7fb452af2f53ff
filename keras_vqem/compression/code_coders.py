"""Codes of tiles to bytes and back: under a prior, or at their full length."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_vqem.compression import rans
from keras_vqem.compression.frequencies import (
    cumulative,
    frequencies,
    unsafe_shifts,
)
from keras_vqem.models import GridTransformer

PASS = 16  # Tiles per pass of the prior in encoding, which bounds memory.


class UniformCoder:
    """Codes that are all equally probable: no prior is needed, and nothing is saved.

    Args:
        grid: Tuple `(rows, columns, slots)`.
        num_codes: Number of codes in the codebook.
    """

    def __init__(self, grid: tuple[int, int, int], num_codes: int):
        self.grid = tuple(grid)
        self.num_codes = num_codes
        if num_codes > 2 ** (rans.BITS - 4):
            raise ValueError(
                f"Files hold codes out of at most {2 ** (rans.BITS - 4)}, and the "
                f"codebook has {num_codes}. Use a model with a smaller codebook."
            )
        self._row = cumulative(frequencies(np.zeros(num_codes), 0))

    def encode(self, codes: np.ndarray) -> bytes:
        """Encodes the codes of tiles.

        Args:
            codes: Integers `[N, rows, columns, slots]`.
        """
        codes = codes.ravel()
        return rans.encode(self._row[codes], np.diff(self._row)[codes])

    def decode(
        self, data: bytes, count: int, progress: Callable[[float], None] | None = None
    ) -> np.ndarray:
        """Decodes what `encode` returned.

        Args:
            data: The code.
            count: Number of tiles.
            progress: Function that is told the share that is done, or None.

        Returns:
            int32 `[count, rows, columns, slots]`.

        Raises:
            ValueError: If the code is damaged.
        """
        decoder, number = rans.Decoder(data), count * int(np.prod(self.grid))
        rows = np.broadcast_to(self._row, (number, len(self._row)))
        codes = decoder.decode(rows)
        decoder.finish()
        return codes.reshape(count, *self.grid)


class PriorCoder(UniformCoder):
    """Codes under a trained prior: the more probable they are, the fewer bits.

    The prior computes in float64. It sees all codes at once in encoding, and one after
    the other in decoding; `keras_vqem.compression.frequencies` makes sure that both
    find the same frequencies, on this computer and others.

    Args:
        prior: A built `keras_vqem.models.GridTransformer`.
    """

    def __init__(self, prior: GridTransformer):
        if prior.num_classes is not None:
            raise ValueError(
                f"The prior has {prior.num_classes} classes, and nobody knows the "
                f"class of a tile. Use a model whose prior has none, or no prior "
                f"(--no-prior)."
            )
        super().__init__(prior.grid, prior.num_symbols)
        twin = GridTransformer.from_config({**prior.get_config(), "dtype": "float64"})
        twin.build()
        twin.set_weights(prior.get_weights())
        self._constants = twin.step_constants()
        grids = tf.TensorSpec([None, *self.grid], "int32")
        self._start = twin.start
        self._step = tf.function(twin.step, autograph=False, reduce_retracing=True)
        self._whole = tf.function(
            lambda codes: twin({"symbols": codes}), [grids], autograph=False
        )

    def encode(self, codes: np.ndarray) -> bytes:
        length = int(np.prod(self.grid))
        symbols, unsafe, parts = codes.reshape(len(codes), length), False, []
        for first in range(0, len(codes), PASS):
            part = tf.constant(codes[first : first + PASS], "int32")
            logits = self._whole(part).numpy().reshape(-1, length, self.num_codes)
            unsafe |= unsafe_shifts(logits)
            parts.append(logits)
        # If none is safe, which takes millions of tiles, the checksum has to do.
        shift = int(np.argmin(unsafe))
        starts, counts = [], []
        for number, logits in enumerate(parts):
            own = symbols[number * PASS : (number + 1) * PASS, :, None]
            found = frequencies(logits, shift)
            counts.append(np.take_along_axis(found, own, -1)[..., 0])
            starts.append(np.take_along_axis(cumulative(found), own, -1)[..., 0])
        # As they are decoded: each position of all tiles, then the next.
        in_order = [np.concatenate(rows).T.ravel() for rows in (starts, counts)]
        return bytes([shift]) + rans.encode(*in_order)

    def decode(
        self, data: bytes, count: int, progress: Callable[[float], None] | None = None
    ) -> np.ndarray:
        shift, decoder = (data or b"\0")[0], rans.Decoder(data[1:])
        length = int(np.prod(self.grid))
        state, found = self._start(count), np.zeros((length + 1, count), "int32")
        for position in range(length):
            logits, state = self._step(
                tf.constant(found[position]),
                state,
                tf.constant(position),
                self._constants,
            )
            rows = cumulative(frequencies(logits.numpy(), shift))
            found[position + 1] = decoder.decode(rows)
            if progress is not None:
                progress((position + 1) / length)
        decoder.finish()
        return found[1:].T.reshape(count, *self.grid)
