"""Where the files of a model have what its modules of experts take, by transformers' own mapping."""

from __future__ import annotations

import copy
from typing import Any, NoReturn

import torch

from weightmap._checkpoint import Checkpoint
from weightmap._errors import InvalidArgumentError, UnsupportedError
from weightmap._torch.dtypes import dtype_of
from weightmap._transformers.dequantization import (
    Dequantization,
    Fp8Dequantization,
    Mxfp4Dequantization,
)
from weightmap.experts import Part, Unit

try:
    from transformers.core_model_loading import (
        Concatenate,
        MergeModulelist,
        WeightConverter,
        WeightRenaming,
        build_glob_alternation,
        dot_natural_key,
        rename_source_key,
    )
except ImportError:
    import transformers

    raise UnsupportedError(
        "experts= needs transformers 5, whose modules of experts can be switched; this is "
        f"transformers {transformers.__version__}. Leave experts= out"
    ) from None

# By the class of the operation that transformers does first.
_DEQUANTIZATIONS = {"Fp8Dequantize": Fp8Dequantization, "Mxfp4Dequantize": Mxfp4Dequantization}

WAY_OUT = "load the model without experts=, which maps them like the rest"


# Of a parameter in a unit: its first part, how many there are, and what they go through; None where
# they are joined to what the parameter is.
Place = tuple[int, int, "Dequantization | None"]


class ModuleParts:
    """What a module of experts takes of the files: of each parameter the parts of a unit that it is
    made of, and the units of its experts."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count  # of experts
        self.parameters: dict[str, Place] = {}
        self._parts: list[list[Part]] = [[] for _ in range(count)]

    def add(
        self, parameter: str, of_experts: list[list[Part]], dequantize: Dequantization | None
    ) -> None:
        self.parameters[parameter] = len(self._parts[0]), len(of_experts[0]), dequantize
        for parts, more in zip(self._parts, of_experts):
            parts.extend(more)

    def units(self) -> list[Unit]:
        return [Unit(f"{self.name}.{expert}", tuple(parts))
                for expert, parts in enumerate(self._parts)]


class ExpertFiles:
    """Finds the tensors of parameters of experts in the files of one model.

    parameters: of all modules of experts, on the device "meta", by their names in the model.
    load_config: transformers' own, of the load under way.
    """

    def __init__(
        self, checkpoint: Checkpoint, model: Any, parameters: dict[str, torch.Tensor],
        load_config: Any,
    ) -> None:
        self._checkpoint = checkpoint
        self._parameters = parameters
        self._config = load_config
        # Renaming is noted in them, which is about the load under way.
        mapping = copy.deepcopy(load_config.weight_mapping or [])
        self._renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
        self._converters = [each for each in mapping if isinstance(each, WeightConverter)]
        self._base = model.base_model_prefix
        # By parameter: the names in the files by what transformers matched them with.
        self._found: dict[str, dict[str | None, list[str]]] = {}
        known = model.state_dict()
        for key in sorted(checkpoint, key=dot_natural_key):
            name, source = self._renamed(key, known)
            if name not in known and key in known:
                name, source = key, None
            if name in parameters:
                self._found.setdefault(name, {}).setdefault(source, []).append(key)

    def _renamed(self, key: str, known: dict[str, Any]) -> tuple[str, str | None]:
        return rename_source_key(key, self._renamings, self._converters, self._base, known)

    def names_in(self, known: dict[str, Any]) -> set[str]:
        """What transformers calls these tensors where the model has only the parameters `known`."""
        keys = [key for sources in self._found.values() for each in sources.values() for key in each]
        return {self._renamed(key, known)[0] for key in keys} | self._parameters.keys()

    def parts_of(
        self, name: str, parameter: torch.Tensor
    ) -> tuple[list[list[Part]], Dequantization | None]:
        """Of each expert, in their order. UnsupportedError if the files have more to be done than to
        dequantize slices and to put them side by side, or the elements of another dtype."""
        sources = self._found.get(name, {})
        if not sources:
            raise InvalidArgumentError(
                f"the files have nothing for {name}", file=self._checkpoint.path
            )
        if None in sources:
            parts = self._fused(name, parameter, sources[None])
        else:
            converter = next(each for each in self._converters
                             if next(iter(sources)) in each.source_patterns)
            if type(converter.operations[0]).__name__ in _DEQUANTIZATIONS:
                return self._quantized(name, parameter, sources, converter)
            parts = self._merged(name, parameter, sources, converter)
        self._check_dtype(name, parameter, parts[0][0].tensor)
        return parts, None

    def _fused(
        self, name: str, parameter: torch.Tensor, keys: list[str]
    ) -> list[list[Part]]:
        shape = self._checkpoint[keys[-1]].shape
        if len(keys) > 1 or shape != tuple(parameter.shape):
            self._refuse(name, f"{keys[-1]!r} of shape {list(shape)} is not {list(parameter.shape)}")
        return [[Part(keys[0], expert)] for expert in range(len(parameter))]

    def _merged(
        self, name: str, parameter: torch.Tensor, sources: dict[str | None, list[str]],
        converter: Any,
    ) -> list[list[Part]]:
        """Of lists of modules, which transformers stacks, and puts side by side where a parameter is
        made of several lists: those of one expert then lie one after the other in its slice."""
        self._check_steps(name, converter.operations, len(sources))
        lists = [sources.get(pattern, []) for pattern in converter.source_patterns]
        self._check_counts(name, parameter, lists)
        made = [[Part(key, joined=position > 0) for position, key in enumerate(keys)]
                for keys in zip(*lists)]
        for parts in made:
            shapes = [self._checkpoint[part.tensor].shape for part in parts]
            whole = (sum(shape[0] for shape in shapes), *shapes[0][1:]) if shapes[0] else ()
            if whole != tuple(parameter.shape[1:]):
                self._refuse(name, f"{parts[0].tensor!r} of shape {list(shapes[0])} does not fit "
                                   f"{list(parameter.shape[1:])}")
        return made

    def _quantized(
        self, name: str, parameter: torch.Tensor, sources: dict[str | None, list[str]],
        converter: Any,
    ) -> tuple[list[list[Part]], Dequantization]:
        """Of quantized weights with their scales: lists of modules, or tensors of all experts."""
        operation, *steps = converter.operations
        # How inputs are to be quantized is not about the weights.
        patterns = [each for each in converter.source_patterns
                    if each in sources and not each.endswith("activation_scale")]
        lists = [sources[each] for each in patterns]
        dequantize = _DEQUANTIZATIONS[type(operation).__name__](
            operation, name.rpartition(".")[2], parameter.dtype, patterns
        )
        if not dequantize.stacked:
            self._check_steps(name, steps, sum("scale" not in each for each in patterns))
            self._check_counts(name, parameter, lists)
        elif any(len(keys) != 1 or self._checkpoint[keys[0]].shape[:1] != (len(parameter),)
                 for keys in lists):
            self._refuse(name, f"{lists[0][0]!r} is not of {len(parameter)} experts")
        self._check_dequantized(name, parameter, lists, dequantize)
        if dequantize.stacked:
            return [[Part(keys[0], expert) for keys in lists]
                    for expert in range(len(parameter))], dequantize
        return [[Part(key) for key in keys] for keys in zip(*lists)], dequantize

    def _check_dequantized(
        self, name: str, parameter: torch.Tensor, lists: list[list[str]],
        dequantize: Dequantization,
    ) -> None:
        """Tries it with the shapes of one expert, which are those of all."""
        parts = []
        for keys in lists:
            first = self._checkpoint[keys[0]]
            for each in map(self._checkpoint.__getitem__, keys):
                if (each.shape, each.dtype) != (first.shape, first.dtype):
                    self._refuse(name, f"{each.name!r} is {each.dtype} of {list(each.shape)}, and "
                                       f"{first.name!r} {first.dtype} of {list(first.shape)}")
            shape, dtype = first.shape[dequantize.stacked:], dtype_of(first.dtype)
            parts.append(torch.empty(shape, dtype=dtype, device="meta"))
        try:
            made = dequantize(parts)
        except Exception as error:  # whatever transformers says of them
            self._refuse(name, f"they cannot be dequantized: {error}")
        if made.shape != parameter.shape[1:] or made.dtype != parameter.dtype:
            words = [f"{str(each.dtype).removeprefix('torch.')} of {list(shape)}"
                     for each, shape in ((made, made.shape), (parameter, parameter.shape[1:]))]
            self._refuse(name, "each is {} when it is dequantized, expected {}".format(*words))

    def _check_steps(self, name: str, steps: list[Any], lists: int) -> None:
        merges = steps and isinstance(steps[0], MergeModulelist) and steps[0].dim == 0
        joins = len(steps) == 2 and isinstance(steps[1], Concatenate) and steps[1].dim == 1
        if not merges or not (joins or len(steps) == 1 == lists):
            self._refuse(name, f"they go through {', '.join(type(each).__name__ for each in steps)}")

    def _check_counts(self, name: str, parameter: torch.Tensor, lists: list[list[str]]) -> None:
        for keys in lists:
            if len(keys) != len(parameter):
                self._refuse(name, f"the files have {len(keys)} of {len(parameter)} experts")

    def _check_dtype(self, name: str, parameter: torch.Tensor, key: str) -> None:
        computed = parameter.dtype
        if self._config.dtype_plan:
            pattern, names, _ = build_glob_alternation(list(self._config.dtype_plan))
            if (match := pattern.search(name)) is not None and match.lastgroup is not None:
                computed = self._config.dtype_plan[names[match.lastgroup]]
        if dtype_of(self._checkpoint[key].dtype) != computed:
            self._refuse(
                name, f"{key!r} is {self._checkpoint[key].dtype} and the model computes in "
                      f"{str(computed).removeprefix('torch.')}; convert the files once, by a load "
                      "and save_pretrained()")

    def _refuse(self, name: str, why: str) -> NoReturn:
        raise UnsupportedError(
            f"the experts of {name} cannot be taken from the files as they are: {why}; or {WAY_OUT}",
            file=self._checkpoint.path,
        )
