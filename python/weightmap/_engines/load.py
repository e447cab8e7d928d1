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
from weightmap._engines.device_weights import DeviceWeights
from weightmap._engines.rank_slices import RankSlices
from weightmap._engines.reading_window import ReadingWindow
from weightmap._engines.release import EngineRelease
from weightmap._engines.staged_files import StagedFiles
from weightmap._engines.warming import OpenedFiles, WarmedFiles, WarmingAhead, WarmingCounts
from weightmap._errors import Error, InvalidArgumentError, UnsupportedError
from weightmap._open import open as open_checkpoint
from weightmap._place import has_tensors_by_name_only

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from weightmap._checkpoint import Checkpoint
    from weightmap._core import Tensor
    from weightmap._engines.device_weights import Made, Maker
    from weightmap._engines.options import EngineOptions
    from weightmap._engines.warming import Wanted

    Weights = Iterator[tuple[str, torch.Tensor]]


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
        self._file_count = 0
        self._bytes = 0
        self._copying_seconds = 0.0  # in which the consumer had a tensor
        self._fallbacks: dict[str, str] = {}  # file -> why the engine's own loader read it
        self._warming = WarmingCounts()
        self.unmatched = set(options.access or ())  # patterns that no tensor had so far
        self._random: dict[str, set[str]] = {}  # file -> names that are not read ahead
        self._release = EngineRelease(options.release, self._warming.remarks)
        self._slices: RankSlices | None = None
        if slices_key is not None and options.warm == "auto":
            self._slices = RankSlices(slices_key, logger, options.slices == "on")

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
        made = self._on_device() or _in_memory
        files = sorted(files, key=_natural_key)
        if copies or made is not _in_memory:  # which reads all of a tensor
            self._slices = None
        if self._slices is not None and files:
            self._slices.look_beside(files[0])
        with self._reading_ahead(files, is_wanted) as ahead:
            for file in progress(files, desc="Loading checkpoint shards (weightmap)"):
                yielded: set[str] = set()
                try:
                    for name, make in self._made(file, ahead, is_wanted, map_location, made):
                        # No variable, which would keep a tensor while the next one is made.
                        yield from self._counted(prefix, name, make, copies)
                        yielded.add(name)
                except Error as error:
                    self.fall_back(file, error)
                ahead.leave(file)
                if file in self._fallbacks:
                    for name, tensor in stock_weights(file):
                        if name not in yielded:
                            yield prefix + name, tensor

    def _made(
        self,
        file: str,
        ahead: OpenedFiles,
        is_wanted: Callable[[str], bool],
        map_location: Any,
        made: Callable[..., Iterator[Made]],
    ) -> Iterator[Made]:
        """Of what is wanted of a file names, and what gives the tensors."""
        checkpoint = self._opened(ahead, file)
        if checkpoint is not None:
            makers = self._makers(checkpoint, map_location)
            wanted = (maker for maker in makers if is_wanted(maker[0]))
            yield from made(checkpoint, wanted, functools.partial(ahead.wait_for, file))

    def _on_device(self) -> Callable[..., Iterator[Made]] | None:
        """What gives tensors of a device; None: it is not asked for, or there is none."""
        if self._options.upload != "pinned":
            return None
        try:
            return DeviceWeights().made
        except Error as error:
            if self._options.strict:
                raise
            self._warming.remarks[f"not uploaded: {error.message}"] = None
            return None

    def _opened(self, ahead: OpenedFiles, file: str) -> Checkpoint | None:
        try:
            opened = ahead.open(file)
        except Error as error:
            if self._options.strict:
                raise
            self._warming.remarks[f"{file} not staged: {error.message}"] = None
            return self._open(file)
        if self._options.warm == "stage":
            self._file_count += 1
        return opened

    def _open(self, file: str) -> Checkpoint | None:
        """None: it is for the engine's own loader."""
        try:
            checkpoint = open_checkpoint(file, copy_on_write="small")
        except Error as error:
            self.fall_back(file, error)
            return None
        self._advise(file, checkpoint)
        self._release.add(file)
        self._file_count += 1
        return checkpoint

    def _advise(self, file: str, checkpoint: Checkpoint) -> None:
        random = self._random[file] = set()
        for pattern, how in (self._options.access or {}).items():
            names = checkpoint.advise(pattern, how)
            (random.update if how == "random" else random.difference_update)(names)
            if names:
                self.unmatched.discard(pattern)

    def fall_back(self, file: str, error: Error) -> None:
        """Says that the engine's own loader reads it; raises the error if this is to be strict."""
        if self._options.strict:
            raise error
        self._fallbacks[file] = error.message
        self._logger.warning("%s: read by %s's own loader: %s", file, self._engine, error.message)

    def _reading_ahead(
        self, files: Sequence[str], is_wanted: Callable[[str], bool]
    ) -> OpenedFiles:
        if self._options.warm == "stage":
            self._warming.cold_bytes = None
            return StagedFiles(files, self._window(files), self._warming)
        # All from the start, so that another rank sees what this one still needs.
        opened = {file: each for file in files if (each := self._open(file)) is not None}
        if self._options.warm == "off":
            self._warming.cold_bytes = None
            return OpenedFiles(opened)
        plan = [(each, self._wanted(each, is_wanted)) for each in opened.values()]
        one_reader = self._options.reader == "node"
        warming = WarmingAhead(plan, one_reader, self._warming, self._window(files))
        return WarmedFiles(opened, warming)

    def _window(self, files: Sequence[str]) -> ReadingWindow:
        return ReadingWindow(files, self._options.window_bytes)

    def _wanted(self, checkpoint: Checkpoint, is_wanted: Callable[[str], bool]) -> Wanted:
        names = checkpoint._core.names()
        random = self._random.get(checkpoint.path, ())
        indices = [i for i, name in enumerate(names) if is_wanted(name) and name not in random]
        parts = None if self._slices is None else self._slices.of(checkpoint)
        if parts is None:
            return indices
        return {index: parts[index] for index in indices if index in parts}

    def _makers(
        self, checkpoint: Checkpoint, map_location: Any
    ) -> Iterator[Maker]:
        core = checkpoint._core
        if core.has_chunks():
            raise UnsupportedError("has tensors in several pieces", file=checkpoint.path)
        if has_tensors_by_name_only(core) or core.info()["format"] == "dcp":
            for index, name in enumerate(core.names()):
                yield name, index, functools.partial(_view, name, core.at(index))
            return
        # What torch.load gives, down to Parameters.
        state = weightmap.torch.load(checkpoint, map_location=map_location)
        if not isinstance(state, dict):
            raise UnsupportedError(f"has a {type(state).__name__}, not a dict of tensors")
        for name, value in state.items():
            if not isinstance(value, torch.Tensor):
                raise UnsupportedError(f"has a {type(value).__name__} of the name {name!r}")
        indices = {name: index for index, name in enumerate(core.names())}
        for name, tensor in state.items():
            yield name, indices.get(name), functools.partial(_itself, tensor)

    def _counted(
        self, prefix: str, name: str, make: Callable[[], torch.Tensor], copies: bool
    ) -> Weights:
        tensor = make().clone() if copies else make()
        if self._slices is not None:
            self._slices.add(name, tensor)
        if tensor.layout is torch.strided:  # others do not tell
            self._bytes += tensor.nbytes
        began = time.perf_counter()
        yield prefix + name, tensor
        self._copying_seconds += time.perf_counter() - began

    def learning(self) -> contextlib.AbstractContextManager[None]:
        """Around a load, in the thread that consumes it: which slices are used is kept for the next
        start, if this rank reads only slices."""
        return contextlib.nullcontext() if self._slices is None else self._slices.learning()

    def release(self) -> None:
        """Does with the files what can be done now; keeps in mind what stays."""
        self._release.release()

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


def check_access(loads: Sequence[EngineLoad]) -> None:
    """After all loads of a model: InvalidArgumentError for a pattern that matched nothing in any."""
    unmatched = set.intersection(*(load.unmatched for load in loads)) if loads else set()
    if unmatched:
        patterns = ", ".join(map(repr, sorted(unmatched)))
        raise InvalidArgumentError(f"access has {patterns}, which matches the name of no tensor")


def _in_memory(
    _checkpoint: Checkpoint, makers: Iterable[Maker], wait_for: Callable[[int | None], None]
) -> Iterator[Made]:
    """Names, and what gives the tensors: views of mapped memory, each when its bytes are there."""
    for name, index, make in makers:
        wait_for(index)
        yield name, make


def _natural_key(file: str) -> list[Any]:
    """By which part 2 comes before part 10: text and numbers by turns."""
    parts: list[Any] = re.split(r"([0-9]+)", os.path.basename(file))
    parts[1::2] = map(int, parts[1::2])
    return parts


def _view(name: str, tensor: Tensor) -> torch.Tensor:
    if tensor.block[0] > 1:  # of which Tensor.torch() gives the bytes
        raise UnsupportedError(f"{name} is {tensor.dtype}, for which torch has no dtype")
    return tensor.torch()


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_initialized() else 0
