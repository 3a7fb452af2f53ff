"""Writes a trained Transformer as a CTranslate2 model, and checks that it is the same.

    make .venv-peers/.ready
    python recipes/export_ctranslate2.py --model multi30k_en_de_teacher \\
        --output models/ct2_teacher --peers .venv-peers/bin/python

CTranslate2 is a fast runtime for Transformers on CPUs and GPUs. It needs neither
TensorFlow nor this package, so it can serve a teacher, or distill with it. Before the
folder gets its name, the model in float32 must write the same ids as ours, greedily and
with 4 beams. --texts are the sentences for that; without them, random tokens are used.
"""

import pathlib
import tempfile

from arguments import add_number, make_parser, user_errors

STORED = ("float32", "int8", "int8_bfloat16", "bfloat16", "int16", "float16")


def random_sources(model, number, seed=0):
    """Returns `number` lists of random ids, each ended by id 1."""
    import numpy as np

    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 25, number)
    size = model.tokenizer.vocabulary_size
    return [[*rng.integers(3, size, length).tolist(), 1] for length in lengths]


def differences(model, folder, rows, python, num_beams):
    """Counts the rows that both runtimes translate differently."""
    import keras

    from keras_vqem.serving import ctranslate2_translate

    length = 2 * max(map(len, rows))
    ours = model.translate_ids(
        keras.utils.pad_sequences(rows, padding="post"),
        num_beams=num_beams,
        length_penalty=0.0,
        max_length=length,
    )
    ours = [row[: row.index(1)] if 1 in row else row for row in ours.numpy().tolist()]
    theirs = ctranslate2_translate(
        folder,
        rows,
        python,
        beam_size=num_beams,
        length_penalty=0,
        min_decoding_length=0,
        max_decoding_length=length,
    )
    return sum(a != b for a, b in zip(ours, theirs, strict=True))


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    model_help = "folder of a finished run, .keras file or preset of a Transformer"
    add("--model", type=pathlib.Path, required=True, metavar="RUN", help=model_help)
    help = "folder of the CTranslate2 model, which must not exist yet"
    add("--output", type=pathlib.Path, required=True, metavar="DIR", help=help)
    peers_help = "Python interpreter that has the package ctranslate2"
    add("--peers", required=True, metavar="PYTHON", help=peers_help)
    help = "how weights are stored (default: %(default)s)"
    add("--quantization", choices=STORED, default="float32", help=help)
    texts_help = "file with one source sentence per line, for the check"
    add("--texts", type=pathlib.Path, metavar="FILE", help=texts_help)
    add_number(parser, "--sentences", 50, "number of sentences to check")
    options = parser.parse_args(arguments)
    if options.output.exists():
        parser.error(f"--output {options.output} exists already")

    from keras_vqem.models import Transformer, loading
    from keras_vqem.serving import write_ctranslate2

    model = loading.load_model(options.model, Transformer)
    if options.texts:
        lines = options.texts.read_text(encoding="utf-8").splitlines()
        rows = model.tokenizer.encode(lines[: options.sentences]).to_list()
    else:
        rows = random_sources(model, options.sentences)
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "model"
        write_ctranslate2(model, folder, options.peers)
        for num_beams in (1, 4):
            wrong = differences(model, folder, rows, options.peers, num_beams)
            if wrong:
                raise RuntimeError(
                    f"CTranslate2 translates {wrong} of {len(rows)} sentences "
                    f"differently with {num_beams} beam(s), so nothing was written. "
                    f"Compare versions: requirements/peers.txt has the one tried."
                )
    print(f"greedy and 4 beams: the same ids for {len(rows)} sentences")
    quantization = None if options.quantization == "float32" else options.quantization
    write_ctranslate2(model, options.output, options.peers, quantization)
    size = sum(file.stat().st_size for file in options.output.iterdir())
    print(f"wrote {options.output}, {size / 1e6:.1f} MB, {options.quantization}")


if __name__ == "__main__":
    main()
