#!/usr/bin/env python3
"""Models of the hub by their names: where they lead, what is fetched, who gets the token.

    hub_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import pathlib
import signal
import sys
import unittest

from hub_server import Hub
from range_server import ALWAYS, flipped
from remote_case import CLEAN, KeeperCase, RemoteCase, document, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from safetensors_files import file_of, floats  # noqa: E402

COMMIT = "5c3b" * 10
TOKEN = "hf_secret-of-this-test"
SHARDS = {"model-00001-of-00002.safetensors": file_of({"a": floats(1.0, 2.0)}),
          "model-00002-of-00002.safetensors": file_of({"b": floats(3.0)})}
INDEX = json.dumps({"weight_map": {
    "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}).encode()
SMALL = {"config.json": b'{"model_type": "test"}', "tokenizer.json": b"{}", "merges.txt": b"a b",
         "chat_template.jinja": b"{{ x }}"}
OTHERS = {"README.md": b"# A model", "onnx/model.onnx": b"onnx", "onnx/config.json": b"{}",
          "pytorch_model.bin.index.json": b'{"weight_map": {"a": "pytorch_model.bin"}}'}
SINGLE = {"model.safetensors": file_of({"a": floats(1.0, 2.0), "b": floats(3.0)})}


class HubCase(RemoteCase):
    def setUp(self):
        super().setUp()
        self.home = self.folder / "hf"
        self.hub = Hub(self.server)
        self.addCleanup(self.hub.close)

    def has(self, *parts, **options):
        self.hub.add("org/name", COMMIT, {k: v for part in parts for k, v in part.items()}, **options)

    def hub_environment(self, **more):
        # None but ours: whoever runs this may have a token.
        return {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.home), "HF_TOKEN": "",
                "HF_TOKEN_PATH": "", "HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": "", **more}

    environment = hub_environment

    def tool(self, *arguments, code=0, **variables):
        return run(*arguments, environment=self.hub_environment(**variables), code=code)


class Looking(HubCase):
    def test_a_model_is_its_checkpoint(self):
        self.has(SINGLE, SMALL, OTHERS)
        listed = document("ls", "hf://org/name", environment=self.environment())
        self.assertEqual([tensor["name"] for tensor in listed["tensors"]], ["a", "b"])
        self.assertFalse(self.home.exists())

    def test_an_index_leads_to_its_shards(self):
        self.has(SHARDS, SMALL, {"model.safetensors.index.json": INDEX})
        listed = document("ls", "hf://org/name", environment=self.environment())
        self.assertEqual([tensor["name"] for tensor in listed["tensors"]], ["a", "b"])

    def test_a_file_is_named(self):
        self.has(SHARDS, {"deep/other.safetensors": SINGLE["model.safetensors"]})
        for name in ("hf://org/name/deep/other.safetensors",
                     "hf://org/name@main/deep/other.safetensors"):
            listed = document("ls", name, environment=self.environment())
            self.assertEqual([tensor["name"] for tensor in listed["tensors"]], ["a", "b"])

    def test_a_revision_may_have_a_slash(self):
        self.has(SINGLE, revision="refs/pr/1")
        self.tool("ls", "hf://org/name@refs%2Fpr%2F1")
        self.tool("ls", "hf://org/name", code=1)

    def test_files_of_the_commit_are_asked_for(self):
        self.has(SINGLE)
        self.tool("ls", "--info", "hf://org/name")
        files = [path for path in self.hub.asked if "/resolve/" in path]
        self.assertTrue(files)
        self.assertTrue(all(path.startswith(f"/org/name/resolve/{COMMIT}/") for path in files))

    def test_several_checkpoints_are_named(self):
        self.has({"a.gguf": b"GGUF", "b.gguf": b"GGUF"})
        failed = self.tool("ls", "hf://org/name", code=1)
        self.assertIn("a.gguf", failed.stderr)
        self.assertIn("b.gguf", failed.stderr)

    def test_a_model_without_a_checkpoint_is_none(self):
        self.has(SMALL)
        self.assertIn("no checkpoint", self.tool("ls", "hf://org/name", code=1).stderr)

    def test_a_file_that_the_model_lacks_is_named(self):
        self.has(SINGLE)
        failed = self.tool("ls", "hf://org/name/none.gguf", code=1)
        self.assertIn("none.gguf", failed.stderr)

    def test_a_missing_model_is_named(self):
        failed = self.tool("ls", "hf://org/name", code=1)
        self.assertIn("the hub has no such model", failed.stderr)
        self.assertIn("org/name", failed.stderr)

    def test_what_is_no_name_is_wrong_usage(self):
        for name in ("hf://name", "hf://org/", "hf://org/name@", "hf://org/name/../x",
                     "hf:///name", "hf://org/na--me"):
            self.assertIn("hf://", self.tool("ls", name, code=2).stderr)

    def test_a_list_that_leaves_the_folder_is_refused(self):
        self.has(SINGLE, {"../evil.json": b"{}"})
        self.assertIn("evil", self.tool("ls", "hf://org/name", code=1).stderr)

    def test_a_busy_hub_is_asked_again(self):
        self.has(SINGLE)
        self.hub.busy = 2
        self.tool("ls", "hf://org/name")
        self.assertEqual(self.hub.busy, 0)

    def test_an_endpoint_that_is_no_url_is_wrong_usage(self):
        self.assertIn("HF_ENDPOINT", self.tool("ls", "hf://org/name", code=2,
                                               HF_ENDPOINT="huggingface.co").stderr)


class Tokens(HubCase):
    def setUp(self):
        super().setUp()
        self.has(SINGLE, token=TOKEN)

    def test_a_gated_model_needs_one(self):
        failed = self.tool("ls", "hf://org/name", code=1)
        self.assertIn("HTTP 401", failed.stderr)
        self.assertIn("HF_TOKEN", failed.stderr)

    def test_each_place_has_it(self):
        self.home.mkdir()
        elsewhere, at_home = self.folder / "token", self.home / "token"
        for name, file, variables in (
                ("the variable", None, {"HF_TOKEN": TOKEN}),
                ("the file of a variable", elsewhere, {"HF_TOKEN_PATH": str(elsewhere)}),
                ("the file of the home", at_home, {})):
            with self.subTest(name):
                if file is not None:
                    file.write_text(TOKEN + "\n")
                self.tool("ls", "hf://org/name", **variables)

    def test_a_wrong_one_is_not_shown(self):
        failed = self.tool("ls", "hf://org/name", code=1, HF_TOKEN="hf_wrong-one")
        self.assertIn("the token of HF_TOKEN was sent", failed.stderr)
        self.assertNotIn("hf_wrong-one", failed.stdout + failed.stderr)

    def test_only_the_hub_gets_it(self):
        self.tool("cat", "hf://org/name", "a", HF_TOKEN=TOKEN)
        self.assertTrue(self.hub.store.requests)
        for request in self.hub.store.requests:
            self.assertNotIn("Authorization", request.headers)
            self.assertNotIn(TOKEN, str(request.headers))


class Staging(HubCase):
    def test_is_compared_with_what_the_hub_says(self):
        self.has(SINGLE)
        command = ("stage", "hf://org/name", "--require-digest", "--", "true")
        self.assertIn("its SHA-256 compared, as its store says it", self.tool(*command).stderr)
        self.hub.store.fault(flipped(len(SINGLE["model.safetensors"]) - 1), times=ALWAYS)
        self.assertIn(" as its store says", self.tool(*command, code=1).stderr)


class Models(HubCase):
    def setUp(self):
        super().setUp()
        self.has(SHARDS, SMALL, OTHERS, {"model.safetensors.index.json": INDEX})
        self.wanted = sorted([*SHARDS, *SMALL, "model.safetensors.index.json"])

    def test_all_that_belongs_to_it_is_staged(self):
        name = f"weightmap-hub-{self.name_mark()}"
        self.tool("stage", "hf://org/name", "--name", name)
        self.addCleanup(self.tool, "stage", "--remove", name)
        self.assertEqual(sorted(os.listdir(f"/dev/shm/{name}")), self.wanted)

    def test_its_files_are_listed(self):
        listed = json.loads(self.tool("ls", "--files", "--json", "hf://org/name").stdout)
        self.assertEqual(sorted(file["file"] for file in listed["files"]), self.wanted)
        self.assertEqual((listed["weights"]["files"], listed["beside"]["files"]), (3, 4))


class Held(KeeperCase, HubCase):
    def test_a_new_commit_replaces_the_old_one(self):
        self.has(SHARDS, SMALL, OTHERS, {"model.safetensors.index.json": INDEX})
        self.meet()
        name = f"weightmap-hub-{self.name_mark()}"
        self.addCleanup(self.tool, "stage", "--remove", name)
        self.daemon = self.start("hold", "--interval", "0.02", "--name", name, "hf://org/name",
                                 env={**CLEAN, "WEIGHTMAP_RUNTIME_DIR": str(self.socket.parent),
                                      **self.hub_environment()})
        self.held_when(lambda file: file["state"] == "held")
        for commit, changed in (("6d4c" * 10, {"config.json": b'{"model_type": "tset"}'}),
                                ("7e5d" * 10, {"new.json": b"{}"})):
            version = os.readlink(f"/dev/shm/{name}")
            self.hub.add("org/name", commit, {**SHARDS, **SMALL, "model.safetensors.index.json": INDEX, **changed})
            held = self.held_when(lambda file: os.readlink(f"/dev/shm/{name}") != version  # noqa: B023
                                  or file["url_problem"])
            self.assertIsNone(held["url_problem"])
            for file, content in changed.items():
                self.assertEqual((pathlib.Path("/dev/shm") / name / file).read_bytes(), content)
        self.assertEqual(self.end(self.daemon, signal.SIGTERM), 0)


class Fetching(HubCase):
    def test_the_program_that_does_it_is_named(self):
        for target in ((), (self.target,), (f"{self.folder}/",)):
            failed = self.tool("fetch", "hf://org/name", *target, code=2)
            self.assertEqual(self.hub.asked, [])
        self.assertIn("hf download ORG/NAME", failed.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
