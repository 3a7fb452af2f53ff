"""Several translations of one sentence: how many, and which come first."""

import tensorflow as tf

from keras_vqem.checks import whole_number


def number_of_choices(
    num_return_sequences: int | None,
    num_beams: int,
    temperature: float | None = None,
    can_sample: bool = False,
    option: str = "num_beams",
) -> int | None:
    """Checks `num_return_sequences` against the other options of `generate`.

    Args:
        num_return_sequences: Number of translations per sentence, or None.
        num_beams: Number of hypotheses of the search, or of other candidates.
        temperature: Temperature of sampling, which needs no beams. None if a search
            finds the translations.
        can_sample: Whether the model has the option `temperature`, for the error.
        option: Name of the option that sets `num_beams`, for the error.

    Returns:
        The number as an int, or None for one translation without an axis of its own.

    Raises:
        ValueError: If the search has fewer beams than translations are wanted.

    Example:

    >>> number_of_choices(3, num_beams=4)
    3
    """
    if num_return_sequences is None:
        return None
    number = whole_number(
        "num_return_sequences",
        num_return_sequences,
        1,
        "Use None for one translation without a list around it.",
    )
    if temperature is None and number > num_beams:
        sampling = ", or `temperature` and num_beams=1 to sample" if can_sample else ""
        raise ValueError(
            f"num_return_sequences={number} needs at least as many candidates, "
            f"received {option}={num_beams}. Pass {option}={number}{sampling}."
        )
    return number


def best_first(
    candidates: dict[str, tf.Tensor], number: int | None
) -> dict[str, tf.Tensor]:
    """Returns the candidates with the highest scores.

    Args:
        candidates: Dict of tensors `[B, K, ...]`, among them `scores` `[B, K]`.
        number: Number of candidates to keep per row, at most `K`. None keeps the best
            and drops the axis.

    Returns:
        Dict of tensors `[B, number, ...]`, best first, or `[B, ...]` if `number` is
        None. Of equal scores, the earlier comes first.

    Example:

    >>> found = best_first(
    ...     {"scores": np.array([[-2.0, -1.0]]), "codes": np.array([[[5], [7]]])}, 2)
    >>> found["codes"].numpy().tolist()
    [[[7], [5]]]
    """
    places = tf.math.top_k(candidates["scores"], number or 1).indices
    if number is None:
        places = places[:, 0]
    return {
        name: tf.gather(value, places, batch_dims=1)
        for name, value in candidates.items()
    }


def as_text(found: bytes | list[bytes]) -> str | list[str]:
    """Returns bytes as a string, or a list of bytes as a list of strings.

    Example:

    >>> as_text([b"Hund", b"Katze"])
    ['Hund', 'Katze']
    """
    if isinstance(found, list):
        return [as_text(one) for one in found]
    return found.decode("utf-8", errors="replace")
