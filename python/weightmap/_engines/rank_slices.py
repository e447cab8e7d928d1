"""What one rank of an inference engine needs of a model's files, learned in its first start.

Imports torch: only the loaders of engines ask for it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from weightmap import _core
from weightmap._errors import Error
from weightmap._slice_plan import SlicePlan, slices
from weightmap._torch.slice_recorder import SliceRecorder

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

    import torch

    from weightmap._checkpoint import Checkpoint


class RankSlices:
    """A plan beside the first file that is loaded; where there is none yet, it may be learned.

    key: of the model's configuration, the ranks that there are and which of them this is, as part
        of a file name. Another key, another plan.
    logger: of which the engine shows what is written.
    learns: writes one beside the file, which is a folder that many may share.
    """

    def __init__(self, key: str, logger: logging.Logger, learns: bool) -> None:
        self._name = f"weightmap-slices-{key}.json"
        self._logger = logger
        self._learns = learns
        self._path: str | None = None
        self._plan: SlicePlan | None = None
        self._recorder: SliceRecorder | None = None  # while there is none to be had

    def look_beside(self, file: str) -> None:
        """Before anything of the file is handed out. Only the first call counts."""
        if self._path is not None:
            return
        self._path = os.path.join(os.path.dirname(file), self._name)
        try:
            self._plan = SlicePlan.load(self._path)
        except FileNotFoundError:
            pass
        except (Error, OSError) as error:
            self._logger.warning("the plan of slices is not used: %s", error)

    def of(self, checkpoint: Checkpoint) -> dict[int, list[_core.Tensor]] | None:
        """Parts by the positions of their tensors; None if not known for this file."""
        if self._plan is None:
            return None
        parts: dict[int, list[_core.Tensor]] = {}
        for name, tensor in checkpoint.items():
            if name not in self._plan or not isinstance(tensor, _core.Tensor):
                continue
            try:
                parts[tensor.index] = slices(checkpoint, {name: self._plan[name]})
            except Error:  # the file is another by now
                return None
        return parts

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """A view of a file that is handed out."""
        if self._recorder is not None and self._plan is None:
            self._recorder.add(name, tensor)

    @contextlib.contextmanager
    def learning(self) -> Iterator[None]:
        """Around a load, in the thread that consumes it. A plan that was learned is kept at its
        end; not if the load fails."""
        if not self._learns:
            yield
            return
        with SliceRecorder() as self._recorder:
            yield
        plan, self._recorder = self._recorder.plan(), None
        if self._path is None or not plan:
            return
        try:
            plan.save(self._path)
        except (Error, OSError) as error:
            self._logger.warning("slices are not kept: %s", error)
