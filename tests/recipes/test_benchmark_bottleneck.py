"""The benchmark at toy sizes: what it reports, not how fast anything is."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

RECIPES = pathlib.Path(__file__).parents[2] / "recipes"
TINY = ["--vectors", "64", "--dim", "8", "--codes", "16", "--rounds", "2"]
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
    assert {"cpu", "cores", "system", "others_share"} <= set(result["machine"])
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
    for name in ("torch_matmul", "vqp", "vqp_rotation", "sonnet", "keras_hub"):
        entry = result["contestants"][name]
        assert entry["status"] == "failed: exit code 3: no such library"
        [line] = [x for x in done.stdout.splitlines() if x.startswith(entry["label"])]
        assert line.endswith(entry["status"])
    assert [row["met"] for row in result["verdict"][3:]] == [None] * 5
    assert "ETA" in done.stderr and "warm-up" in done.stderr


@pytest.mark.parametrize(
    "lines, timeout, message",
    [
        (["exec sleep 60"], 0.5, "failed: no answer in 0.5 s"),
        (["exit 4"], 30, "failed: exit code 4: without a word"),
        (['echo \'{"error": "it broke", "missing": false}\''], 30, "it broke"),
        (['echo \'{"error": "no torch", "missing": true}\''], 30, "not installed"),
        (["echo not JSON"], 30, "failed: answered 'not JSON'"),
    ],
)
def test_a_worker_that_does_not_answer(recipe, tmp_path, lines, timeout, message):
    processes = recipe("bottleneck_processes")
    python = script(tmp_path / "python", *lines)
    worker = processes.Worker(python, tmp_path, 1, timeout)
    with pytest.raises(processes.WorkerFailed, match=message):
        worker.ask(run=1)
    assert worker.process.poll() is not None
    worker.close()


def test_an_interpreter_that_does_not_exist(recipe, tmp_path):
    processes = recipe("bottleneck_processes")
    with pytest.raises(processes.WorkerFailed, match="not installed: .*No such file"):
        processes.Worker(str(tmp_path / "nothing"), tmp_path, 1)


def test_a_library_that_is_not_installed(recipe, tmp_path):
    processes = recipe("bottleneck_processes")
    worker = processes.Worker(sys.executable, tmp_path, 1)
    spec = {"contestant": "sonnet", "num_codes": 16, "options": {}}
    with pytest.raises(processes.WorkerFailed, match="not installed: .*'sonnet'"):
        worker.ask(build=spec)
    assert worker.process.poll() == 0


def test_peers_without_an_interpreter_are_left_out(recipe):
    report = recipe("bottleneck_report")
    entries = {
        "hard": {"label": "ours", "seconds": [0.1, 0.3, 0.2]},
        "sonnet": {"label": "Sonnet", "status": "left out: no --peers interpreter"},
    }
    report.compare(entries)
    table = report.speed_table(entries)
    assert "Sonnet  left out: no --peers interpreter" in table
    assert "200.0" in table and "times_matmul" not in entries["hard"]


def test_verdict_meets_each_target_at_its_bound(recipe):
    report = recipe("bottleneck_report")
    medians = {"matmul": 100, "hard": 130, "soft10": 200, "soft50": 300}
    medians |= {"vqp": 650, "sonnet": 131, "keras_hub": 131}
    results = report.verdict(medians, {"hard": 599.9, "soft10": 0.0})
    assert [row["met"] for row in results] == [True] * 8
    assert [row["value"] for row in results[:4]] == pytest.approx([1.3, 2, 3, 5])


def test_verdict_fails_each_target_beyond_its_bound(recipe):
    report = recipe("bottleneck_report")
    medians = {"matmul": 100, "hard": 131, "soft10": 201, "soft50": 301}
    medians |= {"vqp": 654, "sonnet": 131, "keras_hub": 130}
    results = report.verdict(medians, {"hard": 600.0, "soft10": 601.0})
    assert [row["met"] for row in results] == [False] * 8
    lines = report.verdict_lines(results)
    assert lines.count("NOT met") == 8


def test_verdict_is_open_on_what_was_not_measured(recipe):
    results = recipe("bottleneck_report").verdict({"hard": 1.0}, {})
    assert {row["met"] for row in results} == {None}
    assert {row["value"] for row in results} == {None}


def test_growth_is_the_larger_of_resident_and_in_use(recipe):
    report = recipe("bottleneck_report")
    entry = {"baseline": 1e9, "first": 1.2e9, "later": 1.3e9}
    assert report.growth_mb(entry) == pytest.approx(300)
    assert report.growth_mb(entry | {"in_use": 4e8}) == pytest.approx(400)


def test_memory_table(recipe):
    entry = {"label": "ours", "before": 7e8, "baseline": 1e9, "state": 2e8}
    entry |= {"first": 1.2e9, "later": 1.3e9, "versions": {"keras": "3"}}
    failed = {"label": "theirs", "status": "failed: out of memory", "state": 2e8}
    entries = {"a": entry, "b": entry | {"in_use": 4e8}, "c": failed}
    _, _, *rows = recipe("bottleneck_report").memory_table(entries).splitlines()
    assert rows[0].split() == ["ours", "200", "200", "300", "-", "400"]
    assert rows[1].split() == ["ours", "200", "200", "300", "400", "400"]
    assert rows[2].split() == ["theirs", "failed:", "out", "of", "memory"]


def test_a_failed_write_leaves_the_old_file(recipe, tmp_path):
    report = recipe("bottleneck_report")
    path = tmp_path / "result.json"
    report.write_json(path, {"a": 1})
    with pytest.raises(ValueError):
        report.write_json(path, {"a": float("nan")})
    with pytest.raises(OSError):
        report.write_atomically(path, lambda name: open("/nowhere/at/all"))
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_plot_of_a_sweep(recipe, tmp_path):
    def points(axis):
        entries = {
            "matmul": {"label": "bare matmul", "median_ms": 2.0},
            "soft": {"label": "soft EM", "status": "failed: ..."},
        }
        return [{axis: size, "contestants": entries} for size in (4, 16)]

    report = recipe("bottleneck_report")
    sweep = {axis: points(axis) for axis in "Km"}
    report.write_plot(tmp_path / "plot.png", sweep, {"codes": 16})
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "2.0" in report.sweep_table("K", sweep["K"])


@pytest.mark.parametrize(
    "options, complaint",
    [
        (["--plot", "x.png"], "add --sweep"),
        (["--sweep", "--plot", "x.txt"], "writes .png"),
        (["--codes", "1"], "codes at least 2"),
        (["--rounds", "0"], "at least 1"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(
    recipe, capsys, options, complaint
):
    with pytest.raises(SystemExit):
        recipe("benchmark_bottleneck").parse(options)
    assert complaint in capsys.readouterr().err


@pytest.mark.slow
def test_memory_and_sweep(tmp_path):
    result, plot = tmp_path / "result.json", tmp_path / "plot.png"
    command = [sys.executable, RECIPES / "benchmark_bottleneck.py", *TINY]
    command += ["--memory-codes", "32", "--sweep", "--sweep-codes", "16", "32"]
    command += ["--sweep-samples", "1", "3", "--plot", plot, "--json", result]
    subprocess.run([str(part) for part in command], check=True, timeout=300)
    result = json.loads(result.read_text())
    for entry in result["memory"].values():
        assert entry["state"] == 4 * 32 * (8 + 3)
        assert max(entry["first"], entry["later"]) >= entry["baseline"] > 0
    assert [point["K"] for point in result["sweep"]["K"]] == [16, 32]
    assert [point["m"] for point in result["sweep"]["m"]] == [1, 3]
    for point in result["sweep"]["K"] + result["sweep"]["m"]:
        assert set(point["contestants"]) == {"matmul", "hard", "soft"}
        assert point["contestants"]["soft"]["times_matmul"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")
