"""The client over both transports, against the interface of TensorFlow Serving."""

import io
import json
import socket
import subprocess
import sys
import urllib.request

import pytest

from keras_vqem.text.lines import one_line

TEXTS = [
    "twenty-one",
    "",
    'five "o\'clock" \\ {"b64": 1}',
    "ten past two",
    "fünf, 日本 😀",
    "\u0000\t\x1b",
    "the third of May",
]


@pytest.fixture(params=["grpc", "rest"])
def transport(request):
    return request.param


def connect(client, server, transport, model="numbers", timeout=60, **settings):
    kind = {"grpc": client.GrpcClient, "rest": client.RestClient}[transport]
    address = server.grpc_address if transport == "grpc" else server.rest_url
    settings = {"version": None, "signature": "serving_default", **settings}
    return kind(address, model, *settings.values(), timeout)


def run(client, server, transport, *arguments):
    address = server.grpc_address if transport == "grpc" else server.rest_url
    client.main([f"--{transport}", address, "--model", "numbers", *arguments])


def test_translations_are_those_of_the_model(client, server, model, transport):
    connection = connect(client, server, transport)
    expected = model.translate(TEXTS)
    assert expected[1] == "" and len(set(expected)) > 4
    assert connection.translate(TEXTS) == expected
    assert connection.translate(TEXTS[::-1]) == expected[::-1]
    assert [connection.translate([text])[0] for text in TEXTS] == expected


def test_versions_and_signatures_by_name(client, server, model, transport):
    connection = connect(client, server, transport, version=1, signature="serve")
    assert connection.translate(TEXTS) == model.translate(TEXTS)
    with pytest.raises(client.ServerError, match="--signature"):
        connect(client, server, transport, signature="none").translate(["five"])
    with pytest.raises(client.ServerError, match="not take a list of texts"):
        connect(client, server, transport, signature="decode").translate(["five"])


def test_lines_of_a_file_or_arguments(
    client, server, model, transport, tmp_path, capfdbinary
):
    lines = [text for text in TEXTS if "\0" not in text]
    path = tmp_path / "lines.en"
    path.write_bytes("\r\n".join(lines).encode() + b"\nbad \xff\xfe byte")
    run(client, server, transport, "--batch", "2", "--file", str(path))
    lines.append("bad \ufffd\ufffd byte")
    expected = [one_line(text) for text in model.translate(lines)]
    assert capfdbinary.readouterr().out.decode().split("\n") == [*expected, ""]
    run(client, server, transport, "--batch", "3", "--", *lines)
    assert capfdbinary.readouterr().out.decode().split("\n") == [*expected, ""]


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


def test_an_unknown_model_is_named(client, server, transport):
    with pytest.raises(client.ServerError, match="no model wrong.*--model"):
        connect(client, server, transport, model="wrong").translate(["five"])
    with pytest.raises(client.ServerError, match=r"numbers, version 7.*Specific"):
        connect(client, server, transport, version=7).translate(["five"])


def test_a_dead_server_is_told(client, transport, capsys):
    with socket.socket() as free:  # bound and not listening: nobody else is there
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        address = address if transport == "grpc" else f"http://{address}"
        with pytest.raises(SystemExit) as stop:
            client.main([f"--{transport}", address, "--model", "numbers", "five"])
    assert stop.value.code == 1
    message = capsys.readouterr().err
    assert "no server at" in message and address in message
    assert "docs/serving.md" in message and "Traceback" not in message


def test_the_other_port_is_told(client, server):
    wrong = client.RestClient(
        f"http://{server.grpc_address}", "numbers", None, "serving_default", 5
    )
    with pytest.raises(client.ServerError, match="8501 is usual for REST"):
        wrong.translate(["five"])


def test_a_late_answer_is_told(client, server, transport):
    server.wait.clear()
    try:
        with pytest.raises(client.ServerError, match="within 0.2 s.*--timeout"):
            connect(client, server, transport, timeout=0.2).translate(["five"])
    finally:
        server.wait.set()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--model", "m"], "--grpc"),
        (["--rest", "localhost:8501", "--model", "m"], "http://HOST:PORT"),
        (["--rest", "http://x", "--model", "m", "--batch", "0"], "at least 1"),
        (["--rest", "http://x", "--model", "m", "--file", "f", "text"], "not both"),
        (["--rest", "http://x", "--model", "m", "--file", "no/f"], "no/f"),
    ],
)
def test_wrong_arguments_are_told(client, arguments, words, capsys):
    with pytest.raises(SystemExit):
        client.main(arguments)
    assert words in capsys.readouterr().err


def test_single_outputs_and_strange_answers(client, monkeypatch):
    connection = client.RestClient("http://x", "m", None, "serving_default", 1)

    def answers(content):
        monkeypatch.setattr(
            urllib.request, "urlopen", lambda *_, **__: io.BytesIO(content)
        )

    answers(json.dumps({"predictions": ["zwei"]}).encode())
    assert connection.translate(["two"]) == ["zwei"]
    with pytest.raises(client.ServerError, match="2 texts came back as 1"):
        connection.translate(["two", "three"])
    answers(json.dumps({"predictions": [{"codes": [1], "scores": 2.0}]}).encode())
    with pytest.raises(client.ServerError, match="codes"):
        connection.translate(["two"])
    for strange in [b"<html>a proxy</html>", b'{"status": "up"}', b"[]", b"\xff"]:
        answers(strange)
        with pytest.raises(client.ServerError, match="not TensorFlow Serving's.*8501"):
            connection.translate(["two"])


def test_metadata_and_binary_rows_of_the_minimal_server(server):
    import grpc
    from tensorflow_serving.apis import (
        get_model_metadata_pb2,
        prediction_service_pb2_grpc,
    )

    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "numbers"
    request.metadata_field.append("signature_def")
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        found = stub.GetModelMetadata(request, timeout=60)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert found.metadata["signature_def"].Unpack(signatures)
    assert {"serving_default", "translate_ids", "encode", "decode"} < set(
        signatures.signature_def
    )
    body = {"instances": [{"b64": "Zml2ZQ=="}, "five", {"b64": "Zml2Zf8="}]}
    url = f"{server.rest_url}/v1/models/numbers:predict"
    with urllib.request.urlopen(url, data=json.dumps(body).encode()) as response:
        rows = json.loads(response.read())["predictions"]
    assert rows[0] == rows[1] and set(rows[2]) == {"codes", "scores", "translations"}
