"""One load of an inference engine: weights as views of mapped files, read ahead if they are cold.

Imports torch: only the loaders of engines ask for it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from typing import TYPE_CHECKING

import torch

import weightmap.torch
from weightmap._errors import Error, UnsupportedError
from weightmap._files import evict
from weightmap._open import open as open_checkpoint
from weightmap._place import has_tensors_by_name_only
from weightmap._processes import processes
from weightmap._rank_slices import RankSlices
from weightmap._warming import WarmingAhead, WarmingCounts

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from weightmap._checkpoint import Checkpoint
    from weightmap._core import Tensor
    from weightmap._engine_options import EngineOptions

    from weightmap._warming import Wanted

    Weights = Iterator[tuple[str, torch.Tensor]]
    # Returns when a tensor of a file, by its position there, or all of the file may be looked at.
    WaitFor = Callable[[str, int | None], None]


class EngineLoad:
    """Yields what files hold, and counts it.

    options: what the engine's user said.
    engine: its name, for messages.
    logger: of which the engine shows what is written.
    slices_key: as of RankSlices; None if this rank reads whole tensors.
    """

    def __init__(
        self,
        options: EngineOptions,
        engine: str,
        logger: logging.Logger,
        slices_key: str | None = None,
    ) -> None:
        self._options = options
        self._engine = engine
        self._logger = logger
        self._files: list[str] = []  # those mapped that are to be released
        self._file_count = 0
        self._bytes = 0
        self._copying_seconds = 0.0  # in which the consumer had a tensor
        self._fallbacks: dict[str, str] = {}  # file -> why the engine's own loader read it
        self._warming = WarmingCounts()
        self._slices: RankSlices | None = None
        if slices_key is not None and options.warm != "off":
            self._slices = RankSlices(slices_key, logger)

    def weights(
        self,
        files: Iterable[str],
        *,
        stock_weights: Callable[[str], Weights],
        progress: Callable[..., Iterable[str]],
        is_wanted: Callable[[str], bool],
        copies_uploads: bool,
        prefix: str = "",
        map_location: Any = "cpu",
    ) -> Weights:
        """Names and tensors, in natural order of the files and in the order within each.

        A tensor is yielded when its bytes are in memory, or will not come ahead.

        stock_weights: what the engine's own loader yields of a file, for what is refused here.
        progress: the engine's tqdm, without what it is to show.
        is_wanted: of a tensor's name.
        copies_uploads: whether this platform uploads from memory of the process's own only.
        prefix: of the names that are yielded.
        map_location: of torch.load().
        """
        copies = self._options.upload == "copied" or (
            self._options.upload == "auto" and copies_uploads
        )
        files = sorted(files, key=_natural_key)
        if copies:  # which reads all of a tensor
            self._slices = None
        if self._slices is not None and files:
            self._slices.look_beside(files[0])
        # All from the start, so that another rank sees what this one still needs.
        opened = {file: each for file in files if (each := self._open(file)) is not None}
        with self._reading_ahead(opened, is_wanted) as wait_for:
            for file in progress(files, desc="Loading checkpoint shards (weightmap)"):
                yielded: set[str] = set()
                if file in opened:
                    makers = self._makers(opened[file], map_location)
                    wanted = (maker for maker in makers if is_wanted(maker[0]))
                    try:
                        for name, index, make in wanted:
                            wait_for(file, index)
                            # No variable, which would keep a tensor while the next one is made.
                            yield from self._counted(prefix, name, make, copies)
                            yielded.add(name)
                        continue
                    except Error as error:
                        self.fall_back(file, error)
                for name, tensor in stock_weights(file):
                    if name not in yielded:
                        yield prefix + name, tensor

    def _open(self, file: str) -> Checkpoint | None:
        """None: it is for the engine's own loader."""
        try:
            checkpoint = open_checkpoint(file, copy_on_write="small")
        except Error as error:
            self.fall_back(file, error)
            return None
        self._files.append(file)
        self._file_count += 1
        return checkpoint

    def fall_back(self, file: str, error: Error) -> None:
        """Says that the engine's own loader reads it; raises the error if this is to be strict."""
        if self._options.strict:
            raise error
        self._fallbacks[file] = error.message
        self._logger.warning("%s: read by %s's own loader: %s", file, self._engine, error.message)

    @contextlib.contextmanager
    def _reading_ahead(
        self, opened: dict[str, Checkpoint], is_wanted: Callable[[str], bool]
    ) -> Iterator[WaitFor]:
        if self._options.warm == "off":
            self._warming.cold_bytes = None
            yield lambda _file, _index: None
            return
        plan = [(each, self._wanted(each, is_wanted)) for each in opened.values()]
        positions = {file: position for position, file in enumerate(opened)}
        one_reader = self._options.reader == "node"
        with WarmingAhead(plan, one_reader, self._warming) as warming:
            yield lambda file, index: warming.wait_for(positions[file], index)

    def _wanted(self, checkpoint: Checkpoint, is_wanted: Callable[[str], bool]) -> Wanted:
        indices = [tensor.index for name, tensor in checkpoint.items() if is_wanted(name)]
        parts = self._slices and self._slices.of(checkpoint)
        if parts is None:
            return indices
        return {index: parts[index] for index in indices if index in parts}

    def _makers(
        self, checkpoint: Checkpoint, map_location: Any
    ) -> Iterator[tuple[str, int | None, Callable[[], torch.Tensor]]]:
        """Names, positions in the checkpoint, and what makes the tensors."""
        if has_tensors_by_name_only(checkpoint._core):
            for name, tensor in checkpoint.items():
                yield name, tensor.index, functools.partial(_view, name, tensor)
            return
        # What torch.load gives, down to Parameters.
        state = weightmap.torch.load(checkpoint, map_location=map_location)
        if not isinstance(state, dict):
            raise UnsupportedError(f"has a {type(state).__name__}, not a dict of tensors")
        indices = {name: tensor.index for name, tensor in checkpoint.items()}
        for name, tensor in state.items():
            yield name, indices.get(name), lambda tensor=tensor: tensor

    def _counted(
        self, prefix: str, name: str, make: Callable[[], torch.Tensor], copies: bool
    ) -> Weights:
        tensor = make().clone() if copies else make()
        if self._slices is not None:
            self._slices.add(name, tensor)
        self._bytes += tensor.nbytes
        began = time.perf_counter()
        yield prefix + name, tensor
        self._copying_seconds += time.perf_counter() - began

    def learning(self) -> contextlib.AbstractContextManager[None]:
        """Around a load, in the thread that consumes it: which slices are used is kept for the next
        start, if this rank reads only slices."""
        return contextlib.nullcontext() if self._slices is None else self._slices.learning()

    def release(self) -> None:
        """Drops from the page cache what no other process has mapped; keeps what stays in mind."""
        files = self._files
        if self._options.release != "node" or not files:
            return
        with contextlib.suppress(Error):  # of files that this user may not write to
            mapped = processes(*files).mapped
            others = {os.path.realpath(each.file) for each in mapped if each.process != os.getpid()}
            self._files = [
                file
                for file in files
                if os.path.realpath(file) in others or evict(file).cached_after != 0
            ]

    def reporting(self, weights: Weights) -> Weights:
        """The same, and at their end releases what it can and says in one line what was done."""
        try:
            yield from weights
        finally:
            self.release()
            self._logger.info("%s", self._summary())

    def _summary(self) -> str:
        counts = self._warming
        cold = "cold bytes not known" if counts.cold_bytes is None else f"{counts.cold_bytes} cold"
        own = f"{self._engine}'s own loader"
        parts = [
            f"weightmap, rank {_rank()}: {self._bytes} bytes from {self._file_count} mapped files",
            cold,
            f"{counts.bytes_read} read by this rank, {counts.bytes_waited_for} by another",
            f"seconds: {counts.reading_seconds:.2f} reading, {counts.waiting_seconds:.2f} waiting, "
            f"{self._copying_seconds:.2f} copying",
            *counts.remarks,
            *(f"{file} by {own}: {why}" for file, why in self._fallbacks.items()),
        ]
        return "; ".join(parts)


def _natural_key(file: str) -> list[Any]:
    """By which part 2 comes before part 10: text and numbers by turns."""
    parts: list[Any] = re.split(r"([0-9]+)", os.path.basename(file))
    parts[1::2] = map(int, parts[1::2])
    return parts


def _view(name: str, tensor: Tensor) -> torch.Tensor:
    if tensor.block[0] > 1:  # of which Tensor.torch() gives the bytes
        raise UnsupportedError(f"{name} is {tensor.dtype}, for which torch has no dtype")
    return tensor.torch()


def _rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_initialized() else 0
