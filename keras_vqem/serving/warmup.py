"""Warm-up requests, which TensorFlow Serving runs while it loads a model."""

import itertools
import math
import os
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_vqem.files import replacing
from keras_vqem.serving.api import serving_api

# TensorFlow Serving reads this file, and does not load a model with more records.
PLACE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")
MOST_RECORDS = 1000


def write_warmup(
    folder: str | os.PathLike,
    rows: Sequence[str] | np.ndarray,
    batch_sizes: Sequence[int] = (1, 8, 64),
    signature: str = "serving_default",
) -> pathlib.Path:
    """Writes warm-up requests into an exported model.

    The first request of each kind is slow, because TensorFlow initializes lazily.
    TensorFlow Serving runs the requests of this file before it offers a version to
    clients. All rows are sent once per batch size; the last batch is filled with rows
    from the start.

    Args:
        folder: Folder of an exported version, such as `models/en_de/1`.
        rows: Examples of inputs: short and long strings for a translator, a uint8
            array `[N, H, W, 3]` for a model of images.
        batch_sizes: Numbers of rows per request, at most the `max_batch_size` of a
            server with batching.
        signature: Name of a signature with a single input.

    Returns:
        Path of the file. It holds at most 1,000 requests.

    Reference:
        https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    folder = pathlib.Path(folder)
    rows, batch_sizes = _rows(rows), tuple(batch_sizes)
    if not batch_sizes or min(batch_sizes) < 1:
        raise ValueError(
            f"`batch_sizes` must be integers of at least 1, received {batch_sizes}. "
            "Leave it out for 1, 8 and 64 rows."
        )
    count = sum(math.ceil(len(rows) / size) for size in batch_sizes)
    if count > MOST_RECORDS:
        raise ValueError(
            f"{len(rows)} rows at batch sizes {batch_sizes} are {count} requests; "
            f"TensorFlow Serving takes at most {MOST_RECORDS}. Pass fewer rows; a few "
            "dozen of all lengths are enough."
        )
    name, info = _single_input(folder, signature)
    requests = []
    for size in batch_sizes:
        for batch in _batches(rows, size):
            request = _request(folder.resolve().parent.name, signature)
            request.predict_log.request.inputs[name].CopyFrom(_tensor(batch, info))
            requests.append(request)
    path = folder / PLACE
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        with tf.io.TFRecordWriter(str(temporary)) as writer:
            for request in requests:
                writer.write(request.SerializeToString())
    return path


def _rows(rows):
    if isinstance(rows, str | bytes):
        raise ValueError(
            "`rows` must be a list of strings, received a single string. "
            f"Write write_warmup(folder, [{rows!r}])."
        )
    rows = list(rows)
    if not rows:
        raise ValueError(
            "There is nothing to warm up with: `rows` is empty. Pass a few dozen texts "
            "or images like those that clients will send."
        )
    return rows


def _single_input(folder, signature):
    """Returns the name of a signature's input and the proto of its dtype and shape."""
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
    if len(takes.get(signature, [])) != 1:
        raise ValueError(
            f"Warm-up needs a signature with one input, which {signature!r} of "
            f"{folder} is not. Its signatures and their inputs are {takes}."
        )
    return next(iter(graph.signature_def[signature].inputs.items()))


def _tensor(batch, info):
    """Returns the batch as a proto. A server would not load one that does not fit."""
    dtype, shape = tf.as_dtype(info.dtype), tf.TensorShape(info.tensor_shape)
    try:
        if dtype != tf.string:
            batch = np.asarray(batch)
        found = tf.make_tensor_proto(batch, dtype)
        fits = shape.is_compatible_with(found.tensor_shape)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(
            f"The model takes {dtype.name} {shape.as_list()}, and the rows to warm up "
            f"with do not fit. Pass strings for a translator, and an array of the "
            f"right size for a model of images."
        )
    return found


def _batches(rows, size):
    endless = itertools.cycle(rows)
    for _ in range(math.ceil(len(rows) / size)):
        yield list(itertools.islice(endless, size))


def _request(model, signature):
    log = serving_api("apis.prediction_log_pb2").PredictionLog()
    spec = log.predict_log.request.model_spec
    spec.name, spec.signature_name = model, signature
    return log
