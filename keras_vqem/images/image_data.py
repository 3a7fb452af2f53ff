"""ImageData: train, val and test images of a data set given by name, and labels."""

import functools
import operator
import os
import pathlib

import numpy as np

from keras_vqem.images import cifar10, shapes
from keras_vqem.images.cifar10 import load_cifar10
from keras_vqem.images.image_folder import (
    load_image_folder,
    resize_square,
    stack_images,
)

SPLITS = ("train", "val", "test")
NO_LABELS = np.zeros(0, "int32")
NAMES = ("cifar10", "folder", "shapes", "tfds:NAME")


class ImageData:
    """Images of a data set given by name: the one entrance for all recipes.

    The names are

    - `"cifar10"`: the binary files of CIFAR-10; see `load_cifar10`;
    - `"folder"`: image files in the subfolders `train`, `test` and, optionally,
      `val`; see `load_image_folder`;
    - `"shapes"`: generated images, 20,000 for training and 2,000 for each other
      split; see `keras_vqem.images.shapes`;
    - `"tfds:NAME"`, for example `"tfds:cifar10"`: the images of a data set that
      TensorFlow Datasets has prepared.

    If a data set has no validation split, the last images of its training set become
    the validation split, and the rest is used for training. Nothing is downloaded.

    Args:
        name: Name of the data set, one of those above.
        data_dir: Path of the folder with the data. `"shapes"` needs none. For
            `"tfds:NAME"`, None means the default folder of TensorFlow Datasets.
        validation: Number of images to take from the end of the training set if the
            data set has no validation split. 0 leaves all images for training.
        size: Height and width to which images are cropped and resized. None keeps
            their sizes; `"shapes"` are then 32 x 32.
        seed: Integer that selects the images of `"shapes"`; not used otherwise.

    Example:

    >>> from keras_vqem.images import ImageData
    >>> images = ImageData("shapes", size=8).images("val")
    >>> images.shape, str(images.dtype)
    ((2000, 8, 8, 3), 'uint8')
    """

    def __init__(
        self,
        name: str,
        data_dir: str | os.PathLike | None = None,
        validation: int = 2000,
        size: int | None = None,
        seed: int = 0,
    ):
        self.name = name
        self.data_dir = None if data_dir is None else pathlib.Path(data_dir)
        self.validation = operator.index(validation)
        if self.validation < 0:
            raise ValueError(f"validation must be 0 or more, not {validation}.")
        kind, _, tfds_name = name.partition(":")
        if name in ("cifar10", "folder") and data_dir is None:
            raise ValueError(
                f"{name!r} needs a folder. Pass the folder with the images as "
                f"data_dir, in recipes as --data."
            )
        if name == "cifar10":
            self._source = _Cifar10(self.data_dir, size)
        elif name == "folder":
            self._source = _Folder(self.data_dir, size)
        elif name == "shapes":
            self._source = _Shapes(seed, size)
        elif kind == "tfds" and tfds_name:
            self._source = _Tfds(tfds_name, self.data_dir, size)
        else:
            raise ValueError(
                f"Unknown data set {name!r}: use one of {', '.join(NAMES)}."
            )
        self._loaded = {}

    def images(self, split: str) -> np.ndarray:
        """Returns the images of a split.

        They are read once and kept in memory; the array is therefore read-only.

        Args:
            split: Name of the split: `"train"`, `"val"` or `"test"`.

        Returns:
            Images, `uint8` of shape `[N, H, W, 3]`.

        Raises:
            FileNotFoundError: If the data or the split does not exist.
            ValueError: If the data is damaged or of another kind, if the split is
                unknown, or if the training set is too small for a validation split.
        """
        return self._part(split)[0]

    def labels(self, split: str) -> np.ndarray:
        """Returns the labels of the images of a split, in the order of `images`.

        Args:
            split: Name of the split: `"train"`, `"val"` or `"test"`.

        Returns:
            Indices into `class_names`, `int32` of shape `[N]`.

        Raises:
            FileNotFoundError: If the data or the split does not exist.
            ValueError: If the data set has no labels, or as `images` does.
        """
        if not self.class_names:
            raise ValueError(
                f"{self._source} has no labels that can be read. Use cifar10 or "
                f"shapes, or do without labels."
            )
        return self._part(split)[1]

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes that labels stand for; empty if there are no labels."""
        return self._source.class_names

    def _part(self, split):
        """Returns images and labels of a split."""
        if split not in SPLITS:
            raise ValueError(
                f"Unknown split {split!r}: use one of {', '.join(SPLITS)}."
            )
        there = self._source.splits()
        own = [name for name in ("val", "validation") if name in there]
        if split == "test" or (split == "train" and own):
            return self._load(split, there)
        if own:
            return self._load(own[0], there)
        images, labels = self._load("train", there)
        kept = len(images) - self.validation
        if kept < 1:
            raise ValueError(
                f"{self._source} has no validation split and only {len(images)} "
                f"training images, too few to take {self.validation} of them for "
                "validation. Lower validation, or add images."
            )
        if split == "train":
            return images[:kept], labels[:kept]
        if not self.validation:
            raise ValueError(
                f"{self._source} has no validation split, and validation=0 takes none "
                "from the training set. Raise validation, the number of images to take."
            )
        return images[kept:], labels[kept:]

    def _load(self, split, there):
        if split not in there:
            raise FileNotFoundError(
                f"{self._source} has no split {split!r}; it has "
                f"{', '.join(sorted(there)) or 'none'}. {self._source.remedy}"
            )
        if split not in self._loaded:
            found = self._source.load(split)
            for array in found:
                array.flags.writeable = False
            self._loaded[split] = found
        return self._loaded[split]


# A source knows its name for messages, its splits, and how to load the images of a
# split and their labels, which are empty if it has no `class_names`. Its `remedy` says
# what to do if a split is missing.


class _Cifar10:
    class_names = cifar10.CLASSES

    def __init__(self, data_dir, size):
        self.data_dir, self.size = data_dir, size

    def __str__(self):
        return f"CIFAR-10 in {self.data_dir}"

    def splits(self):
        return {"train", "test"}

    def load(self, split):
        images, labels = load_cifar10(self.data_dir, split)
        if self.size in (None, 32):
            return images, labels
        # In parts, because the floats of resizing take four times the memory.
        parts = np.array_split(images, -(-len(images) // 1000))
        parts = [resize_square(part, self.size) for part in parts]
        return np.concatenate(parts), labels


class _Folder:
    class_names = ()
    remedy = "Put the images into its subfolders train, test and, optionally, val."

    def __init__(self, data_dir, size):
        self.data_dir, self.size = data_dir, size

    def __str__(self):
        return str(self.data_dir)

    def splits(self):
        if not self.data_dir.is_dir():
            return set()
        return {path.name for path in self.data_dir.iterdir() if path.is_dir()}

    def load(self, split):
        return load_image_folder(self.data_dir / split, self.size), NO_LABELS


class _Shapes:
    class_names = shapes.CLASSES
    COUNTS = {"train": 20_000, "validation": 2_000, "test": 2_000}

    def __init__(self, seed, size):
        self.seed, self.size = seed, 32 if size is None else size

    def __str__(self):
        return "shapes"

    def splits(self):
        return set(self.COUNTS)

    def load(self, split):
        return shapes.images(self.COUNTS[split], self.seed, split, self.size)


class _Tfds:
    class_names = ()
    remedy = "Use another data set."

    def __init__(self, name, data_dir, size):
        self.name, self.data_dir, self.size = name, data_dir, size

    def __str__(self):
        return f"tfds:{self.name}"

    def splits(self):
        return set(self._builder.info.splits)

    def load(self, split):
        import tensorflow_datasets as tfds

        builder = self._builder
        features = sorted(builder.info.features)
        if "image" not in features:
            raise ValueError(
                f"{self} has the features {features}, but no 'image'. {self.remedy}"
            )
        # Without interleaving shards, the last images are those of `train[-n:]`.
        order = tfds.ReadConfig(interleave_cycle_length=1)
        # Decodes nothing but the images.
        dataset = builder.as_dataset(
            split=split,
            read_config=order,
            decoders=tfds.decode.PartialDecoding({"image": True}),
        )
        named = (
            (f"image {number} of {self}", self._rgb(example["image"]))
            for number, example in enumerate(dataset.as_numpy_iterator())
        )
        count = builder.info.splits[split].num_examples
        return stack_images(named, self.size, count), NO_LABELS

    def _rgb(self, image):
        if image.dtype != np.uint8 or image.ndim != 3:
            raise ValueError(
                f"The images of {self} are {image.dtype} of shape "
                f"{list(image.shape)}, not uint8 of shape [H, W, C]. {self.remedy}"
            )
        # One or two channels: grey (and alpha); repeat grey. The fourth is alpha: drop.
        channels = [0, 0, 0] if image.shape[-1] < 3 else [0, 1, 2]
        return image[..., channels]

    @functools.cached_property
    def _builder(self):
        import tensorflow_datasets as tfds  # Slow to import, and rarely needed.

        try:
            builder = tfds.builder(self.name, data_dir=self.data_dir)
            prepared = builder.is_prepared()
        except tfds.core.DatasetNotFoundError:
            prepared = False
        if not prepared:
            folder = f" --data_dir={self.data_dir}" if self.data_dir else ""
            raise FileNotFoundError(
                f"{self.name} is not prepared in "
                f"{self.data_dir or 'the default data_dir'}. Download and prepare it "
                f"once: tfds build {self.name}{folder}"
            )
        return builder
