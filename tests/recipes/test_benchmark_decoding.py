"""benchmark_decoding.py: lengths are those it says, and every row is reported."""

import json

import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.evaluation import translation_scores
from keras_vqem.models import loading

SETTINGS = {
    "network": {
        "hidden_dim": 16,
        "intermediate_dim": 16,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
    },
    "vocabulary": 64,
    "num_codes": 8,
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float32-xla"])
def test_exported_models_write_the_lengths_they_should(precision, recipe, tmp_path):
    decoding_models = recipe("decoding_models")
    rows = [[*range(3, 11), 1], [*range(5, 13), 1]]
    shapes = {}
    for name in ("transformer", "ctc", "latent_3_1"):
        model = decoding_models.build(name, SETTINGS)
        made = decoding_models.in_precision(model, precision)
        assert made.compute_dtype == precision.removesuffix("-xla")
        functions = decoding_models.forced(made, [9])
        served = decoding_models.served(made, functions, precision, tmp_path / name)
        for way, function in functions.items():
            found = getattr(served, way)(tf.constant(rows)).numpy()
            np.testing.assert_array_equal(found, function(tf.constant(rows)))
            shapes[name, way] = found.shape
        if name == "latent_3_1":
            # Nine ids take two codes of eight, and then the end of the codes.
            codes = made.generate(np.array(rows), min_codes=2)["codes"].numpy()
            assert codes.shape == (2, 3) and (codes[:, 2] == 8).all()
            assert (codes[:, :2] < 8).all()
    assert shapes["transformer", "greedy"] == shapes["transformer", "beam"] == (2, 9)
    assert shapes["latent_3_1", "ids_9"] == (2, 16)


def test_random_weights_are_those_of_every_process(recipe):
    decoding_models = recipe("decoding_models")
    one, two = (decoding_models.build("shallow", SETTINGS) for _ in range(2))
    assert (one.num_encoder_layers, one.num_decoder_layers) == (2, 1)
    for a, b in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    # Translations depend on the source, or equal ids would mean nothing.
    rows = np.random.default_rng(0).integers(3, 64, (20, 9))
    found = one.translate_ids(rows, min_length=99, max_length=9).numpy()
    assert len(np.unique(found, axis=0)) > 10


@pytest.mark.slow
def test_sizes_and_rows_are_reported(recipe, tmp_path, capsys):
    page, path = tmp_path / "page.md", tmp_path / "new" / "decoding.json"
    page.write_text("<!-- decoding -->\n<!-- end decoding -->\n")
    arguments = "--hidden-dim 16 --intermediate-dim 16 --num-heads 2 --vocabulary 64 "
    arguments += "--num-encoder-layers 1 --num-decoder-layers 1 --num-codes 8 "
    arguments += "--num-predictor-layers 1 --num-compress-steps 3 --tokens 9 "
    arguments += f"--batch-sizes 3 --batch-tokens 9 --minutes 0.1 --json {path} "
    arguments += f"--page {page} --plot {tmp_path / 'plot.png'}"
    recipe("benchmark_decoding").main(arguments.split())
    report = json.loads(path.read_text())
    assert [(p["tokens"], p["batch_size"]) for p in report["sizes"]] == [(9, 1), (9, 3)]
    printed = capsys.readouterr().out
    assert page.read_text().count("| --- |") == 2 and "### Targets" in printed
    for point in report["sizes"]:
        assert list(point["rows"]) == [
            "transformer_greedy_float32",
            "transformer_beam_float32",
            "shallow_greedy_float32",
            "latent_3_1_ids_float32",
            "ctc_ids_float32",
            "codes_3_1_ids_float32",
        ]
        for row in point["rows"].values():
            assert min(row["median_ms"], row["limit_ms"], row["times_limit"]) > 0
            assert f"| {row['label']} | {row['median_ms']:.1f} |" in printed
    assert matplotlib.image.imread(tmp_path / "plot.png").shape[1] > 500


@pytest.mark.slow
def test_trained_models_are_scored(recipe, tiny, tmp_path, capsys):
    path, picture = tmp_path / "presets.json", tmp_path / "plot.png"
    arguments = ["--presets", str(tiny.teacher), str(tiny.latent), "--minutes", "0.05"]
    arguments += ["--data", str(tiny.data.folder), "--split", "test"]
    benchmark = recipe("benchmark_decoding")
    benchmark.main([*arguments, "--json", str(path), "--plot", str(picture)])
    report = json.loads(path.read_text())
    [size] = report["sizes"]
    rows = list(size["rows"].values())
    assert report["sentences"] == 8 and picture.is_file()
    assert [row["label"] for row in rows] == [
        "teacher, greedy, float32",
        "latent, greedy, float32",
    ]
    # The scores are those of `translate`.
    corpus = tiny.data.corpus("test")
    printed = capsys.readouterr().out
    for model, row in zip((tiny.teacher, tiny.latent), rows, strict=True):
        texts = loading.load_translator(model).translate(corpus.sources, num_beams=1)
        bleu = translation_scores.bleu(texts, corpus.targets)
        assert row["bleu"] == pytest.approx(bleu)
        assert f"| {row['label']} | {bleu:.2f} |" in printed
    with pytest.raises(SystemExit):
        benchmark.main(["--presets", str(tiny.latent), *arguments[3:]])
    assert "first of --presets must be a Transformer" in capsys.readouterr().err
