"""load_cifar10: CIFAR-10 from its binary files."""

import os
import pathlib

import numpy as np

# Names of the labels, in their order.
CLASSES = tuple("airplane automobile bird cat deer dog frog horse ship truck".split())
FILES = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
RECORDS_PER_FILE = 10_000
# One byte for the label, then one plane of 32 x 32 bytes per colour: red, green, blue.
RECORD_BYTES = 1 + 3 * 32 * 32
REMEDY = (
    "Unpack https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz again, and pass "
    "its folder cifar-10-batches-bin, or the parent of that folder, as data_dir, "
    "in recipes as --data."
)


def load_cifar10(
    data_dir: str | os.PathLike, split: str
) -> tuple[np.ndarray, np.ndarray]:
    """Reads CIFAR-10 from its authors' binary files, without downloading anything.

    Args:
        data_dir: Path of the folder `cifar-10-batches-bin`, or of its parent.
        split: `"train"` (50,000 images) or `"test"` (10,000 images).

    Returns:
        A tuple `(images, labels)`: `uint8` of shape `[N, 32, 32, 3]` and `int32` of
        shape `[N]`, both in the order of the files. A label is an index into
        `keras_vqem.images.cifar10.CLASSES`.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is incomplete or is not a CIFAR-10 file, or if the split
            is unknown.

    Example:

    >>> import pathlib
    >>> from keras_vqem.images import load_cifar10
    >>> if pathlib.Path("cifar-10-batches-bin").exists():
    ...     images, labels = load_cifar10(".", "test")
    """
    if split not in FILES:
        raise ValueError(f"Unknown split {split!r}: use one of {', '.join(FILES)}.")
    folder = pathlib.Path(data_dir)
    if (folder / "cifar-10-batches-bin").is_dir():
        folder = folder / "cifar-10-batches-bin"
    paths = [folder / name for name in FILES[split]]
    images = np.empty((len(paths), RECORDS_PER_FILE, 32, 32, 3), np.uint8)
    labels = np.empty((len(paths), RECORDS_PER_FILE), np.int32)
    for number, path in enumerate(paths):
        records = _read(path)
        labels[number] = records[:, 0]
        planes = records[:, 1:].reshape(-1, 3, 32, 32)
        images[number] = planes.transpose(0, 2, 3, 1)
    return images.reshape(-1, 32, 32, 3), labels.reshape(-1)


def _read(path):
    """Returns the records of a file, uint8 `[RECORDS_PER_FILE, RECORD_BYTES]`."""
    expected = RECORDS_PER_FILE * RECORD_BYTES
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing; a file of {expected} bytes was expected. {REMEDY}"
        )
    found = path.stat().st_size
    if found != expected:
        raise ValueError(
            f"{path} has {found} bytes, but {expected} were expected "
            f"({RECORDS_PER_FILE} records of {RECORD_BYTES} bytes): it is incomplete "
            f"or not a CIFAR-10 file. {REMEDY}"
        )
    records = np.fromfile(path, np.uint8).reshape(-1, RECORD_BYTES)
    foreign = np.flatnonzero(records[:, 0] >= len(CLASSES))
    if len(foreign):
        raise ValueError(
            f"{path} has the expected {expected} bytes, but the label of record "
            f"{foreign[0]} is {records[foreign[0], 0]}, not 0 to 9: it is damaged or "
            f"not a CIFAR-10 file. {REMEDY}"
        )
    return records
