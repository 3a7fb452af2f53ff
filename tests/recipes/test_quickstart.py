import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

RECIPE = Path(__file__).parents[2] / "recipes" / "quickstart.py"


def load_recipe():
    spec = importlib.util.spec_from_file_location("quickstart", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


quickstart = load_recipe()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run as a reader would start it, smaller, and what it printed."""
    folder = tmp_path_factory.mktemp("quickstart")
    command = [sys.executable, RECIPE, "--json", "table.json"]
    run = subprocess.run(
        [*command, "--points", "1500", "--steps", "800"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return folder, run.stdout


def test_the_layers_end_where_exact_em_ends(finished):
    folder, _ = finished
    lloyd, hard, soft, few, many = json.loads((folder / "table.json").read_text())
    assert hard["inertia"] == pytest.approx(lloyd["inertia"], rel=0.02)
    assert many["inertia"] == pytest.approx(soft["inertia"], rel=0.02)
    assert few["inertia"] == pytest.approx(soft["inertia"], rel=0.02)
    assert max(few["off"], many["off"]) < 0.05
    for row in (lloyd, hard, soft, few, many):
        assert row["onward"] == pytest.approx(1, abs=0.03)
        assert 12 < row["perplexity"] <= quickstart.NUM_CODES
    for row, exact in [(hard, lloyd), (few, soft), (many, soft)]:
        assert row["steps"] == 800
        assert row["perplexity"] == pytest.approx(exact["perplexity"], rel=0.03)


def test_what_is_printed_is_what_was_measured(finished):
    folder, printed = finished
    for row in json.loads((folder / "table.json").read_text()):
        line = next(s for s in printed.splitlines() if s.startswith(row["method"]))
        assert f"{row['inertia']:.4f}" in line and f"{row['relative']:.4f}" in line
    assert "decay 0.95" in printed and "1500 points" in printed


def test_the_picture_is_a_picture_and_nothing_else_is_left(finished):
    folder, _ = finished
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files == {"out/quickstart.png", "table.json"}
    pixels = matplotlib.image.imread(folder / "out" / "quickstart.png")
    height, width = pixels.shape[:2]
    assert width == 1600 and height >= 600
    for panel in np.array_split(pixels, 3, axis=1):
        assert 0.02 < np.mean(panel[..., :3].min(axis=-1) < 0.9) < 0.5


@pytest.mark.parametrize(
    ("relative", "onward", "words"),
    [
        (1.005, 1.0, "the same within 1%."),
        (1.2, 1.0, "not the same within 1%.\n  Exact EM from there changes inertia "),
        (1.2, 1.0, "+0.00%: another local optimum."),
        (0.8, 0.9, "-10.00%: it is still on its way."),
    ],
)
def test_the_verdict_follows_the_numbers(relative, onward, words, capsys):
    row = dict.fromkeys(("steps", "inertia", "off", "perplexity", "seconds"), 1)
    row |= {"method": "Hard EM", "relative": relative, "onward": onward}
    quickstart.report([row] * 5)
    printed = capsys.readouterr().out
    assert f"{relative:.4f} times the inertia of k-means, " in printed
    assert words in printed and "not nearer with more draws" in printed
    assert ("not the same" in printed) == (relative != 1.005)


def test_without_matplotlib_the_remedy_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit):
        quickstart.main([])
    assert "pip install '.[recipes]'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--points", "15"), ("--steps", "0")])
def test_too_few_points_or_steps_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        quickstart.main(arguments)
    assert "at least" in capsys.readouterr().err


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path):
    old = tmp_path / "table.json"
    quickstart.write(old, lambda file: file.write_text("old"))

    def fail(file):
        file.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        quickstart.write(old, fail)
    assert old.read_text() == "old" and list(tmp_path.iterdir()) == [old]


@pytest.fixture(scope="module", params=[0, 1, 2])
def problem(request):
    rng = np.random.default_rng(request.param)
    points = quickstart.make_points(600, rng)
    return points, quickstart.spread_start(points, rng)


def test_lloyd_never_increases_inertia(problem):
    points, start = problem
    path = quickstart.exact_em(points, start, 0)
    inertias = [quickstart.inertia(points, codebook) for codebook in path]
    assert inertias[-1] < inertias[0] and np.all(np.diff(inertias) <= 1e-12)
    nearest = quickstart.squared_distances(points, path[-1]).argmin(axis=-1)
    means = [points[nearest == code].mean(axis=0) for code in range(len(start))]
    np.testing.assert_allclose(path[-1], means, atol=1e-5)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_exact_soft_em_never_decreases_the_likelihood(problem, temperature):
    points, start = problem

    def log_likelihood(codebook):
        # Of a mixture with equal weights and covariance T/2, but for a constant.
        distances = quickstart.squared_distances(points, codebook)
        return np.logaddexp.reduce(-distances / temperature, axis=-1).mean()

    path = quickstart.exact_em(points, start, temperature)
    likelihoods = np.array([log_likelihood(codebook) for codebook in path])
    assert likelihoods[-1] > likelihoods[0] and np.all(np.diff(likelihoods) >= -1e-12)


def test_the_posterior_is_a_softmax_and_hard_at_temperature_0(problem):
    points, codebook = problem
    shares = quickstart.posterior(points, codebook, 0.7)
    distances = quickstart.squared_distances(points, codebook).astype("float64")
    expected = np.exp(-distances / 0.7)
    expected /= expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(shares, expected, atol=1e-5)
    hard = quickstart.posterior(points, codebook, 0)
    np.testing.assert_array_equal(hard, np.eye(16)[distances.argmin(axis=-1)])
