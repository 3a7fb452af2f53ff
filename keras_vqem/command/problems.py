"""How the commands tell a user what went wrong."""

import contextlib
import json


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


class Refused(Exception):
    """What a visitor of the page asked for cannot be done; the message says why.

    Args:
        message: Sentence for the visitor.
        status: HTTP status of the answer.
    """

    def __init__(self, message, status=400):
        super().__init__(message)
        self.status = status


def said(value):
    """A value of a request as it was written, cut to what fits into a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."
