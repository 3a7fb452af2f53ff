import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_vqem.images import ImageData, cifar10, image_data, shapes
from keras_vqem.images.image_folder import resize_square


def write_folder(folder, images):
    folder.mkdir(parents=True)
    for number, image in enumerate(images):
        (folder / f"{number:03}.png").write_bytes(tf.io.encode_png(image).numpy())


@pytest.fixture
def pictures(rng):
    return rng.integers(0, 256, (12, 6, 8, 3), np.uint8)


def test_a_folder_without_val(tmp_path, pictures):
    write_folder(tmp_path / "train", pictures[:9])
    write_folder(tmp_path / "test", pictures[9:])
    data = ImageData("folder", str(tmp_path), validation=2)
    np.testing.assert_array_equal(data.images("val"), pictures[7:9])
    np.testing.assert_array_equal(data.images("train"), pictures[:7])
    np.testing.assert_array_equal(data.images("test"), pictures[9:])
    small = ImageData("folder", tmp_path, validation=2, size=4).images("val")
    np.testing.assert_array_equal(small, resize_square(pictures[7:9], 4))


@pytest.mark.parametrize("name", ["val", "validation"])
def test_a_folder_with_val(tmp_path, pictures, name):
    write_folder(tmp_path / "train", pictures[:5])
    write_folder(tmp_path / name, pictures[5:8])
    data = ImageData("folder", tmp_path)  # 2000 are not taken from 5.
    np.testing.assert_array_equal(data.images("train"), pictures[:5])
    np.testing.assert_array_equal(data.images("val"), pictures[5:8])
    message = rf"no split 'test'; it has train, {name}\. Put the images"
    with pytest.raises(FileNotFoundError, match=message):
        data.images("test")


def test_images_are_read_once_and_cannot_be_changed(tmp_path, pictures):
    write_folder(tmp_path / "train", pictures)
    data = ImageData("folder", tmp_path, validation=4)
    train = data.images("train")
    assert np.shares_memory(data.images("train"), train)
    with pytest.raises(ValueError, match="read-only"):
        train[0] = 0


def test_a_folder_has_no_labels(tmp_path):
    data = ImageData("folder", tmp_path)
    assert data.class_names == ()
    with pytest.raises(ValueError, match="has no labels .* Use cifar10 or shapes"):
        data.labels("train")


def test_too_few_images(tmp_path, pictures):
    write_folder(tmp_path / "train", pictures)
    for split in ("train", "val"):
        with pytest.raises(ValueError, match="only 12 training .* take 12 .*Lower val"):
            ImageData("folder", tmp_path, validation=12).images(split)
    assert len(ImageData("folder", tmp_path, validation=11).images("train")) == 1
    everything = ImageData("folder", tmp_path, validation=0)
    np.testing.assert_array_equal(everything.images("train"), pictures)
    with pytest.raises(ValueError, match="validation=0 takes none.*Raise validation"):
        everything.images("val")


def test_an_absent_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent has no split 'train'; .*none"):
        ImageData("folder", tmp_path / "absent").images("val")


def test_cifar10(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", 2)
    for names in cifar10.FILES.values():
        for name in names:
            records = rng.integers(0, 256, (2, cifar10.RECORD_BYTES), np.uint8)
            records[:, 0] %= 10
            records.tofile(tmp_path / name)
    train, labels = cifar10.load_cifar10(tmp_path, "train")
    data = ImageData("cifar10", tmp_path, validation=3)
    np.testing.assert_array_equal(data.images("train"), train[:7])
    np.testing.assert_array_equal(data.images("val"), train[7:])
    np.testing.assert_array_equal(data.labels("train"), labels[:7])
    np.testing.assert_array_equal(data.labels("val"), labels[7:])
    assert len(data.class_names) == 10 and data.class_names[8] == "ship"
    test, _ = cifar10.load_cifar10(tmp_path, "test")
    np.testing.assert_array_equal(data.images("test"), test)
    small = ImageData("cifar10", tmp_path, size=16).images("test")
    np.testing.assert_array_equal(small, resize_square(test, 16))
    (tmp_path / "test_batch.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"test_batch\.bin is missing"):
        ImageData("cifar10", tmp_path).images("test")


def test_shapes(monkeypatch):
    counts = image_data._Shapes.COUNTS
    assert counts == {"train": 20_000, "validation": 2_000, "test": 2_000}
    # Painting all of them takes long.
    few = {"train": 30, "validation": 20, "test": 10}
    monkeypatch.setattr(image_data._Shapes, "COUNTS", few)
    data = ImageData("shapes", seed=3)
    for split, name in [("train", "train"), ("val", "validation"), ("test", "test")]:
        expected, labels = shapes.images(few[name], seed=3, split=name)
        np.testing.assert_array_equal(data.images(split), expected)
        np.testing.assert_array_equal(data.labels(split), labels)
    assert data.class_names == shapes.CLASSES
    expected, _ = shapes.images(20, split="validation", size=12)
    np.testing.assert_array_equal(ImageData("shapes", size=12).images("val"), expected)


GREY = np.random.default_rng(1).integers(0, 256, (7, 5, 5, 1), np.uint8)
COLOUR = np.random.default_rng(2).integers(0, 256, (4, 5, 5, 3), np.uint8)


class TinyGrey(tfds.core.GeneratorBasedBuilder):
    """As MNIST is: grey images, with labels, in two splits."""

    VERSION = tfds.core.Version("1.0.0")
    SPLITS = {"train": GREY, "test": GREY[::-1]}

    def _info(self):
        shape = next(iter(self.SPLITS.values())).shape[1:]
        features = {
            "image": tfds.features.Image(shape=shape),
            "label": tfds.features.ClassLabel(num_classes=2),
        }
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        return {
            name: self._generate_examples(images)
            for name, images in self.SPLITS.items()
        }

    def _generate_examples(self, images):
        for number, image in enumerate(images):
            yield number, {"image": image, "label": number % 2}


class TinyColour(TinyGrey):
    """As some others are: colour, with a validation split, but no test split."""

    VERSION = tfds.core.Version("1.0.0")
    SPLITS = {"train": COLOUR, "validation": COLOUR[:2]}


class TinyNumbers(tfds.core.GeneratorBasedBuilder):
    """No images at all."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = tfds.features.FeaturesDict({"number": np.int64})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": iter([(0, {"number": 1})])}

    def _generate_examples(self):
        raise AssertionError("The base class demands it; nobody calls it.")


def test_tensorflow_datasets(tmp_path):
    for name in ("tiny_grey", "no_such_set"):
        message = rf"{name} is not prepared in .*: tfds build {name} --data_dir="
        with pytest.raises(FileNotFoundError, match=message):
            ImageData(f"tfds:{name}", tmp_path).images("train")
    for builder in (TinyGrey, TinyColour, TinyNumbers):
        builder(data_dir=tmp_path).download_and_prepare()

    rgb = np.repeat(GREY, 3, axis=-1)
    data = ImageData("tfds:tiny_grey", tmp_path, validation=3)
    np.testing.assert_array_equal(data.images("train"), rgb[:4])
    np.testing.assert_array_equal(data.images("val"), rgb[4:])
    np.testing.assert_array_equal(data.images("test"), rgb[::-1])
    assert ImageData("tfds:tiny_grey", tmp_path, size=3).images("test").shape[1] == 3

    data = ImageData("tfds:tiny_colour", tmp_path, validation=3)
    np.testing.assert_array_equal(data.images("train"), COLOUR)
    np.testing.assert_array_equal(data.images("val"), COLOUR[:2])
    with pytest.raises(FileNotFoundError, match="'test'; it has train, validation"):
        data.images("test")

    with pytest.raises(ValueError, match=r"features \['number'\], but no 'image'"):
        ImageData("tfds:tiny_numbers", tmp_path, validation=0).images("train")


@pytest.mark.parametrize("name", ["cifar", "tfds", "tfds:", "shapes:x", ""])
def test_unknown_names(name):
    message = f"'{name}': use one of cifar10, folder, shapes, tfds:NAME"
    with pytest.raises(ValueError, match=message):
        ImageData(name, "somewhere")


def test_arguments():
    with pytest.raises(ValueError, match="'dev': use one of train, val, test"):
        ImageData("shapes").images("dev")
    for name in ("cifar10", "folder"):
        with pytest.raises(ValueError, match=f"'{name}' needs a folder"):
            ImageData(name)
    with pytest.raises(ValueError, match="validation must be 0 or more, not -1"):
        ImageData("shapes", validation=-1)
