#!/usr/bin/env python3
"""What `weightmap doctor` finds in real files, and that what it advises helps.

    doctor_test.py ROOT WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import os
import shlex
import subprocess
import sys
import unittest

from tool_case import DATA, TOOL, ToolCase

from held_pages import cached

TOPICS = ["file system", "read-ahead", "fragmentation", "page cache", "pages", "memory", "dtype",
          "alignment", "copies", "kernel"]
# Not in builds with shared libraries.
if "\n  run " in subprocess.run([TOOL, "--help"], capture_output=True, text=True, check=True).stdout:
    TOPICS.append("snapshots")


class Doctor(ToolCase):
    def findings(self, file, *arguments):
        answer = self.document("doctor", "--json", *arguments, file)
        self.assertEqual(answer["file"], str(file))
        self.assertEqual([finding["topic"] for finding in answer["findings"]], TOPICS)
        return {finding["topic"]: finding for finding in answer["findings"]}

    def follow(self, advice):
        """Does what is advised; answers the file that the last command wrote."""
        for command in advice.split(" && "):
            words = shlex.split(command)
            self.assertEqual(words[0], "weightmap")
            self.ends(0, *words[1:])
        return words[3]

    def assert_helps(self, file, topic, *arguments):
        finding = self.findings(file, *arguments)[topic]
        self.assertEqual(finding["state"], "slow", finding)
        made = self.follow(finding["advice"])
        self.assertEqual(self.findings(made, *arguments)[topic]["state"], "good")
        return made

    def make(self, shape="64x64"):
        return super().make(count=2, shape=shape)

    def write_safetensors(self, name, tensors, padding=0):
        header = json.dumps(tensors).encode()
        header += b" " * (-len(header) % 8 + padding)
        size = max(tensor["data_offsets"][1] for tensor in tensors.values())
        path = self.folder / name
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
        return name

    def test_says_a_line_for_each_topic_and_one_for_what_to_do(self):
        lines = self.text("doctor", self.make()).splitlines()
        told = [line for line in lines if not line.startswith(" ")]
        self.assertEqual([line[9:24].rstrip() for line in told], TOPICS)
        for line in told:
            self.assertIn(line.split()[0], ("good", "slow", "unknown"))
        for line in lines:
            if line.startswith(" "):
                self.assertTrue(line.startswith(" " * 24 + "do: "), line)
        self.assertIn("float32 32.0 KiB", "\n".join(told))

    def test_a_conversion_costs_memory(self):
        found = self.findings(self.make(), "--dtype", "bfloat16")["dtype"]
        self.assertEqual(found["found"],
                         "float32 32.0 KiB; as bfloat16 16.0 KiB of its own for each worker")

    def test_a_conversion_counts_the_floating_types_only(self):
        file = self.write_safetensors("types.safetensors", {
            "a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
            "b": {"dtype": "F64", "shape": [1], "data_offsets": [16, 24]},
            "c": {"dtype": "I64", "shape": [1], "data_offsets": [24, 32]},
            "d": {"dtype": "F16", "shape": [2], "data_offsets": [32, 36]}})
        found = self.findings(file, "--dtype", "float16")["dtype"]["found"]
        self.assertTrue(found.endswith("; as float16 10 B of its own for each worker"), found)

    def test_inflated_records_are_stored_by_what_is_advised(self):
        self.assert_helps(DATA / "rezipped_deflated.pt", "copies")

    def test_the_other_byte_order_is_converted_by_what_is_advised(self):
        if sys.byteorder != "little":
            self.skipTest("the file is in this machine's byte order")
        self.assert_helps(DATA / "big_endian.pt", "copies")

    def test_odd_addresses_are_mended_by_what_is_advised(self):
        file = self.write_safetensors("odd.safetensors", {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, padding=1)
        found = self.findings(file)["alignment"]
        self.assertEqual(found["found"], "1 tensor, 8 B, at odd addresses: torch copies them")
        self.assert_helps(file, "alignment")

    def test_what_is_not_cached_is_warmed_by_what_is_advised(self):
        file = self.make("1024x4096")
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
        for _ in range(1000):  # again while the system is about to take a page itself
            if self.run_tool("residency", "--evict", file).returncode == 0:
                break
        finding = self.findings(file)["page cache"]
        if finding["state"] != "slow":
            self.skipTest("nothing can be evicted here")
        self.ends(0, *shlex.split(finding["advice"])[1:])
        with cached(file):
            self.assertEqual(self.findings(file)["page cache"]["state"], "good")

    def test_takes_a_folder(self):
        (self.folder / "set").mkdir()
        self.ends(0, "convert", self.make(), "set/model.safetensors", "--max-shard-size", "20K")
        self.assertEqual(self.findings("set")["dtype"]["found"],
                         "float32 32.0 KiB; --dtype says what another one would cost")

    def test_an_interpreter_is_asked_whether_it_is_patched(self):
        package = self.folder / "weightmap"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "_patch_at_start.py").touch()
        off = {"topic": "patching", "state": "slow",
               "found": f"WEIGHTMAP_PATCH does not reach {sys.executable}: weightmap_patch.pth is in "
                        "no folder whose .pth files it reads"}
        self.assertEqual(self.patching(sys.executable), off)
        (self.folder / "sitecustomize.py").write_text("import weightmap._patch_at_start")
        self.assertEqual(self.patching(sys.executable), {
            "topic": "patching", "state": "good",
            "found": f"WEIGHTMAP_PATCH reaches {sys.executable}"})
        self.assertEqual(self.patching("missing"), {
            "topic": "patching", "state": "unknown", "found": "missing could not be run"})

    def test_an_interpreter_is_asked_how_its_torch_makes_tensors(self):
        package = self.folder / "weightmap" / "_torch"
        package.mkdir(parents=True)
        for folder in (package.parent, package):
            (folder / "__init__.py").touch()
        answers = {("good", "by x", ""): None, ("slow", "too old", "pip install it"): "pip install it"}
        for answer, advice in answers.items():
            (package / "way.py").write_text(f"def tell(): print(*{answer!r}, sep='\\n')")
            done = self.doctor_of_python(sys.executable)
            self.assertEqual(done[1], {"topic": "torch", "state": answer[0], "found": answer[1],
                                       "advice": advice})

    def doctor_of_python(self, python):
        return self.document("doctor", "--json", "--python", python,
                             environment={"PYTHONPATH": str(self.folder)})["findings"]

    def patching(self, python):
        """Without the advice, which names folders of this machine."""
        [finding] = self.doctor_of_python(python)
        self.assertEqual(finding.pop("advice") is None, finding["state"] != "slow")
        return finding


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
