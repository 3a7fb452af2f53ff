"""Files are translated completely, or go on where they were stopped."""

import os
import signal
import subprocess
import sys

import pytest

from keras_vqem.command.translated_file import translate_file, translate_to_file
from keras_vqem.text.lines import answer_lines, check_text, text_chunks

LINES = [f"line {i}" if i % 5 else "" for i in range(23)]
EXPECTED = "".join(f"{line.upper()}\n" for line in LINES)

# Dies in its third chunk, as a machine does: no handler runs.
DYING = """
import os, signal, sys
from keras_vqem.command.translated_file import translate_to_file

calls = []

def translate(texts, progress):
    calls.append(texts)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return [text.upper() for text in texts]

translate_to_file(translate, *sys.argv[1:], 4, {"model": "abc"})
"""


def upper(texts, progress=lambda share: None):
    progress(0.5)
    return [text.upper() for text in texts]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "lines.en"
    path.write_text("\n".join(LINES))
    return path


@pytest.mark.slow  # A process of its own.
def test_a_killed_translation_goes_on(file, tmp_path, capsys):
    output, part = tmp_path / "lines.de", tmp_path / "lines.de.partial"
    output.write_text("an older translation\n")
    command = [sys.executable, "-c", DYING, file, output]
    run = subprocess.run(command, capture_output=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert part.read_text() == "".join(EXPECTED.splitlines(keepends=True)[:8])
    assert output.read_text() == "an older translation\n"
    asked = []

    def translate(texts, progress):
        asked.extend(texts)
        return upper(texts)

    with pytest.raises(ValueError, match="model: started with 'abc', received 'x'"):
        translate_to_file(upper, file, output, 4, {"model": "x"})
    translate_to_file(translate, file, output, 4, {"model": "abc"})
    assert asked == [line for line in LINES[8:] if line]
    assert output.read_text() == EXPECTED
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lines.de", "lines.en"]
    told = capsys.readouterr().err
    assert "going on behind line 8" in told and "lines.de: 23 lines" in told


def test_what_is_translated_stays_when_something_goes_wrong(file, tmp_path, capsys):
    output = tmp_path / "lines.de"

    def interrupted(texts, progress):
        if "line 12" in texts:
            raise KeyboardInterrupt
        return upper(texts)

    with pytest.raises(KeyboardInterrupt):
        translate_to_file(interrupted, file, output, 4, {})
    assert "12 lines are translated. The same command" in capsys.readouterr().err
    assert not output.exists()
    file.write_text(file.read_text() + " ")
    with pytest.raises(ValueError, match="sha256 of the file: started with"):
        translate_to_file(upper, file, output, 4, {})


def test_mistakes_with_files_are_told(file, tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        translate_to_file(upper, file, tmp_path, 4, {})
    with pytest.raises(ValueError, match="cannot be both read and written"):
        translate_to_file(upper, file, file, 4, {})


def test_a_file_to_standard_output(file, capfdbinary):
    translate_file(upper, file, 4)
    assert capfdbinary.readouterr().out.decode() == EXPECTED


def test_zero_bytes_are_no_text(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthr\0ee\nfour\n")
    with pytest.raises(ValueError, match=r"lines, line 3, holds zero bytes.*iconv"):
        check_text(path)
    chunks = text_chunks(path, 100)
    assert next(chunks) == ["one", "two"]  # What comes before it is not lost.
    with pytest.raises(ValueError, match="line 3, holds zero bytes"):
        next(chunks)
    check_text(os.devnull)


def test_line_breaks_stay_where_they_were_given(capfdbinary):
    answer_lines(lambda texts: ["a\nb", "c\rd"], 2, texts=["x\ny", "z"])
    assert capfdbinary.readouterr().out == b"a\nb\nc d\n"
