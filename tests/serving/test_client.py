"""The clients over both transports, against the interface of TensorFlow Serving."""

import io
import json
import urllib.request

import pytest

from keras_vqem.serving import GrpcClient, RestClient, ServerError
from tests.serving.conftest import TEXTS


def connect(server, transport, model="numbers", timeout=60, **settings):
    kind = {"grpc": GrpcClient, "rest": RestClient}[transport]
    return kind(server.address(transport), model, timeout=timeout, **settings)


def test_translations_are_those_of_the_model(server, model, transport):
    connection = connect(server, transport)
    expected = model.translate(TEXTS)
    assert expected[1] == "" and len(set(expected)) > 4
    assert connection.translate(TEXTS) == expected
    assert connection.translate(TEXTS[::-1]) == expected[::-1]
    assert [connection.translate([text])[0] for text in TEXTS] == expected


def test_versions_and_signatures_by_name(server, model, transport):
    connection = connect(server, transport, version=1, signature="serve")
    assert connection.translate(TEXTS) == model.translate(TEXTS)
    with pytest.raises(ServerError, match="--signature"):
        connect(server, transport, signature="none").translate(["five"])
    with pytest.raises(ServerError, match="not take a list of texts"):
        connect(server, transport, signature="decode").translate(["five"])


def test_an_unknown_model_is_named(server, transport):
    with pytest.raises(ServerError, match="no model wrong.*--model"):
        connect(server, transport, model="wrong").translate(["five"])
    with pytest.raises(ServerError, match=r"numbers, version 7.*Specific"):
        connect(server, transport, version=7).translate(["five"])


def test_the_other_port_is_told(server):
    wrong = RestClient(
        f"http://{server.grpc_address}", "numbers", None, "serving_default", 5
    )
    with pytest.raises(ServerError, match="8501 is usual for REST"):
        wrong.translate(["five"])


def test_a_late_answer_is_told(server, transport):
    server.wait.clear()
    try:
        with pytest.raises(ServerError, match="within 0.2 s.*--timeout"):
            connect(server, transport, timeout=0.2).translate(["five"])
    finally:
        server.wait.set()


def test_single_outputs_and_strange_answers(monkeypatch):
    connection = RestClient("http://x", "m", None, "serving_default", 1)

    def answers(content):
        monkeypatch.setattr(
            urllib.request, "urlopen", lambda *_, **__: io.BytesIO(content)
        )

    answers(json.dumps({"predictions": ["zwei"]}).encode())
    assert connection.translate(["two"]) == ["zwei"]
    with pytest.raises(ServerError, match="2 texts came back as 1"):
        connection.translate(["two", "three"])
    answers(json.dumps({"predictions": [{"codes": [1], "scores": 2.0}]}).encode())
    with pytest.raises(ServerError, match="codes"):
        connection.translate(["two"])
    for strange in [b"<html>a proxy</html>", b'{"status": "up"}', b"[]", b"\xff"]:
        answers(strange)
        with pytest.raises(ServerError, match="not TensorFlow Serving's.*8501"):
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
