"""vLLM loads weights through weightmap: `vllm serve MODEL --load-format weightmap`.

vLLM finds register() by itself, as the entry point `weightmap` of the group vllm.general_plugins,
in each of its processes. docs/vllm.md is the manual.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vllm import LLM
    from weightmap import Version
    from weightmap._engines.vllm_loader import WeightmapModelLoader

__all__ = ["WeightmapModelLoader", "register", "reload_weights"]

_is_registered = False


def register() -> None:
    """Makes "weightmap" a load format of this process's vLLM; a second call does nothing.

    vLLM calls this whatever it is to load, so a vLLM that lacks what the loader is made of is told
    to its log and goes on: only the load format is missing then.
    """
    global _is_registered
    if _is_registered:
        return
    try:
        from vllm.model_executor.model_loader import register_model_loader
        from weightmap._engines.vllm_loader import WeightmapModelLoader
    except (ImportError, AttributeError) as error:
        import logging

        logging.getLogger("vllm.weightmap").warning(
            "there is no load format weightmap, which was made for another vLLM: %s", error
        )
        return
    register_model_loader("weightmap")(WeightmapModelLoader)
    _is_registered = True


def reload_weights(llm: LLM, version: Version) -> None:
    """Gives the weights of a version to a LLM that runs, in all its ranks.

    It is vLLM's own reload_weights() of the folder, and then of the prefixes that were computed by
    the weights before; with `load_format="weightmap"` these are read from the shared mapping. Call
    it between two calls of generate().
    """
    llm.collective_rpc("reload_weights", kwargs={"weights_path": version.folder})
    llm.reset_prefix_cache()


def __getattr__(name: str) -> Any:
    if name == "WeightmapModelLoader":
        from weightmap._engines.vllm_loader import WeightmapModelLoader

        return WeightmapModelLoader
    raise AttributeError(f"module 'weightmap.vllm' has no attribute {name!r}")
