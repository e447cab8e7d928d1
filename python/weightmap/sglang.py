"""SGLang loads weights through weightmap: `sglang serve --load-format weightmap`.

SGLang finds register() by itself, as the entry point `weightmap` of the group sglang.srt.plugins,
in each of its processes. docs/sglang.md is the manual.
"""

from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sglang.srt.configs.load_config import LoadConfig
    from weightmap import Version
    from weightmap._engines.sglang_loader import WeightmapModelLoader

__all__ = ["WeightmapModelLoader", "register", "update_weights"]

_is_registered = False


def register() -> None:
    """Makes "weightmap" a load format of this process's SGLang; a second call does nothing.

    SGLang calls this whatever it is to load, in processes that load nothing, too. So the loader is
    imported when a load asks for it; and a SGLang that lacks what the load format takes is told to
    its log and goes on: only the load format is missing then.
    """
    global _is_registered
    if _is_registered:
        return
    try:
        from sglang.srt.configs.load_config import LoadConfig
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
        from sglang.srt.server_args import add_load_format_choices

        verify = LoadConfig._verify_load_format
        around = HookType.AROUND
    except (ImportError, AttributeError) as error:
        import logging

        logging.getLogger("sglang.weightmap").warning(
            "there is no load format weightmap, which was made for another SGLang: %s", error
        )
        return
    add_load_format_choices(["weightmap"])
    target = f"{LoadConfig.__module__}.{verify.__qualname__}"
    HookRegistry.register(target, _take_load_format, around)
    _is_registered = True


def _take_load_format(verify: Callable[[LoadConfig], None], config: LoadConfig) -> None:
    """What SGLang knows as load formats is a closed list, beside which it takes classes."""
    load_format = config.load_format
    if isinstance(load_format, str) and load_format.lower() == "weightmap":
        config.load_format = _loader()
    verify(config)


@functools.cache
def _loader() -> type[WeightmapModelLoader]:
    from sglang.srt.model_loader.loader import DefaultModelLoader
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from weightmap._engines.sglang_loader import WeightmapModelLoader, take_load_config

    # Adapters and embeddings of draft models are loaded by DefaultModelLoader itself, from the
    # same LoadConfig, and it knows no classes.
    target = f"{DefaultModelLoader.__module__}.{DefaultModelLoader.__qualname__}.__init__"
    HookRegistry.register(target, take_load_config, HookType.AROUND)
    HookRegistry.apply_hooks()
    return WeightmapModelLoader


def update_weights(url: str, version: Version, *, timeout: float = 600) -> None:
    """Gives the weights of a version to a server that runs at this URL.

    It is SGLang's own `/update_weights_from_disk` of the folder, with the version as
    `weight_version`, which answers then carry: requests wait meanwhile, and what was computed by
    the weights before is dropped. Raises weightmap.Error with what the server says against it, and
    OSError if it is not reached within `timeout` seconds.
    """
    import json
    import urllib.error
    import urllib.request

    from weightmap._errors import Error

    asked = json.dumps({"model_path": version.folder, "weight_version": version.version})
    request = urllib.request.Request(
        url.rstrip("/") + "/update_weights_from_disk",
        asked.encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        answer = json.load(error)
    if not answer.get("success"):
        raise Error(f"{url} did not take {version.folder}: {answer.get('message')}")


def __getattr__(name: str) -> Any:
    if name == "WeightmapModelLoader":
        from weightmap._engines.sglang_loader import WeightmapModelLoader

        return WeightmapModelLoader
    raise AttributeError(f"module 'weightmap.sglang' has no attribute {name!r}")
