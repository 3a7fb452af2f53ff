"""Lists the trained models that come with the package, and their terms of use.

The translators know English captions of photos, and nothing else.
"""

from keras_vqem.command import problems


def add_arguments(parser):
    """Adds none: it lists them all."""


def run(parser, options):
    from keras_vqem import zoo

    with problems.told_by(parser):
        print(zoo.table())
