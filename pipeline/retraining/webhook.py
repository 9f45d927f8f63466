"""how a retraining failed -> one line to the webhook that the environment names."""

import json
import os
import urllib.request
from http.client import HTTPException

from pipeline.runtime import console

VARIABLE = "QUATRAIN_WEBHOOK_URL"
SECONDS = 10.0


def tell(text: str) -> None:
    """Posts {"text": text} to the URL in VARIABLE, if there is one. A failure is a warning without
    the URL, which is a secret: whoever has it may post.
    """
    url = os.environ.get(VARIABLE)
    if not url:
        return
    data = json.dumps({"text": console.redact(text)}).encode()
    try:
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=SECONDS).close()
    except (OSError, ValueError, HTTPException) as error:
        reason = f"HTTP {error.code}" if hasattr(error, "code") else type(error).__name__
        console.info(f"retrain: the webhook of {VARIABLE} was not told ({reason})")
