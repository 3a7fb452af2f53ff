"""Lines to a TensorFlow Serving, translations back.

    python recipes/serving_client.py --grpc localhost:8500 --model en_de "Two dogs."
    python recipes/serving_client.py --rest http://localhost:8501 --model en_de \\
        --file lines.en > lines.de

Line n of the output translates line n of the input; an empty line gives an empty one,
and bytes that are not UTF-8 are read as U+FFFD. Without texts and without --file it
reads standard input and answers as lines come. docs/serving.md starts the server.
"""

import argparse
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request


class ServerError(Exception):
    """What went wrong between here and the server, and what to do."""


class Client:
    """What both transports know: what is asked for, and how to explain refusals."""

    def __init__(self, address, model, version, signature, timeout):
        self.address, self.model, self.version = address, model, version
        self.signature, self.timeout = signature, timeout
        self.asked = model if version is None else f"{model}, version {version}"

    def translate(self, texts):
        """The translations of a list of strings, in its order, by one request."""
        found = self._ask(texts)
        if len(found) != len(texts):
            raise ServerError(
                f"{len(texts)} texts came back as {len(found)} translations from "
                f"{self.address}. Is {self.asked} a translator of keras_vqem?"
            )
        return found

    def absent(self, details, port):
        return ServerError(
            f"There is no server at {self.address}, or it cannot answer now "
            f"({details}). Start it, see docs/serving.md; check host and port "
            f"({port}); if it is overloaded, try again later."
        )

    def late(self):
        return ServerError(
            f"No answer from {self.address} within {self.timeout:g} s. Give it longer "
            "by --timeout, or fewer lines at a time by --batch; a server that has just "
            "started is slow at first unless the model has warm-up requests."
        )

    def unknown(self, details):
        return ServerError(
            f"The server at {self.address} has no model {self.asked} ({details}). "
            "Check --model and --version; a model that is still loading, or failed "
            "to, is in the server's log."
        )

    def refused(self, details):
        return ServerError(
            f"{self.asked} at {self.address} does not take a list of texts for "
            f"signature {self.signature!r} ({details}). Check --signature, and that "
            "--batch is no more than the server's max_batch_size."
        )


class GrpcClient(Client):
    """PredictionService.Predict, at HOST:PORT."""

    def __init__(self, address, *settings):
        super().__init__(address, *settings)
        import grpc

        from keras_vqem.serving.api import serving_api

        self._api = serving_api("apis.predict_pb2")
        # The default, 4 MB, is for untrusted servers.
        channel = grpc.insecure_channel(
            address, options=[("grpc.max_receive_message_length", -1)]
        )
        service = serving_api("apis.prediction_service_pb2_grpc")
        self._predict = service.PredictionServiceStub(channel).Predict

    def _ask(self, texts):
        import grpc
        import tensorflow as tf

        request = self._api.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = self.signature
        if self.version is not None:
            request.model_spec.version.value = self.version
        # All outputs come back: to name one (`output_filter`) would be another kind
        # of request to the server, which may then not batch it with the others.
        request.inputs["texts"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
        try:
            outputs = self._predict(request, timeout=self.timeout).outputs
        except grpc.RpcError as error:
            raise self._explained(error.code(), error.details()) from error
        if "translations" not in outputs:
            raise self.refused(f"it answers with {sorted(outputs)}")
        found = tf.make_ndarray(outputs["translations"])
        return [text.decode("utf-8", "replace") for text in found]

    def _explained(self, code, details):
        import grpc

        known = {
            grpc.StatusCode.DEADLINE_EXCEEDED: lambda details: self.late(),
            grpc.StatusCode.NOT_FOUND: self.unknown,
            grpc.StatusCode.INVALID_ARGUMENT: self.refused,
            grpc.StatusCode.FAILED_PRECONDITION: self.refused,
        }
        if code in known:
            return known[code](details)
        return self.absent(f"{code.name}: {details}", "8500 is usual for gRPC")


class RestClient(Client):
    """POST to URL/v1/models/NAME:predict."""

    def _ask(self, texts):
        path = f"/v1/models/{urllib.parse.quote(self.model, safe='')}"
        path += "" if self.version is None else f"/versions/{self.version}"
        # Rows: a string is one row of `texts`, the only input.
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
            raise self.absent(details, "8501 is usual for REST") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise self.late() from error
            details = str(reason) or type(reason).__name__
            raise self.absent(details, "8501 is usual for REST") from error
        # Several outputs come as objects, a single one as bare values.
        rows = [row if isinstance(row, dict) else {"": row} for row in rows]
        if not all({"translations", ""} & set(row) for row in rows):
            raise self.refused(f"it answers with {sorted(rows[0])}")
        return [row.get("translations", row.get("")) for row in rows]

    def _explained(self, code, body):
        try:
            details = json.loads(body)["error"]
        except (ValueError, TypeError, KeyError):
            details = body.decode("utf-8", "replace")[:200]
        if code == 404:
            return self.unknown(details)
        if code in (408, 504):
            return self.late()
        if code in (400, 412):
            return self.refused(details)
        return self.absent(f"HTTP {code}: {details}", "8501 is usual for REST")


def main(arguments=None):
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--grpc", metavar="HOST:PORT", help="ask by gRPC")
    where.add_argument("--rest", metavar="URL", help="ask by REST: http://HOST:PORT")
    add("--model", required=True, metavar="NAME", help="as the server knows it")
    add("--version", type=int, metavar="N", help="of the model: the newest")
    default = "serving_default"
    add("--signature", default=default, metavar="NAME", help=f"to call: {default}")
    add("--timeout", type=float, default=30, metavar="S", help="seconds a request: 30")
    add("--batch", type=int, default=64, metavar="N", help="lines a request: 64")
    add("--file", metavar="FILE", help="lines to translate: standard input")
    add("texts", nargs="*", metavar="TEXT", help="to translate, instead of a file")
    options = parser.parse_args(arguments)
    if options.batch < 1 or options.timeout <= 0:
        parser.error("--batch must be at least 1 and --timeout more than 0")
    if options.texts and options.file:
        parser.error("give texts or --file, not both")
    if options.rest and not options.rest.startswith(("http://", "https://")):
        parser.error(f"--rest takes http://HOST:PORT, received {options.rest!r}")

    from keras_vqem.text.lines import answer_lines

    kind = GrpcClient if options.grpc else RestClient
    asked = (options.model, options.version, options.signature, options.timeout)
    try:
        client = kind(options.grpc or options.rest, *asked)
        answer_lines(client.translate, options.batch, options.file, options.texts)
    except (ImportError, OSError, ServerError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
