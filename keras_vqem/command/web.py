"""The page of `keras-vqem demo --web`: text and images through codes one can change."""

import base64
import json
import logging
import os
import pathlib
import socket
import threading

import numpy as np
import tensorflow as tf

from keras_vqem.command import demo
from keras_vqem.evaluation import latency
from keras_vqem.evaluation.image_bits import psnr
from keras_vqem.images import shapes
from keras_vqem.models import ImageVQVAE, LatentNMT, Transformer

try:
    import flask
    from werkzeug import exceptions, serving
except ImportError as error:
    raise ImportError(
        "The page needs Flask. Install it with: pip install keras-vqem[web]"
    ) from error

HOST = "127.0.0.1"  # This machine only: nothing here asks who is there.
PAGE = pathlib.Path(__file__).with_name("page.html")
SENTENCES = (
    *demo.SENTENCES,
    "A young girl with long brown hair and a red dress sits on a wooden bench in a "
    "park while her brother is riding his bicycle behind her.",
)
# Attention and the teacher's steps grow with the text; a page should not hang.
MAX_CHARACTERS, MAX_TOKENS = 400, 128
MAX_BYTES, MAX_PIXELS = 8 * 2**20, 32 * 10**6
ROUNDS, EXAMPLES, SAMPLES = 7, 8, 8


def serve(port):
    """Shows the page of the shipped presets until Ctrl-C.

    Args:
        port: Of 127.0.0.1; 0 for any that is free.
    """
    with _listen(port) as listener:  # first: loading takes longer than failing
        port = listener.getsockname()[1]
        print("Loading the models...", flush=True)
        teacher = Transformer.from_preset(demo.TEACHER)
        latent = LatentNMT.from_preset(demo.LATENT)
        try:
            images_model = ImageVQVAE.from_preset(demo.IMAGES)
        except FileNotFoundError:
            images_model = None
            print(demo.NO_IMAGES)
        app = create_app(teacher, latent, images_model)
        # Traces the graphs, so that the first visitor need not wait for it.
        for path in ("/api/translate", "/api/decode"):
            fields = {"text": SENTENCES[0], "codes": [0]}
            app.test_client().post(path, json=fields)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not every request
        # In threads: browsers open connections ahead, which would block a single one.
        server = serving.make_server(
            HOST, port, app, threaded=True, fd=listener.fileno()
        )
        print(f"Open http://{HOST}:{port} in a browser. Ctrl-C ends it.", flush=True)
        server.serve_forever()


def _listen(port):
    """A listening socket. Werkzeug, if it made one, would exit on a port in use."""
    if not 0 <= port < 2**16:
        raise ValueError(f"--port must be from 0 to 65535, received {port}.")
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise OSError(
            f"Port {port} of {HOST} cannot be used: {os.strerror(error.errno)}. Choose "
            f"another with --port, or --port 0 for any that is free."
        ) from error


def create_app(teacher, latent, images_model):
    """The page and what it asks for, as a Flask application.

    Args:
        teacher: A `Transformer`.
        latent: A `LatentNMT`.
        images_model: An `ImageVQVAE`, with a prior or without, or None.
    """
    app = flask.Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BYTES
    # Other names for this machine are a trick to let foreign pages ask.
    app.config["TRUSTED_HOSTS"] = [HOST, "localhost"]
    sentences = Sentences(teacher, latent)
    pictures = None if images_model is None else Pictures(images_model)
    # One at a time: requests side by side would spoil each other's times.
    lock = threading.Lock()

    @app.errorhandler(exceptions.HTTPException)
    def tell(error):
        message = error.description
        if error.code == 413:
            message = _too_big()
        elif error.code == 500:
            message = "The program failed. Its terminal says where."
        return {"error": message}, error.code

    @app.get("/")
    def page():
        return flask.Response(PAGE.read_bytes(), mimetype="text/html")

    @app.get("/api/about")
    def about():
        return {
            "sentences": SENTENCES,
            "max_bytes": MAX_BYTES,
            "too_big": _too_big(),
            "latent": sentences.about(),
            "images": pictures.about() if pictures else {"missing": demo.NO_IMAGES},
        }

    @app.post("/api/translate")
    def translate():
        text = _text(_fields())
        with lock:
            return sentences.translate(text)

    @app.post("/api/decode")
    def decode():
        fields = _fields()
        text, codes = _text(fields), sentences.checked(fields.get("codes"))
        with lock:
            return sentences.decode(text, codes)

    def the_pictures():
        return pictures or flask.abort(404, demo.NO_IMAGES)

    @app.get("/api/images/<int:number>")
    def example(number):
        examples = the_pictures().examples
        if number >= len(examples):
            flask.abort(404, f"There is no image {number}: 0 to {len(examples) - 1}.")
        with lock:
            return pictures.through(examples[number])

    @app.post("/api/images")
    def upload():
        size = the_pictures().model.image_size
        content = flask.request.get_data()
        with lock:
            return pictures.through(fitted(decoded(content), size))

    @app.post("/api/samples")
    def samples():
        the_pictures()
        seed = _fields().get("seed")
        if type(seed) is not int or not 0 <= seed < 2**31:
            flask.abort(400, f"`seed` must be 0 to 2147483647, received {_said(seed)}.")
        with lock:
            return pictures.samples(seed)

    return app


def _fields():
    """What a request says, a dict."""
    fields = flask.request.get_json()
    if not isinstance(fields, dict):
        flask.abort(400, f"A JSON object was expected, received {_said(fields)}.")
    return fields


def _said(value):
    """A value of a request as it was written, cut to what fits into a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


def _too_big():
    return f"The file is larger than {MAX_BYTES >> 20} MB. Choose a smaller one."


def _text(fields):
    text = fields.get("text")
    if not isinstance(text, str):
        flask.abort(400, f"`text` must be a string, received {_said(text)}.")
    # Half a character, which JSON can say, is no text.
    text = " ".join(text.encode("utf-8", "replace").decode().split())
    if not text:
        flask.abort(400, "There is no text. Type an English sentence.")
    if len(text) > MAX_CHARACTERS:
        flask.abort(
            400,
            f"The text has {len(text)} characters, and {MAX_CHARACTERS} is the most. "
            f"Shorten it; the models know sentences, one at a time.",
        )
    return text


class Sentences:
    """A sentence in both translators."""

    def __init__(self, teacher, latent):
        self.teacher, self.latent = teacher, latent
        self.num_codes = latent.bottleneck.num_codes
        # As many as the latent model itself writes for the longest text.
        self.max_codes = latent.max_codes_for(MAX_TOKENS)

        def generate(source_ids):
            found = latent.generate(source_ids)
            return found["target_ids"], found["codes"]

        ids = tf.TensorSpec([None, None], "int32")
        self._teacher_graph = teacher.translation_graph()
        # The same work as the graph of ids alone: codes are on the way to them.
        self._latent_graph = tf.function(
            generate, input_signature=[ids], autograph=False
        )
        self._decode_graph = tf.function(
            latent.decode_ids, input_signature=[ids, ids], autograph=False
        )

    def about(self):
        return {
            "num_codes": self.num_codes,
            "tokens_a_code": 2**self.latent.num_compress_steps,
        }

    def translate(self, text):
        """Both translations with their times, and the codes."""
        teacher_ids = self._ids(self.teacher, text)
        latent_ids = self._ids(self.latent, text)
        times = latency.measure(
            {
                "teacher": lambda: self._teacher_graph(teacher_ids).numpy(),
                "latent": lambda: self._latent_graph(latent_ids)[0].numpy(),
            },
            rounds=ROUNDS,
            warmup=1,
        )
        ids, codes = self._latent_graph(latent_ids)
        codes = [int(code) for code in codes.numpy()[0] if code < self.num_codes]
        teacher_ms, latent_ms = (times[name].median_ms for name in times)
        return {
            "teacher": {
                "text": _written(self.teacher, self._teacher_graph(teacher_ids)),
                "ms": teacher_ms,
            },
            "latent": {"text": _written(self.latent, ids), "ms": latent_ms},
            "codes": codes,
            "speedup": teacher_ms / latent_ms,
            "rounds": ROUNDS,
        }

    def checked(self, codes):
        """Codes of a request, if they are codes."""
        if not isinstance(codes, list) or not 1 <= len(codes) <= self.max_codes:
            flask.abort(
                400,
                f"`codes` must be a list of 1 to {self.max_codes} codes, received "
                f"{_said(codes)}.",
            )
        for place, code in enumerate(codes, start=1):
            if type(code) is not int or not 0 <= code < self.num_codes:
                what = "nothing" if code is None else _said(code)
                flask.abort(
                    400,
                    f"Code {place} must be a whole number from 0 to "
                    f"{self.num_codes - 1}, received {what}.",
                )
        return codes

    def decode(self, text, codes):
        """What the decoder writes from codes."""
        ids = self._decode_graph(self._ids(self.latent, text), tf.constant([codes]))
        return {"text": _written(self.latent, ids)}

    def _ids(self, model, text):
        ids = model.tokenizer.encode([text]).to_tensor()
        if ids.shape[1] > MAX_TOKENS:
            flask.abort(
                400,
                f"The text has {ids.shape[1]} tokens, and {MAX_TOKENS} is the most. "
                f"Letters other than English ones take several each. Shorten it.",
            )
        return ids


def _written(model, ids):
    return model.tokenizer.decode(ids).numpy()[0].decode("utf-8", errors="replace")


class Pictures:
    """Images through the codes of an `ImageVQVAE`."""

    def __init__(self, model):
        self.model = model
        generated = shapes.images(
            EXAMPLES, split="test", size=max(*model.image_size, 8)
        )
        self.examples = [fitted(image, model.image_size) for image in generated[0]]
        self._sample_graph = tf.function(
            lambda seed: model.sample(SAMPLES, seed),
            input_signature=[tf.TensorSpec([2], "int32")],
            autograph=False,
        )

    def about(self):
        return {
            "examples": [_data_url(image) for image in self.examples],
            "size": self.model.image_size,
            "num_codes": self.model.bottleneck.num_codes,
            "prior": self.model.prior is not None,
        }

    def through(self, image):
        """What is left of an image, and the codes in between."""
        codes = self.model.encode(image[None])
        left = np.asarray(self.model.decode(codes))
        codes = np.asarray(codes)[0]
        return {
            "original": _data_url(image),
            "reconstruction": _data_url(left[0]),
            "psnr": float(psnr(image[None], left)[0]),
            "codes": codes.reshape(*codes.shape[:2], -1).tolist(),
        }

    def samples(self, seed):
        """Images from the prior."""
        if self.model.prior is None:
            flask.abort(404, "This image model has no prior to draw from.")
        found = self._sample_graph(tf.constant([0, seed], "int32")).numpy()
        return {"images": [_data_url(image) for image in found]}


def decoded(content):
    """A PNG or JPEG file's bytes as uint8 [H, W, 3]."""
    try:
        # Sizes before pixels: a small file may hold a great many of them.
        if content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) >= 24:
            height, width = (int.from_bytes(content[i : i + 4]) for i in (20, 16))
        elif content[:3] == b"\xff\xd8\xff":
            height, width = tf.image.extract_jpeg_shape(content).numpy()[:2]
        else:
            flask.abort(
                415,
                "This is neither a PNG nor a JPEG image. Choose a file that ends in "
                ".png, .jpg or .jpeg.",
            )
        if int(height) * int(width) > MAX_PIXELS:
            flask.abort(
                400,
                f"The image has {width} x {height} pixels. Choose one of at most "
                f"{MAX_PIXELS // 10**6} million.",
            )
        return tf.io.decode_image(content, channels=3, expand_animations=False).numpy()
    except tf.errors.InvalidArgumentError:
        flask.abort(400, "The image is damaged and cannot be read. Choose another.")


def fitted(image, size):
    """The middle of an image [H, W, 3] in the shape of `size`, resized to it."""
    height, width = image.shape[:2]
    rows, columns = size
    image = tf.image.resize_with_crop_or_pad(
        image,
        min(height, max(1, round(width * rows / columns))),
        min(width, max(1, round(height * columns / rows))),
    )
    # Bicubic interpolation overshoots at edges.
    image = tf.image.resize(image, size, "bicubic", antialias=True)
    return tf.saturate_cast(tf.round(image), "uint8").numpy()


def _data_url(image):
    png = tf.io.encode_png(image).numpy()
    return "data:image/png;base64," + base64.b64encode(png).decode()
