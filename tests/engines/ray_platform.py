"""vLLM's platform for processors, with a device that Ray knows: vLLM 0.32 has given it none.

A platform plug-in, as vLLM has them for devices that it does not know itself.
"""

from vllm.platforms.cpu import CpuPlatform


class RayCpuPlatform(CpuPlatform):
    ray_device_key = "GPU"  # of which Ray lets each node have as many as it is told


def platform():
    return f"{__name__}.RayCpuPlatform"
