"""What weightmap.torch.save() and the patch of torch.save do."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any

from torch import serialization

from weightmap._replacing import Replacing
from weightmap._saving.save import write
from weightmap._saving.values import OnlyForPickle
from weightmap._torch import private
from weightmap._torch.originals import original

if TYPE_CHECKING:
    from weightmap._typing import CanWrite, PathLike, Progress


def is_default_save(
    pickle_module: Any, pickle_protocol: int, is_zip: bool, has_no_byte_order: bool
) -> bool:
    return pickle_module is pickle and pickle_protocol == 2 and is_zip and not has_no_byte_order


def save(
    obj: Any, f: PathLike | CanWrite, durable: bool = True, progress: Progress | None = None
) -> None:
    try:
        has_alignment = private.has("_get_storage_alignment")
        write(
            obj,
            f,
            strict=True,
            reserve="data" if private._serialization_tls.skip_data else False,
            alignment=private._get_storage_alignment() if has_alignment else 64,
            crc=serialization.get_crc32_options(),
            durable=durable,
            progress=progress,
        )
    except OnlyForPickle:
        save_by_torch(obj, f)


def save_by_torch(obj: Any, f: Any, *given: Any) -> None:
    """torch.save as it is; a path keeps what it has until the new file is whole."""
    torch_save = original("save")
    if not isinstance(f, (str, bytes, os.PathLike)):
        torch_save(obj, f, *given)
        return
    with Replacing(f, any_content=True) as new:
        torch_save(obj, new, *given)
