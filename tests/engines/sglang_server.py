"""SGLang's server where there is no torchvision, in its processes, too, which import this file."""

import runpy

import torchvision_stub  # noqa: F401

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")
