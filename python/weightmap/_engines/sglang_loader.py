"""The loader of weightmap.sglang. Imports SGLang, and so torch: a load that asks for it does."""

from __future__ import annotations

import copy
import functools
import logging
import time
from typing import TYPE_CHECKING

import torch
from sglang.srt.configs.load_config import LoadFormat
from sglang.srt.model_loader.loader import DefaultModelLoader
from sglang.srt.model_loader.weight_utils import (
    maybe_add_mtp_safetensors,
    pt_weights_iterator,
    safetensors_weights_iterator,
    tqdm,
)
from sglang.srt.utils import BAR_FORMAT, is_npu
from weightmap._engines.load import EngineLoad, check_access
from weightmap._engines.options import parse_engine_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from sglang.srt.configs.load_config import LoadConfig
    from weightmap._engines.load import Weights

logger = logging.getLogger("sglang.weightmap")


class WeightmapModelLoader(DefaultModelLoader):
    """Yields weights as views of the mapped files, which were read ahead if they were cold.

    Everything but the reading of files is DefaultModelLoader's. SGLang copies what is yielded in
    as many as 32 threads: those find the bytes in memory, and do not fault them in all at once.
    """

    counter_before_loading_weights: float

    def __init__(self, load_config: LoadConfig) -> None:
        # Its threads read what no recorder in the loader's thread sees, so there are no slices.
        extra = load_config.model_loader_extra_config
        self._options = parse_engine_options(extra, has_slices=False)
        super().__init__(_stock_config(load_config))
        self._loads: list[EngineLoad] = []  # whose files are to be released

    def _get_weights_iterator(
        self,
        source: DefaultModelLoader.Source,
        *,
        resolved_source: DefaultModelLoader.ResolvedSource | None = None,
        **_of_startup: Any,  # what SGLang reads ahead by itself
    ) -> Weights:
        if resolved_source is None:
            files, are_safetensors = self._files_of(source)
        else:
            files = resolved_source.weight_files
            are_safetensors = resolved_source.use_safetensors
        if self.counter_before_loading_weights == 0.0:
            self.counter_before_loading_weights = time.perf_counter()
        draft = self.load_config.draft_model_idx
        load = EngineLoad(self._options, "SGLang", logger)
        self._loads.append(load)
        weights = load.weights(
            files,
            stock_weights=functools.partial(_stock_weights, are_safetensors),
            progress=functools.partial(tqdm, disable=not _shows_progress(), bar_format=BAR_FORMAT),
            is_wanted=functools.partial(self._is_wanted, draft),
            copies_uploads=is_npu(),  # Ascend, slow with mapped files
            prefix=source.prefix if draft is None else "",
        )
        if draft is not None:
            weights = self._filter_mtp_weights(weights, source.prefix, draft)
        return load.reporting(weights)

    def _files_of(self, source: DefaultModelLoader.Source) -> tuple[Sequence[str], bool]:
        """As DefaultModelLoader chooses them."""
        folder, files, are_safetensors = self._prepare_weights(
            source.model_or_path,
            source.revision,
            source.fall_back_to_pt,
            source.allow_patterns_overrides,
        )
        if are_safetensors and source.model_config is not None:
            files = maybe_add_mtp_safetensors(
                files, folder, "model.safetensors.index.json", source.model_config.hf_config
            )
        return files, are_safetensors

    def _is_wanted(self, draft: int | None, name: str) -> bool:
        """Of several layers that draft, one model has one."""
        layer = None if draft is None else self._MTP_PATTERN.match(name)
        return layer is None or int(layer[1]) == draft

    def load_weights_and_postprocess(
        self, model: torch.nn.Module, weights: Weights, target_device: torch.device
    ) -> None:
        super().load_weights_and_postprocess(model, weights, target_device)
        # Until here SGLang's threads had tensors, which kept pages in use.
        loads, self._loads = self._loads, []
        for load in loads:
            load.release()
        check_access(loads)


def take_load_config(
    init: Callable[..., None], loader: DefaultModelLoader, load_config: LoadConfig
) -> None:
    """Around DefaultModelLoader.__init__: what it makes of a LoadConfig that is for weightmap."""
    if load_config.load_format is WeightmapModelLoader:
        load_config = _stock_config(load_config)
    init(loader, load_config)


def _stock_config(load_config: LoadConfig) -> LoadConfig:
    """A copy: SGLang makes several loaders from one, and chooses them by its load format."""
    config = copy.copy(load_config)
    config.load_format = LoadFormat.AUTO
    config.model_loader_extra_config = {}
    return config


def _stock_weights(is_safetensors: bool, file: str) -> Weights:
    return safetensors_weights_iterator([file]) if is_safetensors else pt_weights_iterator([file])


def _shows_progress() -> bool:
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
