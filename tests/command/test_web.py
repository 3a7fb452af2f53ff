"""The demo page's endpoints: what the models say, and errors that help."""

import base64
import contextlib
import importlib
import json
import socket
import struct
import sys
import threading
import urllib.request
import zlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vqem.command
from keras_vqem import layers, models
from keras_vqem.command import demo, main, page_images, page_sentences, web
from keras_vqem.command.photos import photos
from keras_vqem.evaluation.image_bits import psnr
from keras_vqem.images import shapes
from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer

SIZES = {
    "hidden_dim": 16,
    "num_heads": 2,
    "intermediate_dim": 32,
    "num_encoder_layers": 1,
}
TEXT = "the third of May, nineteen ten"


def translators():
    """An untrained teacher and latent translator whose words differ."""
    keras.utils.set_random_seed(0)
    corpus = ParallelCorpus.from_numbers(300)
    tokenizer = SentencePieceTokenizer.train(
        corpus.sources + corpus.targets, vocabulary_size=380
    )
    bottleneck = layers.VQEMBottleneck(
        8, initializer=keras.initializers.RandomNormal(seed=0)
    )
    sizes = {**SIZES, "num_decoder_layers": 1}
    found = (
        models.Transformer(tokenizer, **sizes),
        models.LatentNMT(
            tokenizer, bottleneck, num_compress_steps=2, num_predictor_layers=1, **sizes
        ),
    )
    for model in found:
        model.build()
        rng = np.random.default_rng(4)  # several codes for TEXT, and not all alike
        for weight in model.trainable_weights:
            weight.assign(weight + 0.6 * rng.normal(size=weight.shape))
    return found


def image_model(image_size=(16, 16), prior=True):
    """An image model that has seen no more than patches, with a prior or without."""
    keras.utils.set_random_seed(0)
    model = models.ImageVQVAE(
        layers.PatchCompressor(code_dim=24, channels=8, num_blocks=1),
        layers.VQEMBottleneck(32, num_samples=5, groups=layers.Slices(3), seed=0),
        layers.PatchDecompressor(channels=8, num_blocks=1, pixel_channels=8),
        layers.LogisticMixture(num_mixtures=2),
        image_size=image_size,
    )
    if not prior:
        return model
    model.init_from_patches(shapes.images(256, size=16)[0])
    small = {
        "hidden_dim": 8,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_dim": 16,
        "block_length": 8,
    }
    return model.with_prior(models.GridTransformer((4, 4, 3), 32, **small))


def codes_of(latent, text):
    """The ids of a text, its codes, and other codes that give another text."""
    ids = latent.tokenizer.encode([text]).to_tensor()
    codes = latent.generate(ids)["codes"].numpy()[0]
    codes = [int(code) for code in codes if code < latent.bottleneck.num_codes]
    assert len(codes) > 1
    for code in range(latent.bottleneck.num_codes):
        other = [codes[0], code, *codes[2:]]
        if written(latent, ids, other) != written(latent, ids, codes):
            return ids, codes, other
    raise AssertionError("no code changes the text: choose another")


def written(latent, ids, codes):
    found = latent.tokenizer.decode(latent.decode_ids(ids, tf.constant([codes])))
    return found.numpy()[0].decode("utf-8", errors="replace")


@pytest.fixture(scope="module")
def pair():
    return translators()


@pytest.fixture(scope="module")
def painter():
    return image_model()


@pytest.fixture(scope="module")
def client(pair, painter):
    return web.create_app(*pair, painter).test_client()


@pytest.fixture(scope="module")
def without_images(pair):
    return web.create_app(*pair, None).test_client()


def pixels(url):
    head, content = url.split(",")
    assert head == "data:image/png;base64"
    return tf.io.decode_png(base64.b64decode(content)).numpy()


def refused(response, status, *words):
    assert response.status_code == status and response.is_json
    for word in words:
        assert word in response.json["error"]
    assert "Traceback" not in response.text


def test_the_page_asks_nobody_else(client):
    response = client.get("/")
    assert response.status_code == 200 and response.mimetype == "text/html"
    addresses = [part[:30] for part in response.text.split("http")[1:]]
    assert all(a.startswith(("://www.w3.org/2000/svg", "-equiv")) for a in addresses)
    refused(client.get("/", headers={"Host": "evil.example"}), 400)
    refused(client.get("/nothing"), 404)


def test_about(client, painter, pair):
    found = client.get("/api/about").json
    assert set(demo.SENTENCES) < set(found["sentences"])
    assert found["latent"] == {"num_codes": 8, "tokens_per_code": 4}
    assert found["images"]["prior"] and found["images"]["size"] == [16, 16]
    expected = [page_images.fitted(image, (16, 16)) for image in photos()]
    np.testing.assert_array_equal(
        [pixels(url) for url in found["images"]["examples"]], expected
    )


def test_translations_codes_and_times(client, pair):
    found = client.post("/api/translate", json={"text": f"  {TEXT}\n"}).json
    teacher, latent = pair
    assert found["teacher"]["text"] == teacher.translate([TEXT])[0]
    assert found["latent"]["text"] == latent.translate([TEXT])[0]
    ids, codes, _ = codes_of(latent, TEXT)
    [sentence] = found["sentences"]
    assert sentence == {
        "source": TEXT,
        "text": found["latent"]["text"],
        "codes": codes,
        "pieces": pieces_of(latent, ids, codes),
    }
    times = [found[name]["ms"] for name in ("teacher", "latent")]
    assert min(times) > 0 and found["rounds"] == page_sentences.ROUNDS
    assert found["speedup"] == pytest.approx(times[0] / times[1])
    assert found["warnings"] == []


def pieces_of(latent, ids, codes):
    """What stands in the four places of each code."""
    found = latent.decode_ids(ids, tf.constant([codes])).numpy()
    found = latent.tokenizer.decode(found.reshape(-1, 4)).numpy()
    return [piece.decode("utf-8", errors="replace") for piece in found]


def test_several_sentences_are_translated_one_by_one(client, pair):
    sentences = ["Five to three.", "It is ten."]
    found = client.post("/api/translate", json={"text": " ".join(sentences)}).json
    texts = pair[1].translate(sentences)
    assert [row["source"] for row in found["sentences"]] == sentences
    assert [row["text"] for row in found["sentences"]] == texts
    assert found["latent"]["text"] == " ".join(filter(None, texts))


def test_the_speed_of_a_bad_translation_is_not_praised(pair, monkeypatch):
    teacher, latent = pair
    score = float(latent.generate(codes_of(latent, TEXT)[0])["scores"][0])
    for low_score, doubted in [(score - 0.1, False), (score + 0.1, True)]:
        monkeypatch.setattr(latent, "low_score", low_score)
        client = web.create_app(teacher, latent, None).test_client()
        found = client.post("/api/translate", json={"text": TEXT}).json
        assert (found["speedup"] is None) == doubted == bool(found["warnings"])
    assert "its score" in found["warnings"][0]
    monkeypatch.setattr(latent, "low_score", None)
    found = client.post("/api/translate", json={"text": "five 🐕"}).json
    assert found["speedup"] is None and "🐕" in found["warnings"][0]


def test_changed_codes_are_decoded(client, pair):
    latent = pair[1]
    ids, codes, other = codes_of(latent, TEXT)
    for row in (codes, other, codes[:1]):
        found = client.post("/api/decode", json={"text": TEXT, "codes": row}).json
        assert found["text"] == written(latent, ids, row)
        assert found["pieces"] == pieces_of(latent, ids, row)
    same = client.post("/api/decode", json={"text": TEXT, "codes": codes})
    assert same.json["text"] == latent.translate([TEXT])[0]


def test_codes_are_written_as_translations_are(pair, monkeypatch):
    teacher, latent = pair
    monkeypatch.setattr(latent, "generation_config", {"drop_repeats": True})
    client = web.create_app(teacher, latent, None).test_client()
    found = client.post("/api/translate", json={"text": TEXT}).json
    [sentence] = found["sentences"]
    fields = {"text": TEXT, "codes": sentence["codes"]}
    assert client.post("/api/decode", json=fields).json["text"] == sentence["text"]


def neighbours_of(latent, ids, codes, place):
    """The codes that write something else, from near to far; the first of each text."""
    vectors = np.asarray(latent.bottleneck.decode(tf.range(8)))
    order = np.argsort(np.linalg.norm(vectors - vectors[codes[place]], axis=1))
    found = {}
    for code in order.tolist():
        row = [*codes[:place], code, *codes[place + 1 :]]
        found.setdefault(pieces_of(latent, ids, row)[place], code)
    return [{"code": c, "writes": text} for text, c in found.items()][1:]


def test_neighbours_of_a_code_and_what_they_write(client, pair):
    latent = pair[1]
    ids, codes, _ = codes_of(latent, TEXT)
    fields = {"text": TEXT, "codes": codes, "place": 1}
    found = client.post("/api/neighbours", json=fields).json["neighbours"]
    expected = neighbours_of(latent, ids, codes, 1)
    assert found == expected[: page_sentences.NEIGHBOURS] != []
    for place in (-1, len(codes), None, True, "0"):
        answer = client.post("/api/neighbours", json={**fields, "place": place})
        refused(answer, 400, "`place` must be from 0 to")


@pytest.mark.parametrize("path", ["/api/translate", "/api/decode"])
@pytest.mark.parametrize(
    "text, words",
    [
        ("", "no text"),
        (" \n ", "no text"),
        (None, "received null"),
        (["a"], 'received ["a"]'),
        ("x" * 401, "has 401 characters, but at most 400"),
        ("日本語" * 40, "tokens, but at most 128"),
    ],
)
def test_bad_text(client, path, text, words):
    fields = {"text": text, "codes": [0]}
    refused(client.post(path, json=fields), 400, words)


def test_odd_text_is_translated(client):
    for text in ("\0", "\ud800 five", "<b>five</b> & \u202e"):
        assert client.post("/api/translate", json={"text": text}).status_code == 200


@pytest.mark.parametrize(
    "codes, words",
    [
        ([0, 8], "Code 2 must be an integer from 0 to 7, received 8"),
        ([-1], "Code 1 must be an integer from 0 to 7, received -1"),
        ([0, None], "Code 2 must be an integer from 0 to 7, received nothing"),
        ([1.5], "received 1.5"),
        ([True], "received true"),
        ([10**30], "received 1000"),
        ([], "a list of 1 to 67 codes, received []"),
        ([0] * 68, "a list of 1 to 67 codes"),
        ("12", 'received "12"'),
        (None, "received null"),
    ],
)
def test_bad_codes(client, codes, words):
    refused(client.post("/api/decode", json={"text": TEXT, "codes": codes}), 400, words)


def test_bad_requests(client):
    post = client.post
    refused(post("/api/translate", json=[1]), 400, "object", "[1]")
    refused(post("/api/translate", data="{", content_type="application/json"), 400)
    refused(post("/api/translate", data="text"), 415)
    refused(client.get("/api/translate"), 405)


def test_what_fails_inside_is_told_without_a_traceback(pair, monkeypatch):
    app = web.create_app(*pair, None)
    monkeypatch.setattr(page_sentences.Sentences, "translate", lambda *a: 1 / 0)
    response = app.test_client().post("/api/translate", json={"text": TEXT})
    refused(response, 500, "failed")


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


@contextlib.contextmanager
def served(folder, monkeypatch, **presets):
    """The port of `web.serve`, with these models for those that are shipped."""
    for name in ("TEACHER", "LATENT", "IMAGES"):
        monkeypatch.setattr(demo, name, folder / name)
    for name, model in presets.items():
        model.save_to_preset(folder / name)
    servers, ready, make = [], threading.Event(), web.serving.make_server

    def make_server(*args, **kwargs):
        servers.append(make(*args, **kwargs))
        ready.set()
        return servers[0]

    monkeypatch.setattr(web.serving, "make_server", make_server)
    thread = threading.Thread(target=web.serve, args=[0], daemon=True)
    thread.start()
    assert ready.wait(300), "web.serve did not come up; see what it printed"
    host, port = servers[0].socket.getsockname()
    assert host == "127.0.0.1"
    yield port
    servers[0].shutdown()
    thread.join(30)
    assert not thread.is_alive()


def test_serve_loads_presets_and_listens(pair, tmp_path, monkeypatch, capsys):
    teacher, latent = pair
    with served(tmp_path, monkeypatch, TEACHER=teacher, LATENT=latent) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/about") as answer:
            assert json.load(answer)["images"] == {"missing": demo.NO_IMAGES}
    said = capsys.readouterr().out
    assert f"Open http://127.0.0.1:{port} " in said and demo.NO_IMAGES in said


def test_a_port_in_use_is_told(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit, match="2"):
            main.main(["demo", "--web", "--port", port])
    said = " ".join(capsys.readouterr().err.split())
    assert f"Port {port} of 127.0.0.1 cannot be used" in said and "--port" in said
    with pytest.raises(SystemExit, match="2"):
        main.main(["demo", "--web", "--port", "70000"])
    assert "from 0 to 65535, received 70000" in capsys.readouterr().err


def test_a_missing_flask_is_told(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "flask", None)
    monkeypatch.delitem(sys.modules, web.__name__)
    monkeypatch.delattr(keras_vqem.command, "web")
    with pytest.raises(SystemExit, match="2"):
        main.main(["demo", "--web"])
    assert "pip install '.[web]'" in capsys.readouterr().err
    monkeypatch.undo()
    assert importlib.import_module(web.__name__) is web
