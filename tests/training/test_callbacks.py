"""What callbacks write: to logs, History, TensorBoard, metrics.jsonl and the screen."""

import glob
import io
import re
import sys

import keras
import numpy as np
import pytest
import sacrebleu
import tensorflow as tf

from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer
from keras_vqem.training import MetricsLog, Progress, RunFolder, ValidationBLEU, resume
from keras_vqem.training.checkpoints import Checkpoints

SOURCES = ["a small test is good", "two small tests are better"]
REFERENCES = ["ein kleiner Test ist gut", "zwei kleine Tests sind besser"]
CORPUS = ParallelCorpus.from_lists(SOURCES, REFERENCES)
BAD = ["ein kleiner Test ist", "zwei große Tests sind besser"]


def fit(callbacks, epochs=1, initial_epoch=0, data=None, **kwargs):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    if data is None:
        data = tf.data.Dataset.from_tensors((np.ones((4, 2)), np.ones((4, 1))))
        data = data.repeat(3)
    return model.fit(
        data,
        epochs=epochs,
        initial_epoch=initial_epoch,
        verbose=0,
        shuffle=False,
        callbacks=callbacks,
        **kwargs,
    ).history


def test_bleu_reaches_history_tensorboard_and_metrics(tmp_path):
    given = []

    def translate(model, sources, targets):
        given.append((model, sources, targets))
        return BAD

    run = RunFolder(tmp_path / "run")
    run.start({})
    translators = {"bleu": translate, "perfect_bleu": lambda model, x, y: y}
    history = fit(
        [
            ValidationBLEU(CORPUS, translators),
            keras.callbacks.TensorBoard(tmp_path / "board", write_graph=False),
            MetricsLog(run),
        ],
        epochs=2,
    )
    expected = sacrebleu.corpus_bleu(BAD, [REFERENCES]).score
    assert 0 < expected < 100
    assert history["val_bleu"] == [expected] * 2
    assert history["val_perfect_bleu"] == pytest.approx([100.0] * 2)
    assert [line["val_bleu"] for line in run.metrics()] == [expected] * 2
    for model, sources, targets in given:
        assert isinstance(model, keras.Model)
        assert (sources, targets) == (SOURCES, REFERENCES)

    shown = {}
    for path in glob.glob(f"{tmp_path}/board/**/*tfevents*", recursive=True):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                shown[value.tag, event.step] = number
    assert shown["epoch_bleu", 0] == shown["epoch_bleu", 1] == pytest.approx(expected)
    assert shown["epoch_loss", 1] == pytest.approx(history["loss"][1])


def test_bleu_is_that_of_the_models_own_translations():
    class Translator(keras.Sequential):
        def translate(self, texts):
            assert texts == SOURCES
            return BAD

    model = Translator([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.ones((4, 2)), np.ones((4, 1))
    validation = ValidationBLEU(CORPUS)
    history = model.fit(*data, verbose=0, callbacks=[validation]).history
    assert history["val_bleu"] == [sacrebleu.corpus_bleu(BAD, [REFERENCES]).score]


def test_bleu_every_few_epochs_and_after_the_last():
    epochs = []
    bleu = ValidationBLEU(CORPUS, {"bleu": lambda *_: BAD}, every=2)
    seen = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: "val_bleu" in logs and epochs.append(epoch + 1)
    )
    fit([bleu, seen], epochs=5)
    assert epochs == [2, 4, 5]


def test_long_lines_are_cut_before_they_are_translated(capsys):
    lines = ParallelCorpus.from_numbers(300)
    tokenizer = SentencePieceTokenizer.train(lines.sources + lines.targets, 400)
    sources, targets = lines.sources[:2], lines.targets[:2]
    corpus = ParallelCorpus.from_lists(
        [sources[0], " ".join(lines.sources)], [targets[0], " ".join(lines.targets)]
    )
    given = []

    class Translator(keras.Sequential):
        def translate(self, texts):
            given.append(texts)
            return corpus.targets

    model = Translator([keras.Input((2,)), keras.layers.Dense(1)])
    model.tokenizer = tokenizer
    model.compile("sgd", "mse")
    translators = {"other_bleu": lambda model, x, y: given.append(y) or y}
    validation = ValidationBLEU(corpus, translators, max_tokens=64)
    data = np.ones((4, 2)), np.ones((4, 1))
    history = model.fit(*data, verbose=0, callbacks=[validation]).history
    for cut, whole in zip(given, (corpus.sources, corpus.targets), strict=True):
        assert cut[0] == whole[0] and whole[1].startswith(cut[1])
        assert len(tokenizer.encode_lines(cut)[1]) == 64
    # References are whole.
    assert history["val_bleu"] == pytest.approx([100.0])
    assert history["val_other_bleu"][0] < 20
    assert "1 of 2 lines to validate on cut to 64 tokens" in capsys.readouterr().out


def test_bleu_refuses_what_cannot_be_scored():
    with pytest.raises(ValueError, match="no sentences to validate on"):
        ValidationBLEU(ParallelCorpus.from_lists([], []))
    with pytest.raises(ValueError, match="at least 1, received 0"):
        ValidationBLEU(CORPUS, every=0)
    with pytest.raises(ValueError, match="1 hypotheses and 2 references"):
        fit([ValidationBLEU(CORPUS, {"bleu": lambda *_: BAD[:1]})])


def test_training_seconds_go_on_over_a_resume(tmp_path, clock):
    run = RunFolder(tmp_path)
    run.start({})
    fit([clock, Checkpoints(run.checkpoints), MetricsLog(run)], epochs=2)
    # This epoch was logged, but its checkpoint did not come to be.
    run.add_metrics({"epoch": 3, "training_seconds": 99.0})
    run.start({}, resume=True)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    done = resume(model, run)
    assert done.seconds == 0
    # Four seconds of the third epoch were before the resume.
    log = MetricsLog(run, seconds=4.0)
    history = fit([clock, log], initial_epoch=done.epoch, epochs=4)
    lines = run.metrics()
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert [line["epoch_seconds"] for line in lines] == [30.0, 30.0, 34.0, 30.0]
    assert lines[-1]["training_seconds"] == 124.0
    assert [line["loss"] for line in lines[2:]] == history["loss"]


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture
def clock(monkeypatch):
    """Ten seconds a step, told by the callback below."""
    state = {"now": 0.0}
    monkeypatch.setattr(
        "keras_vqem.training.callbacks.time.monotonic", lambda: state["now"]
    )

    class Clock(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            state["now"] += 10.0

    return Clock()


def test_progress_without_a_terminal(clock, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Screen(False))
    logged = []
    data = tf.data.Dataset.from_tensors((np.ones((4, 2)), np.ones((4, 1)))).repeat(7)
    fit([clock, Progress(2, log=logged.append)], epochs=2, data=data)
    lines = sys.stdout.getvalue().splitlines()
    assert len(lines) == 6 and "\r" not in sys.stdout.getvalue()
    # Lines after 30 and 60 of the 70 seconds of an epoch.
    bar = r"epoch 1/2  \[=+ +\]  3/7  loss \d\.\d{4}  epoch 40s left, run 1m50s left"
    assert re.fullmatch(bar, lines[0])
    assert lines[1].endswith("epoch 10s left, run 1m20s left")
    assert re.fullmatch(r"epoch 1/2  loss \S+  1m10s, 1m10s left", lines[2])
    assert "  6/7  " in lines[4]
    assert lines[4].endswith("epoch 10s left, run 10s left")
    assert re.fullmatch(r"epoch 2/2  loss \S+  1m10s, 0s left", lines[5])
    assert [line.partition("  loss")[0] for line in logged] == [
        "epoch 1/2",
        "epoch 2/2",
    ]


def test_progress_shows_vectors_that_are_not_finite_only_if_there_are_any(capsys):
    progress = Progress(2)
    progress.set_params({})
    progress.on_train_begin()
    for number in (0.0, 3.0):
        progress.on_epoch_begin(0)
        logs = {"loss": 0.0, "nonfinite": number, "val_top_nonfinite": number}
        progress.on_epoch_end(0, logs)
    first, second = capsys.readouterr().out.splitlines()
    assert "loss 0" in first and "nonfinite" not in first
    assert "nonfinite 3  val_top_nonfinite 3" in second


def test_progress_in_a_terminal_is_drawn_in_place(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys, "stdout", Screen(True))
    fit([clock, Progress(2)], epochs=2)
    shown = sys.stdout.getvalue()
    assert shown.count("\n") == 2
    for line in shown.split("\n")[:-1]:  # splitlines would split at \r too
        *drawn, last = line.split("\r\x1b[K")[1:]
        assert len(drawn) == 3 and all(len(text) < 60 for text in drawn)
        assert re.match(r"epoch \d/2  loss", last)


def test_progress_learns_an_unknown_number_of_steps(clock, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Screen(False))
    data = tf.data.Dataset.from_tensors((np.ones((4, 2)), np.ones((4, 1)))).repeat(4)
    data = data.filter(lambda x, y: True)
    fit([clock, Progress(2)], epochs=2, data=data)
    lines = sys.stdout.getvalue().splitlines()
    assert lines[0].startswith("epoch 1/2  step 3  loss")
    assert "  3/4  " in lines[2]


def test_progress_names_what_it_compiles_and_does_not_count_it(clock, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Screen(False))
    state = {"slow": {0, 2}, "first": True}

    class Compiling(keras.callbacks.Callback):
        """Ten minutes more for steps 0 and 2 of the first epoch."""

        def on_train_batch_begin(self, batch, logs=None):
            if state["first"] and batch in state["slow"]:
                for _ in range(60):
                    clock.on_train_batch_begin(batch)

        def on_epoch_end(self, epoch, logs=None):
            state["first"] = False

    data = tf.data.Dataset.from_tensors((np.ones((4, 2)), np.ones((4, 1)))).repeat(7)
    progress = Progress(2, compiling=[0, 2])
    fit([clock, Compiling(), progress], epochs=2, data=data)
    lines = sys.stdout.getvalue().splitlines()
    assert lines[0] == "epoch 1/2  compiling shape 1 of 2"
    assert "  1/7  " in lines[1] and "left" not in lines[1]
    assert lines[2] == "epoch 1/2  compiling shape 2 of 2"
    # Four steps of ten seconds are left, and an epoch of seven.
    assert "  3/7  " in lines[3]
    assert lines[3].endswith("epoch 40s left, run 1m50s left")
    [end] = (line for line in lines if line.startswith("epoch 1/2  loss"))
    assert end.endswith("21m10s, 1m10s left")
    assert not any("compiling" in line for line in lines[lines.index(end) :])
