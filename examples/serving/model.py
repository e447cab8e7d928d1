"""The model of gunicorn_app.py, uvicorn_workers.py and forkserver.py: the import maps it.

$MODEL is a folder of transformers, or "org/name" in the local cache. A process that is forked from
one that has imported this module has torch, transformers and the weights from its first moment on.
"""

from __future__ import annotations

import gc
import json
import os
from http import HTTPStatus
from urllib.parse import parse_qs

import torch

import weightmap

# The threads of OpenMP do not survive a fork, and a child waits for them forever. So none may start
# before it; a worker that has several cores for itself sets the number again.
torch.set_num_threads(1)
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # a bar of tqdm has a thread, too
_model = weightmap.transformers.load(os.environ["MODEL"]).eval()
# The garbage collector of a worker would write to all objects that exist now, and so copy them.
gc.collect()
gc.freeze()


def answer(query: str) -> tuple[HTTPStatus, bytes]:
    """The token that follows those of the query, as in `ids=1,2,3`."""
    try:
        ids = [int(word) for word in parse_qs(query)["ids"][0].split(",")]
        with torch.inference_mode():
            token = int(_model(torch.tensor([ids])).logits[0, -1].argmax())
    except (KeyError, ValueError, IndexError):
        return HTTPStatus.BAD_REQUEST, b'{"error": "ids are not tokens of the model"}\n'
    text = json.dumps({"token": token, "pid": os.getpid()})
    return HTTPStatus.OK, text.encode() + b"\n"
