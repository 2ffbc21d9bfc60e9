"""A WSGI application that knows neither Nudge nor signals: it reads its environment when it is imported."""

import os

GREETING = os.environ["GREETING"]


def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{GREETING}\n".encode()]
