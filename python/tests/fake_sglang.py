"""What weightmap.sglang takes of SGLang, in a few lines: the contract that the loader relies on.

tests/engines/sglang_test.py compares it with a SGLang that is installed.
"""

import contextlib
import dataclasses
import enum
import functools
import os
import pkgutil
import re
import types
from typing import Any

import engine_files

ENGINE = "sglang"
LOAD_CONFIG = "sglang.srt.configs.load_config"
MODEL_LOADER = "sglang.srt.model_loader"


class LoadFormat(str, enum.Enum):
    AUTO = "auto"
    DUMMY = "dummy"


@dataclasses.dataclass
class LoadConfig:
    load_format: Any = LoadFormat.AUTO
    model_loader_extra_config: Any = dataclasses.field(default_factory=dict)
    draft_model_idx: int | None = None

    def __post_init__(self):
        self._verify_load_format()

    def _verify_load_format(self):
        if isinstance(self.load_format, str):
            self.load_format = LoadFormat(self.load_format.lower())


class DefaultModelLoader:
    _MTP_PATTERN = re.compile(r"model\.mtp\.layers\.(\d+)\.")
    counter_before_loading_weights = 0.0

    @dataclasses.dataclass
    class Source:
        model_or_path: str
        revision: str | None
        prefix: str = ""
        fall_back_to_pt: bool = True
        allow_patterns_overrides: list[str] | None = None
        model_config: Any = None

    @dataclasses.dataclass(frozen=True)
    class ResolvedSource:
        source: Any
        hf_folder: str
        weight_files: tuple[str, ...]
        use_safetensors: bool

    def __init__(self, load_config):
        if load_config.model_loader_extra_config:
            raise ValueError("Unexpected extra config keys")
        self.load_config = load_config

    def _prepare_weights(self, model_name_or_path, revision, fall_back_to_pt,
                         allow_patterns_overrides=None):
        if self.load_config.load_format != LoadFormat.AUTO:
            raise ValueError(f"Unknown load_format: {self.load_config.load_format}")
        patterns = allow_patterns_overrides or ("*.safetensors", "*.bin")
        files, pattern = engine_files.first_matching(model_name_or_path, patterns)
        return model_name_or_path, files, pattern.endswith(".safetensors")

    def _get_weights_iterator(self, source, *, resolved_source=None,
                              startup_prefetch_started=False, startup_prefetch_active=False):
        self._prepare_weights(source.model_or_path, source.revision, source.fall_back_to_pt)
        return iter([("stock", source.prefix)])

    @classmethod
    def _filter_mtp_weights(cls, weights_iterator, prefix, draft_model_idx):
        for name, tensor in weights_iterator:
            layer = cls._MTP_PATTERN.match(name)
            if layer is None:
                yield prefix + name, tensor
            elif int(layer[1]) == draft_model_idx:
                yield prefix + name.replace(layer[0], "model.mtp.layers.0."), tensor

    def _get_all_weights(self, model_config, model):
        yield from self._get_weights_iterator(
            self.Source(model_config.model_path, None, model_config=model_config)
        )
        for source in getattr(model, "secondary_weights", ()):
            yield from self._get_weights_iterator(source)

    @staticmethod
    def load_weights_and_postprocess(model, weights, target_device):
        model.load_weights(weights)

    def load_model(self, *, model_config, device_config):
        model = model_config.make()
        self.load_weights_and_postprocess(
            model, self._get_all_weights(model_config, model), device_config
        )
        return model


def get_model_loader(load_config):
    if isinstance(load_config.load_format, type):
        return load_config.load_format(load_config)
    return DefaultModelLoader(load_config)


class HookType(enum.Enum):
    AROUND = "around"


class Hooks:
    """HookRegistry; undone at the end of a test."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch
        self.registered = []
        self._applied = set()

    def register(self, target, hook, hook_type=None, *, source=None):
        assert hook_type is HookType.AROUND
        self.registered.append((target, hook))

    def apply_hooks(self):
        for target, hook in self.registered:
            if target not in self._applied:
                self._applied.add(target)
                owner, _, name = target.rpartition(".")
                self._wrap(pkgutil.resolve_name(owner), name, hook)

    def _wrap(self, owner, name, hook):
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapper(*arguments, **named):
            return hook(original, *arguments, **named)

        self._monkeypatch.setattr(owner, name, wrapper)


def install(monkeypatch):
    """Puts it in the place of SGLang; gives what tests look at.

    stock: by name of a file what SGLang's own iterators give. progress: the files, and whether the
    bar is off. choices: what --load-format takes. hooks: the registry. is_npu: of the platform.
    """
    for of_sglang in (LoadConfig, DefaultModelLoader):
        module = LOAD_CONFIG if of_sglang is LoadConfig else f"{MODEL_LOADER}.loader"
        monkeypatch.setattr(of_sglang, "__module__", module)
    seen = types.SimpleNamespace(
        stock={}, progress=[], choices=["auto", "dummy"], hooks=Hooks(monkeypatch), is_npu=False
    )

    def maybe_add_mtp_safetensors(files, folder, index_file, hf_config):
        with contextlib.suppress(AttributeError):
            files = [*files, os.path.join(folder, hf_config.mtp_file)]
        return files

    engine_files.install(monkeypatch, {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.configs": {},
        LOAD_CONFIG: {"LoadConfig": LoadConfig, "LoadFormat": LoadFormat},
        MODEL_LOADER: {},
        f"{MODEL_LOADER}.loader": {"DefaultModelLoader": DefaultModelLoader},
        f"{MODEL_LOADER}.weight_utils": {
            "maybe_add_mtp_safetensors": maybe_add_mtp_safetensors,
            **engine_files.stock_parts(seen),
        },
        "sglang.srt.plugins": {},
        "sglang.srt.plugins.hook_registry": {"HookRegistry": seen.hooks, "HookType": HookType},
        "sglang.srt.server_args": {"add_load_format_choices": seen.choices.extend},
        "sglang.srt.utils": {"BAR_FORMAT": "", "is_npu": lambda: seen.is_npu},
    })
    return seen


def config_of(extra=None, **config):
    return LoadConfig("weightmap", extra or {}, **config)


def source(folder, **more):
    return DefaultModelLoader.Source(str(folder), None, **more)


@contextlib.contextmanager
def registered(monkeypatch):
    """What install() gives, with its hooks applied as when SGLang has called all plug-ins, and as
    `fake_vllm.registered()` gives it: the engine's name, its logger, and how it loads a folder."""
    seen = install(monkeypatch)
    with engine_files.imported_anew(ENGINE):
        import weightmap.sglang

        weightmap.sglang.register()
        seen.hooks.apply_hooks()
        seen.name, seen.logger = "SGLang", "sglang.weightmap"
        seen.make, seen.load, seen.weights = get_model_loader, load, weights
        seen.be_npu = functools.partial(setattr, seen, "is_npu", True)
        yield seen


def load(folder, extra=None, *, model=None, hf_config=None, **config):
    """As at a start; gives the names and tensors in their order."""
    model, taken = engine_files.take_weights(model)
    model_config = types.SimpleNamespace(
        model_path=str(folder), hf_config=hf_config, make=lambda: model
    )
    loader = get_model_loader(config_of(extra, **config))
    loader.load_model(model_config=model_config, device_config="cpu")
    return taken


def weights(folder, extra=None):
    """As they come, with nobody but the caller to hold them."""
    return get_model_loader(config_of(extra))._get_weights_iterator(source(folder))
