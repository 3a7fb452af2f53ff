"""Clients of TensorFlow Serving, by gRPC and by REST: texts in, translations out."""

import abc
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence

from keras_vqem.serving.api import serving_api


class ServerError(OSError):
    """Raised if a request fails; the message has the reason and the remedy."""


class Client(abc.ABC):
    """Base class of the clients.

    Args:
        address: Address of the server: `"HOST:PORT"` for `GrpcClient`,
            `"http://HOST:PORT"` for `RestClient`.
        model: Name of the model, as the server knows it.
        version: Version of the model, or None for the newest.
        signature: Name of the signature to call.
        timeout: Seconds to wait for the answer to a request.
    """

    def __init__(
        self,
        address: str,
        model: str,
        version: int | None = None,
        signature: str = "serving_default",
        timeout: float = 30.0,
    ):
        self.address, self.model, self.version = address, model, version
        self.signature, self.timeout = signature, timeout
        self._asked = model if version is None else f"{model}, version {version}"

    def translate(self, texts: Sequence[str]) -> list[str] | list[list[str]]:
        """Translates texts with one request.

        Args:
            texts: List of strings.

        Returns:
            List of strings, one per text, in the same order; of lists of strings, best
            first, if the model was exported with `num_return_sequences`.

        Raises:
            ServerError: If the server cannot be reached, does not answer in time, or
                refuses the request.
        """
        found = self._ask(list(texts))
        if len(found) != len(texts):
            raise ServerError(
                f"{len(texts)} texts came back as {len(found)} translations from "
                f"{self.address}. Is {self._asked} a translator of keras_vqem?"
            )
        return found

    @abc.abstractmethod
    def _ask(self, texts):
        """Sends one request and returns the list of translations in the answer."""

    def _absent(self, details, port):
        return ServerError(
            f"There is no server at {self.address}, or it cannot answer now "
            f"({details}). Start it, see docs/serving.md; check host and port "
            f"({port}); if it is overloaded, try again later."
        )

    def _late(self):
        return ServerError(
            f"No answer from {self.address} within {self.timeout:g} s. Wait longer "
            "(`timeout`, --timeout) or send fewer texts per request (--batch-size). A "
            "server that has just started is slow at first, unless the model has "
            "warm-up requests."
        )

    def _unknown(self, details):
        return ServerError(
            f"The server at {self.address} has no model {self._asked} ({details}). "
            "Check its name (`model`, --model) and version (`version`, --version). "
            "The log of the server tells whether it is still loading or failed to load."
        )

    def _refused(self, details):
        return ServerError(
            f"{self._asked} at {self.address} does not take a list of texts for "
            f"signature {self.signature!r} ({details}). Check the signature "
            "(`signature`, --signature), and that a request holds no more texts "
            "(--batch-size) than the server's max_batch_size."
        )


class GrpcClient(Client):
    """Client that calls `PredictionService.Predict` by gRPC.

    It needs tensorflow-serving-api: the extra `serving`.

    Args:
        address: Address of the server, `"HOST:PORT"`.
        model: Name of the model, as the server knows it.
        version: Version of the model, or None for the newest.
        signature: Name of the signature to call.
        timeout: Seconds to wait for the answer to a request.

    Example:

    ```python
    client = GrpcClient("localhost:8500", model="en_de")
    client.translate(["A dog runs."])
    ```
    """

    def __init__(
        self,
        address: str,
        model: str,
        version: int | None = None,
        signature: str = "serving_default",
        timeout: float = 30.0,
    ):
        super().__init__(address, model, version, signature, timeout)
        self._api = serving_api("apis.predict_pb2")
        service = serving_api("apis.prediction_service_pb2_grpc")
        import grpc  # It comes with tensorflow-serving-api.

        # The default limit of 4 MB is meant for servers that are not trusted.
        channel = grpc.insecure_channel(
            address, options=[("grpc.max_receive_message_length", -1)]
        )
        self._predict = service.PredictionServiceStub(channel).Predict

    def _ask(self, texts):
        import grpc
        import tensorflow as tf

        request = self._api.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = self.signature
        if self.version is not None:
            request.model_spec.version.value = self.version
        # All outputs come back. A server does not batch requests that name different
        # outputs (`output_filter`) together.
        request.inputs["texts"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
        try:
            outputs = self._predict(request, timeout=self.timeout).outputs
        except grpc.RpcError as error:
            raise self._explained(error.code(), error.details()) from error
        if "translations" not in outputs:
            raise self._refused(f"it answers with {sorted(outputs)}")
        found = tf.make_ndarray(outputs["translations"])
        return [_text(row) for row in found.tolist()]

    def _explained(self, code, details):
        import grpc

        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return self._late()
        if code == grpc.StatusCode.NOT_FOUND:
            return self._unknown(details)
        if code in (
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.FAILED_PRECONDITION,
        ):
            return self._refused(details)
        return self._absent(f"{code.name}: {details}", "8500 is usual for gRPC")


class RestClient(Client):
    """Client that posts JSON to `ADDRESS/v1/models/NAME:predict`.

    It takes the arguments of `Client`; `address` is `"http://HOST:PORT"`.

    Example:

    ```python
    client = RestClient("http://localhost:8501", model="en_de")
    client.translate(["A dog runs."])
    ```
    """

    def _ask(self, texts):
        path = f"/v1/models/{urllib.parse.quote(self.model, safe='')}"
        path += "" if self.version is None else f"/versions/{self.version}"
        # The row format: each string is one row of `texts`, the only input.
        body = {"signature_name": self.signature, "instances": texts}
        request = urllib.request.Request(
            f"{self.address.rstrip('/')}{path}:predict",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                rows = json.loads(response.read())["predictions"]
        except urllib.error.HTTPError as error:
            raise self._explained(error.code, error.read()) from error
        except (ValueError, TypeError, KeyError) as error:
            details = "its answer is not TensorFlow Serving's"
            raise self._absent(details, "8501 is usual for REST") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise self._late() from error
            details = str(reason) or type(reason).__name__
            raise self._absent(details, "8501 is usual for REST") from error
        # Rows are objects if there are several outputs, else bare values.
        rows = [row if isinstance(row, dict) else {"": row} for row in rows]
        if not all({"translations", ""} & set(row) for row in rows):
            raise self._refused(f"it answers with {sorted(rows[0])}")
        return [row.get("translations", row.get("")) for row in rows]

    def _explained(self, code, body):
        try:
            details = json.loads(body)["error"]
        except (ValueError, TypeError, KeyError):
            details = body.decode("utf-8", "replace")[:200]
        if code == 404:
            return self._unknown(details)
        if code in (408, 504):
            return self._late()
        if code in (400, 412):
            return self._refused(details)
        return self._absent(f"HTTP {code}: {details}", "8501 is usual for REST")


def _text(row):
    """Bytes as a string, or a list of bytes as a list of strings."""
    if isinstance(row, list):
        return [_text(one) for one in row]
    return row.decode("utf-8", "replace")
