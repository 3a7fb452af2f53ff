"""GridSampling: how grid models draw symbols, and complete grids that are partly known.

A grid model is drawn in reading order. A known symbol takes the place of a draw at its
own step, so an unknown one depends on the known symbols before it, and not on those
after it. `complete` makes up for that by importance resampling.
"""

import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import decoding
from keras_vqem.checks import in_range, whole_number
from keras_vqem.layers.cached_attention import at_least_float32


class GridSampling:
    """Mixin class of `GridModel` that draws grids, symbol by symbol."""

    def step_constants(
        self, labels: ArrayLike | None = None, count: int | tf.Tensor = 1
    ) -> tuple:
        """Returns what all calls of `step` share, to be computed once.

        Args:
            labels: Classes of the grids, for a model with classes only: integers
                `[count]`, or one integer for all grids.
            count: Number of grids.
        """
        return (
            self._positions(),
            self._vector_table(),
            self._context.kernels(),
            self._class_vectors(labels, count),
        )

    def start(self, count: int | tf.Tensor) -> tuple:
        """Returns the state before the first call of `step`.

        Args:
            count: Number of grids, an integer or a scalar tensor.
        """
        before = ops.full((count, self._context.reach + 1), self._outside(), "int32")
        return self.transformer.empty_caches(count), before

    def step(
        self, ids: tf.Tensor, state: tuple, position: tf.Tensor, constants: tuple
    ) -> tuple[tf.Tensor, tuple]:
        """Predicts the symbols at a position from those before it.

        The logits are those of a call with whole grids, up to rounding.

        Args:
            ids: int32 `[N]`, the symbols at the position before. They do not matter at
                the first position.
            state: State that `start` or the call before returned.
            position: Scalar, the position in reading order.
            constants: What `step_constants` returned.

        Returns:
            A tuple `(logits, state)`: logits `[N, num_symbols]`, and the state for the
            next position.
        """
        (caches, before), (positions, table, kernels, classes) = state, constants
        slots, reach = self.grid[2], self._context.reach
        slot = position % slots
        row = ids + (position - 1) % slots * self.num_symbols
        # There is no symbol before the first position.
        row = ops.where(position == 0, self._outside(), row)
        before = ops.concatenate(
            [before[:, 1:reach], row[:, None], before[:, reach:]], axis=1
        )
        seen = ops.take(self._context.places, slot, axis=0)
        vectors = ops.take(table, ops.take(before, seen, axis=1), axis=0)
        x = self._context.step(kernels, vectors, slot)[:, None] + positions[position]
        x = x if classes is None else x + classes
        x, caches = self.transformer.step(x, caches)
        kernel = ops.cast(self.kernel[slot], self.compute_dtype)
        bias = ops.cast(self.bias[slot], self.compute_dtype)
        logits = at_least_float32(ops.matmul(x[:, 0], kernel) + bias)
        return logits, (caches, before)

    def sample(
        self,
        count: int | tf.Tensor,
        seed: ArrayLike,
        temperature: float = 1.0,
        prefix: ArrayLike | None = None,
        top_p: float | None = None,
        labels: ArrayLike | None = None,
        symbols: ArrayLike | None = None,
        known: ArrayLike | None = None,
    ) -> tf.Tensor:
        """Draws grids, symbol by symbol, with cached keys and values.

        Args:
            count: Number of grids.
            seed: Two integers, or int32 `[count, 2]` with one seed per grid. A grid
                with its own seed does not depend on the others.
            temperature: Temperature of sampling. Values below 1 give more probable
                grids; 0 takes the most probable symbol at each position.
            prefix: Integers `[count, P]`, the first P symbols of each grid in reading
                order, for example the upper half of an image. None for grids without
                given symbols.
            top_p: Probability of the most probable symbols to draw from, at each
                position, as in `keras_vqem.decoding.sample_search`. None draws from
                all symbols.
            labels: Classes of the grids, for a model with classes only: integers
                `[count]`, or one integer for all grids.
            symbols: Given symbols, for `known`: integers that broadcast to
                `[count, rows, columns, slots]`. What is not known does not matter.
            known: Booleans that broadcast to `[count, rows, columns, slots]`, True
                where a symbol is given by `symbols`. The others are drawn. A draw
                depends on the known symbols before it in reading order, and not on
                later ones; see `complete`.

        Returns:
            Integers `[count, rows, columns, slots]`, int32; uint8 if symbols are the
            pixels of an `ImageTransformer`.
        """
        if not self.built:
            self.build()
        constants = self.step_constants(labels, count)
        given = self._given(count, prefix, symbols, known)

        def step(ids, state, position):
            logits, state = self.step(ids, state, position, constants)
            if given is not None:
                # -1 is no symbol: nothing is known there.
                own = given[:, position]
                forced = ops.one_hot(own, self.num_symbols, dtype=logits.dtype) * 1e9
                logits = ops.where(own[:, None] < 0, logits, forced)
            return logits, state

        ids = decoding.sample_search(
            step,
            self.start(count),
            count,
            start_id=0,
            end_id=None,
            max_length=self.length,
            temperature=temperature,
            top_p=top_p,
            seed=seed,
        )
        return ops.cast(tf.reshape(ids, (count, *self.grid)), self.symbol_dtype)

    def complete(
        self,
        symbols: ArrayLike,
        known: ArrayLike,
        seed: ArrayLike,
        num_candidates: int = 8,
        temperature: float = 1.0,
        top_p: float | None = None,
        labels: ArrayLike | None = None,
    ) -> tf.Tensor:
        """Completes grids that are known in part, at any places.

        Several candidates are drawn per grid by `sample`, in which what is unknown
        depends on the known symbols before it alone. One of them is kept, drawn with
        probabilities proportional to the product of p(symbol | all before it) over the
        known symbols. That is sampling-importance-resampling: with temperature 1 and
        many candidates, what is unknown follows its distribution given all that is
        known, and with few it comes closer to it than the first draw.

        Args:
            symbols: Integers `[B, rows, columns, slots]`. What is not known does not
                matter.
            known: Booleans that broadcast to `[B, rows, columns, slots]`, True where
                a symbol is given.
            seed: Two integers.
            num_candidates: Number of candidates per grid. With 1, the draw is kept.
            temperature: Temperature of sampling, as in `sample`.
            top_p: Probability of the most probable symbols to draw from, as in
                `sample`. None draws from all.
            labels: Classes of the grids, as in `sample`.

        Returns:
            Integers `[B, rows, columns, slots]` as `sample` gives them.

        References:
            - Rubin, 1987. The SIR algorithm. Comment on Tanner and Wong.
        """
        number = whole_number("num_candidates", num_candidates, 1)
        if not self.built:
            self.build()
        symbols = ops.cast(symbols, "int32")
        count, length = ops.shape(symbols)[0], self.length
        known = ops.broadcast_to(ops.cast(known, "bool"), (count, *self.grid))
        labels = self._checked_labels(labels, count)

        def of_each(values):
            return None if values is None else ops.repeat(values, number, axis=0)

        drawn = self.sample(
            count * number,
            seed,
            temperature,
            top_p=top_p,
            labels=of_each(labels),
            symbols=of_each(symbols),
            known=of_each(known),
        )
        if number == 1:
            return drawn
        drawn = ops.reshape(drawn, (count, number, *self.grid))
        weights = []
        for candidate in range(number):
            # One after the other, as logits take much memory.
            inputs = {self.input_name: drawn[:, candidate]}
            if labels is not None:
                inputs["labels"] = labels
            nats = ops.where(known, self.nats(inputs, self(inputs)), 0.0)
            weights.append(-ops.sum(nats, axis=(1, 2, 3)))
        weights = ops.stack(weights, axis=1)
        # Symbols are drawn with the numbers of their positions, all below this one.
        uniforms = tf.random.stateless_uniform(
            ops.shape(weights), tf.random.fold_in(ops.cast(seed, "int32"), length)
        )
        noise = -ops.log(-ops.log(ops.maximum(uniforms, 1e-30)))
        best = ops.argmax(weights + noise, axis=1)
        return tf.gather(drawn, best, batch_dims=1)

    def _given(self, count, prefix, symbols, known):
        """Returns given symbols `[count, length]`, -1 where there is none, or None."""
        if (symbols is None) != (known is None):
            raise ValueError(
                "`symbols` and `known` belong together, received only one of them. "
                "Pass the given symbols, and where they are given."
            )
        if prefix is not None and symbols is not None:
            raise ValueError(
                "Received `prefix` and `symbols`. Pass one of them: a prefix is the "
                "same as `symbols` that are known up to some position."
            )
        if prefix is not None:
            prefix = ops.cast(prefix, "int32")
            shape, most = prefix.shape, self.length
            if len(shape) != 2 or shape[0] not in (count, None) or shape[1] > most:
                raise ValueError(
                    f"`prefix` must have shape ({count}, P) with P up to {most}, "
                    f"received {tuple(shape)}. Pass the first symbols of each grid in "
                    f"reading order."
                )
            prefix = in_range("prefix", prefix, self.num_symbols - 1)
            rest = [[0, 0], [0, most - shape[1]]]
            return ops.pad(prefix, rest, constant_values=-1)
        if symbols is None:
            return None
        shape = (count, *self.grid)
        found = {
            "symbols": ops.cast(symbols, "int32"),
            "known": ops.cast(known, "bool"),
        }
        for name, values in found.items():
            try:
                found[name] = tf.broadcast_to(values, shape)
            except (ValueError, tf.errors.InvalidArgumentError):
                raise ValueError(
                    f"`{name}` must broadcast to {shape}, received shape "
                    f"{tuple(values.shape)}. Pass one value per symbol, or one per "
                    f"cell, [rows, columns, 1]."
                ) from None
        symbols, known = found["symbols"], found["known"]
        symbols = ops.where(known, symbols, 0)
        symbols = in_range("symbols", symbols, self.num_symbols - 1)
        return ops.reshape(ops.where(known, symbols, -1), (-1, self.length))
