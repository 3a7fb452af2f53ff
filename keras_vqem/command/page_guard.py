"""Which requests the demo page answers: its own, complete ones, one at a time."""

import contextlib
import threading
from collections.abc import Iterator

import flask
from werkzeug import serving

from keras_vqem.command.problems import Refused

READ_SECONDS = 10  # without a byte from a client, or to it
WAIT_SECONDS = 10  # for the requests before
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class RequestHandler(serving.WSGIRequestHandler):
    """Gives up on clients that keep a connection open and send nothing."""

    timeout = READ_SECONDS


class Turns:
    """Lets one request work at a time: parallel ones would distort each other's times.

    A request that cannot start in time is told so. Otherwise a few slow ones would keep
    all others waiting, each with a thread of its own.
    """

    def __init__(self):
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Context manager for the work of a request."""
        if not self._lock.acquire(timeout=WAIT_SECONDS):
            raise Refused("The page is busy. Try again in a few seconds.", 503)
        try:
            yield
        finally:
            self._lock.release()


def protect(app: flask.Flask) -> None:
    """Refuses requests of other sites, and adds headers that browsers act on.

    A foreign page in the same browser can send simple requests, even to this machine.
    It could not read the answers, but keep the models busy.

    Args:
        app: The application of the page.
    """

    @app.before_request
    def refuse_other_sites():
        request = flask.request
        if not request.path.startswith("/api/"):
            return
        origin = request.headers.get("Origin")
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        own = origin in (None, request.host_url.rstrip("/"))
        if not own or site not in ("same-origin", "none"):
            raise Refused("Only the page itself may ask for this.", 403)

    @app.after_request
    def add_headers(response):
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if response.status_code == 503:
            response.headers["Retry-After"] = str(WAIT_SECONDS)
        return response
