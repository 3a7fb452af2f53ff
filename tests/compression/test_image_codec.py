"""Images of any size come back as their codes say, or not at all."""

import dataclasses

import numpy as np
import pytest

from keras_vqem.compression import ImageCodec, tiles
from keras_vqem.compression.code_file import CodeFile
from tests.compression import small


@pytest.fixture(scope="module")
def codec():
    return ImageCodec(small.model(), "small")


@pytest.fixture(scope="module")
def content(codec):
    return codec.compress(small.image(20, 20))


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (17, 33), (5, 70), (130, 150)])
def test_codes_are_exact_and_images_those_of_the_model(codec, size):
    image, told = small.image(*size), []
    data = codec.compress(image, progress=told.append)
    codes, *found_size = codec.unpack(data)
    np.testing.assert_array_equal(codes, codec.encode(image))
    assert tuple(found_size) == size
    assert told[-1] == len(codes) == tiles.count_tiles(*size, (16, 16))
    # By hand: pixels are repeated at the edges, and each tile is on its own.
    found = codec.decompress(data)
    assert found.shape == (*size, 3) and found.dtype == np.uint8
    rows, columns = (np.minimum(np.arange(-(-n // 16) * 16), n - 1) for n in size)
    padded = image[rows][:, columns]
    for top in range(0, size[0], 16):
        for left in range(0, size[1], 16):
            part = found[top : top + 16, left : left + 16].astype(int)
            tile = padded[None, top : top + 16, left : left + 16]
            expected = np.asarray(codec.model.reconstruct(tile))[0]
            expected = expected[: part.shape[0], : part.shape[1]]
            assert np.abs(part - expected).max() <= 1  # rounding of other batches


def test_files_without_the_prior_are_larger_and_need_none(codec):
    image = small.image(64, 64)
    short, long = codec.compress(image), codec.compress(image, use_prior=False)
    assert len(long) - len(short) != 0
    np.testing.assert_array_equal(codec.decompress(long), codec.decompress(short))
    without = ImageCodec(small.model(prior=False))
    content = without.compress(image)
    assert not CodeFile.from_bytes(content).prior
    np.testing.assert_array_equal(without.unpack(content)[0], without.encode(image))


def test_codes_of_another_model_are_refused(codec, content):
    other = small.model()
    other.head.bias.assign_add([1.0] * other.head.bias.shape[0])
    with pytest.raises(ValueError, match="are of the model 'small' .* 'other'"):
        ImageCodec(other, "other").decompress(content)
    # The same weights are the same model, whatever it is called.
    ImageCodec(small.model(), "copy").decompress(content)


def changed(content, **fields):
    return dataclasses.replace(CodeFile.from_bytes(content), **fields).to_bytes()


def test_what_the_checksum_of_the_file_cannot_see_is_refused(codec, content):
    [(checksum, data)] = CodeFile.from_bytes(content).batches
    with pytest.raises(ValueError, match="the prior computes other probabilities"):
        codec.decompress(changed(content, batches=((checksum ^ 1, data),)))
    with pytest.raises(ValueError, match="has 2 batches of tiles for 20 x 20"):
        codec.decompress(changed(content, batches=((checksum, data),) * 2))
    with pytest.raises(ValueError, match="has 1 batches .* 20 x 6400 .* make 13"):
        codec.decompress(changed(content, height=6400))
    with pytest.raises(ValueError, match="do not have the checksum"):
        codec.decompress(changed(content, width=40))
    with pytest.raises(ValueError, match="do not have the checksum"):
        codec.decompress(changed(content, prior=False))


def test_a_computer_that_finds_other_probabilities_decodes_no_image(content):
    codec = ImageCodec(small.model(), "small")
    codec._prior_coder = small.Elsewhere(codec.model.prior, 1.0)
    with pytest.raises(ValueError, match="the prior computes other probabilities"):
        codec.decompress(content)


def test_a_small_file_cannot_ask_for_a_huge_image(codec, content):
    huge = changed(content, height=2**31, width=2**31)
    with pytest.raises(ValueError, match="at most 4,194,304 are taken. Raise max_pix"):
        codec.decompress(huge)
    with pytest.raises(ValueError, match="has 20 x 20 pixels, and at most 399"):
        codec.decompress(content, max_pixels=399)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((16, 16), "uint8"),
        np.zeros((16, 16, 4), "uint8"),
        np.zeros((0, 16, 3), "uint8"),
        np.zeros((16, 16, 3), "float32"),
    ],
    ids=["grey", "alpha", "empty", "floats"],
)
def test_other_arrays_are_refused(codec, image):
    with pytest.raises(ValueError, match="must be uint8 of shape"):
        codec.compress(image)
