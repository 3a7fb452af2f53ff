"""A few shapes of batches that need little padding, chosen for the lengths of a corpus.

A box is a pair of lengths. A pair of sentences fits a box if neither side is longer,
and is put into the smallest box that it fits.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

# Maximum number of lengths per side among which boundaries are searched.
GRID = 64


def find_boundaries(
    lengths: np.ndarray,
    unit: tuple[int, int],
    max_shapes: int,
    rows_of: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Chooses at most `max_shapes` boxes that need little padding.

    Args:
        lengths: Integer array `[N, 2]` of the lengths of all pairs.
        unit: Two integers that divide the lengths of the boxes.
        max_shapes: Maximum number of boxes.
        rows_of: Function from boxes `[..., 2]` to the rows of their batches `[...]`.

    Returns:
        Integer array of boxes, from short to long.
    """
    unit = np.asarray(unit)
    lengths = -(-lengths // unit) * unit
    most = lengths.max(axis=0)
    # Lengths are rounded up to a grid, so that the search takes only seconds.
    step = unit * -(-most // (unit * GRID))
    cells, members = _counted(np.minimum(-(-lengths // step) * step, most))
    search = _Search(cells, members, rows_of)
    starts = _equal_boxes(cells, members, max_shapes)
    boxes = min(map(search.moved, starts), key=search.slots)
    assigned = assign(lengths, boxes)
    # Shrink each box to its pairs, and drop boxes without any.
    return sort([lengths[assigned == i].max(0) for i in np.unique(assigned)])


def sort(boxes: Iterable[Sequence[int]]) -> np.ndarray:
    """Sorts boxes from short to long."""
    return np.array(sorted(map(tuple, boxes), key=lambda box: (sum(box), box)))


def assign(lengths: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Returns, per pair, the number of the smallest box that it fits, or -1.

    Of equally small boxes, it is the last.
    """
    assigned = np.full(len(lengths), -1)
    # The smallest box comes last, and so overrides larger ones.
    for number in np.argsort(-boxes.sum(axis=1), kind="stable"):
        assigned[(lengths <= boxes[number]).all(axis=1)] = number
    return assigned


def _counted(lengths):
    """Returns the different rows, sorted, and how often each occurs."""
    # Faster than `np.unique` with an axis, by far.
    width = lengths[:, 1].max() + 1
    found, counts = np.unique(lengths @ [width, 1], return_counts=True)
    return np.stack([found // width, found % width], axis=1), counts


def _equal_boxes(cells, members, max_shapes):
    """Yields sets of 1, 2, ... boxes, each with an equal share of the sorted pairs."""
    order = np.argsort(cells.sum(axis=1), kind="stable")
    share = np.cumsum(members[order]) / members.sum()
    for count in range(1, max_shapes + 1):
        box_of_cell = np.ceil(share * count).astype(int)
        boxes = [cells[order[box_of_cell == box]] for box in range(1, count + 1)]
        yield np.array([box.max(axis=0) for box in boxes if len(box)])


class _Search:
    """Search for boxes with few slots: tokens per epoch, padding included.

    Args:
        cells: Integer array `[C, 2]` of the lengths that occur.
        members: Integer array `[C]`, how many pairs have these lengths.
        rows_of: Function from boxes `[..., 2]` to the rows of their batches `[...]`.
    """

    def __init__(self, cells, members, rows_of):
        self.cells, self.members, self.rows_of = cells, members, rows_of
        self.sides = [np.unique(cells[:, side]) for side in range(2)]
        self.places = cells[:: -(-len(cells) // (2 * GRID))]

    def slots(self, boxes):
        """Returns the number of slots of a set of boxes."""
        return self._slots_if_moved(boxes, 0, boxes[:1])[0]

    def moved(self, boxes):
        """Moves one box at a time, as long as this saves padding."""
        boxes = boxes.copy()
        least, before = self.slots(boxes), math.inf
        while least < before:
            before = least
            for number, (source, target) in enumerate(boxes.tolist()):
                # A move changes one side of the box, or takes it to another place.
                moves = [(length, target) for length in self.sides[0]]
                moves += [(source, length) for length in self.sides[1]]
                moves = np.array([*moves, *self.places])
                slots = self._slots_if_moved(boxes, number, moves)
                best = np.argmin(slots)
                if slots[best] < least:
                    boxes[number], least = moves[best], slots[best]
        return boxes

    def _slots_if_moved(self, boxes, number, places):
        """Returns the numbers of slots with one of the boxes at each of some places."""
        others = np.delete(boxes, number, axis=0)
        assigned = assign(self.cells, others)
        # Cells without another box count as if theirs were larger than any.
        sizes = np.append(others.sum(axis=1), np.iinfo(np.int64).max)[assigned]
        own = places.sum(axis=1)[:, None]
        taken = (own < sizes) | ((own == sizes) & (number > assigned))
        for side in range(2):
            taken &= self.cells[:, side] <= places[:, side, None]
        # Pairs per cell and other box; the last column has those without.
        pairs = np.zeros((len(self.cells), len(boxes)))
        pairs[np.arange(len(pairs)), assigned] = self.members
        left = pairs.sum(axis=0) - taken.astype(float) @ pairs
        counts = np.append(left[:, :-1], (taken @ self.members)[:, None], axis=1)
        shapes = np.broadcast_to(others, (len(places), *others.shape))
        shapes = np.append(shapes, places[:, None], axis=1)
        rows = self.rows_of(shapes)
        slots = (np.ceil(counts / rows) * rows * shapes.sum(axis=2)).sum(axis=1)
        return np.where(left[:, -1] > 0, math.inf, slots)
