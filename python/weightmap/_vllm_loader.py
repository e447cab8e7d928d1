"""The loader of weightmap.vllm. Imports vLLM, and so torch: only register() asks for it."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from typing import TYPE_CHECKING, Any

import torch
from vllm.config.utils import replace
from vllm.logger import init_logger
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight
from vllm.model_executor.model_loader.weight_utils import (
    _BAR_FORMAT,
    _natural_sort_key,
    enable_tqdm,
    pt_weights_iterator,
    safetensors_weights_iterator,
    tqdm,
)
from vllm.platforms import current_platform

import weightmap.torch
from weightmap._checkpoint import Checkpoint
from weightmap._engine_options import parse_engine_options
from weightmap._errors import Error, UnsupportedError
from weightmap._files import evict
from weightmap._open import open as open_checkpoint
from weightmap._place import has_tensors_by_name_only
from weightmap._processes import processes
from weightmap._warming import WarmingAhead, WarmingCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vllm.config import ModelConfig
    from vllm.config.load import LoadConfig

    from weightmap._core import Tensor

    Weights = Iterator[tuple[str, torch.Tensor]]
    # Returns when a tensor of a file, by its position there, or all of the file may be looked at.
    WaitFor = Callable[[str, int | None], None]

# vLLM gives handlers to loggers below its own only.
logger = init_logger("vllm.weightmap")


class WeightmapModelLoader(DefaultModelLoader):
    """Yields weights as views of the mapped files, which were read ahead if they were cold.

    Everything but the reading of files is DefaultModelLoader's: which files, downloads, what
    expert parallelism leaves out, secondary weights, the check that every weight was there.
    """

    def __init__(self, load_config: LoadConfig) -> None:
        # vLLM makes several loaders in each process, not all of them to load: nothing is done here.
        self._options = parse_engine_options(load_config.model_loader_extra_config)
        super().__init__(replace(load_config, load_format="auto", model_loader_extra_config={}))
        self._load = _Load()

    def load_weights(self, model: torch.nn.Module, model_config: ModelConfig) -> None:
        super().load_weights(model, model_config)
        # Nobody but the generators had the tensors; what they still held kept pages in use.
        self._release()

    def get_all_weights(self, model_config: ModelConfig, model: torch.nn.Module) -> Weights:
        self._load = _Load()
        try:
            yield from super().get_all_weights(model_config, model)
        finally:
            self._release()
            logger.info("%s", self._load.summary())

    def _get_weights_iterator(self, source: DefaultModelLoader.Source) -> Weights:
        if self.load_config.safetensors_load_strategy == "torchao":
            return self._torchao_weights(source)
        files, are_safetensors = self._files_of(source)
        if self.counter_before_loading_weights == 0.0:
            self.counter_before_loading_weights = time.perf_counter()
        weights = self._weights_of(files, are_safetensors)
        # No generator, whose variable would keep a tensor while the next one is made.
        return map(functools.partial(_prefixed, source.prefix), weights)

    def _torchao_weights(self, source: DefaultModelLoader.Source) -> Weights:
        self._fall_back(
            source.model_or_path,
            UnsupportedError("torchao puts its tensors together from several files"),
        )
        return super()._get_weights_iterator(source)

    def _files_of(self, source: DefaultModelLoader.Source) -> tuple[list[str], bool]:
        """As DefaultModelLoader chooses them, in natural order."""
        folder, files, are_safetensors, index = self._prepare_weights(
            source.model_or_path,
            source.subfolder,
            source.revision,
            source.fall_back_to_pt,
            source.allow_patterns_overrides,
        )
        if are_safetensors:
            files = self._without_unused(source, files, folder, index)
        return sorted(files, key=_natural_sort_key), are_safetensors

    def _without_unused(
        self, source: DefaultModelLoader.Source, files: list[str], folder: str, index: str
    ) -> list[str]:
        """Two filters that not every version of vLLM has."""
        from vllm.model_executor.model_loader import weight_utils

        prefixes = getattr(self, "_encoder_only_lm_prefixes", None)
        if prefixes is not None:
            mapper = self._encoder_only_weights_mapper
            files = weight_utils.filter_mm_encoder_only_safetensors_files(
                files, folder, index, prefixes, weights_mapper=mapper
            )
        is_unused = getattr(source, "is_unused_weight", None)
        if is_unused is not None:
            files = weight_utils.filter_safetensors_files_by_weight_name(files, is_unused)
        return files

    def _weights_of(self, files: list[str], are_safetensors: bool) -> Weights:
        # All from the start, so that another rank sees what this one still needs.
        opened = {file: each for file in files if (each := self._open(file)) is not None}
        with self._reading_ahead(opened) as wait_for:
            for file in tqdm(
                files,
                desc="Loading checkpoint shards (weightmap)",
                disable=not enable_tqdm(self.load_config.use_tqdm_on_load),
                bar_format=_BAR_FORMAT,
            ):
                yielded: set[str] = set()
                if file in opened:
                    try:
                        yield from self._mapped_weights(file, opened[file], wait_for, yielded)
                        continue
                    except Error as error:
                        self._fall_back(file, error)
                for name, tensor in self._stock_weights(file, are_safetensors):
                    if name not in yielded:
                        yield name, tensor

    def _open(self, file: str) -> Checkpoint | None:
        """None: it is for vLLM's own iterator."""
        try:
            checkpoint = open_checkpoint(file, copy_on_write="small")
        except Error as error:
            self._fall_back(file, error)
            return None
        self._load.files.append(file)
        self._load.file_count += 1
        return checkpoint

    def _fall_back(self, file: str, error: Error) -> None:
        if self._options.strict:
            raise error
        self._load.fallbacks[file] = error.message
        logger.warning("%s: read by vLLM's own loader: %s", file, error.message)

    @contextlib.contextmanager
    def _reading_ahead(self, opened: dict[str, Checkpoint]) -> Iterator[WaitFor]:
        if self._options.warm == "off":
            self._load.warming.cold_bytes = None
            yield lambda _file, _index: None
            return
        plan = [
            (each, [tensor.index for name, tensor in each.items() if self._is_wanted(name)])
            for each in opened.values()
        ]
        positions = {file: position for position, file in enumerate(opened)}
        one_reader = self._options.reader == "node"
        with WarmingAhead(plan, one_reader, self._load.warming) as warming:
            yield lambda file, index: warming.wait_for(positions[file], index)

    def _is_wanted(self, name: str) -> bool:
        return not should_skip_weight(name, self.local_expert_ids)

    def _mapped_weights(
        self, file: str, checkpoint: Checkpoint, wait_for: WaitFor, yielded: set[str]
    ) -> Weights:
        for name, index, make in self._makers(checkpoint):
            if not self._is_wanted(name):
                continue
            wait_for(file, index)
            tensor = make()
            if self._copies():
                tensor = tensor.clone()
            self._load.bytes += tensor.nbytes
            yielded.add(name)
            began = time.perf_counter()
            yield name, tensor
            self._load.copying_seconds += time.perf_counter() - began

    def _makers(
        self, checkpoint: Checkpoint
    ) -> Iterator[tuple[str, int | None, Callable[[], torch.Tensor]]]:
        """Names, positions in the checkpoint, and what makes the tensors."""
        if has_tensors_by_name_only(checkpoint._core):
            for name, tensor in checkpoint.items():
                yield name, tensor.index, functools.partial(_view, name, tensor)
            return
        # What torch.load gives, down to Parameters.
        location = self.load_config.pt_load_map_location
        state = weightmap.torch.load(checkpoint, map_location=location)
        if not isinstance(state, dict):
            raise UnsupportedError(f"has a {type(state).__name__}, not a dict of tensors")
        indices = {name: tensor.index for name, tensor in checkpoint.items()}
        for name, tensor in state.items():
            yield name, indices.get(name), lambda tensor=tensor: tensor

    def _copies(self) -> bool:
        if self._options.upload == "auto":
            return current_platform.device_type == "npu"  # Ascend uploads mapped files slowly
        return self._options.upload == "copied"

    def _stock_weights(self, file: str, is_safetensors: bool) -> Weights:
        config = self.load_config
        if not is_safetensors:
            return pt_weights_iterator([file], False, config.pt_load_map_location)
        return safetensors_weights_iterator(
            [file], False, config.safetensors_load_strategy, local_expert_ids=self.local_expert_ids
        )

    def _release(self) -> None:
        """Drops from the page cache what no other process has mapped; keeps what stays in mind."""
        files = self._load.files
        if self._options.release != "node" or not files:
            return
        with contextlib.suppress(Error):  # of files that this user may not write to
            mapped = processes(*files).mapped
            others = {os.path.realpath(each.file) for each in mapped if each.process != os.getpid()}
            self._load.files = [
                file
                for file in files
                if os.path.realpath(file) in others or evict(file).cached_after != 0
            ]


class _Load:
    """What one load has done so far."""

    def __init__(self) -> None:
        self.files: list[str] = []  # those mapped that are to be released
        self.file_count = 0
        self.bytes = 0
        self.copying_seconds = 0.0  # in which the consumer had a tensor
        self.fallbacks: dict[str, str] = {}  # file -> why vLLM's own loader read it
        self.warming = WarmingCounts()

    def summary(self) -> str:
        counts = self.warming
        cold = "cold bytes not known" if counts.cold_bytes is None else f"{counts.cold_bytes} cold"
        parts = [
            f"weightmap, rank {_rank()}: {self.bytes} bytes from {self.file_count} mapped files",
            cold,
            f"{counts.bytes_waited_for} read by another rank",
            f"seconds: {counts.reading_seconds:.2f} reading, {counts.waiting_seconds:.2f} waiting, "
            f"{self.copying_seconds:.2f} copying",
            *counts.remarks,
            *(f"{file} by vLLM's own loader: {why}" for file, why in self.fallbacks.items()),
        ]
        return "; ".join(parts)


def _prefixed(prefix: str, weight: tuple[str, torch.Tensor]) -> tuple[str, torch.Tensor]:
    return prefix + weight[0], weight[1]


def _view(name: str, tensor: Tensor) -> torch.Tensor:
    if tensor.block[0] > 1:  # of which Tensor.torch() gives the bytes
        raise UnsupportedError(f"{name} is {tensor.dtype}, for which torch has no dtype")
    return tensor.torch()


def _rank() -> int:
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_initialized() else 0
