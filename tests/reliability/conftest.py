"""The page docs/reliability.md, which `make soak` writes from the tests here.

The first line of a test's docstring is the fault, the rest is how it was tried.
"""

import datetime
import inspect
import os
import pathlib

import keras
import pytest
import tensorflow as tf

import keras_vqem

PAGE = """\
# Reliability

Every fault that `make soak` tries, and what happened on {date}, with
keras_vqem {version}, Keras {keras} and TensorFlow {tensorflow} on Linux. The code is
in `tests/reliability`. "The same bits" means that weights, optimizer, seeds and
logged metrics are equal, bit for bit, to those of a run that nothing happened to.

| Fault | How it was tried | What happened |
| --- | --- | --- |
{rows}

[The guide](guides/translation.md#the-whole-way-by-recipes) says how runs are saved and
resumed, [decision 0013](decisions/0013-checkpoints.md) why so.
"""
ROWS = []


@pytest.fixture(autouse=True, scope="session")
def page():
    yield
    if path := os.environ.get("RELIABILITY_PAGE"):
        text = PAGE.format(
            date=datetime.date.today(),
            version=keras_vqem.__version__,
            keras=keras.__version__,
            tensorflow=tf.__version__,
            rows="\n".join(ROWS),
        )
        pathlib.Path(path).write_text(text)


@pytest.fixture
def happened(request):
    """Function that notes what happened, for the page."""
    words = ["**The test failed.**"]
    yield lambda text: words.append(text)
    fault, _, tried = inspect.getdoc(request.function).partition("\n")
    if hasattr(request.node, "callspec"):
        name = next(iter(request.node.callspec.params.values()))
        fault = fault.format(getattr(name, "name", name))
    ROWS.append(f"| {fault.rstrip('.')} | {' '.join(tried.split())} | {words[-1]} |")
