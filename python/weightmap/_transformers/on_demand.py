"""weightmap.transformers.load(experts=...): everything but the experts is mapped."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from weightmap._errors import InvalidArgumentError, UnsupportedError
from weightmap._open import open
from weightmap._transformers.expert_files import WAY_OUT, ExpertFiles, ModuleParts
from weightmap._transformers.expert_module import ExpertLayer, ExpertParameter, on_demand_class
from weightmap._transformers.refusing import refusing_class
from weightmap.experts import ResidentSet, budget_bytes

# Arguments of from_pretrained() by which parameters come to other places than the CPU's memory.
_PLACED = ("device_map", "tp_plan", "tp_size", "device_mesh", "distributed_config",
           "quantization_config", "gguf_file", "state_dict", "use_kernels", "output_loading_info")


def from_pretrained(
    cls: Any, place: str, options: dict[str, Any], budget: int | str, share: str | None
) -> Any:
    """What cls.from_pretrained(place, **options) returns, with experts that are read when they are
    needed."""
    budget_bytes(budget)
    _check_options(cls, options)
    loader = _Loader(budget, share)
    loaded = loader.class_of(cls).from_pretrained(
        place, **{**options, "experts_implementation": "eager"}
    )
    loaded.__class__ = cls
    return loader.finish(loaded)


def resident_set_of(model: torch.nn.Module) -> ResidentSet:
    for module in model.modules():
        layer = getattr(module, "_weightmap_layer", None)
        if layer is not None:
            resident: ResidentSet = layer.resident
            return resident
    raise InvalidArgumentError("the model has all of its experts: it was loaded without experts=")


def _check_options(cls: Any, options: dict[str, Any]) -> None:
    for name in _PLACED:
        given = options.get(name)
        if given and not _is_of_the_cpu(name, given):
            raise UnsupportedError(f"experts= goes without {name}=: they are in memory of the CPU")
    if options.get("experts_implementation", "eager") != "eager":
        raise UnsupportedError(
            f"experts= goes with experts_implementation='eager', which takes one expert after the "
            f"other, not with {options['experts_implementation']!r}"
        )
    if not (isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)):
        raise InvalidArgumentError(
            f"experts= needs the class of a model, not {getattr(cls, '__name__', cls)}; leave cls= "
            "out, and config.json names it"
        )


def _is_of_the_cpu(name: str, given: Any) -> bool:
    if name == "quantization_config":
        return _is_dequantizing(given)
    return name == "device_map" and str(given) == "cpu"


# By what config.json calls them: quantized forms that transformers dequantizes where it loads them.
_DEQUANTIZED = {"mxfp4": "Mxfp4Config", "fp8": "FineGrainedFP8Config"}


def _is_dequantizing(quantization_config: Any) -> bool:
    return getattr(quantization_config, "dequantize", False) is True


def _check_quantizer(quantizer: Any) -> None:
    if quantizer is None:
        return
    settings = quantizer.quantization_config
    method = str(getattr(settings.quant_method, "value", settings.quant_method))
    if method not in _DEQUANTIZED:
        raise UnsupportedError(
            f"experts= takes models that are quantized to {' or '.join(_DEQUANTIZED)}, and this is "
            f"one of {method}; {WAY_OUT}, or save it dequantized once"
        )
    if not _is_dequantizing(settings):
        raise UnsupportedError(
            f"transformers would compute with {method} on this machine, and experts= computes with "
            "what is dequantized, in memory of the CPU: give quantization_config="
            f"transformers.{_DEQUANTIZED[method]}(dequantize=True)"
        )


class _Loader:
    """One load under way."""

    def __init__(self, budget: int | str, share: str | None) -> None:
        self._budget = budget
        self._share = share
        self._layers: dict[str, ExpertLayer] = {}

    def class_of(self, cls: Any) -> Any:
        """A class of the same name that takes its experts out before parameters are loaded."""

        def _load_pretrained_model(
            model: Any, state_dict: Any, checkpoint_files: Any, load_config: Any, *rest: Any
        ) -> Any:
            names = self._take_out(model, checkpoint_files, load_config)
            info, index = cls._load_pretrained_model(
                model, state_dict, checkpoint_files, load_config, *rest
            )
            info.unexpected_keys -= names
            return info, index

        return type(cls.__name__, (cls,), {
            "__module__": cls.__module__,
            "_load_pretrained_model": staticmethod(_load_pretrained_model),
        })

    def _take_out(self, model: Any, paths: list[str], load_config: Any) -> set[str]:
        """Returns what transformers calls their tensors, which it is not to miss."""
        _check_quantizer(load_config.hf_quantizer)
        modules = {name: module for name, module in model.named_modules() if _is_of_experts(module)}
        if not modules:
            raise UnsupportedError(
                f"{type(model).__name__} has no modules of experts whose implementation can be "
                f"chosen; {WAY_OUT}"
            )
        metas = {
            f"{name}.{key}": parameter
            for name, module in modules.items()
            for key, parameter in module.named_parameters(recurse=False)
            if parameter.ndim > 0 and len(parameter) == module.num_experts
        }
        parts = {name: ModuleParts(name, module.num_experts) for name, module in modules.items()}
        with open(paths if len(paths) > 1 else paths[0], verify="chain") as checkpoint:
            files = ExpertFiles(checkpoint, model, metas, load_config)
            for full, meta in metas.items():
                name, _, key = full.rpartition(".")
                parts[name].add(key, *files.parts_of(full, meta))
            units = [unit for each in parts.values() for unit in each.units()]
            resident = ResidentSet(checkpoint, units, budget=self._budget, share=self._share)
        first = 0
        for each in parts.values():
            positions = range(first, first := first + each.count)
            self._put_in(modules[each.name], each, ExpertLayer(resident, positions))
        return files.names_in(model.state_dict())

    def _put_in(self, module: Any, parts: ModuleParts, layer: ExpertLayer) -> None:
        for key, place in parts.parameters.items():
            meta = getattr(module, key)
            delattr(module, key)
            setattr(module, key, ExpertParameter(layer, f"{parts.name}.{key}", place, meta))
        self._layers[parts.name] = layer

    def finish(self, model: Any) -> Any:
        """The model, once all of its other parameters are there."""
        holders: dict[str, torch.dtype] = {}
        for name, layer in self._layers.items():
            module = model.get_submodule(name)
            module._weightmap_layer = layer
            dtype = next(each.dtype for each in vars(module).values()
                         if isinstance(each, ExpertParameter))
            module.__class__ = on_demand_class(_class_of(module))
            while name:
                holders[name] = dtype
                name = name.rpartition(".")[0]
            holders[""] = dtype
        for name, dtype in holders.items():
            module = model.get_submodule(name)
            module._weightmap_dtype = dtype
            module.__class__ = refusing_class(_class_of(module))
        return model


def _class_of(module: Any) -> Any:
    return type(module)


def _is_of_experts(module: torch.nn.Module) -> bool:
    """Whether transformers' use_experts_implementation() has decorated its class."""
    return "_is_expert_parallel" in vars(module) and hasattr(module, "num_experts")
