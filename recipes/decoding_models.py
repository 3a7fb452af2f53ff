"""Models of benchmark_decoding.py: random weights or presets, exported, loaded again.

Only recipes and their workers import this module, after the library may be imported.
"""

import functools

import keras
import numpy as np
import tensorflow as tf

from keras_vqem import layers, models
from keras_vqem.models import compiled, loading

MANY = 1_000_000  # more ids than any translation has: the end is never allowed
SEED = 0


@keras.saving.register_keras_serializable(package="keras_vqem_recipes")
class Vocabulary:
    """Stands in for a tokenizer in models that are not trained."""

    def __init__(self, vocabulary_size):
        self.vocabulary_size = vocabulary_size

    def get_config(self):
        return {"vocabulary_size": self.vocabulary_size}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def build(name, settings):
    """Makes a model with random weights, the same ones in every process.

    Args:
        name: `"transformer"`, `"shallow"` (12 + 1 layers), `"ctc"`, `"latent_N_P"` or
            `"codes_N_P"` (a `LatentNMT` with words by CTC), for n_c = N and P predictor
            layers.
        settings: Dict with the sizes `network`, `vocabulary` and `num_codes`.
    """
    keras.utils.set_random_seed(SEED)
    vocabulary, network = Vocabulary(settings["vocabulary"]), settings["network"]
    kind, *numbers = name.split("_")
    if kind == "shallow":
        total = network["num_encoder_layers"] + network["num_decoder_layers"]
        depths = {"num_encoder_layers": total, "num_decoder_layers": 1}
        network = {**network, **depths}
    if kind in ("transformer", "shallow"):
        model = models.Transformer(vocabulary, **network)
    elif kind == "ctc":
        model = models.CTCTranslator(vocabulary, **network)
    else:
        num_compress_steps, num_predictor_layers = map(int, numbers)
        model = models.LatentNMT(
            vocabulary,
            layers.VQEMBottleneck(
                settings["num_codes"], initializer="random_normal", num_samples=10
            ),
            num_compress_steps=num_compress_steps,
            num_predictor_layers=num_predictor_layers,
            word_output=models.CTCOutput() if kind == "codes" else None,
            **network,
        )
    model.build()
    if isinstance(model, models.LatentNMT):
        end_as_soon_as_allowed(model.predictor)
    else:
        depend_on_the_source(model)
    return model


def end_as_soon_as_allowed(predictor):
    """Makes the end of the codes by far the most probable code at every position."""
    predictor.decoder.norm.beta.assign(np.ones(predictor.hidden_dim))
    embeddings = np.array(predictor.embedding.embeddings)
    embeddings[predictor.end_code] = 1.0
    predictor.embedding.embeddings.assign(embeddings)


def depend_on_the_source(model):
    """Makes blocks outweigh the embedding, which would only repeat its own token."""
    for weight in model.encoder.weights + model.decoder.weights:
        if len(weight.shape) > 1:
            weight.assign(3.0 * weight)


# Of --precision: float32, with parts of the graph compiled.
XLA = "float32-xla"


def in_precision(model, precision):
    """Returns the model with the weights and the arithmetic of a dtype policy."""
    if precision in ("float32", XLA):
        return model
    config = {**model.get_config(), "dtype": precision}
    twin = type(model).from_config(config)
    twin.build()
    twin.set_weights(model.get_weights())
    return twin


def forced(model, tokens):
    """Returns functions from ids to as many ids, by name: random weights do not end."""
    if isinstance(model, models.CTCTranslator):
        return {"ids": model.translate_ids}
    if isinstance(model, models.LatentNMT):

        def translate(source_ids, codes):
            return model.translate_ids(source_ids, min_codes=codes)

        # As many codes as the ids need; then the end of the codes.
        numbers = {n: -(-n // 2**model.num_compress_steps) for n in tokens}
        return {
            f"ids_{n}": functools.partial(translate, codes=codes)
            for n, codes in numbers.items()
        }

    def write(source_ids, num_beams):
        lengths = tf.reduce_sum(tf.cast(source_ids != 0, tf.int32), axis=1)
        return model.translate_ids(
            source_ids, num_beams=num_beams, min_length=MANY, max_length=lengths
        )

    beams = {"greedy": 1, "beam": 4}
    return {n: functools.partial(write, num_beams=k) for n, k in beams.items()}


def served(model, functions, precision, folder):
    """Writes a SavedModel from ids to ids and returns it, loaded again.

    The graphs are those of `model.export`, which has more of them and traces each
    several times.
    """
    module = tf.Module()
    module.weights = [weight.value for weight in model.weights]
    for name, function in functions.items():
        if precision == XLA:
            function = compiled.within(function)
        signature = [tf.TensorSpec([None, None], "int32")]
        graph = tf.function(function, input_signature=signature, autograph=False)
        setattr(module, name, graph)
    tf.saved_model.save(module, str(folder))
    return tf.saved_model.load(str(folder))


def of_preset(path, precision, folder):
    """Exports a trained translator: greedy, and with its stored options."""
    model = in_precision(loading.load_translator(path), precision)
    ways = {"greedy": {**model.generation_config, "num_beams": 1}}
    if model.generation_config.get("num_beams", 1) > 1:
        ways["stored"] = model.generation_config
    functions = {
        name: functools.partial(model.translate_ids, **options)
        for name, options in ways.items()
    }
    return served(model, functions, precision, folder)
