"""Reconstructions from the codes of a `LatentNMT`, and statistics of the codes.

Three translations of one text show where quality is lost. BLEU from the codes of the
true translation (`reconstruct`) is the limit of codes and decoder. BLEU from predicted
codes (`model.translate`) is the result of the model. BLEU from random codes shows how
much the decoder gets from the source alone.
"""

import dataclasses
import functools
import weakref
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import tensorflow as tf

from keras_vqem.ids import PAD_ID
from keras_vqem.layers.bottlenecks.code_metrics import perplexity
from keras_vqem.models import LatentNMT

# Graphs per model, kept so that validation does not trace again every epoch.
_graphs = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class CodeStatistics:
    """Use of the codebook by a text, the mean over groups if there are several.

    Attributes:
        perplexity: Perplexity of the codes, the effective number of codes in use.
        used: Share of the codebook that occurs at least once, from 0 to 1.
        codes: Number of codes counted.
        per_sentence: Mean number of codes per sentence.
    """

    perplexity: float
    used: float
    codes: int
    per_sentence: float


def encode(
    model: LatentNMT,
    sources: Sequence[str],
    targets: Sequence[str],
    batch_size: int = 128,
) -> list[np.ndarray]:
    """Returns the codes of sentences.

    Args:
        model: A `keras_vqem.models.LatentNMT`.
        sources: List of strings, the sentences to translate.
        targets: List of strings, their translations.
        batch_size: Number of sentences per batch.

    Returns:
        List of int32 arrays, one per sentence, in the order given.
    """
    found = [None] * len(sources)
    for places, source_ids, target_ids in _batches(model, sources, targets, batch_size):
        rows = _functions(model)[0](source_ids, target_ids).numpy()
        for place, row in zip(places, rows, strict=True):
            found[place] = row[row < model.bottleneck.num_codes]
    return found


def reconstruct(
    model: LatentNMT,
    sources: Sequence[str],
    targets: Sequence[str],
    codes: Literal["own", "random"] = "own",
    seed: int = 0,
    batch_size: int = 128,
) -> list[str]:
    """Writes translations from given codes instead of predicted ones.

    Options of `decode_ids` are taken from the model's `generation_config`.

    Args:
        model: A `keras_vqem.models.LatentNMT`.
        sources: List of strings, the sentences to translate.
        targets: List of strings, their true translations.
        codes: `"own"` for the codes of `targets`, `"random"` for as many codes drawn
            uniformly from the codebook.
        seed: Seed of the random codes. A sentence's codes depend only on the seed and
            on its place in the list.
        batch_size: Number of sentences per batch.

    Returns:
        List of strings, in the order given.
    """
    if codes not in ("own", "random"):
        raise ValueError(f'`codes` must be "own" or "random", received {codes!r}.')
    num_codes = model.bottleneck.num_codes
    encode_ids, decode_ids = _functions(model)
    found = [None] * len(sources)
    for places, source_ids, target_ids in _batches(model, sources, targets, batch_size):
        rows = encode_ids(source_ids, target_ids).numpy()
        if codes == "random":
            for place, row in zip(places, rows, strict=True):
                there = row < num_codes
                rng = np.random.default_rng([seed, place])
                row[there] = rng.integers(num_codes, size=there.sum())
        texts = model.tokenizer.decode(decode_ids(source_ids, rows)).numpy()
        for place, text in zip(places, texts, strict=True):
            found[place] = text.decode("utf-8", errors="replace")
    return found


def translate(
    model: LatentNMT,
    sources: Sequence[str],
    first_codes: Sequence[int],
    batch_size: int = 128,
) -> list[str]:
    """Translates sentences, each with a first code of its own.

    The predictor goes on from the first code. All other options are those that the
    model stores.

    Args:
        model: A `keras_vqem.models.LatentNMT`.
        sources: List of strings, the sentences to translate.
        first_codes: List of integers, one per sentence: the code that comes first, or
            -1 if it is predicted.
        batch_size: Number of sentences per batch.

    Returns:
        List of strings, in the order given.
    """
    num_codes, first_codes = model.bottleneck.num_codes, np.asarray(first_codes, int)
    if len(sources) != len(first_codes):
        raise ValueError(
            f"There are {len(sources)} sources but {len(first_codes)} first codes. "
            f"Pass one per sentence, -1 where it is predicted."
        )
    if len(sources) and not -1 <= first_codes.min() <= first_codes.max() < num_codes:
        raise ValueError(
            f"First codes must be from 0 to {num_codes - 1}, or -1 for predicted ones, "
            f"received {first_codes.min()} to {first_codes.max()}."
        )
    # A stored style would be a second first code.
    graph = tf.function(
        lambda source_ids, codes: model.translate_ids(
            source_ids, style=None, first_code=codes
        ),
        input_signature=[
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.int32),
        ],
        autograph=False,
    )
    found = [None] * len(sources)
    for places, source_ids, _ in _batches(model, sources, sources, batch_size):
        ids = graph(source_ids, first_codes[places].astype("int32"))
        texts = model.tokenizer.decode(ids).numpy()
        for place, text in zip(places, texts, strict=True):
            found[place] = text.decode("utf-8", errors="replace")
    return found


def count(codes: np.ndarray, num_codes: int) -> np.ndarray:
    """Counts the codes of each group.

    Args:
        codes: Integer array `[..., groups]`.
        num_codes: Size of the codebook.

    Returns:
        float64 array `[groups, num_codes]`.

    Example:

    >>> from keras_vqem.evaluation import codes
    >>> codes.count(np.array([[0, 2], [0, 1]]), num_codes=3).tolist()
    [[2.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    groups = np.reshape(codes, (-1, np.shape(codes)[-1])).T
    counts = [np.bincount(group, minlength=num_codes) for group in groups]
    return np.stack(counts).astype("float64")


def usage(
    codes: Sequence[np.ndarray], num_codes: int, groups: int = 1
) -> CodeStatistics:
    """Measures how sentences use the codebook.

    Args:
        codes: List of integer arrays, one per sentence, as returned by `encode`.
        num_codes: Size of the codebook.
        groups: Number of codes per position, each from a codebook of its own.

    Returns:
        A `CodeStatistics`.

    Example:

    >>> from keras_vqem.evaluation import codes
    >>> codes.usage([np.array([0, 1]), np.array([2, 3])], num_codes=8)
    CodeStatistics(perplexity=4.0, used=0.5, codes=4, per_sentence=2.0)
    """
    flat = np.concatenate(codes).reshape(-1, groups)
    if not flat.size:
        raise ValueError("There are no codes to count: pass at least one sentence.")
    counts = count(flat, num_codes)
    return CodeStatistics(
        perplexity=round(float(np.mean(perplexity(counts))), 6),
        used=float((counts > 0).mean()),
        codes=flat.size,
        per_sentence=flat.size / len(codes),
    )


def groups_of(model: LatentNMT) -> int:
    """Returns the number of codes per position of a `LatentNMT`."""
    return int(np.prod(model.bottleneck.groups.code_shape, dtype=int))


def _functions(model: LatentNMT) -> tuple:
    """Returns `encode_ids` and `decode_ids` as graphs."""
    config = model.generation_config
    options = {n: config[n] for n in ("blank_bias", "drop_repeats") if n in config}
    graphs = _graphs.setdefault(model, {})
    key = tuple(sorted(options.items()))
    if key not in graphs:
        # A strong reference from the value would keep the key alive forever.
        self = weakref.ref(model)
        graph = functools.partial(
            tf.function,
            input_signature=2 * [tf.TensorSpec([None, None], tf.int32)],
            autograph=False,
        )
        graphs[key] = (
            graph(lambda *ids: self().encode_ids(*ids)),
            graph(lambda *given: self().decode_ids(*given, **options)),
        )
    return graphs[key]


def _batches(model, sources, targets, batch_size) -> Iterator[tuple]:
    """Yields indices into the lists and their padded ids, long targets first."""
    if not isinstance(model, LatentNMT):
        raise ValueError(
            f"{type(model).__name__} has no codes. Pass a keras_vqem.models.LatentNMT."
        )
    if len(sources) != len(targets):
        raise ValueError(
            f"There are {len(sources)} sources but {len(targets)} targets. Pass two "
            f"lists of the same length, pair by pair."
        )
    if not len(sources):
        return
    source_rows = model.tokenizer.encode(list(sources))
    target_rows = model.tokenizer.encode(list(targets))
    order = np.argsort(-target_rows.row_lengths().numpy(), kind="stable")
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        yield (
            places,
            tf.gather(source_rows, places).to_tensor(PAD_ID),
            tf.gather(target_rows, places).to_tensor(PAD_ID),
        )
