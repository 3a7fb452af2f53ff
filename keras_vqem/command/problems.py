"""How the commands tell a user what went wrong."""

import contextlib


@contextlib.contextmanager
def told_by(parser):
    """Turns what a user can put right into one sentence and exit status 2.

    Other errors are ours, and keep their traceback.
    """
    try:
        yield
    except KeyboardInterrupt:
        parser.exit(130, "\n")
    except (ImportError, OSError, ValueError) as error:
        message = " ".join(str(error).split())
        parser.exit(2, f"{parser.prog}: error: {message}\n")
