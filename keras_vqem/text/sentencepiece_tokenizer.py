"""SentencePieceTokenizer: text to ids and back, as graph operations."""

import hashlib
import io
import itertools
import operator
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vqem import quiet
from keras_vqem.files import replacing
from keras_vqem.ids import EOS_ID, PAD_ID, UNKNOWN_ID
from keras_vqem.text.lines import is_utf8

ASSET = "tokenizer.model"
# Number of lines that are encoded together.
CHUNK_SIZE = 16384


@keras.saving.register_keras_serializable(package="keras_vqem")
class SentencePieceTokenizer(keras.layers.Layer):
    """Splits text into subword ids, and joins ids to text again.

    One vocabulary serves both languages of a translator. Ids 0, 1 and 2 are padding,
    end of sentence and unknown; there is no start symbol. Characters that do not occur
    in the training lines are spelled as UTF-8 bytes. All bytes have ids, so any text
    can be encoded. Decoding gives the same text with these exceptions: runs of spaces
    become one space, spaces at either end are removed, U+2581 (SentencePiece's own
    sign for a space) becomes a space, and bytes that are not UTF-8 become U+FFFD.

    `encode` and `decode` are graph operations: they run in `tf.data`, in a
    `tf.function` and in an exported model. The tokenizer has no weights. A model that
    has it as an attribute saves it as one asset of its `.keras` file.

    Args:
        proto: SentencePiece model, as bytes or as the path of its file. None makes a
            tokenizer without a vocabulary, which Keras fills through `load_assets`.
        vocabulary_size: Number of ids. Needed only without `proto`, which has it.
        **kwargs: Other arguments of `keras.layers.Layer`, such as `name`.

    Example:

    >>> from keras_vqem.text import SentencePieceTokenizer
    >>> lines = ["half past two", "halb drei", "ten past two", "zehn nach zwei"]
    >>> tokenizer = SentencePieceTokenizer.train(lines, vocabulary_size=280)
    >>> ids = tokenizer.encode(["half past ten", "日本"])
    >>> int(ids[0, -1]) == tokenizer.eos_id
    True
    >>> [text.decode() for text in tokenizer.decode(ids).numpy()]
    ['half past ten', '日本']

    Reference:
        [Kudo and Richardson, 2018](https://arxiv.org/abs/1808.06226)
    """

    pad_id = PAD_ID
    eos_id = EOS_ID
    unk_id = UNKNOWN_ID

    def __init__(
        self,
        proto: bytes | str | os.PathLike | None = None,
        vocabulary_size: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._vocabulary_size = vocabulary_size
        self._proto = None
        self._tokenizer = None
        self.built = True
        if proto is not None:
            if not isinstance(proto, bytes):
                proto = pathlib.Path(proto).read_bytes()
            self._set_proto(proto)

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocabulary_size: int,
        model_type: str = "unigram",
        character_coverage: float = 1.0,
        normalization: str = "identity",
        max_lines: int = 1_000_000,
        seed: int = 0,
        **kwargs: Any,
    ) -> "SentencePieceTokenizer":
        """Trains a tokenizer on lines of text.

        The same lines and arguments give the same tokenizer, byte for byte.

        Args:
            lines: Strings to train on; for a translator, those of both languages.
            vocabulary_size: Number of ids: 3 for padding, end of sentence and unknown,
                256 for bytes, the rest for characters and subwords.
            model_type: Kind of SentencePiece model, `"unigram"` or `"bpe"`.
            character_coverage: Fraction of the characters in `lines` that get their
                own ids, from 0.98 to 1. The rarest characters beyond it are spelled
                as bytes.
            normalization: Name of the SentencePiece normalization rule applied to
                every text. `"identity"` changes nothing; `"nmt_nfkc"`, for example,
                reads "ﬁ" as "fi" and a no-break space as a space.
            max_lines: Maximum number of lines to train on. If there are more, a random
                sample of this size is used.
            seed: Integer that selects the sample.
            **kwargs: Other arguments of `keras.layers.Layer`, such as `name`.

        Returns:
            A `SentencePieceTokenizer`.

        Raises:
            ValueError: If no vocabulary of this size can be made from the lines.
        """
        import sentencepiece  # Needed for training only; tf-text does the rest.

        if isinstance(lines, str | bytes):
            raise ValueError(
                f"lines must be an iterable of strings, not one {type(lines).__name__}."
                " Pass a list such as [line]."
            )
        if not 0.98 <= character_coverage <= 1:
            raise ValueError(
                f"character_coverage must be from 0.98 to 1, not {character_coverage}. "
                "0.9995 is usual for languages with thousands of characters, else 1."
            )
        if iter(lines) is lines:  # Can be read only once.
            lines = list(lines)
        count = sum(map(_is_text, lines))
        if not count:
            raise ValueError(
                "There is no line with text to train on. Pass the lines of the "
                "training corpus, both languages in one list."
            )
        chosen = np.ones(count, bool)
        if count > max_lines:
            chosen[np.random.default_rng(seed).permutation(count)[max_lines:]] = False
        # They may be lines of files, which do not all fit in memory.
        lines = list(itertools.compress(filter(_is_text, lines), chosen.tobytes()))
        writer = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=writer,
                vocab_size=operator.index(vocabulary_size),
                model_type=model_type,
                character_coverage=character_coverage,
                # A translator should write "½" or a decomposed "é" as its corpus
                # does. Rules such as NFKC would change the references too, and are
                # not needed, because rare characters can be spelled as bytes.
                normalization_rule_name=normalization,
                pad_id=cls.pad_id,
                eos_id=cls.eos_id,
                unk_id=cls.unk_id,
                bos_id=-1,
                byte_fallback=True,
                # The sums of EM depend on how lines are divided among threads: a
                # fixed number gives the same result on every machine.
                num_threads=4,
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            raise ValueError(
                f"{len(lines)} lines gave no {model_type} vocabulary of "
                f"{vocabulary_size} ids ({error}). If the vocabulary is too large for "
                "the text, ask for fewer ids or pass more lines. If it is too small "
                "for the characters of the text and the 259 ids that every vocabulary "
                "has, ask for more ids, or lower character_coverage."
            ) from error
        return cls(writer.getvalue(), **kwargs)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike, **kwargs: Any
    ) -> "SentencePieceTokenizer":
        """Reads a tokenizer that `save` wrote.

        Args:
            path: Path of the SentencePiece model.
            **kwargs: Other arguments of `keras.layers.Layer`, such as `name`.

        Returns:
            A `SentencePieceTokenizer`.
        """
        return cls(pathlib.Path(path), **kwargs)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the tokenizer as one file, a SentencePiece model.

        Args:
            path: Path of the file to write.
        """
        self._loaded()
        with replacing(path) as temporary:
            temporary.write_bytes(self._proto)

    @property
    def vocabulary_size(self) -> int | None:
        """Number of ids, including those for padding, end of sentence and unknown."""
        return self._vocabulary_size

    # No property: TensorFlow reads all of them while it exports a model.
    def pieces(self) -> list[str]:
        """Returns the strings that the ids stand for, as SentencePiece spells them."""
        ids = tf.range(self.vocabulary_size)
        return [x.decode() for x in self._loaded().id_to_string(ids).numpy()]

    @property
    def sha256(self) -> str:
        """SHA-256 hash of the SentencePiece model, in hexadecimal digits."""
        return hashlib.sha256(self._proto or b"").hexdigest()

    def encode(
        self, texts: str | bytes | Sequence[str | bytes] | np.ndarray | tf.Tensor
    ) -> tf.RaggedTensor | tf.Tensor:
        """Converts texts to ids, with `eos_id` at the end of each text.

        Args:
            texts: Strings as a list, an array or a tensor `[B]`; or one string.

        Returns:
            Ids, an int32 `tf.RaggedTensor` `[B, None]`; for one string, a tensor
            `[None]`.
        """
        return self._loaded().tokenize(_string_tensor(texts))

    def encode_lines(self, lines: Sequence[str]) -> list[np.ndarray]:
        """Converts a list of strings to a list of arrays.

        Args:
            lines: List of strings.

        Returns:
            One int32 array of ids per string, each with `eos_id` at its end.
        """
        found = []
        for ids in self.encode_chunks(lines):
            found += np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])
        return found

    def encode_chunks(self, lines: Iterable[str]) -> Iterator[tf.RaggedTensor]:
        """Converts many strings to ids, some at a time, to bound the memory it takes.

        Args:
            lines: Iterable of strings.

        Yields:
            Ids of the next strings, as `encode` returns them.
        """
        lines = iter(lines)
        while chunk := list(itertools.islice(lines, CHUNK_SIZE)):
            yield self.encode(chunk)

    def decode(self, ids: np.ndarray | tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Converts ids to texts. Ids after the first `eos_id` are ignored.

        Args:
            ids: Integers `[B, T]`, ragged or padded after the end; or `[T]` for one
                text.

        Returns:
            Texts, a string tensor `[B]` in UTF-8; for ids `[T]`, a scalar.

        Raises:
            tf.errors.OutOfRangeError: If an id is not in the vocabulary.
        """
        tokenizer = self._loaded()
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(self.pad_id)
        ids = tf.cast(ids, tf.int32)
        ended = tf.cumsum(tf.cast(ids == self.eos_id, tf.int32), axis=-1) > 0
        keep = ~ended & (ids != self.pad_id)
        if ids.shape.rank == 1:
            return tokenizer.detokenize(tf.boolean_mask(ids, keep))
        return tokenizer.detokenize(tf.ragged.boolean_mask(ids, keep))

    def unknown_characters(self, text: str) -> str:
        """Characters of a text that the vocabulary does not hold.

        They are spelled in bytes, and a model has seldom or never seen them.

        Args:
            text: A string.

        Returns:
            A string of these characters, each once, in the order of the text.
        """
        characters = list(dict.fromkeys("".join(text.split())))
        if not characters:
            return ""
        pieces = self._loaded().id_to_string(self.encode(characters))
        unknown = tf.strings.regex_full_match(
            pieces.flat_values, "<unk>|<0x[0-9A-F]{2}>"
        )
        rows = tf.reduce_any(pieces.with_flat_values(unknown), axis=1).numpy()
        return "".join(c for c, row in zip(characters, rows, strict=True) if row)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SentencePieceTokenizer":
        # A path in an untrusted config could read any file of this machine.
        if "proto" in config:
            raise ValueError(
                "A config holds no `proto`: the vocabulary of a tokenizer is saved as "
                "an asset. Remove `proto` from the config, and read the vocabulary "
                "with `load_assets` or SentencePieceTokenizer.from_file(path)."
            )
        return super().from_config(config)

    def save_assets(self, dir_path: str | os.PathLike) -> None:
        self.save(pathlib.Path(dir_path) / ASSET)

    def load_assets(self, dir_path: str | os.PathLike) -> None:
        self._set_proto((pathlib.Path(dir_path) / ASSET).read_bytes())

    def _set_proto(self, proto):
        import tensorflow_text  # Slow to import, and needed with a vocabulary only.

        try:
            with quiet.held_back():  # SentencePiece logs that it normalizes nothing
                tokenizer = tensorflow_text.SentencepieceTokenizer(
                    proto, out_type=tf.int32, add_eos=True
                )
                size = int(tokenizer.vocab_size())
            first = [
                piece.decode() for piece in tokenizer.id_to_string([0, 1, 2]).numpy()
            ]
        except tf.errors.OpError as error:
            raise ValueError(
                "This is not a SentencePiece model. Pass the bytes or the path of a "
                "file that SentencePieceTokenizer.save wrote."
            ) from error
        if first != ["<pad>", "</s>", "<unk>"]:
            raise ValueError(
                f"Ids 0, 1, 2 of this SentencePiece model are {first}; they must be "
                "<pad>, </s>, <unk>. Make one with SentencePieceTokenizer.train."
            )
        if self._vocabulary_size not in (None, size):
            raise ValueError(
                f"The SentencePiece model has {size} ids, but vocabulary_size is "
                f"{self._vocabulary_size}. Leave vocabulary_size out, or pass the "
                "SentencePiece model that it belongs to."
            )
        self._proto, self._tokenizer, self._vocabulary_size = proto, tokenizer, size

    def _loaded(self):
        if self._tokenizer is None:
            raise ValueError(
                "This tokenizer has no vocabulary yet. Make tokenizers with "
                "SentencePieceTokenizer.train(lines, vocabulary_size) or "
                "SentencePieceTokenizer.from_file(path)."
            )
        # tf-text's resource is deleted when TensorFlow drops its compiled kernels, as
        # it does on `keras.backend.clear_session`: make it again.
        with tf.init_scope():
            try:
                self._tokenizer.vocab_size()
            except tf.errors.NotFoundError:
                self._set_proto(self._proto)
        return self._tokenizer


def _is_text(line):
    return bool(line.strip()) and is_utf8(line)


def _string_tensor(texts):
    if isinstance(texts, tf.Tensor | tf.RaggedTensor):
        return texts
    # Lone surrogates, from lines that are not UTF-8, have no UTF-8 encoding.
    if isinstance(texts, str):
        return tf.constant(texts.encode("utf-8", "surrogatepass"))
    if isinstance(texts, bytes):
        return tf.constant(texts)
    return tf.constant(
        [
            text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
            for text in texts
        ],
        tf.string,
    )
