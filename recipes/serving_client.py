"""Lines to a TensorFlow Serving server, translations back.

    python recipes/serving_client.py --grpc localhost:8500 --model en_de "Two dogs."
    python recipes/serving_client.py --rest http://localhost:8501 --model en_de \\
        --file lines.en > lines.de

Line n of the output translates line n of the input; an empty line gives an empty one,
and bytes that are not UTF-8 are read as U+FFFD. Without texts and without --file it
reads standard input and answers as lines come. docs/serving.md starts the server.
"""

from arguments import make_parser


def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--grpc", metavar="HOST:PORT", help="gRPC address of the server")
    where.add_argument(
        "--rest", metavar="URL", help="REST address of the server: http://HOST:PORT"
    )
    add("--model", required=True, metavar="NAME", help="name of the model there")
    version_help = "version of the model (default: the newest)"
    add("--version", type=int, metavar="N", help=version_help)
    signature_help = "signature to call (default: %(default)s)"
    add("--signature", default="serving_default", metavar="NAME", help=signature_help)
    timeout_help = "seconds to wait for an answer (default: 30)"
    add("--timeout", type=float, default=30, metavar="S", help=timeout_help)
    batch_help = "lines per request (default: 64)"
    add("--batch", type=int, default=64, metavar="N", help=batch_help)
    file_help = "file of lines to translate (default: standard input)"
    add("--file", metavar="FILE", help=file_help)
    add("texts", nargs="*", metavar="TEXT", help="text to translate, instead of a file")
    options = parser.parse_args(arguments)
    if options.batch < 1 or options.timeout <= 0:
        parser.error("--batch must be at least 1 and --timeout more than 0")
    if options.texts and options.file:
        parser.error("give texts or --file, not both")
    if options.rest and not options.rest.startswith(("http://", "https://")):
        parser.error(f"--rest takes http://HOST:PORT, received {options.rest!r}")

    from keras_vqem.serving import GrpcClient, RestClient, ServerError
    from keras_vqem.text.lines import answer_lines

    kind = GrpcClient if options.grpc else RestClient
    try:
        client = kind(
            options.grpc or options.rest,
            model=options.model,
            version=options.version,
            signature=options.signature,
            timeout=options.timeout,
        )
        answer_lines(client.translate, options.batch, options.file, options.texts)
    except (ImportError, OSError) as error:
        parser.error(str(error))
    except ServerError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
