"""How long a translation takes: LatentNMT beside our own KV-cached Transformer.

    python recipes/benchmark_decoding.py --json out/decoding.json

Random weights at the paper's size by default: 6 + 6 layers, width 512, filter 2048, a
vocabulary of 32,768, n_c = 3, 27 tokens in and out, one sentence at a time. Every
model is exported as a SavedModel from ids to ids and read back; all are then timed in
one run, in interleaved rounds. Lengths are forced, as random weights do not know when
to end: the Transformer writes 27 tokens; LatentNMT predicts as many codes as 27 tokens
and the end of the sentence need, and then the end of the codes. Run it while nothing
else runs, and compare ratios, not milliseconds.
"""

import argparse
import pathlib
import tempfile


class Vocabulary:
    """All that an untrained model needs of a tokenizer."""

    def __init__(self, size):
        self.vocabulary_size = size


def export(model, folder, tokens, **options):
    """The function of a SavedModel that translates ids [1, tokens]."""
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
    # `served` is in the closure: its weights live as long as it does.
    return lambda: served.serve(source_ids).numpy()


def end_as_soon_as_allowed(predictor):
    """Makes the end of the codes by far the most probable code, at every position."""
    import numpy as np

    predictor.decoder.norm.beta.assign(np.ones(predictor.hidden_dim))
    embeddings = predictor.embedding.embeddings.numpy()
    embeddings[predictor.end_code] = 1.0
    predictor.embedding.embeddings.assign(embeddings)


def contestants(arguments, folder):
    import keras

    from keras_vqem import layers, models

    keras.utils.set_random_seed(0)
    sizes = {
        "hidden_dim": arguments.hidden_dim,
        "num_encoder_layers": arguments.num_encoder_layers,
        "num_decoder_layers": arguments.num_decoder_layers,
        "num_heads": arguments.num_heads,
        "intermediate_dim": arguments.intermediate_dim,
    }
    vocabulary = Vocabulary(arguments.vocabulary)
    length = {"min_length": arguments.tokens, "max_length": arguments.tokens}
    teacher = models.Transformer(vocabulary, **sizes)
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
                **sizes,
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


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--hidden-dim", type=int, default=512, help="(%(default)s)")
    add("--intermediate-dim", type=int, default=2048, help="(%(default)s)")
    add("--num-heads", type=int, default=8, help="(%(default)s)")
    add("--num-encoder-layers", type=int, default=6, help="(%(default)s)")
    add("--num-decoder-layers", type=int, default=6, help="(%(default)s)")
    add("--num-predictor-layers", type=int, nargs="+", default=[2, 6], metavar="N")
    add(
        "--num-compress-steps",
        type=int,
        nargs="+",
        default=[3, 4],
        metavar="N",
        help="n_c",
    )
    add("--vocabulary", type=int, default=32_768, help="(%(default)s)")
    add("--num-codes", type=int, default=4096, help="(%(default)s)")
    add("--tokens", type=int, default=27, help="in and out (%(default)s)")
    add("--rounds", type=int, default=30, help="(%(default)s)")
    add("--json", type=pathlib.Path, metavar="FILE", help="write the results there")
    arguments = parser.parse_args(arguments)

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
        settings = {k: v for k, v in vars(arguments).items() if k != "json"}
        results = {name: times._asdict() for name, times in found.items()}
        report = {"settings": settings, "results": results, **environment()}
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()
