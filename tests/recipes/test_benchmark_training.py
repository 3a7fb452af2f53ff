"""The benchmark at toy sizes: what it reports, not how fast anything is."""

import json
import pathlib

import pytest

RECIPES = pathlib.Path(__file__).parents[2] / "recipes"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    return __import__("benchmark_training")


def test_flops_are_those_of_the_matrix_products(benchmark):
    # One block each, width 2, one row of one token, no hidden units, one word: four
    # projections per attention of 2 * 2 * 2 operations, and two products with one
    # token of 2 * 2; three attentions; then the logits. Three times, as backward.
    found = benchmark.text_flops(
        width=2, layers=1, intermediate=0, rows=1, length=1, vocabulary=1
    )
    assert found == 3 * (3 * (4 * 8 + 2 * 4) + 4)


def test_targets_compare_the_best_of_each(benchmark):
    text = {"128": {"ours": {"median_ms": 10.0}, "ours_ops": {"median_ms": 20.0}}}
    text["128"] |= {"torch": {"median_ms": 15.0}, "latent": {"median_ms": 14.0}}
    images = {"ours": {"median_ms": 4.0}, "torch": {"status": "failed: x"}}
    result = {"text": text, "images": images, "input_tokens_per_second": 1e9}
    found = {name: value for name, value, _, _ in benchmark.targets_of(result)}
    assert found["Transformer, width 128, over the fastest peer"] == pytest.approx(1.5)
    latent = found["step of LatentNMT over the Transformer's, width 128"]
    assert latent == pytest.approx(1.4)
    assert found["ImageVQVAE over torch"] is None


@pytest.mark.slow
def test_the_whole_benchmark_at_toy_sizes(benchmark, monkeypatch, tmp_path, capsys):
    sizes = {"width": 16, "layers": 1, "heads": 2, "intermediate": 32}
    monkeypatch.setattr(benchmark, "TEXT", {"128": sizes})
    monkeypatch.setattr(benchmark, "BATCHES", {"128": {"rows": 4, "length": 8}})
    monkeypatch.setattr(benchmark, "IMAGES", {"rows": 2, "channels": 4})
    monkeypatch.setattr(benchmark, "SWEEPS", {"num_codes": [16, 32]})
    saved, plot = tmp_path / "result.json", tmp_path / "plot.png"
    command = ["--widths", "128", "--seconds", "1", "--vocabulary", "50"]
    command += ["--matmul", "64", "--sweep", "--plot", str(plot), "--json", str(saved)]
    benchmark.main(command)
    printed = capsys.readouterr().out
    assert "torch.nn.Transformer" in printed and "no --peers" in printed
    result = json.loads(saved.read_text())
    ours = result["text"]["128"]["ours"]
    assert ours["per_second"] == pytest.approx(2 * 4 * 8 / ours["median_ms"] * 1e3)
    assert [point["num_codes"] for point in result["sweep"]["num_codes"]] == [16, 32]
    assert plot.stat().st_size > 1000
