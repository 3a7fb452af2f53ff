"""Requests that TensorFlow Serving runs as it loads a model, before any other."""

import itertools
import math
import pathlib

import tensorflow as tf

from keras_vqem.files import replacing
from keras_vqem.serving.api import serving_api

# Where TensorFlow Serving looks; with more records it refuses to load the model.
PLACE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")
MOST_RECORDS = 1000


def write_warmup(folder, texts, batch_sizes=(1, 8, 64), signature="serving_default"):
    """Writes warm-up requests into an exported translator.

    The first request of each kind is slow: TensorFlow sets up what it needs only
    then. TensorFlow Serving sends itself the requests of this file before it offers
    a version to others. All texts are sent at each of the batch sizes; the last
    batch is filled up with texts from the start.

    Args:
        folder: An exported version, such as `models/en_de/1`.
        texts: Strings as they will be asked for: short ones and long ones.
        batch_sizes: The numbers of rows. With batching on a server, no more than its
            `max_batch_size`.
        signature: One that takes `texts`.

    Returns:
        The path of the file. It holds at most 1,000 requests.

    Reference:
        https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    folder = pathlib.Path(folder)
    texts, batch_sizes = _texts(texts), tuple(batch_sizes)
    if not batch_sizes or min(batch_sizes) < 1:
        raise ValueError(
            f"`batch_sizes` must be numbers from 1, received {batch_sizes}. "
            "Leave it out for 1, 8 and 64 rows."
        )
    count = sum(math.ceil(len(texts) / size) for size in batch_sizes)
    if count > MOST_RECORDS:
        raise ValueError(
            f"{len(texts)} texts at batch sizes {batch_sizes} are {count} requests; "
            f"TensorFlow Serving takes at most {MOST_RECORDS}. Pass fewer texts: a few "
            "dozen of all lengths will do."
        )
    _check_signature(folder, signature)
    requests = [
        _request(batch, folder.resolve().parent.name, signature)
        for size in batch_sizes
        for batch in _batches(texts, size)
    ]
    path = folder / PLACE
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        with tf.io.TFRecordWriter(str(temporary)) as writer:
            for request in requests:
                writer.write(request.SerializeToString())
    return path


def _texts(texts):
    if isinstance(texts, str | bytes):
        raise ValueError(
            "`texts` must be a list of strings, received a single one. "
            f"Write write_warmup(folder, [{texts!r}])."
        )
    texts = list(texts)
    if not texts:
        raise ValueError(
            "There is no text to warm up with. Pass a few dozen lines of the kind "
            "that will be translated."
        )
    return texts


def _check_signature(folder, signature):
    """A request that does not fit would keep the server from loading the model."""
    from tensorflow.core.protobuf import saved_model_pb2

    path = folder / "saved_model.pb"
    if not path.is_file():
        raise ValueError(
            f"{folder} is not an exported model: it has no {path.name}. Pass a folder "
            "that `model.export` wrote, such as models/en_de/1."
        )
    graph = saved_model_pb2.SavedModel.FromString(path.read_bytes()).meta_graphs[0]
    takes = {
        name: sorted(found.inputs)
        for name, found in graph.signature_def.items()
        if not name.startswith("__")
    }
    if takes.get(signature) != ["texts"]:
        raise ValueError(
            f"Warm-up needs a signature that takes `texts` alone; {folder} has no "
            f"such {signature!r}. Its signatures and what they take: {takes}."
        )


def _batches(texts, size):
    endless = itertools.cycle(texts)
    for _ in range(math.ceil(len(texts) / size)):
        yield list(itertools.islice(endless, size))


def _request(texts, model, signature):
    log = serving_api("apis.prediction_log_pb2").PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    request.inputs["texts"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
    return log
