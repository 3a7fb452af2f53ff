"""The tables of the paper: every command is one that its recipe accepts, and pages."""

import argparse
import json
import re
from pathlib import Path

import arguments
import paper_pages
import paper_plan
import pytest
from paper_scales import SCALES
from paper_tables import MODELS, TABLES

from keras_vqem.training.jobs import Jobs

ROOT = Path(__file__).parents[2]
SIZES = ("num_heads", "intermediate_dim", "num_encoder_layers", "num_decoder_layers")


@pytest.fixture(scope="module")
def reproduce(recipe):
    return recipe("reproduce")


@pytest.fixture
def data(tmp_path):
    """A folder with the names of Multi30k's files."""
    folder = tmp_path / "data" / "multi30k"
    folder.mkdir(parents=True)
    for stem in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            (folder / f"{stem}.{language}").touch()
    return folder.parent


@pytest.fixture
def plan(tmp_path, data):
    def plan(*tables, scale="smoke", **options):
        tables = tables or TABLES
        return paper_plan.Plan(tables, scale, tmp_path / "work", data, **options)

    return plan


def all_jobs(plan):
    compared = [plan.comparison(table, set(plan.jobs)) for table in plan.tables]
    return [*plan.jobs.values(), *(job for job in compared if job)]


class Parsed(Exception):
    """Raised in place of what a recipe does with its arguments."""


@pytest.fixture
def parse(recipe, monkeypatch):
    """Function from a command to parser and options, by the recipe's own parser."""

    def parse_args(self, args=None, namespace=None):
        options = argparse.ArgumentParser.parse_args(self, args, namespace)
        raise Parsed(self, options)

    monkeypatch.setattr(arguments.Parser, "parse_args", parse_args)
    modules = {}

    def parse(command):
        name = Path(command[1]).stem
        assert Path(command[1]).is_file()
        if name not in modules:
            modules[name] = recipe(name)
        with pytest.raises(Parsed) as parsed:
            modules[name].main([str(word) for word in command[2:]])
        return parsed.value.args

    return parse


@pytest.mark.parametrize("scale", SCALES)
def test_recipes_accept_every_command(plan, parse, scale):
    made = plan(scale=scale)
    jobs = all_jobs(made)
    assert len(jobs) > 60
    assert len({job.name for job in jobs}) == len(jobs)
    assert len({str(job.output) for job in jobs}) == len(jobs)
    for job in jobs:
        _, options = parse(job.command)
        if job.epochs:
            assert options.epochs == job.epochs and options.resume
            assert Path(options.run) == job.output
        # What a command reads was made before.
        for need in job.needs:
            assert need in made.jobs
    Jobs(jobs, made.work)  # which refuses a wrong order


# Of the process, or of what the paper's models do not have.
NOT_OF_THE_PAPER = {
    *("help", "verbose", "run", "resume", "data", "teacher", "start_from", "jit"),
    *("keep_best", "checkpoint_minutes", "checkpoint_steps", "attend_source"),
    *("final_temperature", "upsample", "dataset", "size", "steps_per_epoch"),
    *("num_mixtures", "num_blocks", "pixel_channels", "num_pixel_blocks"),
    *("autoencoder", "soft_labels", "languages", "weights", "tokenizer", "output"),
    *("numbers", "back_translate", "sources", "tag", "weight", "patience"),
    *("rescorer", "shard", "model", "variants", "class_conditional"),
    *("grouped", "cell_size", "group_features", "group_channels", "group_blocks"),
    *(
        f"{split}_{side}"
        for split in ("train", "val", "test")
        for side in paper_plan.SIDES
    ),
}


def test_at_the_papers_scale_nothing_is_left_to_small_defaults(plan, parse):
    steps = ("prepare_translation", "distill", "train_")
    for job in plan(scale="paper").jobs.values():
        parser, _ = parse(job.command)
        if not Path(job.command[1]).stem.startswith(steps):
            continue
        for action in parser._actions:
            given = set(action.option_strings) & set(job.command)
            assert given or action.dest in NOT_OF_THE_PAPER, (job.name, action.dest)


def test_the_papers_own_settings(plan, parse):
    jobs = plan(scale="paper").jobs
    _, em = parse(jobs["em10"].command)
    assert (em.num_codes, em.num_samples, em.hidden_dim) == (4096, 10, 512)
    assert (em.temperature, em.decay, em.num_compress_steps) == (1, 0.999, 3)
    assert (em.bypass_steps, em.dead_code_threshold, em.predicted_share) == (0, 0, 0)
    assert em.teacher is None and em.data.endswith("distilled")
    _, image = parse(jobs["image_em5"].command)
    assert (image.channels, image.code_dim, image.num_codes) == (512, 512, 256)
    assert (image.num_samples, image.likelihood) == (5, "categorical")
    _, prior = parse(jobs["image_em5_prior"].command)
    assert (prior.num_layers, prior.context, prior.soft_labels) == (6, "previous", True)
    assert parse(jobs["data"].command)[1].vocabulary == 32000


def test_the_figure_has_none_of_our_stabilisers(plan, parse):
    for name, job in plan("stability", scale="small").jobs.items():
        if "stability" not in name:
            continue
        _, options = parse(job.command)
        assert options.num_codes == 2048 and options.teacher is None
        assert (options.temperature, options.decay) == (1, 0.999)
        assert (options.bypass_steps, options.dead_code_threshold) == (0, 0)
        assert options.attend_source == ("noattend" not in name)
        assert options.learning_rate == (0.004 if "fast" in name else 0.002)
        assert options.data.endswith("gold") and options.validate_every == 1


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_models_that_start_from_the_teacher_have_its_sizes(plan, parse, scale):
    made = plan(scale=scale)
    if scale == "smoke":
        teacher = vars(parse(made.jobs["teacher"].command)[1])
    else:
        file = ROOT / "saved_models" / SCALES[scale].teacher / "config.json"
        teacher = {
            key: int(number)
            for key, number in re.findall(r'"(\w+)": (\d+)', file.read_text())
        }
    started = [job for job in made.jobs.values() if "--teacher" in job.command]
    assert len(started) > 20
    for job in started:
        options = vars(parse(job.command)[1])
        for name in ("hidden_dim", *SIZES):
            assert options[name] == teacher[name], (job.name, name)


def test_a_missing_recipe_leaves_its_rows_out(plan, monkeypatch):
    monkeypatch.setitem(
        MODELS, "fertility", MODELS["fertility"]._replace(recipe="train_nothing")
    )
    made = plan("translation")
    reason = "left out: recipes/train_nothing.py is missing"
    assert made.left_out["fertility"] == reason
    assert "fertility" not in made.jobs
    assert "--num-samples" not in made.comparison("translation", set(made.jobs)).command


def test_only_some_rows(plan):
    made = plan("samples", only=["em50"])
    assert list(made.jobs) == ["data", "teacher", "distilled", "em50"]
    assert [row.model for row in made.tables["samples"].rows] == ["teacher"] * 2 + [
        "em50"
    ]
    seed = plan("samples", only=["em50"], seed=2)
    assert list(seed.jobs) == ["data", "teacher", "distilled", "em50_seed2"]
    assert seed.jobs["em50_seed2"].output.name == "em50_seed2"


def test_a_failed_row_is_left_out_of_the_comparison(plan):
    made = plan("codebook-size")
    job = made.comparison("codebook-size", set(made.jobs) - {"hard_gold_k14"})
    text = " ".join(job.command)
    assert "hard_gold_k16" in text and "hard_gold_k14" not in text
    assert made.comparison("codebook-size", {"data"}) is None


def test_prepared_data_and_another_teacher_are_used(plan, data):
    (data / "multi30k" / "data.json").touch()
    made = plan("samples", scale="small", teacher="runs/mine")
    assert "data" not in made.jobs and "teacher" not in made.jobs
    distill = made.jobs["distilled"].command
    assert str(data / "multi30k") in distill and "runs/mine" in distill


def entry(name, beams, bleu, ms, **more):
    return {
        "name": f"{name}, {'greedy' if beams == 1 else f'{beams} beams'}",
        "translator": name,
        "num_beams": beams,
        "bleu": bleu,
        "bleu_signature": "nrefs:1",
        "latency": {"1": {"median_ms": ms, "speedup": {"teacher, 4 beams": 40 / ms}}},
        **more,
    }


def test_a_page_has_the_papers_numbers_beside_ours(plan, tmp_path):
    made = plan("translation")
    states = dict.fromkeys(made.jobs, "done") | {"hard": "failed: out of memory"}
    job = made.comparison("translation", {n for n, s in states.items() if s == "done"})
    codes = {"perplexity": 9.0, "bleu_from_own_codes": 50.0}
    entries = [entry("teacher", 1, 30.0, 20), entry("teacher", 4, 31.0, 40)]
    for model in made.compared("translation", set(made.jobs) - {"hard"})[1:]:
        entries += [entry(model, 1, 25.25, 10, codes=codes), entry(model, 4, 26.0, 12)]
    report = {"entries": entries, "data": "numbers", "split": "test", "sentences": 9}
    report["machine"] = {"processor": "any", "cores": 2, "gpus": 0}
    job.output.parent.mkdir(parents=True)
    job.output.write_text(json.dumps(report))
    output = tmp_path / "pages"
    typed = f"python recipes/reproduce.py translation --work {made.work}"
    page = paper_pages.write(
        made, "translation", job, states | {job.name: "done"}, output, typed
    )
    text = page.read_text()
    lines = {}
    for line in text.splitlines():
        lines.setdefault(line.split(" | ")[0].strip("| "), line)
    beam = lines["Autoregressive Model (beam size=4)"]
    assert "| 28.1 | 331 | 1.00x | 31.00 | 40.0 | 1.00x |" in beam
    greedy = lines["Autoregressive Baseline (no beam-search)"]
    assert "| 27.0 | 265 | 1.25x | 30.00 | 20.0 | 2.00x |" in greedy
    em = lines["VQ-VAE with EM + distillation"]
    expected = "| 3 | 10 | 26.7 | 81 | 4.08x | 25.25 | 10.0 | 4.00x | 50.00 | 9 |"
    assert expected in em
    assert "| 3 | - | 19.8 | 105 | 3.15x | 25.25 |" in lines["LT + Semhash"]
    failed = lines["VQ-VAE + distillation (failed: out of memory)"]
    assert "| 3 | - | 26.4 | 81 | 4.08x |  |" in failed
    nat = next(line for name, line in lines.items() if "NAT + distillation" in name)
    assert "15.60x*" in nat and "the paper says 408 ms" in text
    assert "reproduce.py translation --work WORK\n" in text
    assert "9 sentences" in text and "`nrefs:1`" in text
    assert "--run WORK/runs/em10 " in text and str(tmp_path) not in text
    stored = (output / "translation.json").read_text()
    assert str(tmp_path) not in stored
    stored = json.loads(stored)
    row = next(row for row in stored["rows"] if row["model"] == "em10")
    assert row["paper"]["bleu"] == 26.7 and row["ours"]["bleu"] == 25.25
    assert row["flags"]["num_codes"] == 4096 and row["flags_here"]["num_codes"] == 16


def test_the_figure_is_drawn_from_metrics(plan, tmp_path):
    made = plan("stability", only=["hard_stability", "em5_stability"])
    for name, bleu in (("hard_stability", [9, 1]), ("em5_stability", [8, 10])):
        folder = made.folder(name)
        folder.mkdir(parents=True)
        lines = [
            {"epoch": n, "training_seconds": 60 * n, "perplexity": 5.0}
            | {"val_teacher_forced_bleu": score, "val_random_codes_bleu": 0.5}
            for n, score in enumerate(bleu, start=1)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics.jsonl").write_text(text)
    states = dict.fromkeys(made.jobs, "done")
    page = paper_pages.write(made, "stability", None, states, tmp_path / "pages", "x")
    text = page.read_text()
    assert "| hard EM | yes | 0.0014 | - | 9.00 | 1.00 | 0.50 | 5 | 2 |" in text
    assert "| soft EM | yes | 0.0014 | 5 | 10.00 | 10.00 | 0.50 | 5 | 2 |" in text
    picture = "stability_attention_rate_0.0014.png"
    assert f"({picture})" in text and (page.parent / picture).stat().st_size > 1000


def test_bits_and_pictures(plan, tmp_path):
    made = plan("cifar", "reconstructions", only=["image_em5"])
    file = made.bits_file("image_em5")
    file.parent.mkdir(parents=True)
    bits = {"total": 4.5, "reconstruction": 3.5, "prior": 1.0}
    notes = ["the paper's accounting: 4.4"]
    file.write_text(json.dumps({"rows": {"predictor": bits}, "notes": notes}))
    picture = made.jobs["pictures image_em5"].output
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"png")
    states, output = dict.fromkeys(made.jobs, "done"), tmp_path / "pages"
    text = paper_pages.write(made, "cifar", None, states, output, "x").read_text()
    assert "| EM | 256 (here 16) | 5 | 4.80 | 4.500 | 3.500 | 1.000 |  |" in text
    assert "EM: the paper's accounting: 4.4" in text
    page = paper_pages.write(made, "reconstructions", None, states, output, "x")
    assert "(reconstructions_image_em5.png)" in page.read_text()
    assert (output / "reconstructions_image_em5.png").read_bytes() == b"png"


def test_a_dry_run_prints_the_plan_and_does_nothing(reproduce, tmp_path, capsys):
    work = tmp_path / "work"
    command = ["all", "--scale", "smoke", "--work", str(work), "--jobs", "2"]
    reproduce.main([*command, "--dry-run"])
    printed = capsys.readouterr().out
    assert "# em10: to do, about" in printed and "(estimate)" in printed
    assert f"\npython recipes/train_latent_nmt.py --run {work}/runs/em10 " in printed
    assert "# time in all: about" in printed and not work.exists()
    command = ["translation", "--scale", "paper", "--work", str(work), "--dry-run"]
    reproduce.main([*command, "--data", "tensorflow_datasets"])
    printed = capsys.readouterr().out
    assert "# em10: to do, about 1 day, 6:00:00 (estimate)" in printed
    assert "# distilled: to do\n" in printed and "time in all: unknown" in printed


def test_the_guide_has_the_commands_of_the_dry_run(reproduce, capsys):
    page = (ROOT / "docs" / "guides" / "paper_size.md").read_text()
    page = re.sub(r" \\\n +", " ", page)
    dry_runs = re.findall(r"^python recipes/reproduce.py (.* --dry-run)$", page, re.M)
    assert len(dry_runs) == 2
    for dry_run in dry_runs:
        reproduce.main(dry_run.split())
        printed = capsys.readouterr().out.splitlines()
        commands = [line for line in printed if line.startswith("python ")]
        assert len(commands) >= 3
        for command in commands:
            assert f"\n{command}\n" in page


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["tables"], "invalid choice: 'tables'"),
        (["samples", "--only", "em7"], "--only em7: choose from teacher, hard, em5"),
        (["samples"], "--scale small needs the files of Multi30k: pass the folder"),
        (["cifar"], "--scale small needs CIFAR-10 (cifar-10-batches-bin)"),
        (["samples", "--data", "nowhere"], "There is no nowhere/multi30k/train.en"),
    ],
)
def test_bad_input_is_explained(reproduce, tmp_path, capsys, command, words):
    with pytest.raises(SystemExit) as stop:
        reproduce.main([*command, "--work", str(tmp_path / "work")])
    assert stop.value.code == 2 and words in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_finished_row_with_other_settings_is_refused(plan, reproduce, capsys):
    made = plan("samples", only=["em50"])
    jobs = Jobs(list(made.jobs.values()), made.work)
    made.jobs["em50"].output.mkdir(parents=True)
    settings = {**jobs.settings("em50"), "em50 --epochs": "7"}
    record = {"em50": {"status": "done", "settings": settings}}
    (made.work / "jobs.json").write_text(json.dumps(record))
    command = ["samples", "--scale", "smoke", "--only", "em50", "--dry-run"]
    with pytest.raises(SystemExit):
        reproduce.main([*command, "--work", str(made.work)])
    assert "em50 --epochs was '7', is '2'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_row_from_data_to_page(reproduce, tmp_path, capsys):
    work = tmp_path / "work"
    command = ["codebook-size", "--scale", "smoke", "--only", "hard_gold_k10"]
    command += ["--work", str(work), "--jobs", "2"]
    reproduce.main(command)
    text = (work / "pages" / "codebook-size.md").read_text()
    assert "| VQ-VAE | 1024 (here 8) | 20.8 |  |  | " in text
    rows = json.loads((work / "pages" / "codebook-size.json").read_text())["rows"]
    assert [row["state"] for row in rows] == ["done"] * 3
    assert all(row["ours"]["ms"] > 0 for row in rows)
    capsys.readouterr()
    reproduce.main(command)
    printed = capsys.readouterr().out
    assert printed.count("done already") == 7 and "started" not in printed
