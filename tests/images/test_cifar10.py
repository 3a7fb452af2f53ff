"""Files of a few records, with every byte known."""

import numpy as np
import pytest

from keras_vqem.images import cifar10, load_cifar10

RECORDS = 3
TRAIN_FILES = [f"data_batch_{number}.bin" for number in range(1, 6)]


@pytest.fixture
def written(tmp_path, rng, monkeypatch):
    """The six files, in a folder of their usual name, and what is in them."""
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", RECORDS)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    images = rng.integers(0, 256, (6, RECORDS, 32, 32, 3), np.uint8)
    labels = rng.integers(0, 10, (6, RECORDS), np.uint8)
    for name, x, y in zip(
        [*TRAIN_FILES, "test_batch.bin"], images, labels, strict=True
    ):
        records = b""
        for image, label in zip(x, y, strict=True):
            records += bytes([label])
            records += b"".join(image[:, :, channel].tobytes() for channel in range(3))
        (folder / name).write_bytes(records)
    return folder, images, labels


def test_what_is_written_is_read(written):
    folder, images, labels = written
    for data_dir in (folder, folder.parent, str(folder)):
        x, y = load_cifar10(data_dir, "train")
        np.testing.assert_array_equal(x, images[:5].reshape(-1, 32, 32, 3))
        np.testing.assert_array_equal(y, labels[:5].reshape(-1))
        assert x.dtype == np.uint8 and y.dtype == np.int32
        x, y = load_cifar10(data_dir, "test")
        np.testing.assert_array_equal(x, images[5])
        np.testing.assert_array_equal(y, labels[5])


def test_real_files_have_ten_thousand_records(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="has 0 bytes, but 30730000 were expected"):
        load_cifar10(tmp_path, "test")


def test_a_missing_file(written):
    folder, _, _ = written
    (folder / "data_batch_4.bin").unlink()
    message = r"data_batch_4\.bin is missing; a file of 9219 bytes.*Unpack https://"
    with pytest.raises(FileNotFoundError, match=message):
        load_cifar10(folder, "train")
    assert len(load_cifar10(folder, "test")[0]) == RECORDS


@pytest.mark.parametrize("size", [0, 9218, 9220, 3 * 3074])
def test_a_file_of_another_size(written, size):
    folder, _, _ = written
    (folder / "data_batch_2.bin").write_bytes(bytes(size))
    message = rf"data_batch_2\.bin has {size} bytes, but 9219 were .*Unpack https://"
    with pytest.raises(ValueError, match=message):
        load_cifar10(folder, "train")


def test_a_foreign_file_of_the_right_size(written):
    folder, _, _ = written
    content = bytearray((folder / "test_batch.bin").read_bytes())
    content[2 * 3073] = 10
    (folder / "test_batch.bin").write_bytes(content)
    message = r"test_batch\.bin has the expected 9219 .* record 2 is 10, .*Unpack http"
    with pytest.raises(ValueError, match=message):
        load_cifar10(folder, "test")


def test_an_unknown_split(written):
    with pytest.raises(ValueError, match="'val': use one of train, test"):
        load_cifar10(written[0], "val")
