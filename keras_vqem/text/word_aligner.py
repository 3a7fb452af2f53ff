"""WordAligner: which source token each target token comes from, learned by EM."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_vqem.checks import whole_number
from keras_vqem.text.token_ids import TokenIds, as_token_ids, checked_lengths

# Number of links that are worked on together, to bound the memory that takes.
CHUNK = 1 << 21
# Probability of a translation that was never seen: the places of tokens then decide.
UNSEEN = 1e-12


class WordAligner:
    """Aligns the tokens of sentence pairs, and counts how many each source token has.

    A model of translation is fitted to the pairs by EM. In a pair with S source tokens
    `x` and T target tokens `y`, target place `j` picks a source place `i` with
    probability

        p(i | j) ∝ exp(-tension * |(i + 1/2) / S - (j + 1/2) / T|),

    so it prefers the diagonal, and the token there is translated by a table `t(y | x)`.
    The E step computes how probable each link is, and the M step counts:

        q(i | j) = p(i | j) t(y_j | x_i) / sum_k p(k | j) t(y_j | x_k)
        t(y | x) = c(x, y) / sum_z c(x, z),    c(x, y) = sum of q over links of x and y

    This is the form of IBM Model 2 that fast_align has, without its null word: every
    target token has a source token, so that the fertilities of a sentence, the numbers
    of target tokens per source token, sum to the length of its target. The two end
    symbols are linked to each other and take no part in EM.

    Args:
        tension: Number of at least 0 that says how much the diagonal is preferred.
            With 0 all places are alike, which is IBM Model 1.
        num_iterations: Number of EM steps of `adapt`.

    Attributes:
        log_likelihoods: After `adapt`, the mean log probability of target tokens before
            each of its steps. It never falls from one to the next.

    Example:

    >>> from keras_vqem.text import WordAligner
    >>> source_ids = [[5, 6, 1], [6, 7, 1], [5, 1]]
    >>> target_ids = [[15, 15, 16, 1], [16, 17, 1], [15, 15, 1]]
    >>> aligner = WordAligner()
    >>> aligner.adapt(source_ids, target_ids)
    >>> aligner.align(source_ids, target_ids)[0]
    array([0, 0, 1, 2], dtype=int32)
    >>> aligner.fertilities(source_ids, target_ids)[0]
    array([2, 1, 1], dtype=int32)

    References:
        - Brown et al., 1993. The Mathematics of Statistical Machine Translation.
        - Dyer, Chahuneau, Smith, 2013. A Simple, Fast, and Effective Reparameterization
          of IBM Model 2.
    """

    def __init__(self, tension: float = 4.0, num_iterations: int = 5):
        if not 0 <= tension < np.inf:
            raise ValueError(
                f"`tension` must be a number of at least 0, received {tension!r}. Use "
                f"0 for no preference of the diagonal."
            )
        self.tension = tension
        self.num_iterations = whole_number("num_iterations", num_iterations, 1)
        self.log_likelihoods = []
        self._keys = self._table = None

    def adapt(
        self,
        source_ids: TokenIds | Sequence[Sequence[int] | np.ndarray],
        target_ids: TokenIds | Sequence[Sequence[int] | np.ndarray],
    ) -> None:
        """Learns the table of translations anew from sentence pairs.

        Args:
            source_ids: Source sentences as `TokenIds` or as a list of integer arrays,
                each with the end symbol at its end.
            target_ids: Target sentences, in the same form and order.
        """
        pairs = _pairs(source_ids, target_ids)
        parts = [np.unique(links.keys) for links in self._links(*pairs)]
        self._keys = np.unique(np.concatenate([np.zeros(0, np.int64), *parts]))
        sources, targets = self._keys >> 32, self._keys & 0xFFFFFFFF
        # Keys are sorted by their source token, so its translations are neighbours.
        first = np.flatnonzero(np.diff(sources, prepend=-1))
        number = np.diff(np.append(first, len(sources)))
        self._table = np.full(len(sources), 1.0 / max(len(np.unique(targets)), 1))
        self.log_likelihoods = []
        for _ in range(self.num_iterations if len(first) else 0):
            counts, total, tokens = np.zeros(len(sources)), 0.0, 0
            for links in self._links(*pairs):
                places, joint = self._joint(links)
                evidence = np.add.reduceat(joint, links.first)
                np.add.at(counts, places, joint / np.repeat(evidence, links.number))
                total += np.log(evidence).sum()
                tokens += len(evidence)
            self.log_likelihoods.append(total / tokens)
            self._table = counts / np.repeat(np.add.reduceat(counts, first), number)

    def align(
        self,
        source_ids: TokenIds | Sequence[Sequence[int] | np.ndarray],
        target_ids: TokenIds | Sequence[Sequence[int] | np.ndarray],
    ) -> TokenIds:
        """Finds the most probable source place of each target token.

        Args:
            source_ids: Source sentences, as in `adapt`.
            target_ids: Target sentences, as in `adapt`. They need not be those that
                `adapt` has seen.

        Returns:
            `TokenIds` with the lengths of the targets, whose numbers are places in the
            source, counted from 0.
        """
        if self._table is None:
            raise ValueError(
                "This aligner has learned nothing yet. Call adapt(source_ids, "
                "target_ids) first, for example with the pairs to align."
            )
        source_ids, target_ids = _pairs(source_ids, target_ids)
        found = np.zeros(target_ids.offsets[-1], np.int32)
        # The ends are linked to each other.
        found[target_ids.offsets[1:] - 1] = source_ids.lengths - 1
        for links in self._links(source_ids, target_ids):
            _, joint = self._joint(links)
            best = np.repeat(np.maximum.reduceat(joint, links.first), links.number)
            token = np.repeat(links.tokens, links.number)
            ties = np.flatnonzero(joint == best)
            chosen = ties[np.diff(token[ties], prepend=-1) > 0]  # the first of equals
            found[token[chosen]] = links.source_places[chosen]
        return TokenIds(found, target_ids.offsets)

    def fertilities(
        self,
        source_ids: TokenIds | Sequence[Sequence[int] | np.ndarray],
        target_ids: TokenIds | Sequence[Sequence[int] | np.ndarray],
    ) -> TokenIds:
        """Counts the target tokens of each source token, for `FertilityNAT`.

        Args:
            source_ids: Source sentences, as in `align`.
            target_ids: Target sentences, as in `align`.

        Returns:
            `TokenIds` with the lengths of the sources. The numbers of a sentence sum to
            the length of its target. Pass them to
            `TokenBatches(..., fertilities=...)`.
        """
        source_ids, target_ids = _pairs(source_ids, target_ids)
        aligned = self.align(source_ids, target_ids)
        starts = np.repeat(source_ids.offsets[:-1], target_ids.lengths)
        counts = np.bincount(starts + aligned.ids, minlength=source_ids.offsets[-1])
        return TokenIds(counts.astype(np.int32), source_ids.offsets)

    def _joint(self, links):
        """Places of links in the table, and their probabilities with their tokens."""
        places = np.searchsorted(self._keys, links.keys)
        places = np.minimum(places, max(len(self._keys) - 1, 0))
        if not len(self._keys):
            return places, links.prior * UNSEEN
        seen = self._keys[places] == links.keys
        return places, links.prior * np.where(seen, self._table[places], UNSEEN)

    def _links(self, source_ids, target_ids) -> Iterator["_Links"]:
        """Yields all links of some pairs at a time: each target with each source."""
        # Without the ends, unless a source has nothing else.
        sources = np.maximum(source_ids.lengths.astype(np.int64) - 1, 1)
        targets = target_ids.lengths.astype(np.int64) - 1
        parts = np.cumsum(sources * targets) // CHUNK
        splits = np.flatnonzero(np.diff(parts)) + 1
        for pairs in np.split(np.arange(len(parts)), splits):
            pair = np.repeat(pairs, targets[pairs])  # of each target token
            if not len(pair):
                continue
            number = sources[pair]
            first = np.cumsum(number) - number
            j = _count_up(targets[pairs])
            i = _count_up(number)
            tokens = target_ids.offsets[pair] + j
            x = source_ids.ids[np.repeat(source_ids.offsets[pair], number) + i]
            y = np.repeat(target_ids.ids[tokens], number)
            apart = (i + 0.5) / np.repeat(number, number)
            apart -= np.repeat((j + 0.5) / targets[pair], number)
            prior = np.exp(-self.tension * np.abs(apart))
            prior /= np.repeat(np.add.reduceat(prior, first), number)
            keys = x.astype(np.int64) << 32 | y.astype(np.int64)
            yield _Links(keys, prior, i, first, number, tokens)


class _Links(NamedTuple):
    """Links of target tokens with source places, those of a target in a row."""

    keys: np.ndarray  # Source and target token of each link, in one number.
    prior: np.ndarray  # Probability of its source place, given its target place.
    source_places: np.ndarray
    first: np.ndarray  # The first link of each target token.
    number: np.ndarray  # How many links each target token has.
    tokens: np.ndarray  # Place of each target token among all of the corpus.


def _count_up(lengths):
    """0, 1, ... for each of the lengths, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)


def _pairs(source_ids, target_ids):
    source_ids, target_ids = as_token_ids(source_ids), as_token_ids(target_ids)
    if len(source_ids) != len(target_ids):
        raise ValueError(
            f"source_ids has {len(source_ids)} sentences, target_ids has "
            f"{len(target_ids)}. Pass two lists of the same length."
        )
    for side in (source_ids, target_ids):
        checked_lengths(side)
    return source_ids, target_ids
