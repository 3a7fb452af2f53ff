"""The trainers from end to end, on a corpus and models as small as they come."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import keras
import matplotlib.image
import numpy as np
import pytest

from keras_vqem import layers
from keras_vqem.models.loading import load_translator
from keras_vqem.training import Interrupted, list_checkpoints

FOLDER = pathlib.Path(__file__).parents[2] / "recipes"
RECIPES = [p.stem for p in FOLDER.glob("*.py") if "\ndef main(" in p.read_text()]

SMALL = [
    *(
        "--hidden-dim",
        "16",
        "--num-heads",
        "2",
        "--intermediate-dim",
        "16",
        "--max-shapes",
        "1",
    ),
    *("--num-encoder-layers", "1", "--num-decoder-layers", "1"),
    *("--tokens-per-batch", "256", "--average", "2"),
]
CODES = [
    "--num-codes",
    "8",
    "--num-samples",
    "2",
    "--num-predictor-layers",
    "1",
    "--bypass-steps",
    "3",
    "--warmup-steps",
    "5",
]


@pytest.fixture(scope="module")
def runs(tiny, recipe, tmp_path_factory):
    """A teacher, and a LatentNMT that started from it, each trained for two epochs."""
    folder = tmp_path_factory.mktemp("runs")
    common = ["--data", str(tiny.data.folder), *SMALL, "--epochs", "2"]
    teacher, latent = folder / "teacher", folder / "latent"
    # More checkpoints than there will be.
    recipe("train_transformer").main([*common, "--run", str(teacher), "--average", "5"])
    recipe("train_latent_nmt").main(
        [*common, *CODES, "--run", str(latent), "--teacher", str(teacher)]
    )
    return folder


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").open()]


def test_a_run_leaves_its_record(runs):
    for name in ("teacher", "latent"):
        found = metrics(runs / name)
        assert [line["epoch"] for line in found] == [1, 2]
        assert found[1]["loss"] < found[0]["loss"]
        assert all("val_bleu" in line for line in found)
        assert len(list_checkpoints(runs / name / "checkpoints")) == 2
        assert list((runs / name / "tensorboard").rglob("events*"))
        assert "epoch 2/2" in (runs / name / "log.txt").read_text()
    codes = {"code_nll", "bottleneck_loss", "perplexity", "usage"}
    bleu = {"val_teacher_forced_bleu", "val_random_codes_bleu"}
    assert codes | bleu <= set(metrics(runs / "latent")[0])


def test_the_saved_model_is_the_mean_of_its_checkpoints(runs):
    model = keras.saving.load_model(runs / "teacher" / "model.keras", compile=False)
    files = list_checkpoints(runs / "teacher" / "checkpoints")
    for position, weight in enumerate(model.weights):
        values = []
        for path in files:
            with np.load(path) as arrays:
                (key,) = (k for k in arrays if k.startswith(f"weights/{position:05d}/"))
                values.append(arrays[key])
        np.testing.assert_allclose(weight, np.mean(values, axis=0), atol=1e-6)


@pytest.mark.slow
def test_a_stopped_run_goes_on_as_if_it_had_not(runs, tiny, recipe, capsys):
    whole = metrics(runs / "latent")
    run = runs / "latent"
    (run / "checkpoints" / "epoch-0002.npz").unlink()
    arguments = ["--data", str(tiny.data.folder), *SMALL, "--epochs", "2", *CODES]
    arguments += ["--run", str(run), "--teacher", str(runs / "teacher")]
    with pytest.raises(FileExistsError, match="--resume"):
        recipe("train_latent_nmt").main([*arguments, "--verbose"])
    for more, words in (
        ([], "Use --resume"),
        (["--resume", "--hidden-dim", "32"], "hidden_dim: the run has 16, received 32"),
    ):
        with pytest.raises(SystemExit) as stopped:
            recipe("train_latent_nmt").main([*arguments, *more])
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert error.startswith("train_latent_nmt.py: error: ") and words in error
    recipe("train_latent_nmt").main([*arguments, "--resume"])
    again = metrics(run)
    assert again[0] == whole[0]
    for key, value in whole[1].items():
        if "seconds" not in key:
            np.testing.assert_allclose(again[1][key], value, rtol=1e-6, err_msg=key)


def test_curves_of_runs(runs, recipe, tmp_path):
    plot_runs = recipe("plot_runs")
    arguments = ["--run", f"soft EM={runs / 'latent'}"]
    plot_runs.main([*arguments, "--output", str(tmp_path / "curves.png")])
    picture = matplotlib.image.imread(tmp_path / "curves.png")
    blue = np.all(np.abs(picture[..., :3] - (0, 0x72 / 255, 0xB2 / 255)) < 0.02, -1)
    assert picture.shape[1] > picture.shape[0] and blue.sum() > 100
    other = [*arguments, "--against", "minutes", "--output", str(tmp_path / "m.png")]
    plot_runs.main(other)
    assert np.any(matplotlib.image.imread(tmp_path / "m.png") != picture)
    with pytest.raises(SystemExit):
        plot_runs.main([*other, "--metrics", "val_blue"])
    with pytest.raises(SystemExit):
        plot_runs.main(["--run", "x=nowhere", "--output", str(tmp_path / "x.png")])


@pytest.mark.slow
def test_numbers_demo_learns(recipe, tmp_path):
    path = tmp_path / "numbers.json"
    recipe("numbers_demo").main(
        ["--steps", "300", "--pairs", "20000", "--json", str(path)]
    )
    results = json.loads(path.read_text())["results"]
    assert results["Transformer"]["exact_match"] > 0.5
    assert results["LatentNMT"]["exact_match"] > 0.2


@pytest.mark.slow
def test_a_finished_run_can_be_averaged_anew(runs, tiny, recipe, tmp_path):
    run = shutil.copytree(runs / "teacher", tmp_path / "copy")
    before = metrics(run)
    arguments = ["--data", str(tiny.data.folder), *SMALL, "--epochs", "2"]
    recipe("train_transformer").main(
        [*arguments, "--run", str(run), "--resume", "--average", "1"]
    )
    assert metrics(run) == before
    model = keras.saving.load_model(run / "model.keras", compile=False)
    with np.load(list_checkpoints(run / "checkpoints")[-1]) as arrays:
        (key,) = (k for k in arrays if k.startswith("weights/00000/"))
        np.testing.assert_allclose(model.weights[0], arrays[key], atol=1e-6)


def test_other_data_do_not_continue_a_run(runs, tiny, recipe, tmp_path, capsys):
    folder = tmp_path / "data"
    shutil.copytree(tiny.data.folder, folder)
    run = tmp_path / "run"
    arguments = ["--data", str(folder), *SMALL, "--run", str(run), "--epochs", "1"]
    recipe("train_transformer").main(arguments)
    path = folder / "train.de"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:-1], lines[0]]))
    with pytest.raises(SystemExit):
        recipe("train_transformer").main([*arguments, "--resume"])
    assert "started with another data" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_on_three_replicas_goes_on_on_one(tiny, recipe, tmp_path):
    """In a process of its own: TensorFlow's collectives do not like two strategies."""
    run, script = tmp_path / "run", recipe("train_transformer").__file__
    arguments = ["--data", tiny.data.folder, *SMALL, "--run", run, "--epochs", "2"]
    arguments += ["--precision", "mixed_bfloat16", "--accumulation-steps", "2"]
    command = [sys.executable, script, *arguments, "--strategy", "mirrored:3"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found = metrics(run)
    assert found[1]["loss"] < found[0]["loss"]
    shutil.rmtree(run / "checkpoints")  # It trains again from the start.
    recipe("train_transformer").main([*map(str, arguments), "--resume"])
    again = metrics(run)
    assert len(again) == 2 and again[1]["loss"] < again[0]["loss"]
    model = keras.saving.load_model(run / "model.keras", compile=False)
    assert len(model.translate(["five", "ten past two"])) == 2


def test_first_steps_are_scaled_to_a_short_run(runs, tiny, recipe):
    batches = tiny.data.batches("train", 256, max_shapes=1, length_multiple=1)
    steps = 2 * batches.steps_per_epoch
    assert 8 <= steps < 800
    log = (runs / "teacher" / "log.txt").read_text()
    short = f"--warmup-steps {steps // 4}: the run is too short for the usual 800 steps"
    assert short in log and "the mean of the last 2 checkpoints: num_beams" in log
    model = keras.saving.load_model(runs / "teacher" / "model.keras")
    rate = model.optimizer.get_config()["learning_rate"]["config"]
    assert rate["warmup_steps"] == steps // 4
    config = json.loads((runs / "teacher" / "config.json").read_text())
    assert config["arguments"]["warmup_steps"] is None
    # Given numbers are taken as they are.
    latent = keras.saving.load_model(runs / "latent" / "model.keras")
    rate = latent.optimizer.get_config()["learning_rate"]["config"]
    assert (rate["warmup_steps"], latent.bypass_steps) == (5, 3)
    assert "too short" not in (runs / "latent" / "log.txt").read_text()


@pytest.mark.parametrize(
    ("given", "most", "chosen"),
    [(None, 140, 140), (None, 1500, 1500), (None, 9000, 1500), (None, 0, 1)]
    + [(0, 140, 0), (1500, 140, 1500)],
)
def test_a_number_of_first_steps(recipe, given, most, chosen):
    said = []
    run, arguments = SimpleNamespace(log=said.append), SimpleNamespace(bypass=given)
    found = recipe("arguments").steps_for(run, arguments, "bypass", 1500, most)
    assert found == chosen
    assert len(said) == (given is None and chosen != 1500)


def test_flags_that_exclude_each_other_are_told_before_anything_is_made(
    recipe, tmp_path, capsys
):
    arguments = ["--data", "nowhere", "--run", str(tmp_path / "run")]
    for more, words in (
        (["--jit", "--strategy", "mirrored:2"], "--jit does not work with --strategy"),
        (["--average", "0"], "0 is not at least 1"),
        (["--epochs", "0"], "--epochs: 0 is not at least 1"),
        (["--learning-rate", "-1"], "--learning-rate: -1 is not a number above 0"),
        (["--label-smoothing", "2"], "--label-smoothing: 2 is not a number from 0 to"),
        ([], "nowhere"),
    ):
        with pytest.raises(SystemExit) as stopped:
            recipe("train_transformer").main([*arguments, *more])
        assert stopped.value.code == 2 and words in capsys.readouterr().err
        assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(
    "error, status, words",
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (Interrupted("It is saved.", signal.SIGTERM), 143, "It is saved."),
    ],
)
def test_signals_end_with_the_status_of_shells(recipe, capsys, error, status, words):
    @recipe("arguments").user_errors
    def main(arguments=None):
        raise error

    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == status
    assert capsys.readouterr().err == f"{pathlib.Path(__file__).name}: {words}\n"


@pytest.mark.parametrize("name", RECIPES)
def test_help_is_quick_and_says_what_each_flag_does(recipe, name):
    script = """if True:
        import runpy, sys
        sys.argv = [sys.argv[1], "--help"]
        sys.path.insert(0, sys.argv[0].rpartition("/")[0])
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        finally:
            quick = "translate.py" not in sys.argv[0]  # it has the command's flags
            assert not quick or not {"tensorflow", "keras"} & set(sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", script, recipe(name).__file__],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    flags = re.findall(r"^  (?:-h, )?(--[\w-]+)(.*)$", done.stdout, re.MULTILINE)
    assert flags
    # A flag, its metavar and choices, then at least two words of help; a long flag has
    # them on the next line.
    for flag, rest in flags:
        help = re.sub(r"^( [A-Z/]+)*( \{.*?\})?", "", rest)
        if not help.strip():
            help = done.stdout.split(f"  {flag}{rest}\n")[1].splitlines()[0]
        assert len(help.split()) >= 2, f"{flag} has no help"


def test_bottlenecks_of_the_recipe(recipe):
    train = recipe("train_latent_nmt")

    def made(*options, steps=100):
        arguments = train.parse(["--data", "x", "--run", "y", *options])
        return train.make_bottleneck(arguments, steps)

    for name in ("em", "vq", "gumbel", "semhash"):
        layer = made("--bottleneck", name, "--groups", "2", "--num-codes", "8")
        assert layer.num_codes == 8 and layer.groups.num_codebooks == 2
        assert made("--bottleneck", name).groups.num_groups == 1
    # The temperature ends where the run ends.
    temperature = made("--bottleneck", "gumbel", steps=50).temperature.serialize()
    assert temperature["config"]["decay_steps"] == 50
    assert made("--bottleneck", "semhash", "--num-codes", "64").num_bits == 6


def test_variants_of_the_recipe(recipe, capsys):
    train, variants = recipe("train_latent_nmt"), recipe("variants")

    def parsed(*options):
        return train.parse(["--data", "x", "--run", "y", *options])

    def made(*names):
        return train.make_bottleneck(parsed("--variants", *names), 100)

    layer = made("paper-averages", "norm-commitment", "mode", "hard-labels")
    assert type(layer.averages) is layers.PaperAverages and layer.decay == 0.99
    assert type(layer.commitment_loss) is layers.NormCommitment
    assert (layer.draws.decoder, layer.draws.labels) == ("mode", "mode")
    assert layer.num_samples == 10 and layer.commitment_weight == 0.25
    layer = made("reference-averages", "one-draw", "learned-prior")
    assert type(layer) is layers.LearnedPriorVQEMBottleneck
    assert type(layer.averages) is layers.ReferenceAverages
    assert (layer.draws.decoder, layer.draws.labels) == ("draw", "draws")
    plain = train.make_bottleneck(parsed(), 100)
    assert type(plain) is layers.VQEMBottleneck and plain.get_config()["decay"] == 0.99

    assert variants.word_output(None, 900) is None
    assert variants.word_output(["causal-decoder"], 900).gold_steps == 0
    assert variants.word_output(["gold-targets"], 900).gold_steps == 300
    assert variants.word_output(["gold-targets"], 900_000).gold_steps == 50_000

    for options, words in (
        (["mode", "one-draw"], "choose one of them"),
        (["mode", "--num-samples", "0"], "is hard EM"),
        (["paper-averages", "--bottleneck", "vq"], "not of vq"),
        (["gold-targets", "--word-output", "ctc"], "not of ctc"),
        (["oracle"], "invalid choice"),
    ):
        with pytest.raises(SystemExit) as stopped:
            train.main(["--data", "x", "--run", "y", "--variants", *options])
        assert stopped.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_as_the_paper_writes(tiny, recipe, tmp_path):
    names = ["paper-averages", "norm-commitment", "hard-labels", "learned-prior"]
    names += ["causal-encoder", "gold-targets"]
    arguments = ["--data", str(tiny.data.folder), *SMALL, *CODES, "--epochs", "1"]
    recipe("train_latent_nmt").main(
        [*arguments, "--run", str(tmp_path / "run"), "--variants", *names]
    )
    model = load_translator(tmp_path / "run")
    assert model.encoder.causal and model.decoder.causal
    assert model.word_output.gold_steps >= 1 and model.bottleneck.num_labels == 1
    assert np.isfinite(metrics(tmp_path / "run")[0]["loss"])
