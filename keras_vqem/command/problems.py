"""Errors that a user can correct, as one sentence."""

import argparse
import contextlib
import json
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def told_by(parser: argparse.ArgumentParser, verbose: bool = False) -> Iterator[None]:
    """Turns errors that a user can correct into one sentence and exit status 2.

    Other errors are bugs and keep their traceback.

    Args:
        parser: Parser of the command, whose name the message starts with.
        verbose: Whether these errors keep their traceback, too.
    """
    try:
        yield
    except KeyboardInterrupt:
        parser.exit(130, "\n")
    except (ImportError, OSError, ValueError) as error:
        if verbose:
            raise
        message = " ".join(str(error).split())
        if isinstance(error, OSError) and error.strerror and error.filename:
            message = f"{error.filename}: {error.strerror}."
        parser.exit(2, f"{parser.prog}: error: {message}\n")


class Refused(Exception):
    """Raised if a request of the page cannot be answered.

    Args:
        message: Sentence that says why.
        status: HTTP status of the response.
    """

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status


def said(value: Any) -> str:
    """Returns a value of a request as JSON, cut to at most 40 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= 40 else text[:37] + "..."
