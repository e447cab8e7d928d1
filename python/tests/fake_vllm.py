"""What weightmap.vllm takes of vLLM, in a few lines: the contract that the loader relies on.

tests/engines/vllm_test.py compares it with a vLLM that is installed.
"""

import contextlib
import dataclasses
import functools
import logging
import os
import re
import types
from typing import Any

import engine_files

ENGINE = "vllm"
MODEL_LOADER = "vllm.model_executor.model_loader"


@dataclasses.dataclass
class LoadConfig:
    load_format: str = "weightmap"
    model_loader_extra_config: Any = dataclasses.field(default_factory=dict)
    use_tqdm_on_load: bool = True
    pt_load_map_location: Any = "cpu"
    safetensors_load_strategy: str | None = None


class DefaultModelLoader:
    @dataclasses.dataclass
    class Source:
        model_or_path: str
        revision: str | None
        subfolder: str | None = None
        prefix: str = ""
        fall_back_to_pt: bool = True
        allow_patterns_overrides: list[str] | None = None
        is_unused_weight: Any = None

    def __init__(self, load_config):
        if load_config.model_loader_extra_config:
            raise ValueError("Unexpected extra config keys")
        self.load_config = load_config
        self.local_expert_ids = None
        self._encoder_only_lm_prefixes = None
        self._encoder_only_weights_mapper = None
        self.counter_before_loading_weights = 0.0

    def _prepare_weights(self, model_name_or_path, subfolder, revision, fall_back_to_pt,
                         allow_patterns_overrides):
        if self.load_config.load_format != "auto":
            raise ValueError(f"Unknown load_format: {self.load_config.load_format}")
        folder = os.path.join(model_name_or_path, subfolder or "")
        files, pattern = engine_files.first_matching(folder, ("*.safetensors", "*.bin"))
        return model_name_or_path, files, pattern != "*.bin", "index.json"

    def _get_weights_iterator(self, source):
        return iter([("stock", source.prefix)])

    def get_all_weights(self, model_config, model):
        yield from self._get_weights_iterator(self.Source(model_config.model, None))
        for source in getattr(model, "secondary_weights", ()):
            yield from self._get_weights_iterator(source)

    def load_weights(self, model, model_config):
        model.load_weights(self.get_all_weights(model_config, model))


def should_skip_weight(weight_name, local_expert_ids):
    expert = re.search(r"\.experts\.(\d+)\.", weight_name)
    return bool(local_expert_ids and expert) and int(expert[1]) not in local_expert_ids


def install(monkeypatch):
    """Puts it in the place of vLLM; gives what tests look at.

    stock: by name of a file what vLLM's own iterators give. progress: the files, and whether the
    bar is off. registered: the loaders by load format. config: the current one. nodes: how many.
    """
    seen = types.SimpleNamespace(
        stock={}, progress=[], registered={}, platform="cpu", config=None, nodes=1
    )

    def register_model_loader(load_format):
        assert load_format not in seen.registered
        return lambda loader: seen.registered.setdefault(load_format, loader)

    modules = {
        "vllm": {"__version__": "0.1"},
        "vllm.config": {"get_current_vllm_config_or_none": lambda: seen.config},
        "vllm.config.load": {"LoadConfig": LoadConfig},
        "vllm.config.utils": {"replace": dataclasses.replace},
        "vllm.distributed": {},
        "vllm.distributed.parallel_state": {"get_node_count": lambda: seen.nodes},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.platforms": {"current_platform": types.SimpleNamespace(device_type="cpu")},
        "vllm.model_executor": {},
        MODEL_LOADER: {"register_model_loader": register_model_loader},
        f"{MODEL_LOADER}.default_loader": {"DefaultModelLoader": DefaultModelLoader},
        f"{MODEL_LOADER}.ep_weight_filter": {"should_skip_weight": should_skip_weight},
        f"{MODEL_LOADER}.weight_utils": {
            "_BAR_FORMAT": "",
            "enable_tqdm": lambda use_tqdm_on_load: use_tqdm_on_load,
            **engine_files.stock_parts(seen),
            "filter_mm_encoder_only_safetensors_files": lambda files, folder, index, prefixes, *,
            weights_mapper: [
                file for file in files if not os.path.basename(file).startswith(prefixes)
            ],
            "filter_safetensors_files_by_weight_name": lambda files, is_unused: [
                file for file in files if not is_unused(os.path.basename(file))
            ],
        },
    }
    engine_files.install(monkeypatch, modules)
    seen.platform = modules["vllm.platforms"]["current_platform"]
    return seen


def config_of(extra=None, **config):
    return LoadConfig(model_loader_extra_config=extra or {}, **config)


def source(folder, **more):
    return DefaultModelLoader.Source(str(folder), None, **more)


@contextlib.contextmanager
def registered(monkeypatch):
    """What install() gives, where weightmap is registered, and as `fake_sglang.registered()` gives
    it: the engine's name, its logger, and how it loads a folder."""
    seen = install(monkeypatch)
    with engine_files.imported_anew(ENGINE):
        import weightmap.vllm

        weightmap.vllm.register()
        seen.name, seen.logger = "vLLM", "vllm.weightmap"
        seen.make = seen.registered["weightmap"]
        seen.load = functools.partial(load, seen)
        seen.weights = functools.partial(weights, seen)
        seen.be_npu = functools.partial(setattr, seen.platform, "device_type", "npu")
        yield seen


def load(seen, folder, extra=None, *, model=None, expert_ids=None, **config):
    """Gives the names and tensors in their order."""
    loader = seen.make(config_of(extra, **config))
    loader.local_expert_ids = expert_ids
    model, taken = engine_files.take_weights(model)
    loader.load_weights(model, types.SimpleNamespace(model=str(folder)))
    return taken


def weights(seen, folder, extra=None):
    """As they come, with nobody but the caller to hold them."""
    model_config = types.SimpleNamespace(model=str(folder))
    return seen.make(config_of(extra)).get_all_weights(model_config, types.SimpleNamespace())
