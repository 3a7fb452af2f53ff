"""keras-vqem: the command, with a file for each of its subcommands."""

import argparse
from collections.abc import Sequence

from keras_vqem.command import (
    compress,
    decompress,
    demo,
    evaluate,
    export,
    score,
    translate,
    zoo,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command.

    Args:
        arguments: Arguments of the command. None takes those of the process.
    """
    # keras_vqem/quiet.py reads --verbose before this runs; here it is only declared.
    shared = argparse.ArgumentParser(add_help=False)
    help = "print the log messages of TensorFlow, and tracebacks of errors"
    shared.add_argument(
        "--verbose", action="store_true", default=argparse.SUPPRESS, help=help
    )
    parser = argparse.ArgumentParser(
        prog="keras-vqem",
        description="Try, use and export trained vector-quantized models: translators "
        "of captions and everyday sentences, autoencoders of images. "
        "The scripts in recipes/ train and measure them.",
        parents=[shared],
    )
    parser.set_defaults(verbose=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, module in (
        ("compress", compress),
        ("decompress", decompress),
        ("demo", demo),
        ("evaluate", evaluate),
        ("export", export),
        ("score", score),
        ("translate", translate),
        ("zoo", zoo),
    ):
        summary = module.__doc__.splitlines()[0]
        command = commands.add_parser(
            name, help=summary, description=module.__doc__, parents=[shared]
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run, parser=command)
    options = parser.parse_args(arguments)
    options.run(options.parser, options)


if __name__ == "__main__":
    main()
