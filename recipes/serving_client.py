"""Translates lines with a TensorFlow Serving server.

    python recipes/serving_client.py --grpc localhost:8500 --model en_de "Two dogs."
    python recipes/serving_client.py --rest http://localhost:8501 --model en_de \\
        --file lines.en > lines.de

Line n of the output is the translation of line n of the input. Empty lines stay empty,
and bytes that are not UTF-8 are read as U+FFFD. Without texts and --file it reads
standard input and answers line by line. Several translations of a line, from a model
exported with --num-return-sequences, are separated by tabs. docs/serving.md shows how
to start a server.
"""

from arguments import add_number, make_parser, user_errors


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--grpc", metavar="HOST:PORT", help="gRPC address of the server")
    where.add_argument(
        "--rest", metavar="URL", help="REST address of the server: http://HOST:PORT"
    )
    help = "name of the model on the server"
    add("--model", required=True, metavar="NAME", help=help)
    version_help = "version of the model (default: the newest)"
    add("--version", type=int, metavar="N", help=version_help)
    signature_help = "signature to call (default: %(default)s)"
    add("--signature", default="serving_default", metavar="NAME", help=signature_help)
    add_number(parser, "--timeout", 30.0, "seconds to wait for an answer")
    add_number(parser, "--batch-size", 64, "number of lines per request")
    file_help = "file with one text per line (default: standard input)"
    add("--file", metavar="FILE", help=file_help)
    add("texts", nargs="*", metavar="TEXT", help="text to translate, instead of a file")
    options = parser.parse_args(arguments)
    if options.timeout <= 0:
        parser.error("--timeout must be more than 0")
    if options.texts and options.file:
        parser.error("pass texts or --file, not both")
    if options.rest and not options.rest.startswith(("http://", "https://")):
        parser.error(f"--rest takes http://HOST:PORT, received {options.rest!r}")

    from keras_vqem.serving import GrpcClient, RestClient
    from keras_vqem.text.lines import answer_lines

    kind = GrpcClient if options.grpc else RestClient
    client = kind(
        options.grpc or options.rest,
        model=options.model,
        version=options.version,
        signature=options.signature,
        timeout=options.timeout,
    )

    def line(answer):
        if isinstance(answer, str):
            return answer
        # The model was exported with num_return_sequences.
        return "\t".join(text.replace("\t", " ") for text in answer)

    def translate(texts):
        return list(map(line, client.translate(texts)))

    answer_lines(translate, options.batch_size, options.file, options.texts)


if __name__ == "__main__":
    main()
