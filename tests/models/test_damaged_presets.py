"""Presets that are damaged, or were made to do harm: refused, and told why."""

import io
import json
import shutil
import zipfile

import keras
import numpy as np
import pytest

from keras_vqem import models, zoo
from keras_vqem.models import preset, preset_weights
from keras_vqem.models.preset import PresetError


def edit(folder, change):
    record = json.loads((folder / "config.json").read_text())
    change(record)
    (folder / "config.json").write_text(json.dumps(record))


def plain_array():
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


def foreign_file(folder, name, content=b"something else"):
    (folder / name).write_bytes(content)
    digest = preset._sha256(folder / name)
    edit(folder, lambda r: r["files"].update({name: digest}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "tokenizer.model").unlink(), "tokenizer.model is missing"),
        (
            lambda f: (f / "weights.npz").write_bytes(b"x"),
            "weights.npz was changed or damaged: its SHA-256",
        ),
        (lambda f: (f / "config.json").write_text("{"), "config.json is damaged"),
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: edit(f, lambda r: r.pop("files")), "config.json is damaged"),
        (
            lambda f: edit(f, lambda r: r["files"].pop("tokenizer.model")),
            "config.json does not list tokenizer.model",
        ),
        (
            lambda f: edit(f, lambda r: r["files"].pop("weights.npz")),
            "config.json does not list weights.npz",
        ),
        (lambda f: foreign_file(f, "tokenizer.model"), "from .*tokenizer.model"),
        (
            lambda f: foreign_file(f, "weights.npz", plain_array()),
            "weights.npz is damaged",
        ),
        (
            lambda f: edit(f, lambda r: r["model"].update(class_name=["x"])),
            "from .*config.json",
        ),
        (
            lambda f: edit(f, lambda r: r["model"]["config"].update(halves=3)),
            "No model can be made from .*config.json.*halves.*update keras_vqem",
        ),
        (
            lambda f: edit(
                f, lambda r: r["model"]["config"].update(num_encoder_layers="two")
            ),
            "No model can be made from .*config.json",
        ),
        (lambda f: edit(f, lambda r: r.update(format=9)), "format 9.*Update"),
        (
            lambda f: edit(f, lambda r: r.update(format=1)),
            "format 1.*Save the preset again",
        ),
        (
            lambda f: edit(f, lambda r: r["files"].update({"../x": "0"})),
            "file outside its folder: '../x'",
        ),
        (
            lambda f: edit(
                f,
                lambda r: r["model"]["config"]["tokenizer"]["config"].update(
                    proto=str(f / "tokenizer.model")
                ),
            ),
            "No model can be made from .*config.json.*A config holds no `proto`",
        ),
        (
            lambda f: edit(f, lambda r: r["model"]["config"].update(hidden_dim=16)),
            r"shape .*, but the model needs",
        ),
        (
            lambda f: edit(
                f, lambda r: r["model"]["config"].update(num_decoder_layers=2)
            ),
            r"Missing in the file: \['decoder/",
        ),
    ],
)
def test_damage_is_named(folder, harm, message):
    harm(folder)
    with pytest.raises(PresetError, match=message):
        models.LatentNMT.from_preset(folder)


@pytest.mark.parametrize(
    "planted",
    [
        {"module": "os", "class_name": "system", "config": {"command": "touch x"}},
        {"module": "keras.layers", "class_name": "Lambda", "config": {}},
        {"module": "builtins", "class_name": "function", "config": "eval"},
        {"class_name": "Anything", "config": {}, "registered_name": "evil>Anything"},
        {
            "module": "keras.initializers",
            "class_name": "Zeros",
            "config": {},
            "registered_name": "evil>Anything",
        },
        {
            "class_name": "__lambda__",
            "config": {"value": ""},
            "registered_name": "keras_vqem>VQEMBottleneck",
        },
    ],
)
def test_foreign_objects_are_refused(folder, planted):
    edit(folder, lambda r: r["model"]["config"].update(bottleneck=planted))
    with pytest.raises(PresetError, match="presets cannot hold objects of"):
        models.LatentNMT.from_preset(folder)


def test_pickles_are_not_opened(folder):
    arrays = {"0000/x": np.array([print], dtype=object)}
    np.savez(folder / "weights.npz", **arrays)
    digest = preset._sha256(folder / "weights.npz")
    edit(folder, lambda r: r["files"].update({"weights.npz": digest}))
    with pytest.raises(PresetError, match="weights.npz is damaged.*pickle"):
        models.LatentNMT.from_preset(folder)


def stored_arrays(folder):
    with np.load(folder / "weights.npz") as file:
        return {name: file[name] for name in file.files}


def store(folder, arrays, save=np.savez):
    save(folder / "weights.npz", **arrays)
    digest = preset._sha256(folder / "weights.npz")
    edit(folder, lambda r: r["files"].update({"weights.npz": digest}))


def test_weights_are_found_by_name_in_any_order(folder, translator):
    arrays = stored_arrays(folder)
    store(folder, dict(reversed(arrays.items())))
    again = models.LatentNMT.from_preset(folder)
    for mine, other in zip(again.weights, translator.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    # The same shapes under other names are told apart.
    names = [name for name, value in arrays.items() if value.shape == (8,)]
    arrays["other"] = arrays.pop(names[0])
    store(folder, arrays)
    with pytest.raises(PresetError, match=f"Missing.*{names[0]}.*Not in .*other"):
        models.LatentNMT.from_preset(folder)


def first_kernel(arrays):
    return next(name for name, value in arrays.items() if value.shape == (8, 16))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: np.where(x == x.max(), np.nan, x), "NaN or infinite values in"),
        (lambda x: np.where(x == x.max(), np.inf, x), "NaN or infinite values in"),
        (lambda x: x.astype("complex64"), "dtype complex64, but the model needs float"),
        (lambda x: x.astype("float64"), "dtype float64, but the model needs float"),
        (lambda x: x.astype(">f4"), "dtype >f4, but the model needs float"),
        (lambda x: x.astype("int32"), "dtype int32, but the model needs float"),
        (lambda x: x.T, "shape .16, 8., but the model needs .8, 16."),
    ],
)
def test_wrong_values_are_named(folder, spoil, message):
    arrays = stored_arrays(folder)
    name = first_kernel(arrays)
    arrays[name] = spoil(arrays[name])
    store(folder, arrays)
    with pytest.raises(PresetError, match=message) as error:
        models.LatentNMT.from_preset(folder)
    assert name in str(error.value)


def claiming(folder, shape):
    """Replaces an array by a header that claims another shape, without the numbers."""
    arrays = stored_arrays(folder)
    name = first_kernel(arrays)
    del arrays[name]
    store(folder, arrays)
    header = io.BytesIO()
    about = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(folder / "weights.npz", "a") as archive:
        archive.writestr(f"{name}.npy", header.getvalue())
    foreign_file(folder, "weights.npz", (folder / "weights.npz").read_bytes())


def bomb(folder):
    """An array that really has 300 MB, all of them zero."""
    arrays = {"zeros": np.zeros(75_000_000, "float32")}
    store(folder, arrays, np.savez_compressed)


def set_config(folder, *path, **values):
    def change(record):
        config = record["model"]["config"]
        for name in path:
            config = config[name]["config"]
        config.update(values)

    edit(folder, change)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (
            lambda f: set_config(f, "bottleneck", num_codes=10**9),
            r"fewer weights than the config .*shape \(1, 1000000000",
        ),
        (
            lambda f: set_config(f, hidden_dim=2 * 10**9),
            "fewer weights than the config",
        ),
        (
            lambda f: set_config(f, num_encoder_layers=10**6),
            "arrays, too few for num_encoder_layers=1000000",
        ),
        (
            lambda f: set_config(f, num_compress_steps=10**6),
            "arrays, too few for num_compress_steps=1000000",
        ),
        (lambda f: set_config(f, image_size=[10**6] * 2), "4194304 pixels"),
        (lambda f: claiming(f, (3 * 2**30,)), "claims 12884902016 bytes and has 128"),
        (bomb, "bytes would become 300000"),
        (
            lambda f: (f / "config.json").write_text('{"a":' * 10**5),
            "config.json is damaged .*recursion",
        ),
        (lambda f: edit(f, lambda r: r.update(model=[])), "must be an object"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_made(folder, harm, message):
    harm(folder)
    with pytest.raises(PresetError, match=message):
        models.LatentNMT.from_preset(folder)


def test_many_small_layers_are_refused_too(folder, monkeypatch):
    monkeypatch.setattr(preset_weights, "MORE_WEIGHTS", 20)
    # Each makes a few variables, and no argument of the config counts them.
    stored = preset_weights.StoredWeights(folder / "weights.npz")
    with pytest.raises(PresetError, match="fewer weights than"), stored.limiting({}):
        while True:
            keras.layers.LayerNormalization().build((8,))


def test_a_preset_with_bad_facts_does_not_hide_the_others(
    folder, translator, monkeypatch
):
    monkeypatch.setattr(preset, "SHIPPED", (folder.parent,))
    about = {"task": "Numbers", "metrics": {"BLEU": 30.125}}
    translator.save_to_preset(folder.parent / "good", about=about)
    for number, harm in enumerate(
        [
            lambda r: r["about"].update(metrics={"BLEU": "thirty"}),
            lambda r: r["about"].update(metrics={"BLEU": None}),
            lambda r: r["about"].update(metrics={"BLEU": 10**400}),
            lambda r: r["about"].update(metrics=[30.1]),
            lambda r: r["about"].update(task=["Numbers"]),
            lambda r: r["model"]["config"].update(generation_config=[1]),
            lambda r: r.update(format=9),
        ]
    ):
        bad = shutil.copytree(folder, folder.with_name(f"bad{number}"))
        edit(bad, harm)
    assert [entry.name for entry in zoo.entries()] == ["good", "small"]
    listed = zoo.table()
    assert "BLEU 30.13" in listed or "BLEU 30.12" in listed
    for number in range(7):
        assert f"bad{number}  (cannot be read)" in listed
    assert "BLEU is 'thirty', which is no number" in listed
