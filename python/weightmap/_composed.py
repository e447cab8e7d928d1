"""Tensors that are made of other tensors, or of more than elements."""

from __future__ import annotations

from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightmap import _core


class ComposedTensor(Record):
    """What the file says of a quantized, sparse, nested or meta tensor, or of a subclass.

    The tensors it is made of are ordinary ones of the checkpoint, with names that begin with this
    one's; a quantized tensor of integers is the first part of itself.
    """

    name: str
    # "quantized", "per_channel", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr",
    # "sparse_bsc", "nested", "meta", "subclass", "from_array", "chunked"
    form: str
    dtype: str | None  # where the file says it; else that of the parts
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # of quantized, meta and subclass; in elements
    requires_grad: bool
    is_parameter: bool
    is_buffer: bool  # by a TorchScript class
    type: str  # of a subclass: "module.Class"
    device: str  # of subclass and from_array, as the file says
    scale: float  # of quantized: value = scale * (integer - zero_point)
    zero_point: int
    axis: int  # of per_channel
    is_coalesced: bool | None  # of sparse_coo, where the file says
    offsets: tuple[tuple[int, ...], ...]  # of chunked: where each part begins in the whole
    first_part: int  # position among the checkpoint's tensors
    part_count: int


def composed_tensors(core: _core.Checkpoint) -> list[ComposedTensor]:
    return [ComposedTensor(**fields) for fields in core.composed()]
