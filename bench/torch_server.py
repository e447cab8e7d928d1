"""The server of examples/serving/server.py with a copy of the file in each worker, to compare with.

    torch_server.py FILE TENSOR [WORKERS [PORT]]
"""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "serving"))
import server


class LoadedModel:
    """The result of torch.load(), read into memory of this process."""

    def __init__(self, file, tensor):
        self.values = torch.load(file, mmap=False, weights_only=True)[tensor].numpy()

    def is_whole(self):
        return True

    def is_current(self):
        return True


class LoadedAfterTheFork:
    """Loads at the first request, so that the parent has only imported torch."""

    def __init__(self, file, tensor):
        self._what, self._model = (file, tensor), None

    @property
    def model(self):
        if self._model is None:
            self._model = LoadedModel(*self._what)
        return self._model

    def follow(self):
        """Does nothing, since the file is never replaced."""


server.ServedModel = LoadedAfterTheFork
server.main()
