#!/usr/bin/env python3
"""Models of the hub by their names: where they lead, what is fetched, who gets the token.

    hub_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import unittest

from hub_server import Hub
from remote_case import RemoteCase, document, run

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
        self.hub = Hub()
        self.addCleanup(self.hub.close)

    def has(self, *parts, **options):
        self.hub.add("org/name", COMMIT, {k: v for part in parts for k, v in part.items()}, **options)

    def environment(self, **more):
        # None but ours: whoever runs this may have a token.
        return {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.home), "HF_TOKEN": "",
                "HF_TOKEN_PATH": "", "HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": "", **more}

    def tool(self, *arguments, code=0, **variables):
        return run(*arguments, environment=self.environment(**variables), code=code)

    @property
    def repository(self):
        return self.home / "hub" / "models--org--name"

    @property
    def snapshot(self):
        return self.repository / "snapshots" / COMMIT

    def cached(self):
        """The files of the snapshot, each a link to the blob of its content."""
        found = {}
        for path in self.snapshot.rglob("*"):
            if not path.is_dir():
                self.assertTrue(path.is_symlink(), path)
                blob = path.resolve()
                self.assertEqual(blob.parent, (self.repository / "blobs").resolve())
                found[str(path.relative_to(self.snapshot))] = path.read_bytes()
        return found


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
        self.tool("info", "hf://org/name")
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

    def test_the_variable_has_it(self):
        self.tool("ls", "hf://org/name", HF_TOKEN=TOKEN)

    def test_the_file_of_a_variable_has_it(self):
        (self.folder / "token").write_text(TOKEN + "\n")
        self.tool("ls", "hf://org/name", HF_TOKEN_PATH=str(self.folder / "token"))

    def test_the_file_of_the_home_has_it(self):
        self.home.mkdir()
        (self.home / "token").write_text(TOKEN)
        self.tool("ls", "hf://org/name")

    def test_a_wrong_one_is_not_shown(self):
        failed = self.tool("ls", "hf://org/name", code=1, HF_TOKEN="hf_wrong-one")
        self.assertIn("the token of HF_TOKEN was sent", failed.stderr)
        self.assertNotIn("hf_wrong-one", failed.stdout + failed.stderr)

    def test_only_the_hub_gets_it(self):
        self.tool("fetch", "hf://org/name", HF_TOKEN=TOKEN)
        self.assertTrue(self.hub.store_headers)
        for headers in self.hub.store_headers:
            self.assertNotIn("Authorization", headers)
            self.assertNotIn(TOKEN, str(headers))


class Fetching(HubCase):
    def test_the_checkpoint_and_the_small_files_are_cached(self):
        self.has(SINGLE, SMALL, OTHERS)
        done = self.tool("fetch", "hf://org/name")
        self.assertEqual(self.cached(), SINGLE | SMALL)
        self.assertEqual((self.repository / "refs" / "main").read_text(), COMMIT)
        self.assertIn(str(self.snapshot / "model.safetensors"), done.stdout.splitlines())
        blobs = {path.name for path in (self.repository / "blobs").iterdir()}
        self.assertIn(hashlib.sha256(SINGLE["model.safetensors"]).hexdigest(), blobs)
        config = SMALL["config.json"]
        self.assertIn(hashlib.sha1(b"blob %d\0" % len(config) + config).hexdigest(), blobs)
        self.assertEqual(len(blobs), 5)

    def test_a_set_is_cached(self):
        index = {"model.safetensors.index.json": INDEX}
        self.has(SHARDS, SMALL, OTHERS, index)
        self.tool("fetch", "hf://org/name")
        self.assertEqual(self.cached(), SHARDS | SMALL | index)

    def test_a_set_without_an_index_is_cached(self):
        self.has(SHARDS)
        self.tool("fetch", "hf://org/name")
        self.assertEqual(self.cached(), SHARDS)

    def test_a_file_in_a_folder_is_cached(self):
        deep = {"deep/er/other.safetensors": SINGLE["model.safetensors"]}
        self.has(deep, SHARDS)
        self.tool("fetch", "hf://org/name/deep/er/other.safetensors")
        self.assertEqual(self.cached(), deep)

    def test_what_is_cached_is_not_fetched_again(self):
        self.has(SINGLE, SMALL)
        self.tool("fetch", "hf://org/name")
        (self.repository / "refs" / "main").unlink()
        (self.snapshot / "config.json").unlink()
        self.hub.asked.clear()
        self.assertEqual(self.tool("fetch", "hf://org/name").stdout, "")
        self.assertEqual(self.cached(), SINGLE | SMALL)
        self.assertEqual((self.repository / "refs" / "main").read_text(), COMMIT)
        self.assertFalse([path for path in self.hub.asked if "config.json" in path])

    def test_a_new_commit_shares_what_did_not_change(self):
        self.has(SINGLE, SMALL)
        self.tool("fetch", "hf://org/name")
        new = "77aa" * 10
        self.hub.add("org/name", new, SINGLE | SMALL | {"config.json": b"{}"})
        self.tool("fetch", "hf://org/name")
        self.assertEqual((self.repository / "refs" / "main").read_text(), new)
        snapshots = self.repository / "snapshots"
        self.assertEqual((snapshots / new / "config.json").read_bytes(), b"{}")
        self.assertEqual((snapshots / COMMIT / "config.json").read_bytes(), SMALL["config.json"])
        self.assertTrue((snapshots / new / "model.safetensors").samefile(
            snapshots / COMMIT / "model.safetensors"))

    def test_a_commit_is_no_reference(self):
        self.has(SINGLE)
        self.tool("fetch", f"hf://org/name@{COMMIT}")
        self.assertEqual(self.cached(), SINGLE)
        self.assertFalse((self.repository / "refs").exists())

    def test_a_size_that_the_hub_does_not_list_is_refused(self):
        self.has(SINGLE, SMALL)
        self.hub.wrong_size = "config.json"
        failed = self.tool("fetch", "hf://org/name", code=1)
        self.assertIn("config.json", failed.stderr)
        self.assertFalse((self.repository / "refs").exists())

    def test_a_failed_fetch_names_no_commit(self):
        self.has(SINGLE, SMALL)
        self.hub.missing = "model.safetensors"
        self.tool("fetch", "hf://org/name", code=1)
        self.assertFalse((self.repository / "refs").exists())

    def test_weightmap_opens_the_model_by_its_name(self):
        self.has(SHARDS, {"model.safetensors.index.json": INDEX})
        self.tool("fetch", "hf://org/name")
        listed = document("ls", "org/name", environment=self.environment())
        self.assertEqual([tensor["name"] for tensor in listed["tensors"]], ["a", "b"])

    def test_a_target_is_a_copy_outside_the_cache(self):
        self.has(SINGLE)
        self.tool("fetch", "hf://org/name", self.target)
        self.assertEqual(self.target.read_bytes(), SINGLE["model.safetensors"])
        self.assertFalse(self.home.exists())

    def test_another_url_needs_a_target(self):
        self.assertIn("TARGET", self.tool("fetch", "https://host/model.pt", code=2).stderr)

    def test_the_libraries_of_the_hub_find_it(self):
        self.has(SINGLE, SMALL)
        self.tool("fetch", "hf://org/name")
        program = (
            "import json, huggingface_hub as hub\n"
            "print(json.dumps([hub.try_to_load_from_cache('org/name', 'config.json'),\n"
            "    hub.snapshot_download('org/name', local_files_only=True),\n"
            "    hub.hf_hub_download('org/name', 'model.safetensors', local_files_only=True)]))\n")
        environment = os.environ | self.environment(HF_HUB_OFFLINE="1")
        python = os.environ.get("WEIGHTMAP_TEST_PYTHON", sys.executable)
        if subprocess.run([python, "-c", "import huggingface_hub"], capture_output=True).returncode:
            self.skipTest("huggingface_hub is not installed")
        done = subprocess.run([python, "-c", program], env=environment, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), [str(self.snapshot / "config.json"),
                                                   str(self.snapshot),
                                                   str(self.snapshot / "model.safetensors")])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
