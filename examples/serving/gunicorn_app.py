"""The model as a WSGI application whose workers are forks of gunicorn's main process.

    MODEL=FOLDER gunicorn --preload --workers 2 --bind 127.0.0.1:8080 gunicorn_app:app

`--preload` imports this module, and so maps the model, before the first fork. SIGTTIN to the main
process asks for one more worker, SIGTTOU for one fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import model


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    status, body = model.answer(environ["QUERY_STRING"])
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response(f"{status.value} {status.phrase}", headers)
    return [body]
