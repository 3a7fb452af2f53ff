"""Translates lines with a trained model, like the command `keras-vqem translate`.

    python recipes/translate.py --model runs/latent < lines.en > lines.de
    python recipes/translate.py --model runs/teacher --num-beams 4 --file lines.en
    python recipes/translate.py --model multi30k_en_de_em "Two dogs play."

Line n of the output is the translation of line n of the input. Empty lines stay empty,
and bytes that are not UTF-8 are read as U+FFFD. Without texts and --file it reads
standard input and answers line by line: type a line and press Enter.
"""

from arguments import make_parser, user_errors


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    from keras_vqem.command import translate

    translate.add_arguments(parser)
    translate.run(parser, parser.parse_args(arguments))


if __name__ == "__main__":
    main()
