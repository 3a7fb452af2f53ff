"""What the codes of a `LatentNMT` carry: reconstructions from them, and their use.

Three translations of one text tell where quality is lost. From the codes of the true
translation (`reconstruct`), BLEU is the most that codes and decoder allow; from codes
the predictor finds (`model.translate`), it is what the model does; from random codes,
it is what the decoder reads off the source alone, without listening to codes.
"""

import dataclasses
import weakref

import numpy as np
import tensorflow as tf

from keras_vqem.ids import PAD_ID
from keras_vqem.models import LatentNMT

# Per model its two graphs, so that validation does not trace anew after each epoch.
_graphs = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class CodeUsage:
    """How a text uses the codebook; of several groups the means.

    Attributes:
        perplexity: exp of the entropy of the codes' shares: as many codes, used
            equally often, would be as hard to guess.
        used: Share of the codebook that occurs at all, from 0 to 1.
        codes: Number of codes counted.
        per_sentence: Mean number of codes of a sentence.
    """

    perplexity: float
    used: float
    codes: int
    per_sentence: float


def encode(model, sources, targets, batch_size=128):
    """The codes of sentences.

    Args:
        model: A `keras_vqem.models.LatentNMT`.
        sources: A list of strings.
        targets: A list of strings, their translations.
        batch_size: How many are encoded at a time.

    Returns:
        A list of int32 arrays, one a sentence, in the order given.
    """
    found = [None] * len(sources)
    for places, source_ids, target_ids in _batches(model, sources, targets, batch_size):
        rows = _functions(model)[0](source_ids, target_ids).numpy()
        for place, row in zip(places, rows, strict=True):
            found[place] = row[row < model.bottleneck.num_codes]
    return found


def reconstruct(model, sources, targets, codes="own", seed=0, batch_size=128):
    """Translations that the model writes from the codes of true ones.

    Args:
        model: A `keras_vqem.models.LatentNMT`.
        sources: A list of strings.
        targets: A list of strings, their translations.
        codes: `"own"`: those of `targets`. `"random"`: as many, each drawn evenly
            from the codebook.
        seed: Of the random codes, which depend on it and on the sentence's place in
            the list alone.
        batch_size: How many are written at a time.

    Returns:
        A list of strings, in the order given.
    """
    if codes not in ("own", "random"):
        raise ValueError(f'codes must be "own" or "random", not {codes!r}.')
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


def usage(codes, num_codes, groups=1):
    """Counts codes.

    Args:
        codes: A list of integer arrays, one a sentence, as `encode` returns them.
        num_codes: Size of the codebook.
        groups: Number of codes at one position, each of a codebook of its own.

    Returns:
        A `CodeUsage`.

    Example:

    >>> from keras_vqem.evaluation import codes
    >>> codes.usage([np.array([0, 1]), np.array([2, 3])], num_codes=8)
    CodeUsage(perplexity=4.0, used=0.5, codes=4, per_sentence=2.0)
    """
    flat = np.concatenate(codes).reshape(-1, groups)
    if not flat.size:
        raise ValueError("There are no codes to count: give at least one sentence.")
    shares = np.stack([np.bincount(c, minlength=num_codes) for c in flat.T])
    shares = shares / len(flat)
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1)), axis=1)
    return CodeUsage(
        perplexity=round(float(np.exp(entropy).mean()), 6),
        used=float((shares > 0).mean()),
        codes=flat.size,
        per_sentence=flat.size / len(codes),
    )


def groups_of(model):
    """The number of codes at one position of a `LatentNMT`."""
    return int(np.prod(model.bottleneck.groups.code_shape, dtype=int))


def _functions(model):
    """`encode_ids` and `decode_ids` as graphs."""
    if model not in _graphs:
        # A strong reference from the value would keep the key alive for ever.
        self = weakref.ref(model)
        spec = tf.TensorSpec([None, None], tf.int32)
        _graphs[model] = (
            tf.function(
                lambda source_ids, target_ids: self().encode_ids(
                    source_ids, target_ids
                ),
                input_signature=[spec, spec],
                autograph=False,
            ),
            tf.function(
                lambda source_ids, codes: self().decode_ids(source_ids, codes),
                input_signature=[spec, spec],
                autograph=False,
            ),
        )
    return _graphs[model]


def _batches(model, sources, targets, batch_size):
    """Yields places in the lists and their padded ids, long targets first."""
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
