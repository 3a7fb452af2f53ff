"""Lists the trained models that come with the package."""


def add_arguments(parser):
    """It takes none."""


def run(parser, options):
    from keras_vqem import zoo

    print(zoo.table())
