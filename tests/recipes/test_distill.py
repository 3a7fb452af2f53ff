import json

import pytest
import tensorflow as tf

from keras_vqem.models.loading import load_translator
from keras_vqem.text import TranslationData


@pytest.fixture(scope="module")
def main(recipe):
    return recipe("distill").main


def test_shards_give_what_the_teacher_translates(main, tiny, tmp_path, capsys):
    output = tmp_path / "distilled"
    command = ["--data", tiny.data.folder, "--model", tiny.teacher, "--output", output]
    command = [*map(str, command), "--num-beams", "2", "--batch-size", "4"]
    main([*command, "--shard", "2/2"])
    assert "not all shards are" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError):
        TranslationData(output)

    # As if killed within a line of the shard: that line is not complete.
    partial = output / "shards" / "2-of-2.txt"
    complete = partial.read_bytes()
    partial.write_bytes(complete[: complete.rindex(b"\n", 0, -1) + 3])
    main([*command, "--shard", "2/2"])
    assert partial.read_bytes() == complete
    main([*command, "--shard", "1/2"])
    captured = capsys.readouterr()
    printed = captured.out

    train, made = tiny.data.corpus("train"), TranslationData(output)
    model = load_translator(tiny.teacher)
    # Batched as above: an untrained model is near ties.
    expected = [
        text.replace("\n", " ").replace("\r", " ")
        for half in (train.sources[:20], train.sources[20:])
        for text in model.translate(half, batch_size=4, num_beams=2)
    ]
    kept = sum(not text.strip() for text in expected)
    assert f"{kept} of them keep" in printed and "40 training pairs" in printed
    warning = f"WARNING: the teacher wrote nothing for {kept} of 40 training sources"
    assert (warning in captured.err) == (kept > 0)
    assert made.corpus("train").sources == train.sources
    assert made.corpus("train").targets == [
        text if text.strip() else target
        for text, target in zip(expected, train.targets, strict=True)
    ]
    for split in ("val", "test"):
        assert list(made.corpus(split)) == list(tiny.data.corpus(split))
    for name in ("tokenizer.model", "data.json"):
        before = (tiny.data.folder / name).read_bytes()
        assert (output / name).read_bytes() == before
    settings = json.loads((output / "shards" / "1-of-2.json").read_text())
    assert settings["num_beams"] == 2 and len(settings["model"]) == 64
    main([*command, "--shard", "1/2"])
    assert "already complete" in capsys.readouterr().out


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "a/b"])
def test_a_shard_that_does_not_exist_is_refused(main, shard, capsys):
    with pytest.raises(SystemExit):
        main(["--data", "a", "--model", "b", "--output", "c", "--shard", shard])
    assert "1/4" in capsys.readouterr().err


def test_a_teacher_that_writes_nothing_is_an_error(
    main, tiny, tmp_path, capsys, monkeypatch
):
    from keras_vqem.models import Transformer

    command = ["--data", str(tiny.data.folder), "--model", str(tiny.teacher)]
    mute = [*command, "--output", str(tmp_path / "mute")]
    one = [*command, "--output", str(tmp_path / "one")]

    def nothing(self, texts, **_):
        return [" " for _ in texts]

    monkeypatch.setattr(Transformer, "translate", nothing)
    with pytest.raises(SystemExit) as stopped:
        main(mute)
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and "remove" in error
    assert "wrote nothing for any of the 40 lines" in error
    assert not (tmp_path / "mute" / "data.json").exists()

    monkeypatch.setattr(
        Transformer, "translate", lambda self, texts, **_: ["", *texts[1:]]
    )
    main(one)
    assert (
        "wrote nothing for 1 of 40 training sources (2.5%)" in capsys.readouterr().err
    )


def test_back_translation_adds_pairs(main, tiny, tmp_path, capsys, monkeypatch):
    from keras_vqem.models import Transformer

    monkeypatch.setattr(
        Transformer, "translate", lambda self, texts, **_: [t.upper() for t in texts]
    )
    lines = tmp_path / "lines.de"
    lines.write_text("eins\nzwei\n")
    command = ["--data", str(tiny.data.folder), "--model", str(tiny.teacher)]
    output = tmp_path / "back"
    back = ["--back-translate", str(lines), "--weight", "2"]
    main([*command, *back, "--output", str(output)])
    train = list(tiny.data.corpus("train"))
    expected = [*train, *train, ("EINS", "eins"), ("ZWEI", "zwei")]
    assert list(TranslationData(output).corpus("train")) == expected
    assert "80 of them are of" in capsys.readouterr().out

    output = tmp_path / "forward"
    main([*command, "--sources", str(lines), "--output", str(output)])
    found = list(TranslationData(output).corpus("train"))
    assert found[-2:] == [("eins", "EINS"), ("zwei", "ZWEI")] and len(found) == 42
    with pytest.raises(SystemExit):
        main([*command, *back, "--sources", str(lines), "--output", str(output / "x")])
    assert "two directions" in capsys.readouterr().err


def test_a_teacher_chooses_among_what_a_student_proposes(main, tiny, tmp_path, capsys):
    command = ["--data", str(tiny.data.folder), "--batch-size", "4", "--num-beams", "3"]
    student = [*command, "--model", str(tiny.latent)]
    chosen = [*student, "--output", str(tmp_path / "chosen")]
    main([*chosen, "--rescorer", str(tiny.teacher)])
    train = tiny.data.corpus("train")
    model, teacher = load_translator(tiny.latent), load_translator(tiny.teacher)
    expected, plain = (
        model.translate(train.sources, batch_size=4, num_beams=3, **judge)
        for judge in ({"rescorer": teacher}, {})
    )
    assert expected != plain
    made = TranslationData(tmp_path / "chosen").corpus("train").targets
    assert made == [
        text.replace("\n", " ") if text.strip() else target
        for text, target in zip(expected, train.targets, strict=True)
    ]
    # A shard is not continued with another judge.
    (tmp_path / "chosen" / "data.json").unlink()
    with pytest.raises(SystemExit):
        main(chosen)
    assert "rescorer" in capsys.readouterr().err


def test_a_rescorer_needs_beams_and_a_parallel_model(main, tiny, tmp_path, capsys):
    judge = ["--rescorer", str(tiny.teacher), "--output", str(tmp_path / "no")]
    command = ["--data", str(tiny.data.folder), *judge]
    with pytest.raises(SystemExit):
        main([*command, "--model", str(tiny.latent), "--num-beams", "1"])
    assert "--num-beams 2 or more" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--model", str(tiny.teacher)])
    assert "takes no --rescorer" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_devices_and_workers_share_the_lines(main, monkeypatch):
    started = []

    class Process:
        def __init__(self, command, env):
            started.append((*command[-4:], env["CUDA_VISIBLE_DEVICES"]))

        def wait(self):
            return 0

    names = main.__wrapped__.__globals__
    shares = names["translate_shards"]
    monkeypatch.setattr(names["subprocess"], "Popen", Process)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not shares([], "none") and not shares([], "auto") and not started
    assert shares(["--data", "a"], "mirrored:2")
    flags = ("--strategy", "none", "--shard")
    assert started == [(*flags, "1/2", "0"), (*flags, "2/2", "1")]

    # Two machines of two GPUs each, the second and third of which are ours.
    devices = {"GPU": ["0", "1"], "CPU": ["0"]}
    monkeypatch.setattr(tf.config, "list_physical_devices", devices.get)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    cluster = {"worker": ["a:1", "b:1"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    started.clear()
    assert shares([], "multi_worker")
    assert started == [(*flags, "3/4", "2"), (*flags, "4/4", "3")]
    monkeypatch.setattr(Process, "wait", lambda self: 2)
    with pytest.raises(RuntimeError, match=r"Shards \[1, 2\] of 2 failed.*again"):
        shares([], "auto")


@pytest.mark.slow
def test_processes_write_what_one_would(main, tiny, tmp_path, capfd):
    command = ["--data", tiny.data.folder, "--model", tiny.teacher, "--batch-size", "4"]
    command = [*map(str, command), "--num-beams", "2"]
    main([*command, "--output", str(tmp_path / "one"), "--strategy", "none"])
    main([*command, "--output", str(tmp_path / "two"), "--strategy", "mirrored:2"])
    assert "40 training pairs" in capfd.readouterr().out
    shards = sorted(path.name for path in (tmp_path / "two" / "shards").iterdir())
    assert shards == [f"{i}-of-2.{end}" for i in (1, 2) for end in ("json", "txt")]
    one, two = (TranslationData(tmp_path / name) for name in ("one", "two"))
    assert two.corpus("train").sources == one.corpus("train").sources
    # Batched differently, an untrained model may break ties in another way.
    same = zip(two.corpus("train").targets, one.corpus("train").targets, strict=True)
    assert sum(a == b for a, b in same) >= 36
    with pytest.raises(SystemExit):
        main([*command, "--output", "x", "--strategy", "mirrored:2", "--shard", "1/2"])
