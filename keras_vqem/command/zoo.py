"""Lists the trained models that come with the package, and their terms of use.

The translators know English captions of photos or short everyday sentences, and nothing
else.
"""

import argparse

from keras_vqem.command import problems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments: all presets are listed."""


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Runs `keras-vqem zoo`."""
    from keras_vqem import zoo

    with problems.told_by(parser, options.verbose):
        print(zoo.table())
