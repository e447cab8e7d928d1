"""The loader of weightmap.vllm. Imports vLLM, and so torch: only register() asks for it."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from typing import TYPE_CHECKING

import vllm
from vllm.config import get_current_vllm_config_or_none
from vllm.config.utils import replace
from vllm.distributed.parallel_state import get_node_count
from vllm.logger import init_logger
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.ep_weight_filter import should_skip_weight
from vllm.model_executor.model_loader.weight_utils import (
    _BAR_FORMAT,
    enable_tqdm,
    pt_weights_iterator,
    safetensors_weights_iterator,
    tqdm,
)
from vllm.platforms import current_platform

import torch

from weightmap._engines.load import EngineLoad, check_access
from weightmap._engines.options import parse_engine_options
from weightmap._errors import UnsupportedError

if TYPE_CHECKING:
    from vllm.config import ModelConfig
    from vllm.config.load import LoadConfig

    from weightmap._engines.load import Weights

# vLLM gives handlers to loggers below its own only.
logger = init_logger("vllm.weightmap")


class WeightmapModelLoader(DefaultModelLoader):
    """Yields weights as views of the mapped files, which were read ahead if they were cold.

    Everything but the reading of files is DefaultModelLoader's: which files, downloads, what
    expert parallelism leaves out, secondary weights, the check that every weight was there.
    """

    counter_before_loading_weights: float

    def __init__(self, load_config: LoadConfig) -> None:
        # vLLM makes several loaders in each process, not all of them to load: nothing is done here.
        self._options = parse_engine_options(load_config.model_loader_extra_config)
        super().__init__(replace(load_config, load_format="auto", model_loader_extra_config={}))
        self._load = self._new_load()
        self._next_load: EngineLoad | None = None

    def _new_load(self, model_config: ModelConfig | None = None) -> EngineLoad:
        key = model_config and _slices_key(self._options.slices, model_config)
        return EngineLoad(self._options, "vLLM", logger, key)

    def load_weights(self, model: torch.nn.Module, model_config: ModelConfig) -> None:
        self._load = self._next_load = self._new_load(model_config)
        with self._load.learning():
            super().load_weights(model, model_config)
        # Nobody but the generators had the tensors; what they still held kept pages in use.
        self._load.release()

    def get_all_weights(self, model_config: ModelConfig, model: torch.nn.Module) -> Weights:
        # A reload comes here without load_weights().
        self._load = self._next_load or self._new_load(model_config)
        self._next_load = None
        yield from self._load.reporting(super().get_all_weights(model_config, model))
        check_access([self._load])

    def _get_weights_iterator(self, source: DefaultModelLoader.Source) -> Weights:
        if self.load_config.safetensors_load_strategy == "torchao":
            return self._torchao_weights(source)
        files, are_safetensors = self._files_of(source)
        if self.counter_before_loading_weights == 0.0:
            self.counter_before_loading_weights = time.perf_counter()
        config = self.load_config
        return self._load.weights(
            files,
            stock_weights=functools.partial(self._stock_weights, are_safetensors),
            progress=functools.partial(
                tqdm, disable=not enable_tqdm(config.use_tqdm_on_load), bar_format=_BAR_FORMAT
            ),
            is_wanted=self._is_wanted,
            copies_uploads=current_platform.device_type == "npu",  # Ascend, slow with mapped files
            prefix=source.prefix,
            map_location=config.pt_load_map_location,
        )

    def _torchao_weights(self, source: DefaultModelLoader.Source) -> Weights:
        self._load.fall_back(
            source.model_or_path,
            UnsupportedError("torchao puts its tensors together from several files"),
        )
        return super()._get_weights_iterator(source)

    def _files_of(self, source: DefaultModelLoader.Source) -> tuple[list[str], bool]:
        """As DefaultModelLoader chooses them."""
        folder, files, are_safetensors, index = self._prepare_weights(
            source.model_or_path,
            source.subfolder,
            source.revision,
            source.fall_back_to_pt,
            source.allow_patterns_overrides,
        )
        if are_safetensors:
            files = self._without_unused(source, files, folder, index)
        return files, are_safetensors

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

    def _is_wanted(self, name: str) -> bool:
        return not should_skip_weight(name, self.local_expert_ids)

    def _stock_weights(self, is_safetensors: bool, file: str) -> Weights:
        config = self.load_config
        if not is_safetensors:
            return pt_weights_iterator([file], False, config.pt_load_map_location)
        return safetensors_weights_iterator(
            [file], False, config.safetensors_load_strategy, local_expert_ids=self.local_expert_ids
        )


def _slices_key(slices: str, model_config: ModelConfig) -> str | None:
    """Of RankSlices, by which rank of which model this process is; None if this rank is to read whole tensors.

    slices: as of EngineOptions. With "auto" ranks read slices where they are on several nodes:
        those of one node need all of each tensor together, which one of them reads.
    """
    distributed = torch.distributed
    config = get_current_vllm_config_or_none()
    if slices == "off" or config is None or not distributed.is_initialized():
        return None
    if slices == "auto" and get_node_count() == 1:
        return None
    parallel = config.parallel_config
    what = {
        "vllm": vllm.__version__,
        "model": model_config.hf_config.to_json_string(),
        "quantization": model_config.quantization,
        "world": distributed.get_world_size(),
        "tensor": parallel.tensor_parallel_size,
        "pipeline": parallel.pipeline_parallel_size,
        # Data parallel ranks hold the same weights, but for their experts.
        "experts": parallel.enable_expert_parallel
        and (parallel.data_parallel_size, parallel.data_parallel_rank),
    }
    digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    return f"{digest}-tp{parallel.tensor_parallel_size}-rank{distributed.get_rank()}"
