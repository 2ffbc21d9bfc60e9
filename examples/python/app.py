#!/usr/bin/env python3
"""Reads its configuration from Nudge's agent, at start and again whenever the agent sends SIGUSR1."""

import http.client
import json
import os
import signal
import ssl
import sys
import time
import urllib.request


def token():
    """The pod's token: from the environment where the cluster can put it there, else from a file."""
    value = os.environ.get("MY_CONFIG_TOKEN")
    if value:
        return value
    with open(os.environ["MY_CONFIG_TOKEN_FILE"], encoding="ascii") as file:
        return file.read()


HEADERS = {"Authorization": f"Bearer {token()}"}
if "MY_CONFIG_CONTAINER" in os.environ:
    # Shows the agent which container has read which version.
    HEADERS["Nudge-Container"] = os.environ["MY_CONFIG_CONTAINER"]

# Trusts only the pod's own authority. Uses no proxy, whatever the environment says: the agent is in this pod.
CLIENT = urllib.request.build_opener(
    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=os.environ["MY_CONFIG_CERT"])),
    urllib.request.ProxyHandler({}),
)


def show():
    """Fetches the dictionary and prints what this application wants from it."""
    request = urllib.request.Request(os.environ["MY_CONFIG_ENDPOINT"], headers=HEADERS)
    with CLIENT.open(request, timeout=10) as reply:
        config = json.load(reply)
    print(
        f"pid {os.getpid()}: {config['nudge.configs']} greeting={config['greeting']} lives={config['lives']}",
        flush=True,
    )


# A signal that comes a moment before a call that waits does not end that call, and Python runs handlers only afterwards. So that none is missed,
# the interpreter also writes a byte into a pipe for each, and this program waits for that.
wake, waker = os.pipe()
os.set_blocking(waker, False)
signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

# The handlers come before the first fetch: a change between the two would otherwise be missed, as the agent sends no
# signal to a process without a handler.
signal.signal(signal.SIGUSR1, lambda number, frame: None)
for stop in (signal.SIGTERM, signal.SIGINT):
    signal.signal(stop, lambda number, frame: sys.exit())

show()
while True:
    os.read(wake, 1024)
    while True:
        try:
            show()
            break
        except (OSError, http.client.HTTPException) as error:
            # The agent may be restarting: keep the old configuration and try again.
            print(f"configuration not read again yet: {error}", file=sys.stderr, flush=True)
            time.sleep(1)
