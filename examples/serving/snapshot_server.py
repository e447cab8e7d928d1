"""The model served by one process, from which later starts of it are made.

    MODEL=FOLDER PORT=8080 weightmap run --template -- python snapshot_server.py
    MODEL=FOLDER PORT=8080 weightmap run --snapshot DIR -- python snapshot_server.py

The first start imports, maps the model and runs it once. Each later one begins behind
snapshot_here(), with a PORT of its own: four commands with four ports are four servers, which share
the weights. A start with another MODEL is an ordinary one. With --template they are forks of what the
first start has left behind; `run --snapshot` restores them, and needs root and criu. Without both
this is a plain server.
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
