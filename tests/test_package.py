"""The package as a whole: who imports whom, what it says, and that its examples run."""

import doctest
import importlib.util
import inspect
import json
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import tomllib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vqem
from keras_vqem.command import main
from keras_vqem.images import shapes

ROOT = pathlib.Path(__file__).parent.parent
MODULES = [
    module.name for module in pkgutil.walk_packages(keras_vqem.__path__, "keras_vqem.")
]


def has_examples(module):
    path = importlib.util.find_spec(module).origin
    return ">>> " in pathlib.Path(path).read_text()


@pytest.mark.parametrize("name", filter(has_examples, MODULES))
def test_docstring_examples(name):
    module = importlib.import_module(name)
    names = {"keras": keras, "keras_vqem": keras_vqem, "np": np}
    result = doctest.testmod(module, extraglobs=names)
    assert result.attempted > 0 and result.failed == 0


@pytest.mark.parametrize(
    "public",
    [
        getattr(room, name)
        for room in (keras_vqem.layers, keras_vqem.models)
        for name in room.__all__
    ],
    ids=lambda public: public.__name__,
)
def test_public_layers_and_models_have_an_example(public):
    takes_arguments = inspect.signature(public).parameters
    assert "Args:" in public.__doc__ or not takes_arguments
    assert ">>>" in public.__doc__


def snippets():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
        for number, block in enumerate(blocks):
            yield pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize("code", list(snippets()))
def test_documented_snippets_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "snippet", "exec"), {"__name__": "__main__"})


def links():
    for path in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            if not target.startswith("http"):
                yield pytest.param(path.parent / target, id=f"{path.name}-{target}")


@pytest.mark.parametrize("target", list(links()))
def test_links_lead_somewhere(target):
    assert target.exists()


def test_version_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert keras_vqem.__version__ == project["version"]


@pytest.mark.parametrize("backend", ["jax", "torch", "numpy"])
@pytest.mark.parametrize("where", ["environment", "file"])
def test_other_backends_get_the_remedy(backend, where, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    if where == "environment":
        environment["KERAS_BACKEND"] = backend
    else:
        (tmp_path / "keras.json").write_text(json.dumps({"backend": backend}))
        environment["KERAS_HOME"] = str(tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", "import keras_vqem"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0
    message = result.stderr.strip().splitlines()[-1]
    assert "KERAS_BACKEND=tensorflow" in message and repr(backend) in message


def test_the_import_leaves_out_what_is_rarely_needed():
    script = """
import sys, keras
known = set(sys.modules)  # Keras imports matplotlib if it is there.
import keras_vqem
found = {name.split(".")[0] for name in set(sys.modules) - known}
print(sorted(found & {
    "flask", "matplotlib", "sacrebleu", "scipy", "sentencepiece",
    "tensorflow_datasets", "tensorflow_serving", "tensorflow_text"}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_package_is_installed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(settings["tool"]["setuptools"]["packages"])
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "keras_vqem").rglob("__init__.py")
    }
    assert listed == found | {"keras_vqem.saved_models"}


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(tmp_path):
    done = subprocess.run(
        [ROOT / ".ci" / "dist", tmp_path],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No broken requirements found" in done.stdout
    assert "Two children are playing" in done.stdout
    assert (tmp_path / "outside" / "out" / "demo.png").is_file()
    script = """
import sys, keras_vqem
from keras_vqem import zoo
assert keras_vqem.__file__.startswith(sys.argv[1]), keras_vqem.__file__
models = {entry.name: zoo.load(entry.name) for entry in zoo.entries()}
print(sorted(models), models["multi30k_en_de_teacher"].translate(["A dog runs."]))
"""
    done = subprocess.run(
        [tmp_path / "empty" / "bin" / "python", "-c", script, tmp_path],
        env={**os.environ, "PYTHONPATH": ""},
        cwd=tmp_path / "outside",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    names = sorted(path.parent.name for path in ROOT.glob("saved_models/*/config.json"))
    assert str(names) in done.stdout and "Hund" in done.stdout
    [page] = tmp_path.glob("empty/lib/*/site-packages/keras_vqem/command/page.html")
    assert page.is_file()


def test_the_presets_are_the_models_that_their_names_say():
    found = {
        entry.name: keras_vqem.zoo.load(entry.name)
        for entry in keras_vqem.zoo.entries()
    }
    assert {name: type(model).__name__ for name, model in found.items()} == {
        "cifar10_em": "ImageVQVAE",
        "cifar10_em_pixels": "ImageVQVAE",
        "multi30k_en_de_codes": "LatentNMT",
        "multi30k_en_de_ctc": "CTCTranslator",
        "multi30k_en_de_em": "LatentNMT",
        "multi30k_en_de_hard": "LatentNMT",
        "multi30k_en_de_teacher": "Transformer",
        "tatoeba_en_de_codes": "LatentNMT",
        "tatoeba_en_de_teacher": "Transformer",
    }
    for name in ("cifar10_em", "cifar10_em_pixels"):
        assert found[name].prior is not None
    soft, hard = (found[f"multi30k_en_de_{name}"] for name in ("em", "hard"))
    assert soft.num_compress_steps == hard.num_compress_steps == 3
    assert soft.bottleneck.num_samples and hard.bottleneck.num_samples is None


@pytest.mark.slow
@pytest.mark.parametrize("name", [entry.name for entry in keras_vqem.zoo.entries()])
def test_every_preset_is_exported_by_the_command(name, tmp_path):
    main.main(["export", name, str(tmp_path / name)])
    folder = tmp_path / name / "1"
    assert (folder / "assets.extra" / "tf_serving_warmup_requests").is_file()
    call = tf.saved_model.load(str(folder)).signatures["serving_default"]
    model = keras_vqem.zoo.load(name)
    if name.startswith("cifar10"):
        images = shapes.images(3, size=32)[0]
        found = call(images=tf.constant(images))["images"].numpy().astype(int)
        assert np.abs(found - np.asarray(model.reconstruct(images), int)).max() <= 1
    else:
        texts = ["A dog runs.", "", "Two men in blue shirts are talking."]
        found = call(texts=tf.constant(texts))["translations"].numpy()
        assert [text.decode() for text in found] == model.translate(texts)


@pytest.mark.parametrize("entry", keras_vqem.zoo.entries(), ids=lambda e: e.name)
def test_shipped_presets_say_what_they_are(entry):
    assert entry.task and entry.data and entry.metrics and entry.terms
    if entry.model != "ImageVQVAE":
        kind = "captions" if entry.name.startswith("multi30k") else "everyday sentences"
        assert kind in entry.task and entry.decoding
        model = keras_vqem.zoo.load(entry.name)
        assert model.generation_config == entry.decoding and model.low_score < 0
    card = (ROOT / "saved_models" / entry.name / "README.md").read_text()
    for name, value in entry.metrics.items():
        assert f"| {name} | {value:.2f} |" in card
    assert "## Limits" in card and "terms" in card and entry.terms
    assert re.search(r"Measured on [\d,]+ (sentences|images) of test", card)
    assert "Made by `python recipes/train_" in card and " --run RUN" in card


def test_shipped_presets_are_small():
    assert sum(entry.megabytes for entry in keras_vqem.zoo.entries()) < 90
