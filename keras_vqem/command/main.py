"""keras-vqem: translate, zoo, demo, export."""

import argparse
import os


def main(arguments=None):
    # Said before TensorFlow is imported: its greetings are not for users.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from keras_vqem.command import demo, export, translate, zoo

    parser = argparse.ArgumentParser(
        prog="keras-vqem",
        description="Trained vector-quantized models: try, translate captions, export. "
        "Training and measuring are scripts: see recipes/.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, module in (
        ("demo", demo),
        ("export", export),
        ("translate", translate),
        ("zoo", zoo),
    ):
        summary = module.__doc__.splitlines()[0]
        command = commands.add_parser(name, help=summary, description=module.__doc__)
        module.add_arguments(command)
        command.set_defaults(run=module.run, parser=command)
    options = parser.parse_args(arguments)
    options.run(options.parser, options)


if __name__ == "__main__":
    main()
