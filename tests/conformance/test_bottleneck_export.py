"""Every bottleneck as a SavedModel, in a process that has TensorFlow alone."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.conformance import checks
from tests.conformance.bottleneck_cases import (
    CASES,
    compile_model,
    make_data,
    make_model,
    one_of_each_kind,
)

# One process for all: most of the time goes into importing TensorFlow.
SERVE = """
import json, sys
import numpy as np
import tensorflow as tf
root = sys.argv[1]
for name in json.loads(sys.argv[2]):
    x = np.load(f"{root}/{name}.npz")["inputs"]
    served = tf.saved_model.load(f"{root}/{name}")
    whole = served.serve(x)
    rows = [served.serve(row[None]) for row in x]
    out = {k: v.numpy() for k, v in whole.items()}
    out.update({f"rows/{k}": np.concatenate([r[k] for r in rows]) for k in whole})
    np.savez(f"{root}/{name}.served.npz", **out)
assert not [m for m in sys.modules if m.startswith("keras_vqem")]
"""


@pytest.fixture(scope="module")
def served(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("exports")
    expected = {}
    # Only what the tests of this run ask for.
    asked = [item for item in request.session.items if item.module is request.module]
    names = list(dict.fromkeys(item.callspec.params["name"] for item in asked))
    for name in names:
        x = make_data(np.random.default_rng(0), 8)
        model = compile_model(make_model(name))
        model.fit(x, {"decoded": x}, epochs=1, verbose=0)
        expected[name] = model.predict(x, verbose=0)
        model.export(root / name, verbose=False)
        np.savez(root / f"{name}.npz", inputs=x)
    arguments = [sys.executable, "-c", SERVE, str(root), json.dumps(names)]
    subprocess.run(arguments, check=True, cwd=root)
    return root, expected


@pytest.mark.parametrize("name", one_of_each_kind(CASES))
def test_served_as_trained(name, served):
    root, expected = served
    got = np.load(root / f"{name}.served.npz")
    for key, value in expected[name].items():
        np.testing.assert_allclose(got[key], value, rtol=1e-5, atol=1e-6)
        # A row does not depend on its batch.
        np.testing.assert_allclose(got[f"rows/{key}"], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", one_of_each_kind(CASES))
def test_serving_is_pure(name, served):
    root, _ = served
    checks.assert_pure(tf.saved_model.load(root / name).signatures["serving_default"])
