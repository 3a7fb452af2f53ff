"""LatentTranslation: from codes to words and back, the half of LatentNMT in use."""

import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import same_rows, whole_number
from keras_vqem.decoding.ctc_best_path import left_aligned
from keras_vqem.ids import PAD_ID
from keras_vqem.models import code_sequences, latent_training
from keras_vqem.models import translation_endpoints as endpoints
from keras_vqem.models.choices import best_first, number_of_choices
from keras_vqem.models.generation import with_generation_config
from keras_vqem.models.transformer import Transformer
from keras_vqem.models.translator import Translator


class LatentTranslation(Translator):
    """Base class of `LatentNMT` with all that translates.

    The subclass has `bottleneck`, `predictor`, `word_output`, `num_compress_steps` and
    `_write(latents, code_mask, memory, memory_mask)`.
    """

    def latents(self, codes: tf.Tensor) -> tf.Tensor:
        """Returns vectors `[B, positions, D]` for codes `[B, N]`."""
        codes = code_sequences.unflatten_groups(codes, self.bottleneck)
        return self.bottleneck.decode(codes)

    @property
    def _nothing(self):
        return {**super()._nothing, "codes": self.predictor.end_code}

    @property
    def _num_groups(self):
        return self.bottleneck.groups.num_groups

    @property
    def styles(self) -> dict[str, int]:
        """Names of codes that may come first; see the argument of that name."""
        return dict(self._styles.by_name)

    @styles.setter
    def styles(self, styles):
        styles = dict(styles or {})
        for name, code in styles.items():
            if not name or not 0 <= code < self.bottleneck.num_codes:
                raise ValueError(
                    f"`styles` maps names to codes below {self.bottleneck.num_codes}, "
                    f"received {name!r}: {code!r}."
                )
        self._styles = _Styles(styles)

    def encode_ids(self, source_ids: ArrayLike, target_ids: ArrayLike) -> tf.Tensor:
        """Encodes target sentences to codes.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0.
            target_ids: int32 `[B, T]`, their translations, padded with 0.

        Returns:
            int32 `[B, N]`, codes, followed by `num_codes` from a sentence's end on.
        """
        source_ids, target_ids = same_rows(sources=source_ids, targets=target_ids)
        memory, memory_mask = self.encode_source(source_ids)
        vectors, mask = latent_training.compress(self, target_ids, memory, memory_mask)
        codes = code_sequences.flatten_groups(self.bottleneck.encode(vectors))
        mask = ops.repeat(mask, self._num_groups, axis=1)
        return ops.where(mask, codes, self.predictor.end_code)

    def decode_ids(
        self,
        source_ids: ArrayLike,
        codes: ArrayLike,
        drop_repeats: bool = False,
        blank_bias: float = 0.0,
    ) -> tf.Tensor:
        """Writes the words for source sentences and codes.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0.
            codes: int32 `[B, N]`, codes as `encode_ids` returns them. The first
                number of a row that is not a code ends it.
            drop_repeats: Whether to leave out an id that equals the one before it.
            blank_bias: Number to add to the blank's logit, as in `generate`.

        Returns:
            int32 `[B, L]`, ids of the translations, padded with 0.
        """
        source_ids, codes = same_rows(sources=source_ids, codes=codes)
        memory, memory_mask = self.encode_source(source_ids)
        ids = self.write_words(codes, memory, memory_mask, blank_bias)[0]
        return without_repeats(ids) if drop_repeats else ids

    def write_words(
        self,
        codes: tf.Tensor,
        memory: tf.Tensor,
        memory_mask: tf.Tensor,
        blank_bias: float = 0.0,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns ids `[B, L]` for codes `[B, N]` and a memory, and scores `[B]`."""
        codes, there = code_sequences.whole_positions(
            codes, self._num_groups, self.predictor.end_code
        )
        logits, mask = self._write(self.latents(codes), there, memory, memory_mask)
        return self.word_output.read(logits, mask, blank_bias)

    def score_ids(
        self, source_ids: ArrayLike, target_ids: ArrayLike
    ) -> dict[str, tf.Tensor]:
        """Computes a lower bound of the log probability of given translations.

        The model could write a translation from many sequences of codes, and its
        probability is the sum over all of them. Only one is computed, that of the
        translation's own codes `z` (those of `encode_ids`), so that

            log p(y | x) >= log p(z | x) + log p(y | x, z)

        where the latent predictor has the first term and the decoder the second. The
        score of `generate` is another number: the second term per id, for the codes
        that it predicted.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0.
            target_ids: int32 `[B, T]`, translations, with id 1 at the end of each row,
                padded with 0.

        Returns:
            A dict of float32 tensors `[B]`:

            - `log_probs`: The lower bounds, sums of the two others.
            - `code_log_probs`: Log probabilities of the codes.
            - `word_log_probs`: Log probabilities of the words, given the codes.
        """
        source_ids, target_ids = same_rows(sources=source_ids, targets=target_ids)
        memory, memory_mask = self.encode_source(source_ids)
        vectors, mask = latent_training.compress(self, target_ids, memory, memory_mask)
        codes = self.bottleneck.encode(vectors)
        flat = code_sequences.flatten_groups(codes)
        loss, weights = code_sequences.soft_cross_entropy(
            self.predictor(flat, memory, memory_mask=memory_mask),
            flat[..., None],
            ops.repeat(mask, self._num_groups, axis=1),
            self.predictor.end_code,
        )
        of_codes = -ops.sum(loss * weights, axis=1)
        latents = self.bottleneck.decode(codes)
        logits, there = self._write(latents, mask, memory, memory_mask)
        of_words = self.word_output.log_prob(logits, there, target_ids)
        return {
            "log_probs": of_codes + of_words,
            "code_log_probs": of_codes,
            "word_log_probs": of_words,
        }

    def max_codes_for(self, source_tokens: int | tf.Tensor) -> int | tf.Tensor:
        """Returns the number of codes for `2 * source_tokens + 10` target tokens."""
        positions = -(-(2 * source_tokens + 10) // 2**self.num_compress_steps)
        return positions * self._num_groups

    _most_tokens_untraced = 64  # There is no step per word.

    @with_generation_config
    def generate(
        self,
        source_ids: ArrayLike,
        num_beams: int = 1,
        length_penalty: float = 0.6,
        min_codes: int = 0,
        max_codes: int | tf.Tensor | None = None,
        end_threshold: float | None = None,
        drop_repeats: bool = False,
        blank_bias: float = 0.0,
        style: str | None = None,
        first_code: int | tf.Tensor | None = None,
        rescorer: Transformer | None = None,
        temperature: float | None = None,
        seed: int = 0,
        num_return_sequences: int | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translates ids: codes one by one, then all words at once.

        Pass options by keyword. An option that is not passed is taken from
        `generation_config`, and else has the default given here.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0. A row of
                padding alone has an empty translation.
            num_beams: Number of code sequences per sentence. With 1, codes are chosen
                greedily. With more, a beam search finds the sequences, the decoder
                writes the words of all of them at once, and the translation with the
                highest mean log probability of its words wins: the decoder tells
                which codes make sense together.
            length_penalty: Exponent of the length in the beam search over codes, as in
                `keras_vqem.decoding.beam_search`.
            min_codes: Minimum number of codes, the end not counted.
            max_codes: Maximum number of codes, the end not counted: an integer, or a
                tensor `[B]` with one limit per row. None allows a translation of
                twice the length of the source plus 10 tokens.
            end_threshold: Probability above which a sequence of codes ends; below it,
                codes go on. None treats the end as any other code. Where codes are
                hard to predict, the end can be more probable than every single code,
                and still improbable.
            drop_repeats: Whether to leave out an id that equals the one before it. A
                decoder that writes all words at once sometimes writes a word twice;
                but with a vocabulary that spells numbers, the 1 of 11 repeats
                rightly.
            blank_bias: Number to add to the blank's logit at each position of a
                `CTCOutput`. Negative values give longer translations.
            style: Name of the code that comes first, one of `styles`. None leaves the
                first code to the predictor.
            first_code: Code that comes first, instead of a `style`: an integer, or a
                tensor `[B]`, -1 for rows whose first code is predicted.
            rescorer: A trained `Transformer` with the same tokenizer, for example the
                teacher. It chooses among the translations of the beams instead of the
                decoder, and scores all of them in one pass.
            temperature: Divisor of the predictor's logits from which each code is
                drawn; it needs `num_beams=1`. None searches instead.
            seed: Integer on which the draws depend. The same seed gives the same
                codes for the same `source_ids`.
            num_return_sequences: Number of translations per sentence, each from its
                own sequence of codes: the best of `num_beams`, which must be as many,
                or of as many draws. None returns one translation without an axis for
                the number.

        Returns:
            A dict of tensors:

            - `target_ids`: int32 `[B, L]`, with id 1 at the end of each row, unless
              it was cut, then padded with 0.
            - `scores`: `[B]`, mean log probability of the words, under the rescorer
              if there is one.
            - `codes`: int32 `[B, N]`, followed by `num_codes` from the end on.

            With `num_return_sequences`, each has an axis for the number after the
            first, best scores first. Two sequences of codes may give the same words.
        """
        number = number_of_choices(
            num_return_sequences, num_beams, temperature, can_sample=True
        )
        samples = temperature is not None
        memory, mask = self.encode_source(source_ids)
        most_codes = self.max_codes_for(ops.shape(mask)[1])
        if max_codes is None:
            max_codes = self.max_codes_for(ops.sum(ops.cast(mask, "int32"), axis=1))
        elif isinstance(max_codes, int):
            most_codes = max_codes
        codes = self.predictor.search(
            memory,
            mask,
            max_length=max_codes + 1,
            most=most_codes + 1,
            min_length=min_codes,
            num_beams=num_beams,
            length_penalty=length_penalty,
            all_beams=True,
            end_threshold=end_threshold,
            first_code=self._styles.first_code(style, first_code),
            temperature=temperature,
            seed=(0, whole_number("seed", seed, 0)) if samples else None,
            num_samples=(number or 1) if samples else None,
        )
        if len(codes.shape) == 2:  # Greedy search has no axis of beams.
            codes = codes[:, None]
        each = (number or 1) if samples else num_beams
        rows, length = ops.shape(source_ids)[0], ops.shape(codes)[2]
        if each > 1:
            memory, mask = (ops.repeat(x, each, axis=0) for x in (memory, mask))
        flat = ops.reshape(codes, (rows * each, length))
        ids, scores = self.write_words(flat, memory, mask, blank_bias)
        if drop_repeats:
            ids = without_repeats(ids)
        if rescorer is not None:
            scores = self.rescored(rescorer, source_ids, ids, each)
        found = {"target_ids": ids, "scores": scores, "codes": flat}
        if each == 1 and number is None:  # Then nothing is sorted.
            return found
        found = {
            name: ops.reshape(x, (rows, each, *ops.shape(x)[1:]))
            for name, x in found.items()
        }
        return best_first(found, number)

    def _endpoints(self, max_tokens, options):
        return {
            **super()._endpoints(max_tokens, options),
            **endpoints.of_codes(self, max_tokens, options),
        }


class _Styles:
    """Names of first codes. TensorFlow would try to export a plain dict.

    Args:
        by_name: Dict from names to codes.
    """

    def __init__(self, by_name: dict[str, int]):
        self.by_name = by_name

    def first_code(
        self, style: str | None, first_code: int | tf.Tensor | None
    ) -> int | tf.Tensor | None:
        """Returns the code of a style, or `first_code` if there is none."""
        if style is None:
            return first_code
        if first_code is not None:
            raise ValueError(
                f"Both style={style!r} and first_code={first_code!r} say which code "
                f"comes first. Pass one of them."
            )
        if style not in self.by_name:
            known = ", ".join(map(repr, self.by_name)) or "none"
            raise ValueError(
                f"This model has no style {style!r}; it has {known}. Pass one of "
                f"these, or the number of a code as first_code."
            )
        return self.by_name[style]


def without_repeats(ids: tf.Tensor) -> tf.Tensor:
    """Removes ids that equal the one before them; padding moves to the end.

    Args:
        ids: int32 `[B, L]`, padded with 0.

    Returns:
        int32 `[B, L]`, padded with 0.
    """
    before = ops.pad(ids, [[0, 0], [1, 0]])[:, :-1]
    gone = (ids == before) | (ids == PAD_ID)
    return left_aligned(ids, ~gone, PAD_ID)
