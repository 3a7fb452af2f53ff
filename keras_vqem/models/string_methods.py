"""Methods of translators on strings: translate, and score."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_vqem.ids import PAD_ID
from keras_vqem.models import translation_endpoints as endpoints
from keras_vqem.models.choices import as_text

# Batches shrink when their longest sentence has more ids than this.
LONG = 128
# Texts are cut after this many tokens, unless a call says otherwise.
MAX_TOKENS = 256
PAIR = ("source_ids", "target_ids")


class Score(NamedTuple):
    """Log probability of a translation, as `score` returns it.

    Attributes:
        log_prob: Natural logarithm of the probability of the whole translation, its end
            included. NaN if the source has no words, or a text was too long.
        per_token: `log_prob` divided by the number of tokens, the end included. Of a
            `Transformer` and a `CTCTranslator` this is what `translate` returns as
            score.
        ids: List of the ids of the translation.
        token_log_probs: List of the log probabilities of the ids, each given those
            before it. None if the model has none for single tokens.
    """

    log_prob: float
    per_token: float
    ids: list[int]
    token_log_probs: list[float] | None


class StringMethods:
    """Part of a translator that takes strings, in batches of similar lengths.

    The translator has `generate`, `translate_ids`, and `score_ids` if it has
    probabilities of given translations.
    """

    def translate(
        self,
        texts: Sequence[str],
        batch_size: int = 64,
        return_scores: bool = False,
        max_tokens: int = MAX_TOKENS,
        jit_compile: bool = False,
        **options: Any,
    ) -> list | tuple[list, list]:
        """Translates strings, each of them at most one sentence.

        Args:
            texts: List of strings of any lengths, in any order. Batches are formed by
                length; the translations are in the order of `texts`.
            batch_size: Number of texts per batch. Batches of very long texts are
                smaller.
            return_scores: Whether to return the scores of `generate` as well.
            max_tokens: Number of tokens after which texts are cut, with a warning, as
                in `export`. The time for a text grows with the square of its length,
                so split longer texts with `keras_vqem.text.SplitText`.
            jit_compile: Whether XLA compiles the parts of the graph. Later translations
                are faster. The first one for each number of texts and each length, in
                steps of eight tokens, takes seconds, so this is for many texts of few
                shapes. Beam search and sampling stay as they are, but for the encoder.
            **options: Options of `generate`. They override `generation_config`. A
                `target_prefix` is a string, or a list with one string per text.

        Returns:
            A list of strings. With `return_scores`, a tuple of that list and a list of
            floats, NaN for texts without words. With `num_return_sequences=n`, each
            text has a list of n strings, and of n floats, best first.
        """
        texts = _checked(texts, "texts", "translate", batch_size)
        if not texts:
            return ([], []) if return_scores else []
        endpoints.check_max_tokens(max_tokens)
        rows_of_ids = self.tokenizer.encode(texts)
        lengths = rows_of_ids.row_lengths().numpy()
        if too_long := np.count_nonzero(lengths > max_tokens):
            warnings.warn(
                f"{too_long} of {len(texts)} texts have more than {max_tokens} tokens "
                f"and were cut. Split them with keras_vqem.text.SplitText, or raise "
                f"max_tokens.",
                stacklevel=2,
            )
            rows_of_ids = rows_of_ids[:, :max_tokens]
            lengths = np.minimum(lengths, max_tokens)
        inputs, prefixes = ("source_ids",), options.pop("target_prefix", None)
        if prefixes is not None:
            inputs += ("target_prefix",)
            prefixes = tf.ragged.constant(
                self._prefix_rows(prefixes, len(texts)), "int32", ragged_rank=1
            )
        if not self.built:
            self.build()
        method = self.generate if return_scores else self.translate_ids
        short = lengths.max() <= self._most_tokens_untraced
        graph = self._graphs.for_call(
            method,
            {**self.generation_config, **options},
            short=short and len(texts) <= batch_size,
            inputs=inputs,
            jit_compile=jit_compile,
        )
        number = options.get("num_return_sequences")
        shape = len(texts) if number is None else (len(texts), int(number))
        found = np.full(shape, "", object).tolist()
        scores = np.full(shape, np.nan).tolist()
        for places in _batches(lengths, batch_size):
            source_ids = tf.gather(rows_of_ids, places).to_tensor(PAD_ID)
            batch = [endpoints.cut(source_ids, max_tokens)]
            if prefixes is not None:
                batch.append(tf.gather(prefixes, places).to_tensor(PAD_ID))
            output = graph(*batch)
            ids = output["target_ids"] if return_scores else output
            written = endpoints.decoded(self.tokenizer, ids).numpy().tolist()
            for row, place in enumerate(places):
                # A text with nothing but its end symbol has no translation.
                if lengths[place] > 1:
                    found[place] = as_text(written[row])
                    if return_scores:
                        scores[place] = output["scores"][row].numpy().tolist()
        return (found, scores) if return_scores else found

    def _prefix_rows(self, prefixes, number):
        """Lists of ids, without ends, of one string for all texts or one per text."""
        if "target_prefix" not in self.generation_options:
            raise ValueError(
                f"A {type(self).__name__} does not write word by word, so it takes no "
                f"`target_prefix`. Leave it out, or use a Transformer."
            )
        if isinstance(prefixes, str):
            prefixes = [prefixes] * number
        if len(prefixes) != number:
            raise ValueError(
                f"`target_prefix` must be a string or a list with one string per text, "
                f"received {len(prefixes)} strings for {number} texts."
            )
        return [row[:-1] for row in self.tokenizer.encode(list(prefixes)).to_list()]

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        batch_size: int = 64,
        max_tokens: int = MAX_TOKENS,
    ) -> list[Score]:
        """Computes how probable given translations are, all words in one pass.

        The `score_ids` of each model says what is computed. A `Transformer` has the
        exact probability, a `CTCTranslator` its CTC likelihood, and a `LatentNMT` a
        lower bound. A `FertilityNAT` and a `RefinementNAT` have none.

        Args:
            sources: List of strings, each of them at most one sentence.
            targets: List of as many strings, their translations.
            batch_size: Number of pairs per batch. Batches of very long texts are
                smaller.
            max_tokens: Maximum number of tokens of a text. Pairs with a longer one are
                not scored, with a warning.

        Returns:
            A list of `Score`, one per pair.

        Raises:
            ValueError: If the model has no probabilities of given translations, or the
                lists differ in length.
        """
        if not hasattr(self, "score_ids"):
            raise ValueError(
                f"A {type(self).__name__} has no probability of a given translation. "
                f"Use a Transformer, CTCTranslator or LatentNMT."
            )
        sides = [
            _checked(texts, name, "score", batch_size)
            for name, texts in (("sources", sources), ("targets", targets))
        ]
        if len(sides[0]) != len(sides[1]):
            raise ValueError(
                f"There must be one target per source, received {len(sides[0])} "
                f"sources and {len(sides[1])} targets."
            )
        if not sides[0]:
            return []
        rows = [self.tokenizer.encode(side) for side in sides]
        lengths = [ids.row_lengths().numpy() for ids in rows]
        longest = np.maximum(*lengths)
        if too_long := np.count_nonzero(longest > max_tokens):
            warnings.warn(
                f"{too_long} of {len(longest)} pairs have a text of more than "
                f"{max_tokens} tokens and were not scored. Split them, or raise "
                f"max_tokens.",
                stacklevel=2,
            )
        if not self.built:
            self.build()
        graph = self._graphs.graph(self.score_ids, {}, PAIR)
        found = [Score(np.nan, np.nan, [], None)] * len(longest)
        fitting = np.flatnonzero(longest <= max_tokens)
        for places in _batches(longest[fitting], batch_size):
            places = fitting[places]
            batch = [tf.gather(ids, places).to_tensor(PAD_ID) for ids in rows]
            output = {name: x.numpy() for name, x in graph(*batch).items()}
            for row, place in enumerate(places):
                number = lengths[1][place]
                total, each = float(output["log_probs"][row]), None
                if lengths[0][place] <= 1:
                    total = np.nan
                if "token_log_probs" in output:
                    each = output["token_log_probs"][row, :number].tolist()
                ids = batch[1][row, :number].numpy().tolist()
                found[place] = Score(total, total / number, ids, each)
        return found


def _checked(texts, name, method, batch_size):
    """The texts as a list, or a `ValueError`."""
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1, received {batch_size}.")
    if isinstance(texts, (str, bytes)):
        raise ValueError(
            f"`{name}` must be a list of strings, received a single string. "
            f"Write {method}([{texts!r}]{'' if name == 'texts' else ', ...'})."
        )
    return list(texts)


def _batches(lengths: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """Yields the places of similar lengths, the longest first."""
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        # The longest text comes first; attention needs memory for its square.
        rows = batch_size * LONG**2 // max(lengths[order[0]], LONG) ** 2
        places, order = np.split(order, [max(rows, 1)])
        yield places
