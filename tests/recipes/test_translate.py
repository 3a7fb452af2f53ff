import os
import subprocess
import sys

import pytest

from keras_vqem.command import answers
from keras_vqem.models.loading import load_translator
from keras_vqem.text.lines import answer_lines

LINES = b"twenty-one\n\n \t\r\nbad \xff\xfe byte\n" + b"five o'clock\n" * 4 + b"three"


@pytest.fixture(scope="module")
def translate(recipe):
    return recipe("translate")


def expected(model):
    texts = LINES.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    return [
        answers.answer_texts(model, [text])[0].translation if text.strip() else ""
        for text in texts
    ]


def test_each_line_gives_one_line(translate, tiny, tmp_path, capfdbinary):
    file = tmp_path / "lines.en"
    file.write_bytes(LINES)
    translate.main(["--model", str(tiny.teacher), "--chunk", "3", "--file", str(file)])
    lines = capfdbinary.readouterr().out.decode().split("\n")
    model = load_translator(tiny.teacher)
    assert lines == [*expected(model), ""] and lines[1] == lines[2] == ""
    assert lines[0] and lines[3]


class Breaking:
    """A model whose translations hold line breaks."""

    def translate(self, texts, **options):
        return ["a\nb\r" for _ in texts]


def test_line_breaks_in_translations_become_spaces(capfdbinary):
    answer_lines(Breaking().translate, 2, texts=["x", "", "y"])
    assert capfdbinary.readouterr().out == b"a b \n\na b \n"


@pytest.mark.slow
def test_a_line_is_answered_at_once_and_a_closed_pipe_is_quiet(translate, tiny):
    command = [sys.executable, translate.__file__, "--model", str(tiny.teacher)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as process:
        for _ in range(2):
            process.stdin.write(b"twenty-one\n")
            process.stdin.flush()
            # Standard input stays open: without an answer this would not return.
            answer = process.stdout.readline()
            assert answer.endswith(b"\n") and answer.strip()
        process.stdout.close()
        process.stdin.write(b"three\n" * 3)
        process.stdin.close()
        errors = process.stderr.read()
    assert process.returncode == 0
    assert b"Traceback" not in errors and b"BrokenPipe" not in errors


def test_a_missing_model_or_file_is_named(translate, tiny, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    for arguments, words in [
        (["--model", str(tmp_path / "run"), "--file", os.devnull], "finished run"),
        (["--model", str(tiny.latent), "--file", str(tmp_path / "none")], "none"),
        (["--model", __file__, "--file", os.devnull], ".keras"),
    ]:
        with pytest.raises(SystemExit):
            translate.main(arguments)
        assert words in capsys.readouterr().err
