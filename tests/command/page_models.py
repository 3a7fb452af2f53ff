"""Small models behind the demo page, and what its tests ask of responses."""

import base64
import contextlib
import threading

import keras
import numpy as np
import tensorflow as tf

from keras_vqem import layers, models
from keras_vqem.command import demo, web
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


def image_model(image_size=(16, 16), prior=True, num_classes=None):
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
        "num_classes": num_classes,
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


def pixels(url):
    head, content = url.split(",")
    assert head == "data:image/png;base64"
    return tf.io.decode_png(base64.b64decode(content)).numpy()


def refused(response, status, *words):
    assert response.status_code == status and response.is_json
    for word in words:
        assert word in response.json["error"]
    assert "Traceback" not in response.text


def pieces_of(latent, ids, codes):
    """What stands in the four places of each code."""
    found = latent.decode_ids(ids, tf.constant([codes])).numpy()
    found = latent.tokenizer.decode(found.reshape(-1, 4)).numpy()
    return [piece.decode("utf-8", errors="replace") for piece in found]


def neighbours_of(latent, ids, codes, place):
    """The codes that write something else, from near to far; the first of each text."""
    vectors = np.asarray(latent.bottleneck.decode(tf.range(8)))
    order = np.argsort(np.linalg.norm(vectors - vectors[codes[place]], axis=1))
    found = {}
    for code in order.tolist():
        row = [*codes[:place], code, *codes[place + 1 :]]
        found.setdefault(pieces_of(latent, ids, row)[place], code)
    return [{"code": c, "writes": text} for text, c in found.items()][1:]


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
