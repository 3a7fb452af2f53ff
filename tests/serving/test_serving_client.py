"""The recipe `serving_client.py`, from its arguments to its output."""

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from keras_vqem.text.lines import one_line
from tests.models import small
from tests.serving.conftest import TEXTS
from tests.serving.minimal_server import MinimalServer
from tests.serving.test_client import connect

RECIPE = Path(__file__).parents[2] / "recipes" / "serving_client.py"


@pytest.fixture(scope="module")
def client():
    """The recipe's module."""
    spec = importlib.util.spec_from_file_location("serving_client", RECIPE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(client, server, transport, *arguments):
    address = server.address(transport)
    client.main([f"--{transport}", address, "--model", "numbers", *arguments])


def test_lines_of_a_file_or_arguments(
    client, server, model, transport, tmp_path, capfdbinary
):
    lines = [text for text in TEXTS if "\0" not in text]
    path = tmp_path / "lines.en"
    path.write_bytes("\r\n".join(lines).encode() + b"\nbad \xff\xfe byte")
    run(client, server, transport, "--batch-size", "2", "--file", str(path))
    lines.append("bad \ufffd\ufffd byte")
    expected = [one_line(text) for text in model.translate(lines)]
    assert capfdbinary.readouterr().out.decode().split("\n") == [*expected, ""]
    run(client, server, transport, "--batch-size", "3", "--", *lines)
    assert capfdbinary.readouterr().out.decode().split("\n") == [*expected, ""]


def test_several_translations_per_text(client, transport, tmp_path, capfd):
    model = small.exportable("Transformer")
    options = {"num_beams": 2, "max_length": 4, "num_return_sequences": 2}
    model.export(tmp_path / "choice" / "1", **options)
    texts = ["five", "", "ten past two"]
    with MinimalServer({"choice": tmp_path / "choice"}) as server:
        found = connect(server, transport, model="choice").translate(texts)
        address = server.address(transport)
        client.main([f"--{transport}", address, "--model", "choice", *texts])
    assert found == model.translate(texts, **options) and found[1] == ["", ""]
    lines = capfd.readouterr().out.split("\n")
    assert lines == [one_line("\t".join(found[0])), "", "\t".join(found[2]), ""]


def test_a_line_of_standard_input_is_answered_at_once(client, server, model):
    command = [sys.executable, client.__file__, "--rest", server.rest_url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, "--model", "numbers"], **pipes) as process:
        process.stdin.write("fünf\n".encode())
        process.stdin.flush()
        # Standard input stays open: without an answer this would not return.
        answer = process.stdout.readline().decode()
        process.stdin.close()
    assert answer == one_line(model.translate(["fünf"])[0]) + "\n"
    assert process.returncode == 0


def test_a_dead_server_is_told(client, transport, capsys):
    with socket.socket() as free:  # bound and not listening: nobody else is there
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        address = address if transport == "grpc" else f"http://{address}"
        with pytest.raises(SystemExit) as stop:
            client.main([f"--{transport}", address, "--model", "numbers", "five"])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "no server at" in message and address in message
    assert "docs/serving.md" in message and "Traceback" not in message


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--model", "m"], "--grpc"),
        (["--rest", "localhost:8501", "--model", "m"], "http://HOST:PORT"),
        (["--rest", "http://x", "--model", "m", "--batch-size", "0"], "at least 1"),
        (["--rest", "http://x", "--model", "m", "--file", "f", "text"], "not both"),
        (["--rest", "http://x", "--model", "m", "--file", "no/f"], "no/f"),
    ],
)
def test_wrong_arguments_are_told(client, arguments, words, capsys):
    with pytest.raises(SystemExit):
        client.main(arguments)
    assert words in capsys.readouterr().err
