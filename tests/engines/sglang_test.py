#!/usr/bin/env python3
"""weightmap.sglang under a real SGLang, without a GPU. Run by an interpreter that has both.

These are its hooks, its loader and its threads, on small files; and this SGLang is what the
stand-in of python/tests takes it for. rolling_test.py has it serve.
"""

import argparse
import concurrent.futures
import contextlib
import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
import urllib.request
from dataclasses import fields
from importlib import import_module
from unittest import mock

import small_llama
import torch
import torchvision_stub  # noqa: F401
from rolling_test import COMMANDS, ENVIRONMENT, PROMPTS, free_port
from sglang.srt.configs.load_config import LoadConfig, LoadFormat
from sglang.srt.model_loader.loader import DefaultModelLoader, get_model_loader
from sglang.srt.model_loader.utils import maybe_executor_submit, should_async_load
from sglang.srt.plugins import load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_context

import weightmap
import weightmap._engines.load
import weightmap.sglang

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python" / "tests"), str(HERE.parent / "support")]
import fake_sglang
from memory_maps import permissions

LOADER = "sglang.srt.model_loader"


def setUpModule():
    load_plugins()
    # What SGLang has for tests: without it the files of a model are not looked for.
    unittest.enterModuleContext(get_context().override_server_args())


class Model:
    """Copies what it is given as SGLang's models do: in threads, into memory of its own."""

    def __init__(self):
        self.copied = {}

    def load_weights(self, weights):
        with concurrent.futures.ThreadPoolExecutor(32) as executor:
            futures = []
            for name, tensor in weights:
                self.copied[name] = torch.empty_like(tensor)
                maybe_executor_submit(
                    executor=executor,
                    futures=futures,
                    use_async=should_async_load(tensor),
                    func=self.copied[name].copy_,
                    func_args=(tensor,),
                )
            for future in futures:
                future.result()

    def named_modules(self):
        return []


def small_weights(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"model.embed_tokens.weight": (512, 128), "model.norm.weight": (128,)}
    for layer in range(4):
        shapes[f"model.layers.{layer}.mlp.gate_proj.weight"] = (2048, 256)  # 2 MiB: read-only
        shapes[f"model.layers.{layer}.input_layernorm.weight"] = (128,)
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


class Loading(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="weightmap-sglang-")
        cls.addClassCleanup(directory.cleanup)
        cls.folder = pathlib.Path(directory.name)
        cls.weights = small_weights(1)
        small_llama.write_bin(cls.folder / "bin", cls.weights)
        small_llama.write_single(cls.folder / "single", cls.weights)
        small_llama.write_sharded(cls.folder / "sharded", cls.weights)
        cls.file_bytes = sum(tensor.nbytes for tensor in cls.weights.values())

    def load(self, folder, extra=None, weights_of=DefaultModelLoader._get_all_weights):
        """What a model has then, and the lines of the log."""
        loader = get_model_loader(LoadConfig("weightmap", model_loader_extra_config=extra or {}))
        config = types.SimpleNamespace(
            model_path=str(self.folder / folder),
            revision=None,
            hf_config=types.SimpleNamespace(architectures=["LlamaForCausalLM"]),
        )
        model = Model()
        with self.assertLogs("sglang.weightmap", "INFO") as logs:
            weights = weights_of(loader, config, model)
            loader.load_weights_and_postprocess(model, weights, torch.device("cpu"))
        return model.copied, logs.output

    def check(self, file_count, *arguments):
        copied, reports = self.load(*arguments)
        self.check_weights(copied)
        self.assertEqual(len(reports), 1)
        self.assertIn(f"{self.file_bytes} bytes from {file_count} mapped files", reports[0])

    def check_weights(self, taken):
        self.assertEqual(taken.keys(), self.weights.keys())
        for name, tensor in self.weights.items():
            self.assertTrue(torch.equal(taken[name], tensor), name)

    def test_bin(self):
        self.check(1, "bin")

    def test_single_file(self):
        self.check(1, "single", {"strict": True, "reader": "rank"})

    def test_shards(self):
        self.check(3, "sharded", {"warm": "off", "release": "node"})

    def test_keys_may_be_json_as_on_the_command_line(self):
        self.check(3, "sharded", '{"upload": "copied"}')

    def test_an_update_from_disk(self):
        # SGLang's WeightUpdater asks for the iterator itself.
        def weights_of(loader, config, model):
            return loader._get_weights_iterator(DefaultModelLoader.Source.init_new(config, model))

        self.check(3, "sharded", {}, weights_of)

    def test_large_tensors_are_read_only_and_small_ones_are_not(self):
        loader = get_model_loader(LoadConfig("weightmap"))
        source = DefaultModelLoader.Source(str(self.folder / "bin"), None)
        taken = dict(loader._get_weights_iterator(source))
        found = {name: permissions(tensor) for name, tensor in taken.items()}
        self.assertEqual(found["model.layers.0.mlp.gate_proj.weight"], "r--s")
        self.assertEqual(found["model.layers.0.input_layernorm.weight"], "rw-p")

    def test_sglangs_own_loader_reads_what_is_refused(self):
        with mock.patch.object(weightmap._engines.load, "open_checkpoint", side_effect=refused):
            for folder, file in (("bin", "pytorch_model.bin"), ("single", "model.safetensors")):
                copied, reports = self.load(folder)
                self.check_weights(copied)
                self.assertIn(f"{file}: read by SGLang's own loader: is refused", reports[0])

    def test_an_adapter_is_for_sglangs_own_loader(self):
        config = LoadConfig("weightmap", model_loader_extra_config={"warm": "off"})
        source = DefaultModelLoader.Source(str(self.folder / "bin"), None)
        self.check_weights(dict(DefaultModelLoader(config)._get_weights_iterator(source)))


def refused(_file, **_options):
    raise weightmap.UnsupportedError("is refused")


class Server:
    """A SGLang that serves a folder."""

    def __init__(self, model):
        self.url = f"http://127.0.0.1:{free_port()}"
        words = [str(word).format(model=model) for word in COMMANDS["sglang"]]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, *words, "--port", self.url.rpartition(":")[2], "--dtype", "float32",
             "--load-format", "weightmap"],
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **ENVIRONMENT},
        )

    def __enter__(self):
        deadline = time.monotonic() + 600
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                written = self.log.read()[-8000:]
                self.__exit__()
                raise AssertionError(f"SGLang does not serve:\n{written}")
            time.sleep(0.5)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health") as answer:
                return answer.status == 200
        except OSError:
            return False

    def answers(self):
        """Tokens and version of the answer to each prompt."""
        asked = {"input_ids": PROMPTS, "sampling_params": {
            "max_new_tokens": 8, "temperature": 0, "ignore_eos": True}}
        request = urllib.request.Request(f"{self.url}/generate", json.dumps(asked).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            made = json.load(answer)
        return [(each["output_ids"], each["meta_info"]["weight_version"]) for each in made]


class Following(unittest.TestCase):
    """That a server takes a version, by update_weights()."""

    def test_answers_are_those_of_a_server_of_that_version(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="weightmap-")))
        for seed, name in ((1, "A"), (2, "B")):
            small_llama.write_sharded(folder / name, small_llama.weights(seed))
            small_llama.write_tokenizer(folder / name)
        with Server(folder / "B") as server:
            expected = [(tokens, "000001") for tokens, _ in server.answers()]
        with Server(folder / "A") as server:
            before = server.answers()
            versions = weightmap.follow(folder / "A", folder)
            weightmap.write_delta(folder / "A", folder / "B", folder / "weight_v000001")
            self.assertTrue(versions.changed())
            weightmap.sglang.update_weights(server.url, versions.last)
            self.assertEqual(server.answers(), expected)
            self.assertNotEqual([tokens for tokens, _ in before], [tokens for tokens, _ in expected])
            with self.assertRaisesRegex(weightmap.Error, "did not take .*/none"):
                weightmap.sglang.update_weights(
                    server.url, weightmap.Version("000002", str(folder / "none")))
            self.assertEqual(server.answers(), expected)


class Contract(unittest.TestCase):
    """What the loader takes of SGLang."""

    def test_methods_have_the_parameters_of_the_stand_in(self):
        for name in ("__init__", "_prepare_weights", "_get_weights_iterator", "_get_all_weights",
                     "_filter_mtp_weights", "load_weights_and_postprocess", "load_model"):
            real = inspect.signature(getattr(DefaultModelLoader, name))
            ours = inspect.signature(getattr(fake_sglang.DefaultModelLoader, name))
            self.assertEqual(list(real.parameters), list(ours.parameters), name)

    def test_sources_have_the_fields_of_the_stand_in(self):
        for name in ("Source", "ResolvedSource"):
            real = [field.name for field in fields(getattr(DefaultModelLoader, name))]
            ours = [field.name for field in fields(getattr(fake_sglang.DefaultModelLoader, name))]
            self.assertEqual(real, ours, name)

    def test_load_config_has_the_fields_of_the_stand_in(self):
        real = {field.name for field in fields(LoadConfig)}
        self.assertLessEqual({field.name for field in fields(fake_sglang.LoadConfig)}, real)

    def test_draft_layers_have_the_names_of_the_stand_in(self):
        self.assertEqual(
            DefaultModelLoader._MTP_PATTERN, fake_sglang.DefaultModelLoader._MTP_PATTERN
        )

    def test_functions_take_what_they_are_given(self):
        calls = {
            f"{LOADER}.weight_utils.maybe_add_mtp_safetensors": [["file"], "folder", "index", None],
            f"{LOADER}.weight_utils.pt_weights_iterator": [["file"]],
            f"{LOADER}.weight_utils.safetensors_weights_iterator": [["file"]],
            "sglang.srt.utils.is_npu": [],
        }
        for path, arguments in calls.items():
            module, _, name = path.rpartition(".")
            inspect.signature(getattr(import_module(module), name)).bind(*arguments)
        inspect.signature(HookRegistry.register).bind("target", print, HookType.AROUND)


class Plugin(unittest.TestCase):
    """That SGLang finds it, and what it refuses."""

    def test_command_line_has_the_load_format(self):
        from sglang.srt.server_args import ServerArgs

        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
        given = parser.parse_args(["--model-path", "model", "--load-format", "weightmap"])
        self.assertEqual(given.load_format, "weightmap")

    def test_every_loader_of_a_config_is_weightmaps(self):
        given = {"warm": "off"}
        config = LoadConfig("weightmap", model_loader_extra_config=given)
        for _ in range(3):
            loader = get_model_loader(config)
            self.assertEqual(type(loader).__module__, "weightmap._engines.sglang_loader")
        self.assertIs(config.model_loader_extra_config, given)
        self.assertEqual(given, {"warm": "off"})

    def test_other_formats_are_sglangs(self):
        loader = get_model_loader(LoadConfig("auto"))
        self.assertIs(type(loader), DefaultModelLoader)
        self.assertIs(loader.load_config.load_format, LoadFormat.AUTO)

    def test_unknown_key_is_refused_by_name(self):
        config = LoadConfig("weightmap", model_loader_extra_config={"num_threads": 8})
        with self.assertRaisesRegex(weightmap.InvalidArgumentError, "has no key 'num_threads'"):
            get_model_loader(config)


if __name__ == "__main__":
    unittest.main(verbosity=2)
