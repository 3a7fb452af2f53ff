"""The demo page with small models."""

import pytest

from keras_vqem.command import web
from tests.command.page_models import image_model, translators


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
