#!/usr/bin/env python3
"""Verifies one delivery of a webhook with an implementation of Standard Webhooks that is not ours.

Standard input: {"secret": "whsec_...", "headers": {"webhook-id": "...", ...}, "body": "..."}. Exits 0 if the signature
is right and recent, else 1 with the reason. Needs, once:

    pip install --require-hashes --target DIR -r requirements.txt

and then PYTHONPATH=DIR.
"""

import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

delivery = json.load(sys.stdin)
try:
    Webhook(delivery["secret"]).verify(delivery["body"], delivery["headers"])
except WebhookVerificationError as error:
    sys.exit(f"verify.py: {error}")
