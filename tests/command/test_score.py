"""`keras-vqem score`: log probabilities of pairs of texts."""

import pytest

from keras_vqem.command import main
from keras_vqem.models import loading
from tests.command.test_export import failed
from tests.models.small import exportable

PAIRS = ["twenty-one", "einundzwanzig", "five", "fünf"]


@pytest.fixture(scope="module")
def model():
    return exportable("Transformer")


@pytest.fixture
def run(model, monkeypatch, capfd):
    monkeypatch.setattr(loading, "load_translator", lambda path: model)

    def call(*arguments):
        main.main(["score", *map(str, arguments)])
        return capfd.readouterr()

    return call


def test_pairs_of_texts(run, model):
    found = [line.split("\t") for line in run(*PAIRS).out.splitlines()]
    expected = model.score(PAIRS[::2], PAIRS[1::2])
    assert found == [[f"{s.log_prob:.3f}", f"{s.per_token:.3f}"] for s in expected]
    [line] = run("--tokens", *PAIRS[:2]).out.splitlines()
    total, _, *tokens = line.split("\t")
    assert len(tokens) == len(expected[0].ids) and tokens[-1].startswith("</s> ")
    parts = [float(token.split(" ")[-1]) for token in tokens]
    assert sum(parts) == pytest.approx(float(total), abs=0.02)


def test_files(run, tmp_path, model):
    files = [tmp_path / name for name in ("a.en", "a.de")]
    files[0].write_text("twenty-one\n\nfive\n")
    files[1].write_text("einundzwanzig\nfünf\n" + "xyz" * 999 + "\n")
    told = run("--files", *files)
    first, *rest = told.out.splitlines()
    assert (
        first.split("\t")[0] == f"{model.score(PAIRS[:1], PAIRS[1:2])[0].log_prob:.3f}"
    )
    assert rest == ["nan\tnan"] * 2
    assert "1 of 3 pairs have a text of more than 256 tokens" in told.err


def test_mistakes_are_one_sentence(tmp_path, capsys):
    short, binary, latin = (tmp_path / name for name in ("a", "b", "c"))
    short.write_text("one\n")
    binary.write_bytes(b"PK\0\0")
    latin.write_bytes("zwölf\n".encode("latin-1"))
    empty = tmp_path / "empty"
    empty.touch()
    for arguments, words in [
        ([], "pass pairs of texts or --files"),
        (["a"], "there are 1 texts; pass each text and its translation"),
        (["a", "b", "--files", short, short], "one of them"),
        (["a", "b", "--batch-size", "0"], "at least 1"),
        (["--files", short, binary], "line 1, holds zero bytes"),
        (["--files", short, latin], "line 1, holds bytes that are not UTF-8. Conv"),
        (["--files", short, empty], "has 1 lines, but"),
        (["--files", empty, empty], "has no lines"),
        (["--files", short, tmp_path / "none"], "none"),
        (["--model", "nothing", "a", "b"], "There is no model nothing"),
    ]:
        assert words in failed(["score", *map(str, arguments)], capsys)
