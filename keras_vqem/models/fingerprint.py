"""fingerprint: tells trained models apart by their weights."""

import hashlib

import keras


def fingerprint(model: keras.Model) -> str:
    """Returns a hash of the weights and, of a translator, the vocabulary of a model.

    It is the same wherever the model was loaded from: a run, a file or a preset.

    Args:
        model: A built model.

    Returns:
        16 hexadecimal digits.

    Example:

    >>> from keras_vqem.models.fingerprint import fingerprint
    >>> model = keras_vqem.models.ImageVQVAE.from_preset("cifar10_em")
    >>> len(fingerprint(model))
    16
    """
    tokenizer = getattr(model, "tokenizer", None)
    found = [tokenizer.sha256.encode()] if tokenizer else []
    for weight in model.weights:
        value = keras.ops.convert_to_numpy(weight)
        kind = f"{value.dtype} {value.shape} ".encode()
        found.append(hashlib.sha256(kind + value.tobytes()).digest())
    # Names and order of layers depend on how a model was made.
    return hashlib.sha256(b"".join(sorted(found))).hexdigest()[:16]
