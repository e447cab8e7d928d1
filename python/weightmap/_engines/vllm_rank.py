"""Which rank of which model this process of vLLM is. Imports vLLM, and so torch."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import vllm
from vllm.config import get_current_vllm_config_or_none
from vllm.distributed.parallel_state import get_node_count

import torch

if TYPE_CHECKING:
    from vllm.config import ModelConfig


def slices_key(slices: str, model_config: ModelConfig) -> str | None:
    """Of RankSlices; None if this rank is to read whole tensors.

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
