"""The model served by one process, which can be restored from a snapshot, also several times.

    MODEL=FOLDER PORT=8080 weightmap run --snapshot DIR -- python snapshot_server.py

The first start imports, maps the model and runs it once. Each later one begins behind
snapshot_here(), with a PORT of its own: four commands with four ports are four servers, which share
the weights. A start with another MODEL is not restored, and makes a snapshot of its own. `run --snapshot` needs root and criu; without it this is a plain server.
"""

from __future__ import annotations

import os
import signal
import sys
from http import HTTPStatus
from http.server import HTTPServer

import model
import weightmap
from handler import Handler

if __name__ == "__main__":
    if model.answer("ids=1")[0] != HTTPStatus.OK:  # what the first request would wait for
        sys.exit("the model cannot be run")
    weightmap.snapshot_here(new=["PORT"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    HTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Handler).serve_forever()
