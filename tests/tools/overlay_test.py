#!/usr/bin/env python3
"""What the tool says and does on overlayfs, the file system of containers.

    overlay_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT

FOLDER is on a disk, or there is nothing that could be unwritten.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading

import mounts
from tool_case import ENVIRONMENT, FOLDER, TOOL, ToolCase


class OnOverlay(ToolCase):
    place = FOLDER

    def setUp(self):
        super().setUp()
        self.lower = self.folder / "lower"
        self.make("lower/model.pt", count=8)
        os.sync()
        self.merged = mounts.overlay(self, self.folder)
        self.file = self.merged / "model.pt"

    def worker(self, path):
        worker = subprocess.Popen(
            [sys.executable, "-c", "import mmap, sys\n"
             "with open(sys.argv[1], 'rb') as file:\n"
             "    mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)\n"
             "total = sum(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE))\n"
             "print(total, flush=True)\n"
             "sys.stdin.read()", path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(worker.communicate)
        self.assertNotEqual(worker.stdout.readline(), "")
        return worker


    def evict(self, path):
        done = self.run_tool("residency", "--evict", "--json", path, timeout=60)
        return json.loads(done.stdout)["files"][0]

    def ps(self, path):
        return self.document("ps", "--json", path, timeout=60)


class Hold(OnOverlay):
    def test_another_file_of_the_same_content_is_held_once_it_is_there(self):
        shared = self.folder / "shared"
        shared.mkdir(mode=0o700)
        keeper = self.start("hold", "--json", "--interval", "0.05", self.file,
                            environment={"WEIGHTMAP_RUNTIME_DIR": str(shared)})
        limit = threading.Timer(60, keeper.kill)
        limit.start()
        self.addCleanup(limit.cancel)
        self.assertEqual(json.loads(keeper.stdout.readline())["files"][0]["reloads"], 0)
        before = self.file.stat()
        self.file.chmod(0o640)
        self.assertEqual([getattr(self.file.stat(), name) for name in
                          ("st_dev", "st_ino", "st_size", "st_mtime_ns")],
                         [before.st_dev, before.st_ino, before.st_size, before.st_mtime_ns])
        os.sync()
        lines = [keeper.stderr.readline()]
        while "released" not in lines[-1]:
            self.assertNotEqual(lines[-1], "", lines)
            lines.append(keeper.stderr.readline())
        self.assertIn(f"{self.file}: was copied to the upper layer of its overlay file system, as "
                      "chmod does; the new file is in memory, the old one released", lines[-1])
        # Nothing but the upper file is held now: it cannot be evicted, and the lower one can.
        self.assertNotEqual(self.evict(self.file)["cached_after"], 0)
        self.assertEqual(self.evict(self.lower / "model.pt")["cached_after"], 0)


class Evict(OnOverlay):
    def test_what_is_not_on_the_disk_yet_is_called_so(self):
        for _ in range(20):  # the system may be faster
            shutil.copy(self.lower / "model.pt", self.merged / "new.pt")
            report = self.evict(self.merged / "new.pt")
            if report["reason"] is not None:
                self.assertEqual((report["reason"], report["unwritten_bytes"]),
                                 ("unwritten", report["cached_after"]))
                return
            os.remove(self.merged / "new.pt")
        self.skipTest("the system has written everything at once, 20 times")

    def test_what_a_process_has_mapped_is_called_so(self):
        self.worker(self.file)
        report = self.evict(self.file)
        self.assertEqual((report["reason"], report["unwritten_bytes"]), ("in_use", 0))

    def test_an_upper_layer_in_memory_is_called_so(self):
        memory = self.folder / "memory"
        memory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", memory], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", memory])
        (memory / "lower").mkdir()
        file = mounts.overlay(self, memory) / "new.pt"
        shutil.copy(self.lower / "model.pt", file)
        report = self.evict(file)
        self.assertEqual((report["reason"], report["unwritten_bytes"], report["cached_after"]),
                         ("memory_file_system", 0, file.stat().st_size))


class Ps(OnOverlay):
    def test_a_lower_file_is_found_in_each_overlay_that_shows_it(self):
        (self.lower / "below").mkdir()
        shutil.copy(self.lower / "model.pt", self.lower / "below")
        self.worker(self.merged / "below" / "model.pt")
        other = mounts.overlay(self, self.folder, "other", upper="other-upper",
                               base=self.folder.parent) / "model.pt"
        workers = [self.worker(path) for path in (self.file, other, self.lower / "model.pt")]
        report = self.ps(self.lower / "model.pt")
        self.assertEqual(
            [(line["pid"], line["version"], line["file"]) for line in report["processes"]],
            sorted((worker.pid, "current", str(self.lower / "model.pt")) for worker in workers))
        [total] = report["files"]
        size = other.stat().st_size
        self.assertEqual((total["processes"], total["file_bytes"]), (3, size))
        self.assertLessEqual(total["pss_bytes"], size + (3 << 20))
        # Another file is shown there now.
        other.chmod(0o640)
        report = self.ps(self.lower / "model.pt")
        self.assertEqual({line["pid"] for line in report["processes"]},
                         {workers[0].pid, workers[2].pid})
        report = self.ps(self.file)
        self.assertEqual([line["pid"] for line in report["processes"]], [workers[0].pid])


class Warm(OnOverlay):
    def bytes_read(self, path):
        """What the tool reads to attach to the file, by system calls."""
        # A process that waited for another counts what that one has read.
        text = subprocess.run(["sh", "-c", '"$@" > /dev/null && cat /proc/$$/io', "sh", TOOL,
                               "warm", "--one-reader", path], env=ENVIRONMENT, check=True,
                              capture_output=True, text=True, timeout=60).stdout
        return int(re.search(r"^rchar: (\d+)$", text, re.MULTILINE)[1])

    def test_what_is_cached_is_not_copied(self):
        self.file.read_bytes()
        self.assertLess(self.bytes_read(self.file), self.file.stat().st_size / 4)


if __name__ == "__main__":
    mounts.main([sys.argv[0], *sys.argv[4:]])
