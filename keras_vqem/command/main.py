"""keras-vqem: translate, zoo, demo, export."""

import argparse

from keras_vqem.command import demo, export, translate, zoo


def main(arguments=None):
    # Read by keras_vqem/quiet.py, which runs before this: here it is only allowed.
    shared = argparse.ArgumentParser(add_help=False)
    help = "print TensorFlow's log messages too"
    shared.add_argument("--verbose", action="store_true", help=help)
    parser = argparse.ArgumentParser(
        prog="keras-vqem",
        description="Trained vector-quantized models: try, translate captions, export. "
        "Training and measuring are scripts: see recipes/.",
        parents=[shared],
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, module in (
        ("demo", demo),
        ("export", export),
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
