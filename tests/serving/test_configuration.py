"""The two text protos, parsed as `tensorflow_model_server` parses them."""

import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from tensorflow_serving.config import model_server_config_pb2

from keras_vqem.serving import add_model, write_configuration

MODELS = {"en_de": "/models/en_de", "de-en.2": 'gs://bucket/it\'s "de" ü'}


def batching_parameters():
    """The message of `--batching_parameters_file`.

    tensorflow-serving-api does not bring it: its fields as in TensorFlow Serving's
    servables/tensorflow/session_bundle_config.proto.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="batching_parameters_of_the_test.proto",
        package="keras_vqem_test",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    message = file.message_type.add(name="BatchingParameters")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, name in enumerate(
        [
            "max_batch_size",
            "batch_timeout_micros",
            "max_enqueued_batches",
            "num_batch_threads",
        ],
        start=1,
    ):
        message.field.add(
            name=name,
            number=number,
            type=kinds.TYPE_MESSAGE,
            type_name=".google.protobuf.Int64Value",
            label=kinds.LABEL_OPTIONAL,
        )
    message.field.add(
        name="allowed_batch_sizes",
        number=6,
        type=kinds.TYPE_INT64,
        label=kinds.LABEL_REPEATED,
    )
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindMessageTypeByName("keras_vqem_test.BatchingParameters")
    return message_factory.GetMessageClass(found)()


def test_the_files_parse(tmp_path):
    paths = write_configuration(tmp_path / "new", MODELS)
    assert [path.name for path in paths] == ["models.config", "batching.config"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        path.name for path in paths
    )
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse(paths[0].read_text(encoding="utf-8"), config)
    found = config.model_config_list.config
    assert {model.name: model.base_path for model in found} == MODELS
    assert {model.model_platform for model in found} == {"tensorflow"}
    batching = text_format.Parse(paths[1].read_text(), batching_parameters())
    assert batching.max_batch_size.value == 64
    assert batching.batch_timeout_micros.value == 2000
    assert batching.num_batch_threads.value == 4
    assert batching.max_enqueued_batches.value == 100
    assert not batching.allowed_batch_sizes


def test_numbers_are_those_given(tmp_path):
    numbers = {"max_batch_size": 8, "batch_timeout_micros": 0, "num_batch_threads": 1}
    numbers |= {"max_enqueued_batches": 3}
    paths = write_configuration(
        tmp_path, MODELS, **numbers, allowed_batch_sizes=(2, 4, 8)
    )
    batching = text_format.Parse(paths[1].read_text(), batching_parameters())
    for name, number in numbers.items():
        assert batching.HasField(name) and getattr(batching, name).value == number
    assert batching.allowed_batch_sizes == [2, 4, 8]


@pytest.mark.parametrize(
    "models, numbers, words",
    [
        ({}, {}, "no model to serve"),
        ({"a/b": "/models/a"}, {}, "part of URLs, received 'a/b'"),
        ({"": "/models/a"}, {}, "part of URLs"),
        ({"a": "models/a"}, {}, "absolute.*'models/a'.*/models/a"),
        (MODELS, {"max_batch_size": 0}, "`max_batch_size`.*at least 1, received 0"),
        (MODELS, {"batch_timeout_micros": -1}, "at least 0, received -1"),
        (MODELS, {"num_batch_threads": 1.5}, "integer.*received 1.5"),
        (MODELS, {"allowed_batch_sizes": (8, 32)}, "end with `max_batch_size`, .* 64"),
        (MODELS, {"allowed_batch_sizes": (64, 64)}, "must increase"),
    ],
)
def test_errors_say_what_was_expected(tmp_path, models, numbers, words):
    with pytest.raises(ValueError, match=words):
        write_configuration(tmp_path, models, **numbers)
    assert not list(tmp_path.iterdir())


def test_a_model_is_added_and_the_rest_kept(tmp_path):
    folder = tmp_path / "new"
    paths = add_model(folder, "en_de", "/models/en_de")
    assert [path.name for path in paths] == ["models.config", "batching.config"]
    assert folder.joinpath("batching.config").read_text() == (
        write_configuration(tmp_path, {"x": "/x"})[1].read_text()
    )
    # By hand: a version to serve, and smaller batches.
    text = (
        paths[0]
        .read_text()
        .replace(
            "base_path:",
            "model_version_policy { specific { versions: 3 } }\n base_path:",
        )
    )
    paths[0].write_text(text)
    paths[1].write_text("max_batch_size { value: 7 }\n")
    for name in ("de_en", "en_de"):
        add_model(folder, name, f"/models/{name}")
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse(paths[0].read_text(), config)
    models = config.model_config_list.config
    assert [model.name for model in models] == ["en_de", "de_en"]
    assert list(models[0].model_version_policy.specific.versions) == [3]
    assert paths[1].read_text() == "max_batch_size { value: 7 }\n"
    paths[0].write_text("{")
    with pytest.raises(ValueError, match="Correct it, or move it away"):
        add_model(folder, "third", "/models/third")
