"""Lines in, translations out.

    python recipes/translate.py --model runs/latent < lines.en > lines.de
    python recipes/translate.py --model saved_models/teacher.keras --beams 4 lines.en

Line n of the output translates line n of the input; an empty line gives an empty one,
and bytes that are not UTF-8 are read as U+FFFD. Without FILE it reads standard input
and answers as lines come: type one and press Enter.
"""

import argparse
import os
import sys


def translated(model, lines, **options):
    """The translations of lines of bytes, as one block of lines."""
    from keras_vqem.text.lines import one_line

    texts = [line.decode("utf-8", "replace") for line in lines]
    places = [place for place, text in enumerate(texts) if text.strip()]
    found = [""] * len(texts)
    outputs = model.translate([texts[place] for place in places], **options)
    for place, output in zip(places, outputs, strict=True):
        found[place] = one_line(output)
    return "".join(text + "\n" for text in found).encode("utf-8", "replace")


def main(arguments=None):
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    model_help = "folder of a finished run, or a .keras file"
    add("--model", required=True, metavar="RUN", help=model_help)
    add("--beams", default=1, **number, help="1 is greedy, 4 slower and better: 1")
    add("--batch-size", default=64, **number, help="lines translated at a time: 64")
    add("--chunk", default=1024, **number, help="most lines read before writing: 1024")
    add("file", nargs="?", metavar="FILE", help="lines to translate: standard input")
    options = parser.parse_args(arguments)
    if min(options.beams, options.batch_size, options.chunk) < 1:
        parser.error("--beams, --batch-size and --chunk must be at least 1")

    from keras_vqem.evaluation.trained import load_translator
    from keras_vqem.text.lines import line_chunks

    try:
        # Unbuffered: line_chunks asks the system whether more is there.
        source = open(options.file or sys.stdin.fileno(), "rb", buffering=0)
        model = load_translator(options.model)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    choices = {"batch_size": options.batch_size, "beams": options.beams}
    try:
        for lines in line_chunks(source.fileno(), options.chunk):
            sys.stdout.buffer.write(translated(model, lines, **choices))
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader, `head` perhaps, has enough. Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
