"""Measures the time of a translation: LatentNMT beside our KV-cached Transformer.

    python recipes/benchmark_decoding.py --json out/decoding.json

Random weights at the paper's size by default: 6 + 6 layers, hidden_dim 512,
intermediate_dim 2048, a vocabulary of 32,768, n_c = 3, 27 tokens in and out, one
sentence at a time. Every model is exported as a SavedModel from ids to ids and loaded
again; all are then timed in one process, in turns. Lengths are fixed, because random
weights do not predict an end: the Transformer writes 27 tokens; LatentNMT predicts as
many codes as 27 tokens and the end of the sentence need, and then the end of the codes.
Run it on an idle machine, and compare ratios, not milliseconds.
"""

import pathlib
import tempfile

from arguments import (
    add_number,
    add_sizes,
    make_parser,
    positive,
    sizes,
    user_errors,
)


class Vocabulary:
    """Stands in for a tokenizer in models that are not trained."""

    def __init__(self, size):
        self.vocabulary_size = size


def export(model, folder, tokens, **options):
    """Exports a model and returns a function that translates ids [1, tokens]."""
    import keras
    import tensorflow as tf

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint(
        "serve",
        lambda source_ids: model.translate_ids(source_ids, **options),
        [tf.TensorSpec([None, None], "int32")],
    )
    archive.write_out(str(folder), verbose=False)
    served = tf.saved_model.load(str(folder))
    source_ids = tf.concat(
        [3 + tf.range(tokens - 1)[None] % 1000, tf.ones((1, 1), "int32")], axis=1
    )
    # The closure keeps `served`, and so its weights, alive.
    return lambda: served.serve(source_ids).numpy()


def end_as_soon_as_allowed(predictor):
    """Makes the end of the codes by far the most probable code at every position."""
    import numpy as np

    predictor.decoder.norm.beta.assign(np.ones(predictor.hidden_dim))
    embeddings = predictor.embedding.embeddings.numpy()
    embeddings[predictor.end_code] = 1.0
    predictor.embedding.embeddings.assign(embeddings)


def contestants(arguments, folder):
    import keras

    from keras_vqem import layers, models

    keras.utils.set_random_seed(0)
    network = sizes(arguments)
    vocabulary = Vocabulary(arguments.vocabulary)
    length = {"min_length": arguments.tokens, "max_length": arguments.tokens}
    teacher = models.Transformer(vocabulary, **network)
    teacher.build()
    found = {
        "Transformer, greedy": export(
            teacher, folder / "greedy", arguments.tokens, **length
        ),
        "Transformer, beam 4": export(
            teacher, folder / "beam", arguments.tokens, num_beams=4, **length
        ),
    }
    for num_compress_steps in arguments.num_compress_steps:
        # The codes of all tokens and the end of the sentence; then the end of codes.
        codes = -(-(arguments.tokens + 1) // 2**num_compress_steps)
        for num_layers in arguments.num_predictor_layers:
            model = models.LatentNMT(
                vocabulary,
                layers.VQEMBottleneck(
                    arguments.num_codes, initializer="random_normal", num_samples=10
                ),
                num_compress_steps=num_compress_steps,
                num_predictor_layers=num_layers,
                **network,
            )
            model.build()
            end_as_soon_as_allowed(model.predictor)
            name = (
                f"LatentNMT, n_c={num_compress_steps}, predictor of {num_layers} layers"
            )
            found[name] = export(
                model,
                folder / f"latent_{num_compress_steps}_{num_layers}",
                arguments.tokens,
                min_codes=codes,
            )
    return found


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    add_sizes(
        parser,
        hidden_dim=512,
        intermediate_dim=2048,
        num_heads=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
    )
    many = {"type": positive, "nargs": "+", "metavar": "N"}
    help = "numbers of predictor layers to try (default: 2 6)"
    add("--num-predictor-layers", default=[2, 6], **many, help=help)
    help = "numbers of compress steps, n_c, to try (default: 3 4)"
    add("--num-compress-steps", default=[3, 4], **many, help=help)
    add_number(parser, "--vocabulary", 32_768, "size of the vocabulary")
    add_number(parser, "--num-codes", 4096, "size of the codebook")
    help = "number of tokens in the source and in the translation"
    add_number(parser, "--tokens", 27, help)
    add_number(parser, "--rounds", 30, "number of timed calls per model")
    json_help = "file for all numbers, as JSON"
    add("--json", type=pathlib.Path, metavar="FILE", help=json_help)
    arguments = parser.parse_args(arguments)
    if arguments.hidden_dim % arguments.num_heads:
        parser.error("--hidden-dim must be a multiple of --num-heads")

    from keras_vqem.evaluation import latency
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.files import write_json

    with tempfile.TemporaryDirectory() as folder:
        print("exporting ...", flush=True)
        functions = contestants(arguments, pathlib.Path(folder))
        print(f"timing {arguments.rounds} rounds ...", flush=True)
        found = latency.measure(functions, rounds=arguments.rounds)
    greedy, beam = list(found.values())[:2]
    rows = ["| model | median ms | p95 ms | over greedy | over beam 4 |"]
    rows.append("| --- | ---: | ---: | ---: | ---: |")
    for name, times in found.items():
        rows.append(
            f"| {name} | {times.median_ms:.1f} | {times.p95_ms:.1f} "
            f"| {greedy.median_ms / times.median_ms:.2f}x "
            f"| {beam.median_ms / times.median_ms:.2f}x |"
        )
    print("\n".join(rows))
    if arguments.json:
        other = ("json", "verbose")
        settings = {k: v for k, v in vars(arguments).items() if k not in other}
        results = {name: times._asdict() for name, times in found.items()}
        report = {"settings": settings, "results": results, **environment()}
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()
