"""The comparison with two quantizers and a handful of steps."""

import json
import subprocess

import numpy as np
import pytest

from keras_vqem.evaluation import comparison


@pytest.fixture(scope="module")
def compare(recipe):
    return recipe("compare_bottlenecks")


@pytest.fixture(scope="module")
def table(recipe):
    return recipe("compared_bottlenecks")


def run(compare, folder, *arguments):
    """Runs the recipe, and returns its results by quantizer."""
    path = folder / "results.json"
    given = ["--steps", "4", "--json", str(path), *arguments]
    compare.main(given)
    return json.loads(path.read_text())["results"]


@pytest.fixture
def tiny(compare, monkeypatch):
    size = compare.SIZES["smoke"] | {"train": 64, "test": 32, "num_codes": 16}
    monkeypatch.setitem(compare.SIZES, "smoke", size)


@pytest.mark.slow
def test_rows_are_measured_kept_and_completed(
    compare, tiny, tmp_path, monkeypatch, capsys
):
    plot, page = tmp_path / "new" / "plot.png", tmp_path / "page.md"
    names = ["--only", "product", "vqp_ema", "--seeds", "1"]
    found = run(compare, tmp_path, *names, "--plot", str(plot), "--markdown", str(page))
    first = found["product"]["0"]
    assert first["num_codes"] == 4 and first["slots"] == 2
    assert 1 <= first["perplexity"] <= 4 and 0 < first["usage"] <= 1
    assert 0 < first["bits_per_image"] <= 64 * 2 * 2 + 10
    assert first["psnr"] == pytest.approx(-10 * np.log10(first["mse"]))
    assert 0 < first["mse"] < 0.2
    assert plot.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert (
        "| hard EM, product of 2 codebooks | " in text and "shapes: 64 images" in text
    )
    # Without the peers' interpreter their rows say why they are empty.
    assert "EMA, k-means start: left out" in text and "vqp_ema" not in found

    # A second seed is measured, the first is not.
    progress = capsys.readouterr().err
    found = run(compare, tmp_path, "--only", "product", "--seeds", "2")
    assert found["product"]["0"] == first and set(found["product"]) == {"0", "1"}
    assert "product, seed 0" in progress
    assert "product, seed 0" not in capsys.readouterr().err

    # All is there: no process is started.
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", None)
        run(compare, tmp_path, "--only", "product", "--seeds", "2")
    assert "| 2 |" in capsys.readouterr().out

    # Times are added to what was measured.
    assert "step_ms" not in first
    timed = run(compare, tmp_path, "--only", "product", "--seeds", "2", "--times")
    assert all(0 < row.pop("step_ms") < 1e4 for row in timed["product"].values())
    assert timed == found

    with pytest.raises(SystemExit):
        run(compare, tmp_path, "--only", "product", "--threads", "2")
    assert "threads was 1, now 2" in capsys.readouterr().err


def test_peers_that_die_are_rows(compare, tiny, tmp_path, capsys):
    peers = tmp_path / "peers"
    peers.write_text("#!/bin/sh\necho no such library >&2\nexit 3\n")
    peers.chmod(0o755)
    names = ["--only", "vqp_ema", "vqp_product", "--seeds", "2", "--json"]
    path = str(tmp_path / "results.json")
    compare.main([*names, path, "--peers", str(peers), "--plot", f"{tmp_path}/p.png"])
    assert capsys.readouterr().out.count("failed: exit code 3: no such library") == 2


@pytest.mark.parametrize(
    "given, words",
    [
        (["--only", "vq", "vqq"], "no quantizer is named vqq; use hard_em"),
        (["--size", "small"], "needs --data"),
        (["--data", "x"], "--data is for --size small"),
        (["--steps", "0"], "at least 1"),
        (["--plot", "x.txt"], "writes .png"),
        (["--size", "small", "--data", "nowhere"], "data_batch_1.bin is missing"),
        (["--json", "README.md"], "no results of a comparison"),
    ],
)
def test_mistakes_are_told(compare, capsys, given, words):
    with pytest.raises(SystemExit) as stop:
        compare.main(given)
    assert stop.value.code == 2 and words in capsys.readouterr().err


def test_every_row_of_ours_makes_a_layer_of_the_same_rate(table):
    from keras_vqem.layers import DiscreteBottleneck

    for name, row in table.QUANTIZERS.items():
        if not row.peer:
            layer = row.make(16, 64, 100, 0)
            assert isinstance(layer, DiscreteBottleneck), name
            slots = np.prod(layer.groups.code_shape, dtype=int)
            assert layer.num_codes**slots == 64, name
            layer(np.zeros((2, 3, 16), "float32"), training=True)


@pytest.mark.parametrize("num_codes", [3, 16, 64, 256, 1000, 4096, 65536])
def test_levels_give_about_as_many_codes(table, num_codes):
    levels = table.levels(num_codes)
    assert 0.8 < np.prod(levels) / num_codes < 1.25
    assert min(levels) >= min(num_codes, 5)


def test_patches_are_parts_of_images(recipe, rng):
    images = rng.integers(0, 256, size=(2, 8, 12, 3)).astype("uint8")
    patches = recipe("comparison_contestants").to_patches(images)
    assert patches.shape == (2, 2, 3, 48)
    np.testing.assert_array_equal(patches[1, 1, 2].reshape(4, 4, 3), images[1, 4:, 8:])


def test_bits_are_those_of_the_frequencies(rng):
    train, test = (rng.integers(0, 3, size=(50, 2, 2, 1)) for _ in range(2))
    found = comparison.code_measures(train, test, num_codes=5)
    p = (np.bincount(train.ravel(), minlength=5) + 1) / (train.size + 5)
    bits = -np.log2(p[test]).sum(axis=(1, 2, 3)).mean()
    assert found["bits_per_image"] == pytest.approx(bits)
    assert found["usage"] == pytest.approx(3 / 5)


def test_results_refuse_other_settings_and_other_files(tmp_path):
    path = tmp_path / "results.json"
    comparison.Results(path, {"steps": 1, "sizes": (1, 2)}).add("vq", 0, {"mse": 1.0})
    again = comparison.Results(path, {"steps": 1, "sizes": (1, 2)})
    assert again.has("vq", 0) and not again.has("vq", 1)
    with pytest.raises(ValueError, match="steps was 1, now 2, new was None, now 3"):
        comparison.Results(path, {"steps": 2, "sizes": (1, 2), "new": 3})
    path.write_text("[]")
    with pytest.raises(ValueError, match="no results of a comparison"):
        comparison.Results(path, {})
