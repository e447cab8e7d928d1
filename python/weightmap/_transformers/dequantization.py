"""What a module of experts computes with, made of the quantized parts of one expert.

transformers' operation makes an element of a byte and a scale. So it makes tables here, of all
bytes, which are looked up: bit-equal, in a third to a tenth of its time.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch


class Dequantization:
    """Makes a parameter of one expert as transformers makes that of all when it loads them.

    operation: of transformers, for a parameter that is called `key` in its module.
    patterns: by which the operation knows the parts, in their order.
    """

    stacked = False  # whether the parts are slices of tensors that have all experts

    def __init__(self, operation: Any, key: str, dtype: torch.dtype, patterns: list[str]) -> None:
        self._operation = operation
        self._key = key
        self._dtype = dtype
        self._patterns = patterns
        trial = self._trial()
        self._can_look_up = self._is_usual(trial) and torch.allclose(
            self._look_up(trial), self._convert(trial), rtol=0, atol=0, equal_nan=True
        )

    def __call__(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """New memory."""
        if self._can_look_up and self._is_usual(parts):
            return self._look_up(parts)
        return self._convert(parts)

    def _convert(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """By the operation itself, of the first parts or of all."""
        given = {pattern: [part[None] if self.stacked else part]
                 for pattern, part in zip(self._patterns, parts)}
        return _convert(self._operation, self._key, self._dtype, given)

    def _trial(self) -> list[torch.Tensor]:
        """The parts of a small matrix, to see whether tables make what the operation makes."""
        raise NotImplementedError

    def _is_usual(self, parts: list[torch.Tensor]) -> bool:
        """Whether there are tables for such parts."""
        raise NotImplementedError

    def _look_up(self, parts: list[torch.Tensor]) -> torch.Tensor:
        raise NotImplementedError


class Fp8Dequantization(Dequantization):
    """Of weights and scales by turns: a byte each, and a scale for each block."""

    def _trial(self) -> list[torch.Tensor]:
        return [_EVERY.view(16, 16).view(torch.float8_e4m3fn), torch.tensor([[0.3, 2], [1, 1e-3]])]

    def _is_usual(self, parts: list[torch.Tensor]) -> bool:
        weights, scales = parts[::2], parts[1::2]
        return (
            self._patterns[1::2] == [f"{each}_scale_inv" for each in self._patterns[::2]]
            and all(each.dtype == torch.float8_e4m3fn for each in weights)
            and all(each.ndim == 2 for each in scales) and not scales[0].is_meta
        )

    def _look_up(self, parts: list[torch.Tensor]) -> torch.Tensor:
        rows, columns = sum(len(weight) for weight in parts[::2]), parts[0].shape[1]
        made = rest = torch.empty(rows, columns, dtype=self._dtype)
        for weight, scales in zip(parts[::2], parts[1::2]):
            blocks = scales.shape[1]
            every = _EVERY.repeat(1, blocks).view(weight.dtype)
            begin = torch.arange(0, 256 * blocks, 256, dtype=torch.int32)  # of a block's entries
            begin = begin.repeat_interleave(columns // blocks)
            for band, of_band in zip(weight.view(torch.uint8).chunk(len(scales)), scales.split(1)):
                table = self._convert([every, of_band]).view(-1)
                into, rest = rest[:len(band)], rest[len(band):]
                torch.index_select(table, 0, (band + begin).view(-1), out=into.view(-1))
        return made


class Mxfp4Dequantization(Dequantization):
    """Of bytes that have two numbers each, and an exponent for 16 of them; transposed."""

    stacked = True

    def _trial(self) -> list[torch.Tensor]:
        return [_EVERY.view(8, 2, 16), _EVERY[120:136].view(8, 2)]

    def _is_usual(self, parts: list[torch.Tensor]) -> bool:
        return (
            [each.rpartition("_")[2] for each in self._patterns] == ["blocks", "scales"]
            and [each.dtype for each in parts] == [torch.uint8, torch.uint8]
            and self._dtype.itemsize == 2 and not parts[0].is_meta
        )

    def _look_up(self, parts: list[torch.Tensor]) -> torch.Tensor:
        blocks, scales = parts
        made = torch.empty(blocks[0].numel() * 2, len(blocks), dtype=self._dtype)
        pairs = _pairs(self._operation.__class__, self._dtype)
        for first in range(0, len(blocks), 64):  # of which the processor's caches have room for all
            rows = slice(first, first + 64)
            entries = (scales[rows].to(torch.int32)[..., None] << 8) + blocks[rows]
            found = pairs.index_select(0, entries.view(-1)).view(self._dtype)
            made[:, rows] = found.view(len(entries), -1).T
        return made


_EVERY = torch.arange(256, dtype=torch.uint8)


@functools.lru_cache(maxsize=4)
def _pairs(kind: Any, dtype: torch.dtype) -> torch.Tensor:
    """Two elements in 32 bits, of each byte with each exponent: entry 256 * exponent + byte."""
    blocks = _EVERY.view(1, 1, 16, 16).repeat(1, 256, 1, 1)
    scales = _EVERY.view(1, 256, 1).repeat(1, 1, 16)
    given = {"down_proj_blocks": [blocks], "down_proj_scales": [scales]}
    made = _convert(kind(None), "down_proj", dtype, given)
    return made.T.contiguous().view(torch.int32).view(-1)


def _convert(
    operation: Any, key: str, dtype: torch.dtype, given: dict[str, list[torch.Tensor]]
) -> torch.Tensor:
    # It asks the model for the dtype of the parameter, and for nothing else.
    model = SimpleNamespace(**{key: SimpleNamespace(dtype=dtype)})
    with torch.no_grad():
        made = operation.convert(given, model=model, full_layer_name=key)
        # What is made of several lists of modules is side by side in the parameter.
        return torch.cat([each[0] for each in made.values()])
