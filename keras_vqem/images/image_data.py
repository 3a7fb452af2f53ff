"""ImageData: the images of a named data set, in three splits."""

import functools
import operator
import pathlib

import numpy as np

from keras_vqem.images import shapes
from keras_vqem.images.cifar10 import load_cifar10
from keras_vqem.images.image_folder import (
    load_image_folder,
    resize_square,
    stack_images,
)

SPLITS = ("train", "val", "test")
NAMES = ("cifar10", "folder", "shapes", "tfds:NAME")


class ImageData:
    """Images of a data set by its name: one door for all recipes.

    The names are

    - `"cifar10"`: the binary files of CIFAR-10; see `load_cifar10`;
    - `"folder"`: image files in the folders `train`, `test` and, if there is one,
      `val`; see `load_image_folder`;
    - `"shapes"`: generated images, 20,000 to train, 2,000 for each other split;
    - `"tfds:NAME"`, for example `"tfds:cifar10"`: the images of a data set which
      TensorFlow Datasets has prepared.

    Where there is no validation split, the last images of the training set are taken
    for it, and the others are left for training. Nothing is downloaded.

    Args:
        name: One of the names above.
        data_dir: The folder with the data. `"shapes"` needs none; with None,
            `"tfds:NAME"` looks where TensorFlow Datasets does.
        validation: How many images to take from the end of the training set, where
            there is no validation split. With 0, all are left for training.
        size: Height and width: images are cropped to a square and resized. None
            leaves them as they are; `"shapes"` are then 32 by 32.
        seed: Of the generated images; not used for others.

    Example:

    >>> from keras_vqem.images import ImageData
    >>> images = ImageData("shapes", size=8).images("val")
    >>> images.shape, str(images.dtype)
    ((2000, 8, 8, 3), 'uint8')
    """

    def __init__(self, name, data_dir=None, validation=2000, size=None, seed=0):
        self.name = name
        self.data_dir = None if data_dir is None else pathlib.Path(data_dir)
        self.validation = operator.index(validation)
        if self.validation < 0:
            raise ValueError(f"validation must be 0 or more, not {validation}.")
        kind, _, tfds_name = name.partition(":")
        if name in ("cifar10", "folder") and data_dir is None:
            raise ValueError(f"{name!r} needs data_dir, the folder with the images.")
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

    def images(self, split):
        """The images of a split.

        They are read once and then kept, hence the array is read-only.

        Args:
            split: `"train"`, `"val"` or `"test"`.

        Returns:
            `uint8` of shape `[N, H, W, 3]`.

        Raises:
            FileNotFoundError: If the data is not there.
            ValueError: If it is not as expected, the split is unknown, or the
                training set is too small to take a validation split from it.
        """
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
        images = self._load("train", there)
        kept = len(images) - self.validation
        if kept < 1:
            raise ValueError(
                f"{self._source} has no validation split and only {len(images)} "
                f"training images, too few to take {self.validation} of them. Lower "
                "validation, or add images."
            )
        if split == "train":
            return images[:kept]
        if not self.validation:
            raise ValueError(
                f"{self._source} has no validation split, and validation=0 takes none "
                "from the training set. Raise validation."
            )
        return images[kept:]

    def _load(self, split, there):
        if split not in there:
            raise FileNotFoundError(
                f"{self._source} has no split {split!r}; it has "
                f"{', '.join(sorted(there)) or 'none'}. {self._source.remedy}"
            )
        if split not in self._loaded:
            images = self._source.load(split)
            images.flags.writeable = False
            self._loaded[split] = images
        return self._loaded[split]


# A source: its name in messages, its splits, and the images of each. `remedy` says
# what to do if a split is missing.


class _Cifar10:
    def __init__(self, data_dir, size):
        self.data_dir, self.size = data_dir, size

    def __str__(self):
        return f"CIFAR-10 in {self.data_dir}"

    def splits(self):
        return {"train", "test"}

    def load(self, split):
        images, _ = load_cifar10(self.data_dir, split)
        if self.size in (None, 32):
            return images
        # In parts, as the resizing works on floats.
        parts = np.array_split(images, -(-len(images) // 1000))
        return np.concatenate([resize_square(part, self.size) for part in parts])


class _Folder:
    remedy = "Put the images into its folders train, test and, if you like, val."

    def __init__(self, data_dir, size):
        self.data_dir, self.size = data_dir, size

    def __str__(self):
        return str(self.data_dir)

    def splits(self):
        if not self.data_dir.is_dir():
            return set()
        return {path.name for path in self.data_dir.iterdir() if path.is_dir()}

    def load(self, split):
        return load_image_folder(self.data_dir / split, self.size)


class _Shapes:
    COUNTS = {"train": 20_000, "validation": 2_000, "test": 2_000}

    def __init__(self, seed, size):
        self.seed, self.size = seed, 32 if size is None else size

    def __str__(self):
        return "shapes"

    def splits(self):
        return set(self.COUNTS)

    def load(self, split):
        images, _ = shapes.images(self.COUNTS[split], self.seed, split, self.size)
        return images


class _Tfds:
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
        # Shard after shard: the last images are then those of `train[-n:]`.
        order = tfds.ReadConfig(interleave_cycle_length=1)
        # All but the images stays undecoded.
        dataset = builder.as_dataset(
            split=split,
            read_config=order,
            decoders=tfds.decode.PartialDecoding({"image": True}),
        )
        named = (
            (f"image {number} of {self}", self._rgb(example["image"]))
            for number, example in enumerate(dataset.as_numpy_iterator())
        )
        return stack_images(named, self.size, builder.info.splits[split].num_examples)

    def _rgb(self, image):
        if image.dtype != np.uint8 or image.ndim != 3:
            raise ValueError(
                f"The images of {self} are {image.dtype} of shape "
                f"{list(image.shape)}, not uint8 of shape [H, W, C]. {self.remedy}"
            )
        # Grey, or grey and alpha: repeated. A fourth channel is alpha.
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
