"""Images in files of three kinds; those that are damaged or huge are refused."""

import io

import numpy as np
import pytest
from PIL import Image

from keras_vqem.images.image_file import image_size, read_image


def encoded(pixels, kind, **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


@pytest.fixture
def pixels(rng):
    return rng.integers(0, 256, (21, 34, 3), np.uint8)


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp"])
def test_the_size_is_known_before_an_image_is_decoded(kind, pixels, tmp_path):
    content = encoded(pixels, kind)
    assert image_size(content) == (21, 34)
    path = tmp_path / "image"  # The content decides, not the name.
    path.write_bytes(content)
    found = read_image(path, max_pixels=21 * 34)
    assert found.shape == (21, 34, 3)
    assert kind == "jpeg" or (found == pixels).all()
    with pytest.raises(ValueError, match="has 34 x 21 pixels, and at most 713"):
        read_image(path, max_pixels=713)


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp"])
def test_a_truncated_image_is_refused(kind, pixels, tmp_path):
    content, path = encoded(pixels, kind), tmp_path / "image"
    for length in (0, 1, 10, 25, len(content) // 2, len(content) - 40):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=f"image .{length} bytes. cannot be dec"):
            read_image(path, max_pixels=10**6)


def test_a_huge_image_in_a_small_file_is_not_decoded(tmp_path):
    path = tmp_path / "huge.png"
    path.write_bytes(encoded(np.zeros((10_000, 10_000), bool), "png"))
    with pytest.raises(ValueError, match="10000 x 10000 pixels.* --max-pixels 10{8},"):
        read_image(path, max_pixels=4 * 2**20)


def test_other_files_are_told(tmp_path):
    path = tmp_path / "text.png"
    path.write_text("no image")
    with pytest.raises(ValueError, match="neither a PNG nor a JPEG nor a BMP file"):
        read_image(path, max_pixels=100)
    with pytest.raises(FileNotFoundError):
        read_image(tmp_path / "nothing.png")
