"""Translates lines: of arguments, a file, or standard input as they come."""

DEFAULT = "multi30k_en_de_em"


def add_arguments(parser):
    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    help = f"preset, finished run or .keras file: {DEFAULT}"
    add("--model", default=DEFAULT, help=help)
    add("--num-beams", default=1, **number, help="1 is greedy, 4 slower and better: 1")
    add("--batch-size", default=64, **number, help="lines translated at a time: 64")
    add("--chunk", default=1024, **number, help="most lines read before writing: 1024")
    add("--file", metavar="FILE", help="lines to translate: standard input")
    add("texts", nargs="*", metavar="TEXT", help="to translate, instead of a file")


def run(parser, options):
    if min(options.num_beams, options.batch_size, options.chunk) < 1:
        parser.error("--num-beams, --batch-size and --chunk must be at least 1")
    if options.texts and options.file:
        parser.error("give texts or --file, not both")

    from keras_vqem.models.loading import load_translator
    from keras_vqem.text.lines import answer_lines

    try:
        model = load_translator(options.model)
        answer_lines(
            lambda texts: model.translate(
                texts, batch_size=options.batch_size, num_beams=options.num_beams
            ),
            options.chunk,
            options.file,
            options.texts,
        )
    except (OSError, ValueError) as error:
        parser.error(str(error))
