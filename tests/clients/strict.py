#!/usr/bin/env python3
"""Prints the dictionary, verified as strictly as OpenSSL can, whichever flags this Python sets by itself."""

import os
import ssl
import sys
import urllib.request

STRICT = ssl.VERIFY_X509_STRICT
PARTIAL_CHAIN = ssl.VERIFY_X509_PARTIAL_CHAIN


def fetch(flags):
    context = ssl.create_default_context(cafile=os.environ["MY_CONFIG_CERT"])
    context.verify_flags = context.verify_flags & ~(STRICT | PARTIAL_CHAIN) | flags
    client = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({}))
    request = urllib.request.Request(
        os.environ["MY_CONFIG_ENDPOINT"], headers={"Authorization": f"Bearer {os.environ['MY_CONFIG_TOKEN']}"}
    )
    with client.open(request, timeout=10) as reply:
        return reply.read()


try:
    # Python 3.13's default; and without PARTIAL_CHAIN, where the chain must end in a proper self-signed authority.
    bodies = {fetch(STRICT | PARTIAL_CHAIN), fetch(STRICT)}
except OSError as error:
    sys.exit(f"strict.py: {error}")
if len(bodies) != 1:
    sys.exit("strict.py: the dictionary changed between two requests")
sys.stdout.buffer.write(bodies.pop())
