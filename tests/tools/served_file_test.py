#!/usr/bin/env python3
"""What only looks at a file takes nothing from processes that have it mapped, where an open would.

    served_file_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT
"""

import json
import pathlib
import subprocess
import sys

import mounts
from tool_case import FOLDER, ToolCase

# Maps files whole and touches each page once, so that what is dropped then does not come back.
WORKER = """
import mmap, sys
mapped = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        mapped.append(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ))
total = sum(one[at] for one in mapped for at in range(0, len(one), mmap.PAGESIZE))
print("ready", flush=True)
sys.stdin.read()
"""

LOOKS = (["ps"], ["residency"], ["doctor"], ["scan"], ["scan", "--names"], ["ls"], ["ls", "--info"],
         ["ls", "--records"], ["ls", "--sum"], ["tree"])


class OnFuse(ToolCase):
    place = FOLDER

    def setUp(self):
        super().setUp()
        lower, self.served = self.folder / "lower", self.folder / "served"
        self.names = [f"model-0000{number}-of-00002.bin" for number in (1, 2)]
        for name in self.names:
            self.make(f"lower/{name}", count=2)
        (lower / "model.bin.index.json").write_text(json.dumps(
            {"weight_map": {"tensor.0": self.names[0]}}))
        mounts.bindfs(self, lower, self.served)

    def worker(self, *names, folder=None):
        paths = [(folder or self.served) / name for name in names]
        process = subprocess.Popen([sys.executable, "-c", WORKER, *paths],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def resident(self, worker, folder=None):
        """In KiB, of what it has mapped on the mount."""
        total, counts = 0, False
        for line in pathlib.Path(f"/proc/{worker.pid}/smaps").read_text().splitlines():
            if line.startswith("Rss:"):
                total += int(line.split()[1]) if counts else 0
            elif "-" in line.split()[0]:
                counts = str(folder or self.served) in line
        return total

    def test_no_look_drops_a_page_that_a_process_has_mapped(self):
        worker = self.worker(*self.names)
        before = self.resident(worker)
        self.assertGreater(before, 16 << 10)
        for path in (self.names[0], "model.bin.index.json", "."):
            for look in LOOKS:
                with self.subTest(look=look, path=path):
                    done = self.run_tool(*look, self.served / path)
                    self.assertEqual(self.resident(worker), before)
                    if look == ["ps"]:
                        self.assertEqual((done.returncode, done.stderr), (0, ""))
                        self.assertIn(f"{worker.pid}", done.stdout)
                        continue
                    self.assertEqual(done.returncode, 1)
                    self.assertRegex(
                        done.stdout if look[0] == "scan" else done.stderr,
                        rf"is on FUSE, where an open may drop the \d+ bytes that process "
                        rf"{worker.pid} has mapped and in memory, so nothing is opened; `weightmap "
                        "ps` tells more without an open, and a copy that is not on FUSE can be "
                        "looked at")
        # An open does drop them here, or all of this has shown nothing.
        (self.served / self.names[0]).open("rb").close()
        self.assertLess(self.resident(worker), before)

    def test_no_look_does_through_an_overlay_over_such_files(self):
        merged = mounts.overlay(self, self.folder, lower="served")
        for mapped, path in ((merged, merged), (merged, self.served), (self.served, merged)):
            worker = self.worker(self.names[0], folder=mapped)
            before = self.resident(worker, mapped)
            self.assertGreater(before, 8 << 10)
            for look in (["ps", "--json"], *([*look, path / self.names[0]] for look in LOOKS)):
                with self.subTest(mapped=mapped, look=look):
                    done = self.run_tool(*look)
                    self.assertEqual(self.resident(worker, mapped), before)
                    self.assertEqual(done.returncode, 0 if look[0] == "ps" else 1)
                    if look[0] != "ps":
                        self.assertIn("is on FUSE, where an open may drop", done.stdout + done.stderr)
            worker.communicate()
        # An open does drop them here, too.
        worker = self.worker(self.names[0], folder=merged)
        (merged / self.names[0]).open("rb").close()
        self.assertLess(self.resident(worker, merged), before)

    def test_the_report_of_ps_is_that_of_other_file_systems(self):
        workers = [self.worker(self.names[0]) for _ in range(2)]
        report = json.loads(self.run_tool("ps", "--json", self.served / self.names[0]).stdout)
        status = (self.served / self.names[0]).stat()
        self.assertEqual(
            [(line["pid"], line["version"], line["inode"]) for line in report["processes"]],
            sorted((worker.pid, "current", status.st_ino) for worker in workers))
        self.assertEqual(report["files"][0]["file_bytes"], status.st_size)
        self.assertGreaterEqual(report["files"][0]["pss_bytes"], status.st_size - 4096)

    def test_a_server_that_keeps_the_cache_keeps_nobody_from_looking(self):
        served = self.folder / "kept"
        mounts.bindfs(self, self.folder / "lower", served, "-o", "kernel_cache")
        self.served = served
        worker = self.worker(self.names[0])
        before = self.resident(worker)
        for look in LOOKS:
            done = self.run_tool(*look, served / self.names[0])
            self.assertEqual((done.returncode, done.stderr), (0, ""), look)
            self.assertEqual(self.resident(worker), before, look)
        # Without a file that nobody has mapped nothing shows that it does.
        for path in (self.folder / "lower").iterdir():
            if path.name != self.names[0]:
                path.unlink()
        done = self.run_tool("ls", "--info", served / self.names[0])
        self.assertIn("is on FUSE, where an open may drop", done.stderr)

    def test_what_nobody_has_mapped_is_opened_as_anywhere(self):
        for look in LOOKS:
            done = self.run_tool(*look, self.served / self.names[0])
            self.assertEqual((done.returncode, done.stderr), (0, ""), look)

    def test_a_scan_goes_on_with_the_files_that_nobody_has_mapped(self):
        self.worker(self.names[0])
        done = self.run_tool("scan", "--json", self.served)
        self.assertEqual(done.returncode, 1)
        verdicts = {pathlib.Path(file["file"]).name: file["verdict"]
                    for file in json.loads(done.stdout)["files"]}
        self.assertEqual((verdicts[self.names[0]], verdicts[self.names[1]]), ("unchecked", "safe"))


if __name__ == "__main__":
    mounts.main([sys.argv[0], *sys.argv[4:]])
