"""Sentences of the demo page, translated by a `LatentNMT` and its teacher."""

import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vqem.command import answers
from keras_vqem.command.problems import Refused, said
from keras_vqem.evaluation import latency
from keras_vqem.models import CTCOutput, LatentNMT, Transformer
from keras_vqem.text import SplitText

# Attention and the teacher's steps grow with the text, and the page must not hang:
# limits per sentence and per text, and seconds after which no more rounds are timed.
MAX_TOKENS, MAX_TEXT_TOKENS = 128, 256
ROUNDS, TIMING_SECONDS = 7, 2.0
TRIED, NEIGHBOURS = 64, 6  # codes


class Sentences:
    """Answers the requests of the page about sentences.

    Both models decode with the options of their presets.

    Args:
        teacher: A `Transformer`.
        latent: A `LatentNMT`.
    """

    def __init__(self, teacher: Transformer, latent: LatentNMT):
        self.teacher, self.latent = teacher, latent
        self.num_codes = latent.bottleneck.num_codes
        # The model itself writes at most this many codes for the longest text.
        self.max_codes = latent.max_codes_for(MAX_TOKENS)
        self.styles = latent.styles
        stored = latent.generation_config
        drop_repeats = stored.get("drop_repeats", False)
        blank_bias = stored.get("blank_bias", 0.0)
        # The first code if no style is chosen, -1 if it is predicted.
        self._usual = self.styles.get(stored.get("style"), stored.get("first_code"))
        self._usual = -1 if self._usual is None else self._usual
        ids = tf.TensorSpec([None, None], "int32")
        self._teacher_graph = teacher.translation_graph()
        # Returning the codes as well takes no extra work.
        self._latent_graph = tf.function(
            lambda source_ids, first_codes: latent.generate(
                source_ids, style=None, first_code=first_codes
            ),
            input_signature=[ids, tf.TensorSpec([None], "int32")],
            autograph=False,
        )
        self._latent_graph.get_concrete_function()  # Traced before it is timed.
        # Texts are decoded like translations. Pieces keep repeats, so that each code
        # has its own tokens.
        self._text_graph, self._pieces_graph = (
            tf.function(
                functools.partial(
                    latent.decode_ids, drop_repeats=drop, blank_bias=blank_bias
                ),
                input_signature=[ids, ids],
                autograph=False,
            )
            for drop in (drop_repeats, False)
        )

    def about(self) -> dict[str, Any]:
        """Returns facts about the latent translator."""
        return {
            "num_codes": self.num_codes,
            "tokens_per_code": 2**self.latent.num_compress_steps,
            "styles": list(self.styles),
        }

    def translate(self, text: str, style: str | None = None) -> dict[str, Any]:
        """Returns both translations with their times, and the codes per sentence.

        `before` is what stands before a sentence and `after` what stands after the
        last: white space, and what is copied.

        The speedup is left out if there are reasons to doubt the translation. Of a
        model that has styles, there is also one translation per style.
        """
        text = SplitText(text, self.latent.tokenizer.unknown_characters(text))
        sentences = text.sentences
        if not sentences:
            raise Refused(
                f"There is nothing to translate in {said(text.text)}: the model knows "
                f"none of these words."
            )
        teacher_ids = self._ids(self.teacher, sentences)
        latent_ids = self._ids(self.latent, sentences)
        code = self._usual if style is None else self.styles[style]
        first = tf.fill([len(sentences)], code)
        # What comes out, and a warm-up that tells how many rounds there is time for.
        start = time.perf_counter()
        teacher_found = self._teacher_graph(teacher_ids).numpy()
        found = self._latent_graph(latent_ids, first)
        texts = {
            "teacher": _written(self.teacher, teacher_found),
            "latent": _written(self.latent, found["target_ids"]),
        }
        seconds = time.perf_counter() - start
        rounds = min(max(int(TIMING_SECONDS / seconds), 1), ROUNDS)
        times = latency.measure(
            {
                "teacher": lambda: self._teacher_graph(teacher_ids).numpy(),
                "latent": lambda: self._latent_graph(latent_ids, first)[
                    "target_ids"
                ].numpy(),
            },
            rounds=rounds,
            warmup=0,
        )
        rows = [
            [int(code) for code in row if code < self.num_codes]
            for row in found["codes"].numpy()
        ]
        parts = text.parts(texts["latent"])
        translation = "".join(parts)
        warnings = answers.warnings_of(
            self.latent,
            text,
            texts["latent"],
            answers.lowest(found["scores"].numpy().tolist()),
        )
        teacher_ms, latent_ms = (times[name].median_ms for name in times)
        return {
            "teacher": {"text": text.join(texts["teacher"]), "ms": teacher_ms},
            "latent": {"text": translation, "ms": latent_ms},
            "sentences": [
                {"source": source, "text": written, "codes": codes, "before": before}
                | {"pieces": self.decode(source, codes)["pieces"] if codes else []}
                for source, before, written, codes in zip(
                    sentences, parts[:-1:2], parts[1::2], rows, strict=True
                )
            ],
            "after": parts[-1],
            "styles": self._in_styles(text, latent_ids),
            "speedup": None if warnings else teacher_ms / latent_ms,
            "warnings": warnings,
            "notes": answers.notes_of(text),
            "rounds": rounds,
        }

    def _in_styles(self, text, ids):
        """Returns one translation per style, of all sentences together."""
        if not self.styles:
            return []
        rows, number = ids.shape[0], len(self.styles)
        codes = tf.repeat(tf.constant(list(self.styles.values())), rows)
        found = self._latent_graph(tf.tile(ids, [number, 1]), codes)["target_ids"]
        texts = _written(self.latent, found)
        return [
            {"name": name, "text": text.join(texts[k * rows : (k + 1) * rows])}
            for k, name in enumerate(self.styles)
        ]

    def checked_style(self, style: Any) -> str | None:
        """Returns the style of a request, None if it has none, or raises `Refused`."""
        if style is None or style == "":
            return None
        if not isinstance(style, str) or style not in self.styles:
            known = ", ".join(self.styles) or "no styles"
            raise Refused(f"`style` is {said(style)}, but the model has {known}.")
        return style

    def checked(self, codes: Any) -> list[int]:
        """Returns the codes of a request, or raises `Refused`."""
        if not isinstance(codes, list) or not 1 <= len(codes) <= self.max_codes:
            raise Refused(
                f"`codes` must be a list of 1 to {self.max_codes} codes, received "
                f"{said(codes)}.",
            )
        for place, code in enumerate(codes, start=1):
            if type(code) is not int or not 0 <= code < self.num_codes:
                what = "nothing" if code is None else said(code)
                raise Refused(
                    f"Code {place} must be an integer from 0 to "
                    f"{self.num_codes - 1}, received {what}.",
                )
        return codes

    def decode(self, text: str, codes: Sequence[int]) -> dict[str, Any]:
        """Returns the text that the decoder writes from codes, whole and per code."""
        ids = self._ids(self.latent, [text]), tf.constant([codes])
        [written] = _written(self.latent, self._text_graph(*ids))
        pieces = self._pieces(self._pieces_graph(*ids)[0], len(codes))
        return {"text": written, "pieces": pieces}

    def neighbours(
        self, text: str, codes: Sequence[int], place: int
    ) -> dict[str, list[dict[str, Any]]]:
        """Finds the nearest codes that write something else than `codes[place]`."""
        if self.latent.bottleneck.groups.num_groups > 1:
            return {"neighbours": []}  # A position then has several codes.
        vectors = self.latent.bottleneck.decode(tf.range(self.num_codes)[None])[0]
        distances = tf.norm(vectors - vectors[codes[place]], axis=-1).numpy()
        # The code itself comes first.
        nearest = np.argsort(distances, kind="stable")[:TRIED].tolist()
        nearest = [codes[place], *(code for code in nearest if code != codes[place])]
        rows = np.repeat([codes], len(nearest), axis=0)
        rows[:, place] = nearest
        source_ids = tf.repeat(self._ids(self.latent, [text]), len(nearest), axis=0)
        ids = self._pieces_graph(source_ids, tf.constant(rows, "int32"))
        found = {}
        texts = _written(self.latent, ids)
        for code, row, whole in zip(nearest, ids, texts, strict=True):
            own = self._pieces(row, len(codes))[place]
            found.setdefault(whole if own is None else own, code)
        others = list(found.items())[1 : 1 + NEIGHBOURS]
        return {"neighbours": [{"code": c, "writes": text} for text, c in others]}

    def _pieces(self, ids, count):
        """Splits decoded ids into the strings that each of `count` codes wrote.

        They are None if words are written by CTC, where no code has words of its own.
        """
        if isinstance(self.latent.word_output, CTCOutput):
            return [None] * count
        # With several groups, the codes of one position write one string together.
        groups = self.latent.bottleneck.groups.num_groups
        length = 2**self.latent.num_compress_steps
        width = -(-count // groups) * length
        ids = tf.pad(ids, [[0, max(0, width - ids.shape[0])]])[:width]
        written = _written(self.latent, tf.reshape(ids, (-1, length)))
        return [written[place // groups] for place in range(count)]

    def _ids(self, model, sentences):
        rows = model.tokenizer.encode(sentences)
        lengths = rows.row_lengths().numpy()
        longest, total = int(lengths.max()), int(lengths.sum())
        if longest > MAX_TOKENS:
            raise Refused(
                f"A sentence has {longest} tokens, but at most {MAX_TOKENS} are "
                f"allowed. Letters that are not English take several tokens each. "
                f"Shorten it.",
            )
        if total > MAX_TEXT_TOKENS:
            raise Refused(
                f"The text has {total} tokens, but at most {MAX_TEXT_TOKENS} are "
                f"allowed. Shorten it.",
            )
        return rows.to_tensor()


def _written(model, ids):
    texts = model.tokenizer.decode(ids).numpy()
    return [text.decode("utf-8", errors="replace") for text in texts]
