"""The page of `keras-vqem demo --web`: texts and images, with codes to change."""

import logging
import os
import pathlib
import socket

from keras_vqem.command import demo
from keras_vqem.command.page_images import Pictures, decoded, fitted
from keras_vqem.command.page_sentences import Sentences
from keras_vqem.command.problems import Refused, said
from keras_vqem.models import ImageVQVAE, LatentNMT, Transformer, loading

try:
    import flask
    from werkzeug import exceptions, serving

    from keras_vqem.command import page_guard
except ImportError as error:
    raise ImportError(
        "The page needs Flask, which the extra `web` installs: in a checkout by "
        "pip install '.[web]'"
    ) from error

HOST = "127.0.0.1"  # This machine only, because there is no authentication.
PAGE = pathlib.Path(__file__).with_name("page.html")
SENTENCES = (
    *demo.SENTENCES,
    "A young girl with long brown hair and a red dress sits on a wooden bench in a "
    "park while her brother is riding his bicycle behind her.",
)
MAX_CHARACTERS, MAX_BYTES = 400, 8 * 2**20


def serve(port: int, teacher: str | None = None, latent: str | None = None) -> None:
    """Serves the page until Ctrl-C.

    Args:
        port: Port of 127.0.0.1. 0 takes any free port.
        teacher: Preset, run folder or .keras file of the `Transformer`. None
            takes that of the demo.
        latent: Preset, run folder or .keras file of the `LatentNMT`. None takes
            that of the demo.
    """
    with _listen(port) as listener:  # Before models are loaded, which takes longer.
        port = listener.getsockname()[1]
        print("Loading the models...", flush=True)
        teacher = loading.load_model(teacher or demo.TEACHER, Transformer)
        latent = loading.load_model(latent or demo.LATENT, LatentNMT)
        try:
            images_model = ImageVQVAE.from_preset(demo.IMAGES)
        except FileNotFoundError:
            images_model = None
            print(demo.NO_IMAGES)
        app = create_app(teacher, latent, images_model)
        # Traces the graphs, so that the first visitor does not wait for it.
        for path in ("/api/translate", "/api/decode"):
            fields = {"text": SENTENCES[0], "codes": [0]}
            app.test_client().post(path, json=fields)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # Not every request.
        # In threads: browsers open spare connections, which would block a single one.
        server = serving.make_server(
            HOST,
            port,
            app,
            threaded=True,
            request_handler=page_guard.RequestHandler,
            fd=listener.fileno(),
        )
        url = f"http://{HOST}:{port}"
        print(f"Open {url} in a browser. Ctrl-C ends it.", flush=True)
        server.serve_forever()


def _listen(port):
    """Returns a listening socket. Werkzeug's own would exit if the port is in use."""
    if not 0 <= port < 2**16:
        raise ValueError(f"--port must be from 0 to 65535, received {port}.")
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise OSError(
            f"Port {port} of {HOST} cannot be used: {os.strerror(error.errno)}. Choose "
            f"another with --port, or any free one with --port 0."
        ) from error


def create_app(
    teacher: Transformer, latent: LatentNMT, images_model: ImageVQVAE | None
) -> flask.Flask:
    """Makes the Flask application of the page.

    Args:
        teacher: A `Transformer`.
        latent: A `LatentNMT`.
        images_model: An `ImageVQVAE`, with or without a prior, or None.

    Returns:
        The application.
    """
    app = flask.Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BYTES
    # Other host names could let foreign pages send requests (DNS rebinding).
    app.config["TRUSTED_HOSTS"] = [HOST, "localhost"]
    sentences = Sentences(teacher, latent)
    pictures = None if images_model is None else Pictures(images_model)
    turns = page_guard.Turns()
    page_guard.protect(app)

    @app.errorhandler(exceptions.HTTPException)
    def tell(error):
        message = error.description
        if error.code == 413:
            message = _too_big()
        elif error.code == 500:
            message = "The program failed. See its terminal for the error."
        return {"error": message}, error.code

    @app.errorhandler(Refused)
    def refuse(error):
        return {"error": str(error)}, error.status

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
        fields = _fields()
        text, style = _text(fields), sentences.checked_style(fields.get("style"))
        with turns.one():
            return sentences.translate(text, style)

    @app.post("/api/decode")
    def decode():
        fields = _fields()
        text, codes = _text(fields), sentences.checked(fields.get("codes"))
        with turns.one():
            return sentences.decode(text, codes)

    @app.post("/api/neighbours")
    def neighbours():
        fields = _fields()
        text, codes = _text(fields), sentences.checked(fields.get("codes"))
        place = fields.get("place")
        if type(place) is not int or not 0 <= place < len(codes):
            flask.abort(
                400,
                f"`place` must be from 0 to {len(codes) - 1}, received {said(place)}.",
            )
        with turns.one():
            return sentences.neighbours(text, codes, place)

    def the_pictures():
        return pictures or flask.abort(404, demo.NO_IMAGES)

    @app.get("/api/images/<int:number>")
    def example(number):
        examples = the_pictures().examples
        if number >= len(examples):
            last = len(examples) - 1
            flask.abort(404, f"There is no image {number}, only 0 to {last}.")
        with turns.one():
            return pictures.through(examples[number])

    @app.post("/api/images")
    def upload():
        size = the_pictures().model.image_size
        content = flask.request.get_data()
        with turns.one():
            return pictures.through(fitted(decoded(content), size))

    @app.post("/api/images/decode")
    def repaint():
        codes = the_pictures().checked(_fields().get("codes"))
        with turns.one():
            return pictures.decode(codes)

    @app.post("/api/samples")
    def samples():
        the_pictures()
        seed = _fields().get("seed")
        if type(seed) is not int or not 0 <= seed < 2**31:
            flask.abort(
                400, f"`seed` must be from 0 to 2147483647, received {said(seed)}."
            )
        with turns.one():
            return pictures.samples(seed)

    return app


def _fields():
    """Returns the JSON object of a request as a dict."""
    try:
        fields = flask.request.get_json()
    except RecursionError:
        flask.abort(400, "The JSON is nested too deeply.")
    if not isinstance(fields, dict):
        flask.abort(400, f"A JSON object was expected, received {said(fields)}.")
    return fields


def _too_big():
    return f"The file is larger than {MAX_BYTES >> 20} MB. Choose a smaller one."


def _text(fields):
    text = fields.get("text")
    if not isinstance(text, str):
        flask.abort(400, f"`text` must be a string, received {said(text)}.")
    # JSON can hold lone surrogates, which are not text.
    text = text.encode("utf-8", "replace").decode().strip()
    if not text:
        flask.abort(400, "There is no text. Type an English sentence.")
    if len(text) > MAX_CHARACTERS:
        flask.abort(
            400,
            f"The text has {len(text)} characters, but at most {MAX_CHARACTERS} are "
            f"allowed. Shorten it.",
        )
    return text
