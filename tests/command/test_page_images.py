"""The demo page's endpoints for images."""

import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.command import demo, page_images, web
from keras_vqem.command.photos import photos
from keras_vqem.evaluation.image_quality import psnr
from keras_vqem.images import shapes
from tests.command.page_models import image_model, pixels, refused


def check_through(found, original, model):
    codes = model.encode(original[None])
    expected = np.asarray(model.decode(codes))
    np.testing.assert_array_equal(pixels(found["original"]), original)
    np.testing.assert_array_equal(pixels(found["reconstruction"]), expected[0])
    np.testing.assert_array_equal(found["codes"], codes[0])
    assert found["psnr"] == pytest.approx(psnr(original[None], expected)[0])


def test_an_example_goes_through_the_codes(client, painter):
    original = page_images.fitted(photos()[3], (16, 16))
    check_through(client.get("/api/images/3").json, original, painter)
    refused(client.get("/api/images/8"), 404, "0 to 7")


def test_an_upload_is_fitted_and_goes_through_the_codes(client, painter):
    image = shapes.images(1, size=48)[0][0]
    image = np.pad(image, [(0, 0), (9, 9), (0, 0)])  # wider than high
    middle = tf.image.resize(image[:, 9:-9], (16, 16), "bicubic", antialias=True)
    expected = np.clip(np.rint(middle), 0, 255).astype("uint8")
    found = client.post("/api/images", data=tf.io.encode_png(image).numpy())
    check_through(found.json, expected, painter)
    jpeg = tf.io.encode_jpeg(image, quality=100).numpy()
    found = client.post("/api/images", data=jpeg).json
    assert np.abs(pixels(found["original"]).astype(int) - expected).mean() < 8
    grey = tf.io.encode_png(image[..., :1]).numpy()
    assert client.post("/api/images", data=grey).status_code == 200


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (16, 16), (33, 17)])
def test_any_shape_is_fitted(shape):
    image = np.full((*shape, 3), 200, "uint8")
    for size in [(16, 16), (8, 24)]:
        found = page_images.fitted(image, size)
        assert found.shape == (*size, 3) and (found == 200).all()


def huge_png():
    """A few bytes that say they are 50,000 x 50,000 pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + chunk


@pytest.mark.parametrize(
    "content, status, words",
    [
        (b"", 415, "neither a PNG nor a JPEG"),
        (b"hello, I am text", 415, "neither a PNG nor a JPEG"),
        (b"GIF89a" + bytes(50), 415, "neither a PNG nor a JPEG"),
        (b"\x89PNG\r\n\x1a\n", 415, "neither a PNG nor a JPEG"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), 400, "damaged"),
        (b"\xff\xd8\xff\xe0" + bytes(99), 400, "damaged"),
        (huge_png(), 400, "50000 x 50000 pixels"),
        (bytes(8 * 2**20 + 1), 413, "larger than 8 MB"),
    ],
    ids=["empty", "text", "gif", "stub", "png", "jpeg", "pixels", "bytes"],
)
def test_bad_uploads(client, content, status, words):
    refused(client.post("/api/images", data=content), status, words)


def test_changed_codes_of_an_image_are_decoded(client, painter):
    codes = np.array(client.get("/api/images/0").json["codes"])
    codes[1, 2, 0] = (codes[1, 2, 0] + 1) % 32
    found = client.post("/api/images/decode", json={"codes": codes.tolist()}).json
    expected = np.asarray(painter.decode(codes[None]))[0]
    np.testing.assert_array_equal(pixels(found["reconstruction"]), expected)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda c: c[0][0].__setitem__(0, 32), "from 0 to 31, received 32"),
        (lambda c: c[0][0].__setitem__(0, -1), "from 0 to 31, received -1"),
        (lambda c: c[0][0].__setitem__(0, None), "4 x 4 x 3 integers"),
        (lambda c: c[0][0].__setitem__(0, 1.5), "integers"),
        (lambda c: c[0][0].__setitem__(0, 10**30), "integers"),
        (lambda c: c[0].pop(), "integers"),
        (lambda c: c.pop(), "integers"),
        (lambda c: c.clear(), "received []"),
    ],
)
def test_bad_codes_of_an_image(client, change, words):
    codes = client.get("/api/images/0").json["codes"]
    change(codes)
    refused(client.post("/api/images/decode", json={"codes": codes}), 400, words)


def test_samples_come_from_the_prior(client, painter):
    found = client.post("/api/samples", json={"seed": 7}).json["images"]
    expected = painter.sample(8, seed=(0, 7))
    np.testing.assert_array_equal([pixels(url) for url in found], expected)
    for seed in (-1, 2**31, "7", None, 1.5):
        refused(client.post("/api/samples", json={"seed": seed}), 400, "`seed` must")


def test_samples_of_a_prior_with_classes_show_one_each(pair):
    model = image_model(num_classes=3)
    client = web.create_app(*pair, model).test_client()
    found = client.post("/api/samples", json={"seed": 7}).json["images"]
    expected = model.sample(8, seed=(0, 7), labels=[0, 1, 2, 0, 1, 2, 0, 1])
    np.testing.assert_array_equal([pixels(url) for url in found], expected)


def test_a_model_without_a_prior_or_of_another_shape(pair):
    model = image_model((16, 24), prior=False)
    client = web.create_app(*pair, model).test_client()
    assert not client.get("/api/about").json["images"]["prior"]
    refused(client.post("/api/samples", json={"seed": 1}), 404, "no prior")
    assert np.shape(client.get("/api/images/0").json["codes"]) == (4, 6, 3)


def test_a_missing_image_model_is_told(without_images):
    about = without_images.get("/api/about").json
    assert about["images"] == {"missing": demo.NO_IMAGES}
    assert "cifar10_em is not installed" in demo.NO_IMAGES
    for method, path in [
        ("get", "/api/images/0"),
        ("post", "/api/images"),
        ("post", "/api/images/decode"),
        ("post", "/api/samples"),
    ]:
        refused(getattr(without_images, method)(path), 404, "not installed")
