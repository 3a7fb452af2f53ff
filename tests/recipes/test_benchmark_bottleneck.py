"""The benchmark at toy sizes: what it reports, not how fast anything is."""

import functools
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_vqem.evaluation import benchmark_report

RECIPES = pathlib.Path(__file__).parents[2] / "recipes"
TINY = ["--vectors", "64", "--dim", "8", "--num-codes", "16", "--rounds", "2"]
OURS = ["matmul", "hard", "soft10", "soft50"]


@pytest.fixture
def recipe(monkeypatch):
    """Imports a module of the recipes."""
    monkeypatch.syspath_prepend(str(RECIPES))
    return __import__


def script(path, *lines):
    """A program that stands in for the interpreter with the peers."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run of the recipe, with peers that die: its output and its JSON."""
    folder = tmp_path_factory.mktemp("benchmark")
    peers = script(folder / "peers", "echo no such library >&2", "exit 3")
    result = folder / "deep" / "result.json"
    command = [sys.executable, RECIPES / "benchmark_bottleneck.py", *TINY]
    command += ["--no-memory", "--peers", peers, "--json", result]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob("deep/tmp*"))
    return done, json.loads(result.read_text())


def test_json_holds_what_is_needed_to_repeat_the_run(run):
    _, result = run
    assert result["sizes"] == {
        "vectors": 64,
        "dim": 8,
        "codes": 16,
        "memory_codes": 65536,
    }
    assert result["seed"] == 0
    assert result["rounds"] == 2
    assert result["threads"] >= 1
    assert {"processor", "cores", "system", "others_share"} <= set(result["machine"])
    assert {"python", "keras", "tensorflow", "keras-vqem"} <= set(
        result["versions"]["here"]
    )


def test_ratios_are_those_of_the_medians_of_the_samples(run):
    _, result = run
    contestants = result["contestants"]
    medians = {name: np.median(contestants[name]["seconds"]) for name in OURS}
    for name in OURS:
        entry = contestants[name]
        assert len(entry["seconds"]) == 2 * result["steps_per_round"]
        assert entry["median_ms"] == pytest.approx(1e3 * medians[name])
        assert entry["p10_ms"] <= entry["median_ms"] <= entry["p90_ms"]
        ratio = medians[name] / medians["matmul"]
        assert entry["times_matmul"] == pytest.approx(ratio)
        ratio = medians[name] / medians["hard"]
        assert entry["times_hard_em"] == pytest.approx(ratio)
    values = [row["value"] for row in result["verdict"][:3]]
    assert values == pytest.approx([contestants[n]["times_matmul"] for n in OURS[1:]])


def test_the_first_step_takes_the_nearest_codes(run):
    _, result = run
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(64, 8)).astype("float32")
    codebook = np.random.default_rng([0, 16]).normal(size=(16, 8)).astype("float32")
    distances = np.square(vectors[:, None] - codebook).sum(axis=-1)
    nearest = distances.min(axis=-1).mean() / 8
    assert result["contestants"]["hard"]["mse"] == pytest.approx(nearest, rel=1e-5)
    assert result["contestants"]["hard"]["gradient_error"] < 0.01
    assert result["contestants"]["soft10"]["different_draws"] > 2


def test_peers_that_die_are_rows(run):
    done, result = run
    for name in ("torch_matmul", "vqp", "vqp_compiled", "sonnet", "keras_hub"):
        entry = result["contestants"][name]
        assert entry["status"] == "failed: exit code 3: no such library"
        [line] = [x for x in done.stdout.splitlines() if x.startswith(entry["label"])]
        assert line.endswith(entry["status"])
    assert {row["met"] for row in result["verdict"][3:]} == {None}
    assert "ETA" in done.stderr and "warm-up" in done.stderr


def verdict_of(recipe):
    """The verdict on the targets of the recipe, and medians at its sweep's targets."""
    benchmark = recipe("benchmark_bottleneck")
    targets = [benchmark_report.Target(*target) for target in benchmark.TARGETS]
    swept = {}
    for size, hard, soft in benchmark.SWEEP_TARGETS:
        swept |= {benchmark.at(size): 100.0}
        swept |= {benchmark.at(size, "hard"): 100 * hard}
        swept |= {benchmark.at(size, "soft"): 100 * soft}
    return functools.partial(benchmark_report.verdict, targets), swept


def test_verdict_meets_each_target_at_its_bound(recipe):
    verdict, swept = verdict_of(recipe)
    medians = {"matmul": 100, "hard": 115, "soft10": 140, "soft50": 180}
    medians |= {"vqp": 575, "sonnet": 116, "keras_hub": 116}
    results = verdict(medians | swept, {"hard": 599.9, "soft10": 0.0})
    assert [row["met"] for row in results] == [True] * (8 + 8)
    assert [row["value"] for row in results[:4]] == pytest.approx([1.15, 1.4, 1.8, 5])


def test_verdict_fails_each_target_beyond_its_bound(recipe):
    verdict, swept = verdict_of(recipe)
    medians = {"matmul": 100, "hard": 116, "soft10": 141, "soft50": 181}
    medians |= {"vqp": 579, "sonnet": 116, "keras_hub": 115}
    slower = {k: v + 1 if v != 100 else v for k, v in swept.items()}
    results = verdict(medians | slower, {"hard": 600.0, "soft10": 601.0})
    assert [row["met"] for row in results] == [False] * (8 + 8)
    lines = benchmark_report.verdict_lines(results)
    assert lines.count("NOT met") == 8 + 8


def test_verdict_is_open_on_what_was_not_measured(recipe):
    results = verdict_of(recipe)[0]({"hard": 1.0}, {})
    assert {row["met"] for row in results} == {None}
    assert {row["value"] for row in results} == {None}


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--plot", "x.png"], "add --sweep"),
        (["--sweep", "--plot", "x.txt"], "writes .png"),
        (["--num-codes", "1"], "codes at least 2"),
        (["--rounds", "0"], "at least 1"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(
    recipe, capsys, options, complaint
):
    with pytest.raises(SystemExit):
        recipe("benchmark_bottleneck").parse(options)
    assert complaint in capsys.readouterr().err


def test_every_other_quantizer_is_a_row(recipe):
    benchmark, table = recipe("benchmark_bottleneck"), recipe("compared_bottlenecks")
    rows = benchmark.member_entries()
    assert set(rows) | benchmark.STANDS_FOR == set(table.QUANTIZERS)
    assert rows["vq"].label == "keras_vqem VQ, by gradient" and not rows["vq"].peer
    assert list(rows).index("vqp_product") == list(rows).index("product") + 1
    assert rows["vqp_product"].peer
    assert set(benchmark.entries_to_time(benchmark.parse([]))).isdisjoint(rows)
    assert set(rows) < set(benchmark.entries_to_time(benchmark.parse(["--members"])))


def test_a_profile_adds_up(recipe, tmp_path):
    benchmark, contestants = (
        recipe("benchmark_bottleneck"),
        recipe("bottleneck_contestants"),
    )
    contestants.make_data(tmp_path, 64, 8, seed=0)
    # Threads stay what they are: TensorFlow has started in this process.
    import tensorflow as tf

    threads = tf.config.threading.get_intra_op_parallelism_threads()
    options = ["--vectors", "64", "--dim", "8", "--num-codes", "16"]
    args = benchmark.parse(options)
    args.threads = threads
    header, _, *rows = benchmark.profiled(args, tmp_path).splitlines()
    assert header.split()[-4:] == list(benchmark.PROFILED)
    numbers = [[float(cell) for cell in row.split()[-4:]] for row in rows]
    *parts, whole = np.array(numbers)
    np.testing.assert_allclose(np.sum(parts, axis=0), whole, atol=0.1)


@pytest.mark.parametrize("name", ["residual", "finite_scalar", "semantic_hashing"])
def test_members_take_steps(recipe, name, tmp_path):
    contestants = recipe("bottleneck_contestants")
    contestants.make_data(tmp_path, 32, 8, seed=0)
    contestants.make_codebook(tmp_path, 16, 8, seed=0)
    make, _ = contestants.CONTESTANTS["keras_member"]
    member = make(contestants.load_data(tmp_path, 16), name=name)
    assert 0 < member.check(2)["mse"] < 10


@pytest.mark.slow
def test_memory_and_sweep(tmp_path):
    result, plot = tmp_path / "result.json", tmp_path / "plot.png"
    command = [sys.executable, RECIPES / "benchmark_bottleneck.py", *TINY]
    command += ["--memory-codes", "32", "--sweep", "--sweep-codes", "16", "256"]
    command += ["--sweep-samples", "1", "3", "--plot", plot, "--json", result]
    subprocess.run([str(part) for part in command], check=True, timeout=300)
    result = json.loads(result.read_text())
    for entry in result["memory"].values():
        assert entry["state"] == 4 * 32 * (8 + 3)
        assert max(entry["first"], entry["later"]) >= entry["baseline"] > 0
    assert [point["K"] for point in result["sweep"]["K"]] == [16, 256]
    swept = result["sweep"]["K"][1]["contestants"]
    judged = [row["value"] for row in result["verdict"] if "K=256" in row["target"]]
    ratios = [swept[name]["times_matmul"] for name in ("hard", "soft")]
    assert judged == pytest.approx(ratios)
    assert [point["m"] for point in result["sweep"]["m"]] == [1, 3]
    for point in result["sweep"]["K"] + result["sweep"]["m"]:
        assert set(point["contestants"]) == {"matmul", "hard", "soft"}
        assert point["contestants"]["soft"]["times_matmul"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")
