"""A small LatentNMT, exported as model `numbers`, version 1, and a server for it."""

import pytest
import tensorflow as tf

from tests.models import small
from tests.serving.minimal_server import MinimalServer

TEXTS = [
    "twenty-one",
    "",
    'five "o\'clock" \\ {"b64": 1}',
    "ten past two",
    "fünf, 日本 😀",
    "\u0000\t\x1b",
    "the third of May",
]


@pytest.fixture(params=["grpc", "rest"])
def transport(request):
    return request.param


@pytest.fixture(scope="session")
def model():
    return small.exportable("LatentNMT")


@pytest.fixture(scope="session")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "numbers" / "1"
    model.export(path, max_tokens=64)
    return path


@pytest.fixture(scope="session")
def server(folder):
    with MinimalServer({"numbers": folder.parent}) as server:
        yield server


@pytest.fixture(scope="session")
def loaded(server):
    """The SavedModel as the server has it: loading takes a while."""
    return server.models["numbers"][1].loaded


@pytest.fixture(scope="session")
def serve(loaded):
    """Function from a list of strings to the translations, bytes, in one batch."""

    def serve(texts):
        texts = tf.constant(texts, tf.string, [len(texts)])
        found = loaded.signatures["serving_default"](texts=texts)
        return found["translations"].numpy().tolist()

    return serve
