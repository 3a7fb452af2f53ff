"""SentencePieceTokenizer: text to ids and back, inside TensorFlow's graph."""

import io
import operator
import pathlib

import keras
import numpy as np
import tensorflow as tf
import tensorflow_text

from keras_vqem.files import replacing
from keras_vqem.text.lines import is_utf8

ASSET = "tokenizer.model"


@keras.saving.register_keras_serializable(package="keras_vqem")
class SentencePieceTokenizer(keras.layers.Layer):
    """Splits text into subwords, and joins them again.

    One vocabulary serves both languages of a translator. Ids 0, 1 and 2 are padding,
    end of sentence and unknown; there is no start symbol. Characters that the
    training lines did not hold are spelled in UTF-8 bytes, which always have ids, so
    any text can be encoded and comes back the same, but for these: runs of spaces
    become one space, spaces at either end vanish, and U+2581 (SentencePiece's own
    sign for a space) becomes a space. Bytes that are not UTF-8 come back as U+FFFD.

    `encode` and `decode` are graph operations: they run in `tf.data`, in a
    `tf.function` and in an exported model. The tokenizer has no weights. As an
    attribute of a model it is saved with it, as one asset of the `.keras` file.

    Args:
        proto: A SentencePiece model: its bytes, or the path of its file. None for a
            tokenizer that gets it later from `load_assets`, as Keras does it.
        vocabulary_size: The number of ids; known from `proto`, needed only without.
        **kwargs: `name` and other arguments of `keras.layers.Layer`.

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

    pad_id = 0
    eos_id = 1
    unk_id = 2

    def __init__(self, proto=None, vocabulary_size=None, **kwargs):
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
        lines,
        vocabulary_size,
        model_type="unigram",
        character_coverage=1.0,
        normalization="identity",
        max_lines=1_000_000,
        seed=0,
        **kwargs,
    ):
        """Make a tokenizer from lines of text.

        The same lines and arguments give the same tokenizer, byte for byte.

        Args:
            lines: Strings; for a translator those of both languages.
            vocabulary_size: The number of ids. 256 of them spell bytes and 3 have a
                meaning of their own; the others are characters and subwords.
            model_type: `"unigram"` or `"bpe"`.
            character_coverage: The share of all characters that get an id of their
                own; rarer ones are spelled in bytes.
            normalization: A SentencePiece rule applied to every text. `"nmt_nfkc"`
                reads, for example, "ﬁ" as "fi" and a no-break space as a space.
            max_lines: Of more lines, a random sample of this size is used.
            seed: Of the sample.
            **kwargs: Arguments of `keras.layers.Layer`.

        Returns:
            A `SentencePieceTokenizer`.

        Raises:
            ValueError: If the lines do not give a vocabulary of that size.
        """
        import sentencepiece  # Only training needs it; tf-text does the rest.

        if isinstance(lines, str | bytes):
            raise ValueError(
                f"lines must be an iterable of strings, not one {type(lines).__name__}."
                " Pass a list such as [line]."
            )
        lines = [line for line in lines if line.strip() and is_utf8(line)]
        if not lines:
            raise ValueError(
                "There is no line with text to train on. Pass the lines of the "
                "training corpus, both languages in one list."
            )
        if len(lines) > max_lines:
            chosen = np.random.default_rng(seed).permutation(len(lines))[:max_lines]
            lines = [lines[i] for i in np.sort(chosen)]
        writer = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=writer,
                vocab_size=operator.index(vocabulary_size),
                model_type=model_type,
                character_coverage=character_coverage,
                # A translator should write "½" or a decomposed "é" as its corpus
                # does. Rules such as NFKC would change the references as well, and
                # rare characters can be spelled in bytes without them.
                normalization_rule_name=normalization,
                pad_id=cls.pad_id,
                eos_id=cls.eos_id,
                unk_id=cls.unk_id,
                bos_id=-1,
                byte_fallback=True,
                # The sums of EM depend on how lines are dealt to threads: a fixed
                # number gives the same result on every machine.
                num_threads=4,
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            raise ValueError(
                f"{len(lines)} lines gave no {model_type} vocabulary of "
                f"{vocabulary_size} ids ({error}). Ask for fewer ids or pass more "
                "lines if the vocabulary is too large for the text; ask for more "
                "ids, or a lower character_coverage, if it is too small for its "
                "characters and the 259 ids that every vocabulary has."
            ) from error
        return cls(writer.getvalue(), **kwargs)

    @classmethod
    def from_file(cls, path, **kwargs):
        """Read a tokenizer that `save` wrote."""
        return cls(pathlib.Path(path), **kwargs)

    def save(self, path):
        """Write the tokenizer as one file, a SentencePiece model."""
        self._loaded()
        with replacing(path) as temporary:
            temporary.write_bytes(self._proto)

    @property
    def vocabulary_size(self):
        """The number of ids, those of padding, end and unknown included."""
        return self._vocabulary_size

    def encode(self, texts):
        """Turn texts into ids, each text ended by `eos_id`.

        Args:
            texts: Strings: a list, an array or a tensor [B]; or one string.

        Returns:
            An int32 `tf.RaggedTensor` [B, None]; for one string a tensor [None].
        """
        return self._loaded().tokenize(_string_tensor(texts))

    def encode_lines(self, lines):
        """Turn a list of strings into a list of int32 arrays, ended by `eos_id`."""
        if not len(lines):
            return []
        ids = self.encode(lines)
        return np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])

    def decode(self, ids):
        """Turn ids into texts. What follows the first `eos_id` is left out.

        Args:
            ids: Integers [B, T], dense (padded after the end) or ragged; or [T].

        Returns:
            A string tensor [B], UTF-8; for ids [T] a scalar.

        Raises:
            tf.errors.OutOfRangeError: If an id is not of the vocabulary.
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

    def unknown_characters(self, text):
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

    def get_config(self):
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size}

    @classmethod
    def from_config(cls, config):
        # A path in a stranger's file would read whatever lies there.
        if "proto" in config:
            raise ValueError("A config holds no `proto`: the tokenizer is an asset.")
        return super().from_config(config)

    def save_assets(self, dir_path):
        self.save(pathlib.Path(dir_path) / ASSET)

    def load_assets(self, dir_path):
        self._set_proto((pathlib.Path(dir_path) / ASSET).read_bytes())

    def _set_proto(self, proto):
        try:
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
                f"{self._vocabulary_size}. Leave it out, or pass the model it is of."
            )
        self._proto, self._tokenizer, self._vocabulary_size = proto, tokenizer, size

    def _loaded(self):
        if self._tokenizer is None:
            raise ValueError(
                "This tokenizer has no vocabulary yet. Make one with "
                "SentencePieceTokenizer.train(lines, vocabulary_size) or "
                "SentencePieceTokenizer.from_file(path)."
            )
        # tf-text's resource goes when TensorFlow drops its compiled kernels, as
        # `keras.backend.clear_session` makes it do.
        with tf.init_scope():
            try:
                self._tokenizer.vocab_size()
            except tf.errors.NotFoundError:
                self._set_proto(self._proto)
        return self._tokenizer


def _string_tensor(texts):
    if isinstance(texts, tf.Tensor | tf.RaggedTensor):
        return texts
    # Lone surrogates (of lines that are not UTF-8) have no bytes of their own.
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
