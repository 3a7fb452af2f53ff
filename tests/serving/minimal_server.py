"""A minimal server. It is not TF Serving: its interface on a loaded SavedModel.

gRPC (Predict, GetModelMetadata) and REST (predict, row format) as TensorFlow Serving
defines them, with its status codes and the words of its errors, for tests of clients.
No batching, no warm-up, no model status; versions are those found at the start.
"""

import base64
import concurrent.futures
import http.server
import json
import pathlib
import re
import threading

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its operations)
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

CODES = grpc.StatusCode
HTTP = {CODES.NOT_FOUND: 404, CODES.INVALID_ARGUMENT: 400, CODES.INTERNAL: 500}


class Refusal(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Version:
    """One folder of a model: its signatures, and what they take and return."""

    def __init__(self, folder):
        self.loaded = tf.saved_model.load(str(folder))
        content = (folder / "saved_model.pb").read_bytes()
        graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0]
        self.signature_def = graph.signature_def

    def run(self, signature, inputs):
        try:
            found = self.loaded.signatures[signature](**inputs)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise Refusal(CODES.INVALID_ARGUMENT, str(error)) from error
        return {name: value.numpy() for name, value in found.items()}


class MinimalServer(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Serves from free ports: `grpc_address` and `rest_url`, as a context manager.

    Args:
        models: A dict from names to base paths.
    """

    def __init__(self, models):
        self.models = {
            name: {
                int(folder.name): Version(folder)
                for folder in pathlib.Path(base).iterdir()
                if folder.name.isdigit()
            }
            for name, base in models.items()
        }
        self.wait = threading.Event()  # tests of deadlines clear it
        self.wait.set()

    def __enter__(self):
        threads = concurrent.futures.ThreadPoolExecutor(16)
        self.grpc = grpc.server(threads)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            self, self.grpc
        )
        self.grpc_address = f"127.0.0.1:{self.grpc.add_insecure_port('127.0.0.1:0')}"
        self.grpc.start()
        handler = type("Handler", (RestHandler,), {"server_of_models": self})
        self.rest = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.rest_url = f"http://127.0.0.1:{self.rest.server_port}"
        threading.Thread(target=self.rest.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.wait.set()
        self.grpc.stop(None).wait()
        self.rest.shutdown()
        self.rest.server_close()

    def address(self, transport):
        """The address for a client by "grpc" or "rest"."""
        return {"grpc": self.grpc_address, "rest": self.rest_url}[transport]

    def version(self, name, number=None):
        versions = self.models.get(name, {})
        if not versions or number not in {None, *versions}:
            asked = f"Latest({name})"
            if number is not None:
                asked = f"Specific({name}, {number})"
            raise Refusal(CODES.NOT_FOUND, f"Servable not found for request: {asked}")
        return versions[max(versions) if number is None else number]

    # gRPC.

    def Predict(self, request, context):
        self.wait.wait(60)
        spec = request.model_spec
        signature = spec.signature_name or "serving_default"
        try:
            version = self.version(*named(spec))
            if signature not in version.signature_def:
                message = f'Serving signature key "{signature}" not found.'
                raise Refusal(CODES.FAILED_PRECONDITION, message)
            inputs = {
                name: tf.constant(tf.make_ndarray(value))
                for name, value in request.inputs.items()
            }
            found = version.run(signature, inputs)
        except Refusal as refusal:
            context.abort(refusal.code, str(refusal))
        response = predict_pb2.PredictResponse(model_spec=spec)
        for name, value in found.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return response

    def GetModelMetadata(self, request, context):
        try:
            version = self.version(*named(request.model_spec))
        except Refusal as refusal:
            context.abort(refusal.code, str(refusal))
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.CopyFrom(request.model_spec)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in version.signature_def.items():
            signatures.signature_def[name].CopyFrom(signature)
        response.metadata["signature_def"].Pack(signatures)
        return response


def named(spec):
    return spec.name, spec.version.value if spec.HasField("version") else None


class RestHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server_of_models.wait.wait(60)
        try:
            code, answer = 200, {"predictions": self.predictions(json.loads(body))}
        except Refusal as refusal:
            code, answer = HTTP[refusal.code], {"error": str(refusal)}
        content = json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def predictions(self, request):
        pattern = r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict"
        if not (match := re.fullmatch(pattern, self.path)):
            raise Refusal(CODES.INVALID_ARGUMENT, f"Malformed request: {self.path}")
        name, number = match.groups()
        version = self.server_of_models.version(name, number and int(number))
        signature = request.get("signature_name", "serving_default")
        if signature not in version.signature_def:
            message = f'Serving signature name: "{signature}" not found'
            raise Refusal(CODES.INVALID_ARGUMENT, f"{message} in signature def")
        takes = version.signature_def[signature].inputs
        found = version.run(signature, columns(request.get("instances"), takes))
        names = sorted(found)
        rows = zip(*(plain(found[name]) for name in names), strict=True)
        if len(names) == 1:
            return [row[0] for row in rows]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def log_message(self, *message):
        pass


def columns(rows, takes):
    """Tensors by name of rows, which are bare values where there is one input."""
    if not rows or not isinstance(rows, list):
        raise Refusal(CODES.INVALID_ARGUMENT, "No values in 'instances' array")
    if not isinstance(rows[0], dict) or set(rows[0]) == {"b64"}:
        if len(takes) > 1:
            message = "instances is a plain list, but expecting list of objects"
            raise Refusal(CODES.INVALID_ARGUMENT, message)
        rows = [{next(iter(takes)): row} for row in rows]
    if any(set(row) != set(takes) for row in rows):
        message = f"keys must be equal to: {','.join(sorted(takes))}"
        raise Refusal(CODES.INVALID_ARGUMENT, message)
    return {
        name: tf.constant([raw(row[name]) for row in rows], tf.as_dtype(info.dtype))
        for name, info in takes.items()
    }


def raw(value):
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value.encode() if isinstance(value, str) else value


def plain(values):
    """Lists of what JSON knows; strict, so that a test sees bytes that are not text."""
    if values.dtype == object:
        values = np.vectorize(bytes.decode, otypes=[object])(values)
    return values.tolist()
