#!/usr/bin/env python3
"""Reads its configuration from Nudge's agent, at start and again whenever the agent posts to its webhook.

In a pod, the agent also asks it here whether it takes a version, before the pod switches to it. The webhook follows the Standard Webhooks specification (https://www.standardwebhooks.com).
"""

import base64
import contextlib
import hmac
import http.client
import http.server
import json
import os
import queue
import re
import signal
import ssl
import sys
import threading
import time
import urllib.parse
import urllib.request


def token():
    """The pod's token: from the environment where the cluster can put it there, else from a file."""
    value = os.environ.get("MY_CONFIG_TOKEN")
    if value:
        return value
    with open(os.environ["MY_CONFIG_TOKEN_FILE"], encoding="ascii") as file:
        return file.read()


TOKEN = token()
SECRET = base64.b64decode(TOKEN)  # what the agent signs with
TOLERANCE = 5 * 60  # the most seconds that a delivery may be old; older ones may be replays

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
if "MY_CONFIG_CONTAINER" in os.environ:
    # Shows the agent which container subscribes, and which version it has read.
    HEADERS["Nudge-Container"] = os.environ["MY_CONFIG_CONTAINER"]

# Trusts only the pod's own authority. Uses no proxy, whatever the environment says: the agent is in this pod.
CLIENT = urllib.request.build_opener(
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=os.environ["MY_CONFIG_CERT"])),
    urllib.request.ProxyHandler({}),
)


def call(method, path, body=None):
    """Makes one request to the agent; returns its reply, whose body is read already, and that body."""
    headers = HEADERS if body is None else {**HEADERS, "Content-Type": "application/json"}
    url = urllib.parse.urljoin(os.environ["MY_CONFIG_ENDPOINT"], path)
    request = urllib.request.Request(url, body, headers, method=method)
    with CLIENT.open(request, timeout=10) as reply:
        return reply, reply.read()


def show():
    """Fetches the dictionary, prints what this application wants from it, and returns its ETag."""
    reply, body = call("GET", "/config")
    config = json.loads(body)
    print(
        f"pid {os.getpid()}: {config['nudge.configs']} greeting={config['greeting']} lives={config['lives']}",
        flush=True,
    )
    return reply.headers["ETag"]


def genuine(headers, body):
    """Whether the agent signed this delivery, a short while ago."""
    event, timestamp, signatures = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not re.fullmatch("[0-9]{1,12}", timestamp) or abs(time.time() - int(timestamp)) > TOLERANCE:
        return False
    signed = b".".join([event.encode(), timestamp.encode(), body])
    expected = b"v1," + base64.b64encode(hmac.digest(SECRET, signed, "sha256"))
    # Several signatures, separated by spaces, while a secret is being replaced: one that fits is enough.
    return any(hmac.compare_digest(expected, signature.encode()) for signature in signatures.split())


def fault(version):
    """Why this application can't run with a version that the agent asks about; None if it can. It names no value."""
    _, body = call("GET", f"/config?candidate={urllib.parse.quote(version)}")
    return None if json.loads(body).get("lives", "").isdecimal() else "lives is not a number"


class Hook(http.server.BaseHTTPRequestHandler):
    """Takes deliveries. It only notes that there was one and answers: the agent waits, and gives up on the slow."""

    timeout = 10

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,7}", length):
            self.send_error(413)
            return
        body = self.rfile.read(int(length))
        if not genuine(self.headers, body):
            self.send_error(401)
            return
        event = json.loads(body)
        if event["type"] != "config.check":
            changes.put(None)
        elif text := fault(event["data"]["candidate"]):
            self.send_response(422)
            self.end_headers()
            self.wfile.write(text.encode())
            return
        self.send_response(204)
        self.end_headers()

    def log_message(self, format, *args):
        """Says nothing: the agent logs how its deliveries end."""


changes = queue.SimpleQueue()
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("WEBHOOK_PORT", "0"))), Hook)
threading.Thread(target=server.serve_forever, daemon=True).start()
subscription = json.dumps({"url": f"http://127.0.0.1:{server.server_port}/"}).encode()

for stop in (signal.SIGTERM, signal.SIGINT):
    signal.signal(stop, lambda number, frame: sys.exit())

loaded = hook = None
try:
    while True:
        try:
            # Subscribing again changes nothing, so every round begins with it. That renews a subscription which the
            # agent has lost by a restart, and the ETag in the reply shows any change that no delivery has reported.
            hook = json.loads(call("POST", "/hooks", subscription)[1])
            if hook["etag"] != loaded:
                loaded = show()
            patience = 60
        except (OSError, http.client.HTTPException) as error:
            if loaded is None:
                raise
            # The agent may be restarting: keep the old configuration and try again.
            print(f"configuration not read again yet: {error}", file=sys.stderr, flush=True)
            patience = 1
        with contextlib.suppress(queue.Empty):
            changes.get(timeout=patience)
finally:
    if hook:
        with contextlib.suppress(OSError, http.client.HTTPException):
            call("DELETE", f"/hooks/{hook['id']}")
