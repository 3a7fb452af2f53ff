import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vqem.images import load_image_folder
from keras_vqem.images.image_folder import resize_square


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def noise(rng, *shape):
    return rng.integers(0, 256, shape, np.uint8)


def test_files_are_sorted_by_their_relative_path(tmp_path, rng):
    names = ["a.png", "b/a.png", "b/c/d.BMP", "b.png", "c.PNG"]
    # By characters, "." comes before "/".
    order = ["a.png", "b.png", "b/a.png", "b/c/d.BMP", "c.PNG"]
    images = {name: noise(rng, 5, 7, 3) for name in names}
    for name in reversed(names):
        save(tmp_path / name, images[name])
    (tmp_path / "b" / "labels.txt").write_text("no image")
    found = load_image_folder(str(tmp_path))
    assert found.dtype == np.uint8 and found.shape == (5, 5, 7, 3)
    np.testing.assert_array_equal(found, [images[name] for name in order])


@pytest.mark.parametrize("suffix", ["png", "bmp"])
def test_grey_becomes_rgb_and_alpha_is_dropped(tmp_path, rng, suffix):
    colour = noise(rng, 5, 7, 4)
    save(tmp_path / f"alpha.{suffix}", colour)
    save(tmp_path / f"grey.{suffix}", colour[..., 0])
    expected = [colour[..., :3], np.repeat(colour[..., :1], 3, axis=-1)]
    np.testing.assert_array_equal(load_image_folder(tmp_path), expected)


def test_kinds_of_png(tmp_path, rng):
    grey = noise(rng, 5, 7, 2)
    Image.fromarray(grey).save(tmp_path / "1_grey_alpha.png")
    palette = Image.fromarray(noise(rng, 5, 7, 3)).quantize(8)
    palette.save(tmp_path / "2_palette.png")
    expected = [np.repeat(grey[..., :1], 3, axis=-1), palette.convert("RGB")]
    np.testing.assert_array_equal(load_image_folder(tmp_path), np.stack(expected))


def test_jpeg(tmp_path):
    y, x = np.mgrid[:16, :24].astype(np.uint8) * 10
    smooth = np.stack([x, y, np.full_like(x, 200)], axis=-1)
    for name in ("a.jpg", "b.jpeg"):
        save(tmp_path / name, smooth, quality=95, subsampling=0)
    save(tmp_path / "c.JPG", smooth[..., 0], quality=95)
    expected = np.stack([smooth, smooth, np.repeat(smooth[..., :1], 3, axis=-1)])
    difference = load_image_folder(tmp_path).astype(int) - expected
    assert np.abs(difference).max() <= 8


def test_size_takes_the_square_in_the_middle(tmp_path, rng):
    wide, high = noise(rng, 6, 10, 3), noise(rng, 9, 6, 3)
    save(tmp_path / "1.png", wide)
    save(tmp_path / "2.png", high)
    found = load_image_folder(tmp_path, size=6)
    np.testing.assert_array_equal(found, [wide[:, 2:8], high[1:7]])


def test_resizing_has_antialiasing_and_stays_in_range():
    # Without antialiasing a fine checkerboard is black, white or stripes.
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    board = np.repeat(board[..., None], 3, axis=-1)
    small = resize_square(board, 16)
    assert small.shape == (16, 16, 3) and small.dtype == np.uint8
    assert np.abs(small[2:-2, 2:-2].astype(int) - 128).max() <= 2
    # Bicubic values overshoot at an edge, and must not wrap around.
    edge = np.zeros((8, 8, 3), np.uint8)
    edge[:, 4:] = 255
    large = resize_square(edge, 32).astype(int)
    raw = tf.image.resize(edge, [32, 32], "bicubic", antialias=True).numpy()
    assert raw.min() < -1 and raw.max() > 256
    assert (large[:, :10] < 30).all() and (large[:, 22:] > 225).all()
    np.testing.assert_array_equal(resize_square(np.stack([edge, edge]), 32)[1], large)
    with pytest.raises(ValueError, match="size must be at least 1, or None, not 0"):
        resize_square(edge, 0)


def test_sizes_must_agree(tmp_path, rng):
    save(tmp_path / "a.png", noise(rng, 5, 7, 3))
    save(tmp_path / "sub" / "b.png", noise(rng, 7, 4, 3))
    message = r"a\.png has 5 x 7, .*b\.png has 7 x 4\. Pass size=.*size=4"
    with pytest.raises(ValueError, match=message):
        load_image_folder(tmp_path)
    assert load_image_folder(tmp_path, size=4).shape == (2, 4, 4, 3)


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp"])
def test_a_file_that_cannot_be_decoded(tmp_path, rng, suffix):
    save(tmp_path / f"good.{suffix}", noise(rng, 32, 32, 3))
    content = (tmp_path / f"good.{suffix}").read_bytes()
    for bad in (b"", b"hello, world", content[: len(content) // 2]):
        (tmp_path / f"odd.{suffix}").write_bytes(bad)
        message = rf"odd\.{suffix} \({len(bad)} bytes\) cannot be decoded: .*Remove it"
        with pytest.raises(ValueError, match=message) as caught:
            load_image_folder(tmp_path)
        assert "function_node" not in str(caught.value)


def test_bmp_files_that_tensorflow_gets_wrong_are_refused(tmp_path, rng):
    palette = Image.fromarray(noise(rng, 5, 7, 3)).quantize(8)
    palette.save(tmp_path / "a.bmp")
    with pytest.raises(ValueError, match=r"a\.bmp .*palette.*not supported.*PNG"):
        load_image_folder(tmp_path)


def test_no_images(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent is not a folder"):
        load_image_folder(tmp_path / "absent")
    (tmp_path / "a.txt").write_text("no image")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no images, .*\.png, \.jpg, \.jpeg"):
        load_image_folder(tmp_path)
