#!/usr/bin/env python3
"""weightmap.vllm under a real vLLM, without a GPU. Run by an interpreter that has both.

The tokens, also after a reload and with two ranks, are those of vLLM's own loader; the load has no
memory of its own; ranks read cold files once, and the death of the one that reads does no harm that
lasts; and this vLLM is what the stand-in of python/tests takes it for.
"""

import functools
import importlib.util
import inspect
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from dataclasses import fields
from importlib import import_module

import small_llama
from sessions import sessions
from vllm.config import ModelConfig, ParallelConfig
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.plugins import load_general_plugins

import weightmap

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python" / "tests"), str(HERE.parent / "support")]
import fake_vllm
from stopped_reader import Attempts, make_cold, stop_reader

LOADER = "model_executor.model_loader"


class Run:
    """vllm_session.py, as the first process of a session of processes."""

    def __init__(self, *arguments, **environment):
        self.command = [sys.executable, HERE / "vllm_session.py", *map(str, arguments)]
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self.command, stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **environment},
        )

    def end(self):
        """The exit status, and what was written; when all processes of the session have ended."""
        code = self.process.wait()
        while self.process.pid in sessions():
            time.sleep(0.1)
        with self.output:
            self.output.seek(0)
            return code, self.output.read()


def reports_in(output):
    return [line for line in output.splitlines() if "] weightmap, rank " in line]


def bytes_read(reports):
    return [int(re.search(r"; (\d+) read by this rank, ", report).group(1)) for report in reports]


class Session:
    """What one run of vllm_session.py answered."""

    def __init__(self, *arguments, run=None, **environment):
        run = run or Run(*arguments, **environment)
        code, output = run.end()
        if code != 0:
            raise AssertionError(f"{run.command} ended with {code}:\n{output[-8000:]}")
        answer = json.loads(re.search(r'^{"tokens":.*', output, re.MULTILINE).group())
        self.tokens = answer["tokens"]
        self.anonymous_bytes = answer["anonymous_bytes"]
        self.reports = reports_in(output)
        self.disk_bytes = [int(each) for each in re.findall(r'{"disk_bytes": (\d+)}', output)]


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="weightmap-vllm-")
        cls.addClassCleanup(directory.cleanup)
        cls.folder = pathlib.Path(directory.name)
        model, other = small_llama.weights(1), small_llama.weights(2)
        small_llama.write_bin(cls.folder / "bin", model)
        small_llama.write_single(cls.folder / "single", model)
        small_llama.write_sharded(cls.folder / "sharded", model)
        small_llama.write_sharded(cls.folder / "other", other)
        cls.file_bytes = sum(tensor.nbytes for tensor in model.values())

    @classmethod
    @functools.cache
    def stock(cls):
        """vLLM's own loader, on the .bin file, then on the other model."""
        return Session(cls.folder / "bin", "auto", "--reload", cls.folder / "other")

    def check(self, *arguments):
        """Tokens before and after the reload, and memory; the session for more."""
        session = Session(*arguments, "--reload", self.folder / "other")
        self.assertEqual(session.tokens, self.stock().tokens)
        self.assertLessEqual(session.anonymous_bytes, self.file_bytes // 20)
        self.assertEqual(len(session.reports), 2)
        for report in session.reports:
            self.assertIn(f" rank 0: {self.file_bytes} bytes from ", report)
            self.assertNotIn("vLLM's own loader", report)
        return session

    def test_stock_loader_has_a_bin_file_in_memory(self):
        # So the measurement sees what the others are said not to have.
        self.assertGreater(self.stock().anonymous_bytes, self.file_bytes * 0.95)
        self.assertNotEqual(self.stock().tokens[0], self.stock().tokens[1])

    def test_bin(self):
        session = self.check(self.folder / "bin", "weightmap")
        self.assertIn(" from 1 mapped files", session.reports[0])
        self.assertIn(" from 3 mapped files", session.reports[1])

    def test_single_file(self):
        self.check(self.folder / "single", "weightmap", "--extra", '{"strict": true}')

    def test_shards(self):
        extra = '{"warm": "off", "release": "node", "upload": "mapped"}'
        self.check(self.folder / "sharded", "weightmap", "--extra", extra)

    def test_a_version_that_is_followed(self):
        deltas = self.folder / "deltas"
        deltas.mkdir()
        weightmap.write_delta(self.folder / "single", self.folder / "other",
                              deltas / "weight_v000001")
        for ranks in (1, 2):
            session = Session(self.folder / "single", "weightmap", "--tp", ranks,
                              "--follow", deltas)
            self.assertEqual(session.tokens, self.stock().tokens)

    def test_two_ranks(self):
        session = Session(
            *(self.folder / "sharded", "weightmap", "--tp", 2, "--reload", self.folder / "other")
        )
        self.assertEqual(session.tokens, self.stock().tokens)
        for rank in (0, 1):
            reports = [line for line in session.reports if f"weightmap, rank {rank}: " in line]
            self.assertEqual(len(reports), 2)

    def make_cold(self, folder):
        """Its files of weights, and an empty folder for elections."""
        files = list((self.folder / folder).glob("*.safetensors"))
        if not make_cold(files):
            self.skipTest("the file system of the temporary folder keeps files in the page cache")
        return files, tempfile.mkdtemp(dir=self.folder)

    def test_two_ranks_read_cold_files_once(self):
        run, runtime, reader = self.stopped_reader()
        os.kill(reader, signal.SIGCONT)
        session = Session(run=run)
        self.assertEqual(session.tokens[0], self.stock().tokens[0])
        self.check_read_once(bytes_read(session.reports))
        self.check_read_once(session.disk_bytes)
        self.assertEqual(os.listdir(runtime), [])

    def test_ranks_read_the_slices_that_they_learned(self):
        small_llama.write_sharded(self.folder / "sliced", small_llama.weights(1))
        arguments = self.folder / "sliced", "weightmap", "--tp", 2, "--extra", '{"slices": "on"}'
        learning = Session(*arguments)
        plans = sorted(self.folder.glob("sliced/weightmap-slices-*.json"))
        self.assertEqual([plan.name[-10:] for plan in plans], ["rank0.json", "rank1.json"])
        self.make_cold("sliced")
        session = Session(*arguments)
        for tokens in (learning.tokens, session.tokens):
            self.assertEqual(tokens[0], self.stock().tokens[0])
        self.check_read_once(session.disk_bytes)
        # Half of it, but for rows that are too short to be read in halves.
        for counted in session.disk_bytes:
            self.assertLess(counted, 0.75 * self.file_bytes)

    def check_read_once(self, counts):
        """Of two ranks together."""
        self.assertEqual(len(counts), 2)
        self.assertGreater(sum(counts), 0.9 * self.file_bytes)
        self.assertLessEqual(sum(counts), 1.1 * self.file_bytes)

    @unittest.skipUnless(importlib.util.find_spec("ray"), "there is no ray")
    def test_two_ranks_on_two_nodes_of_ray_read_cold_files_once(self):
        _, runtime = self.make_cold("sharded")
        session = Session(
            *(self.folder / "sharded", "weightmap", "--tp", 2, "--ray"),
            WEIGHTMAP_RUNTIME_DIR=runtime, PYTHONPATH=self.path_with_platform_for_ray(),
        )
        self.assertEqual(session.tokens[0], self.stock().tokens[0])
        self.check_read_once(bytes_read(session.reports))
        self.assertEqual(os.listdir(runtime), [])

    def path_with_platform_for_ray(self):
        """For PYTHONPATH: there vLLM finds ray_platform.py."""
        plugin = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        about = plugin / "processor_for_ray-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text("Name: processor_for_ray\nVersion: 1\n")
        (about / "entry_points.txt").write_text(
            "[vllm.platform_plugins]\nprocessor_for_ray = ray_platform:platform\n"
        )
        return os.pathsep.join([str(plugin), str(HERE), os.environ.get("PYTHONPATH", "")])

    def stopped_reader(self):
        """A run with two ranks, its folder for elections, and the process of the rank that reads,
        which is stopped when it has read some and the other waits for it."""
        for _ in range(5):
            files, runtime = self.make_cold("sharded")
            # So long has a rank for its load, before vLLM ends it since the other died.
            run = Run(self.folder / "sharded", "weightmap", "--tp", 2,
                      WEIGHTMAP_RUNTIME_DIR=runtime, VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS="30")
            reader = stop_reader(runtime, files, lambda run=run: run.process.poll() is not None)
            if reader is not None:
                with Attempts(runtime) as attempts:
                    attempts.wait(20)
                return run, runtime, reader
            run.end()
        self.fail("no reader could be stopped half way")

    def test_reader_is_killed(self):
        run, runtime, reader = self.stopped_reader()
        os.kill(reader, signal.SIGKILL)
        code, output = run.end()
        self.assertNotEqual(code, 0)
        self.assertIn("WorkerProc initialization failed", output)
        reports = reports_in(output)
        self.assertEqual(len(reports), 1, output[-8000:])
        self.assertIn(f": {self.file_bytes} bytes from 3 mapped files; ", reports[0])
        self.assertIn("; took the reading over from another rank", reports[0])
        again = Session(self.folder / "sharded", "weightmap", "--tp", 2,
                        WEIGHTMAP_RUNTIME_DIR=runtime)
        self.assertEqual(again.tokens[0], self.stock().tokens[0])
        self.assertEqual(os.listdir(runtime), [])


class Contract(unittest.TestCase):
    """What the loader takes of vLLM."""

    def test_methods_have_the_parameters_of_the_stand_in(self):
        for name in ("_prepare_weights", "_get_weights_iterator", "get_all_weights",
                     "load_weights", "__init__"):
            real = inspect.signature(getattr(DefaultModelLoader, name))
            ours = inspect.signature(getattr(fake_vllm.DefaultModelLoader, name))
            self.assertEqual(list(real.parameters), list(ours.parameters), name)

    def test_source_has_the_fields_of_the_stand_in(self):
        real = [field.name for field in fields(DefaultModelLoader.Source)]
        ours = [field.name for field in fields(fake_vllm.DefaultModelLoader.Source)]
        self.assertEqual(real, ours)

    def test_load_config_has_the_fields_of_the_stand_in(self):
        real = {field.name for field in fields(LoadConfig)}
        self.assertLessEqual({field.name for field in fields(fake_vllm.LoadConfig)}, real)

    def test_functions_take_what_they_are_given(self):
        calls = {
            "config.utils.replace": ([None], {"load_format": "auto"}),
            "logger.init_logger": (["vllm.weightmap"], {}),
            f"{LOADER}.register_model_loader": (["weightmap"], {}),
            "config.get_current_vllm_config_or_none": ([], {}),
            "distributed.parallel_state.get_node_count": ([], {}),
            f"{LOADER}.ep_weight_filter.should_skip_weight": (["name", None], {}),
            f"{LOADER}.weight_utils.enable_tqdm": ([True], {}),
            f"{LOADER}.weight_utils.pt_weights_iterator": ([["file"], False, "cpu"], {}),
            f"{LOADER}.weight_utils.safetensors_weights_iterator": (
                [["file"], False, None],
                {"local_expert_ids": None},
            ),
            f"{LOADER}.weight_utils.filter_mm_encoder_only_safetensors_files": (
                [["file"], "folder", "index", ("prefix",)],
                {"weights_mapper": None},
            ),
            f"{LOADER}.weight_utils.filter_safetensors_files_by_weight_name": (
                [["file"], callable],
                {},
            ),
        }
        for path, (positional, named) in calls.items():
            module, _, name = path.rpartition(".")
            function = getattr(import_module(f"vllm.{module}"), name)
            inspect.signature(function).bind(*positional, **named)

    def test_configurations_have_the_fields_of_a_slice_plans_key(self):
        self.assertLessEqual(
            {"tensor_parallel_size", "pipeline_parallel_size", "enable_expert_parallel",
             "data_parallel_size", "data_parallel_rank"},
            {field.name for field in fields(ParallelConfig)},
        )
        self.assertLessEqual({"hf_config", "quantization"}, {each.name for each in fields(ModelConfig)})

    def test_loader_has_the_attributes_that_are_read(self):
        loader = DefaultModelLoader(LoadConfig())
        for name in ("local_expert_ids", "_encoder_only_lm_prefixes",
                     "_encoder_only_weights_mapper", "counter_before_loading_weights"):
            self.assertTrue(hasattr(loader, name), name)


class Plugin(unittest.TestCase):
    """That vLLM finds it, and what it refuses."""

    def make(self, extra):
        load_general_plugins()
        config = LoadConfig(load_format="weightmap", model_loader_extra_config=extra)
        return get_model_loader(config)

    def test_vllm_finds_the_load_format(self):
        self.assertEqual(type(self.make({})).__module__, "weightmap._engines.vllm_loader")

    def test_unknown_key_is_refused_by_name(self):
        with self.assertRaisesRegex(weightmap.InvalidArgumentError, "has no key 'wram'"):
            self.make({"wram": "auto"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
