"""Lines in, translations out.

    python recipes/translate.py --model runs/latent < lines.en > lines.de
    python recipes/translate.py --model runs/teacher --num-beams 4 --file lines.en
    python recipes/translate.py --model multi30k_en_de_em "Two dogs play."

Line n of the output translates line n of the input; an empty line gives an empty one,
and bytes that are not UTF-8 are read as U+FFFD. Without texts and without --file it
reads standard input and answers as lines come: type one and press Enter. The command
`keras-vqem translate` is the same.
"""

from arguments import make_parser


def main(arguments=None):
    parser = make_parser(__doc__)
    from keras_vqem.command import translate

    translate.add_arguments(parser)
    translate.run(parser, parser.parse_args(arguments))


if __name__ == "__main__":
    main()
