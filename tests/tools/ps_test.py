#!/usr/bin/env python3
"""Who has a checkpoint mapped: real processes on real files.

    ps_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT

FOLDER is where the files are made; on a disk, if this is to say something of one.
"""

import json
import mmap
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

import mounts
from tool_case import ENVIRONMENT, FOLDER, TOOL, ToolCase, stop

MIB = 1 << 20

# Maps a file whole, touches every page, writes to as many as it is told, says so, and stays. What it
# touches stays, too: it is locked.
WORKER = """
import ctypes, mmap, sys
path, mode, writes = sys.argv[1], sys.argv[2], int(sys.argv[3])
flags, access = {"shared": (mmap.MAP_SHARED, mmap.PROT_READ),
                 "private": (mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)}[mode]
def mapping_of(path):
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, flags, access)
mapped, *more = map(mapping_of, [path, *sys.argv[4:]])
MCL_CURRENT, MCL_ONFAULT = 1, 4
ctypes.CDLL(None).mlockall(MCL_CURRENT | MCL_ONFAULT)
total = sum(each[at] for each in (mapped, *more) for at in range(0, len(each), mmap.PAGESIZE))
for page in range(writes):
    mapped[page * mmap.PAGESIZE] = 1
print("ready", flush=True)
sys.stdin.read()
"""


class Case(ToolCase):
    place = FOLDER
    words = ("ps",)

    def setUp(self):
        super().setUp()
        self.file = self.make(count=8)

    def worker(self, path, mode="shared", writes=0, within=(), more=(), code=WORKER, **options):
        words = [*within, sys.executable, "-c", code, path, mode, str(writes), *more]
        return self.ready(words, **options)

    def ready(self, words, **options):
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   **options)
        self.addCleanup(process.communicate)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def document(self, *files):
        return super().document("--json", *files)

    def lines_of(self, *processes, files=()):
        """By process, what is said of it; other processes of the machine are left out."""
        wanted = {process.pid for process in processes}
        return {line["pid"]: line for line in self.document(*files)["processes"]
                if line["pid"] in wanted}


class Ps(Case):
    def test_eight_workers_share_one_copy(self):
        workers = [self.worker(self.file) for _ in range(8)]
        report = self.document(self.file)
        self.assertEqual([line["pid"] for line in report["processes"]],
                         sorted(worker.pid for worker in workers))
        size = self.file.stat().st_size
        self.assertLessEqual(sum(line["pss_bytes"] for line in report["processes"]), 1.03 * size)
        for line in report["processes"]:
            self.assertGreaterEqual(line["resident_bytes"], size)
            self.assertGreaterEqual(line["mapped_bytes"], size)
            self.assertEqual(
                {name: line[name] for name in ("file", "version", "sharing", "writable", "inode",
                                               "anonymous_bytes", "locked_bytes")},
                {"file": str(self.file), "version": "current", "sharing": "shared",
                 "writable": False, "inode": self.file.stat().st_ino, "anonymous_bytes": 0,
                 "locked_bytes": line["pss_bytes"]})
        [total] = report["files"]
        self.assertEqual(
            {name: total[name] for name in ("file", "version", "file_bytes", "processes",
                                            "anonymous_bytes", "copies_bytes")},
            {"file": str(self.file), "version": "current", "file_bytes": size, "processes": 8,
             "anonymous_bytes": 0, "copies_bytes": 8 * size})
        self.assertEqual(total["pss_bytes"], sum(line["pss_bytes"] for line in report["processes"]))

    def test_prints_a_table_and_what_copies_would_take(self):
        self.worker(self.file)
        self.worker(self.file)
        lines = self.text(self.file).splitlines()
        self.assertEqual(lines[0].split(), ["PID", "RSS", "PSS", "ANON", "HUGE", "LOCKED",
                                            "VERSION", "MODE", "FILE", "COMMAND"])
        self.assertEqual(len({line.index("model.pt") for line in lines[1:3]}), 1)
        self.assertRegex(lines[1], r"^ *\d+ +32\.0 MiB +16\.0 MiB +0 B .* current  shared  model\.pt")
        self.assertEqual(lines[3], f"{self.file}: 2 processes: 32.0 MiB instead of 64.0 MiB")

    def test_one_process_is_not_compared_with_copies(self):
        self.worker(self.file)
        self.assertIn(f"{self.file}: 1 process: 32.0 MiB",
                      self.text(self.file).splitlines())

    def test_finds_every_checkpoint_without_being_told_which(self):
        other = self.folder / "no_such_ending"
        shutil.copy(self.file, other)
        text = self.folder / "text.pt"
        text.write_bytes(b"no checkpoint" * 1000)
        workers = [self.worker(path) for path in (self.file, other, text)]
        lines = self.lines_of(*workers)
        self.assertEqual({pid: line["file"] for pid, line in lines.items()},
                         {workers[0].pid: str(self.file), workers[1].pid: str(other)})

    def test_tells_who_is_on_an_older_version(self):
        old = self.worker(self.file)
        os.replace(self.make("new.pt"), self.file)
        new = self.worker(self.file)
        for files in ((self.file,), ()):
            lines = self.lines_of(old, new, files=files)
            self.assertEqual({pid: (line["version"], line["file"]) for pid, line in lines.items()},
                             {old.pid: ("replaced", str(self.file)),
                              new.pid: ("current", str(self.file))})
            self.assertGreater(lines[old.pid]["resident_bytes"], 32 * MIB)
            self.assertLess(lines[new.pid]["resident_bytes"], 17 * MIB)
        totals = {total["version"]: total["file_bytes"]
                  for total in self.document(self.file)["files"]}
        self.assertEqual(totals["current"], self.file.stat().st_size)
        self.assertEqual(totals["replaced"], lines[old.pid]["mapped_bytes"])

    def test_tells_who_is_on_a_file_that_was_deleted(self):
        worker = self.worker(self.file)
        self.file.unlink()
        for files in ((self.file,), ()):
            [line] = self.lines_of(worker, files=files).values()
            self.assertEqual((line["version"], line["file"]), ("deleted", str(self.file)))

    def test_finds_a_file_by_another_name(self):
        link = self.folder / "link.pt"
        link.symlink_to(self.file)
        hard = self.folder / "hard.pt"
        os.link(self.file, hard)
        worker = self.worker(self.file)
        for name in (link, hard):
            [line] = self.lines_of(worker, files=[name]).values()
            self.assertEqual((line["version"], line["file"]), ("current", str(self.file)))
        self.assertIn(f"{link} is a symbolic link, now to {self.file}: whoever opened it when it "
                      "led elsewhere", self.text(link))
        relative = os.path.relpath(self.file, self.folder)
        self.assertEqual(len(self.lines_of(worker, files=[relative])), 1)

    def test_counts_what_a_process_copied_by_writing(self):
        writer = self.worker(self.file, "private", 100)
        reader = self.worker(self.file)
        lines = self.lines_of(writer, reader, files=[self.file])
        self.assertEqual(lines[writer.pid]["anonymous_bytes"], 100 * mmap.PAGESIZE)
        self.assertEqual((lines[writer.pid]["sharing"], lines[writer.pid]["writable"]),
                         ("private", True))
        self.assertEqual(lines[reader.pid]["anonymous_bytes"], 0)

    def test_a_file_that_nobody_has_is_no_failure(self):
        self.assertEqual(self.document(self.file)["processes"], [])
        begin = "^no process (that this user may look at )?has "
        self.assertRegex(self.text(self.file), begin + "it mapped\n")
        other = self.make("other.pt", count=1)
        self.assertRegex(self.text(self.file, other), begin + "them mapped\n")

    def test_a_file_that_is_not_there_is_refused_unless_somebody_has_it_mapped(self):
        message = "is not there, and no process has a deleted file of this name mapped"
        missing = self.folder / "missing.pt"
        self.fails(f"{missing}: {message}", missing)
        done = self.ends(1, "--json", missing)
        self.assertEqual(json.loads(done.stdout)["error"]["message"], message)
        worker = self.worker(self.file)
        self.file.unlink()
        self.assertEqual(list(self.lines_of(worker, files=[self.file])), [worker.pid])

    def test_files_beside_one_that_cannot_be_looked_for_are_answered(self):
        worker = self.worker(self.file)
        (self.folder / "empty").mkdir()
        for bad in (self.folder / "missing.pt", self.folder / "empty", "/dev/zero"):
            for files in ((bad, self.file), (self.file, bad)):
                with self.subTest(files):
                    done = self.ends(1, "--json", *files)
                    self.assertIn(f"weightmap: {bad}: ", done.stderr)
                    self.assertEqual([row["pid"] for row in json.loads(done.stdout)["processes"]],
                                     [worker.pid])

    def make_set(self, folder):
        (self.folder / folder).mkdir()
        return [self.make(f"{folder}/model-0000{number}-of-00003.bin", count=number)
                for number in (1, 2, 3)]

    def test_a_set_has_a_row_for_each_process_and_one_sum(self):
        shards = self.make_set("llama")
        size = sum(shard.stat().st_size for shard in shards)
        workers = [self.worker(shard, more=shards[:2]) for shard in (shards[2], shards[2])]
        half = self.worker(shards[0])
        lines = self.text(self.folder / "llama").splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:4]],
                         [str(pid) for pid in sorted(each.pid for each in (*workers, half))])
        for worker in workers:
            [row] = [line for line in lines if line.split()[0] == str(worker.pid)]
            self.assertRegex(row, r"^ *\d+ +24\.0 MiB .* current  shared  model-\*-of-00003\.bin")
        mib = (2 * size + shards[0].stat().st_size) / MIB
        self.assertEqual(lines[4:5], [f"{self.folder}/llama/model-*-of-00003.bin: 3 processes: "
                                      f"24.0 MiB instead of {mib:.1f} MiB"])
        self.assertEqual(len(self.document(self.folder / "llama")["processes"]), 7)
        self.assertEqual(len(self.text("--tsv", self.folder / "llama").splitlines()), 8)

    def test_of_a_link_to_a_folder_says_where_it_leads_now(self):
        old, new = self.make_set("v1"), self.make_set("v2")
        link = self.folder / "current"
        link.symlink_to("v2")
        late, early = self.worker(new[0]), self.worker(old[0])
        self.assertIn(f"{link} is a symbolic link, now to v2: ", self.text(link))
        self.assertEqual([line["pid"] for line in self.document(link)["processes"]], [late.pid])
        self.assertIn(early.pid, [line["pid"] for line in self.document()["processes"]])

    def test_says_that_nothing_was_touched_yet(self):
        self.worker(self.file, code=WORKER.replace("total = ", "total = 0 and "))
        self.assertIn(f"{self.file}: 1 process, nothing of it touched yet",
                      self.text(self.file).splitlines())

    def test_commands_cannot_write_on_the_terminal(self):
        worker = self.ready(["\x1b[31mred\nline\xff", "-c", WORKER, self.file, "shared", "0"],
                            executable=sys.executable)
        table = self.text(self.file)
        self.assertIn(r"\x1B[31mred\x0Aline", table)
        self.assertNotIn("\x1b", table)
        [line] = self.lines_of(worker, files=[self.file]).values()
        self.assertTrue(line["command"].startswith("\x1b[31mred\nline"))

    def test_names_of_files_may_hold_line_feeds(self):
        odd = self.folder / "a\nb (deleted).pt"
        shutil.copy(self.file, odd)
        worker = self.worker(odd)
        [line] = self.lines_of(worker, files=[odd]).values()
        self.assertEqual(line["version"], "current")
        odd.unlink()
        [line] = self.lines_of(worker, files=[odd]).values()
        self.assertEqual(line["version"], "deleted")

    def test_processes_that_come_and_go_are_no_failure(self):
        quick = "for i in $(seq 300); do /bin/true; done"
        with subprocess.Popen(["sh", "-c", quick]) as busy:
            while busy.poll() is None:
                self.assertEqual(self.document(self.file)["processes"], [])

    def test_a_process_with_thousands_of_mappings_is_read(self):
        many = WORKER.replace('print("ready"', "import ctypes\n"
                              "libc = ctypes.CDLL(None)\n"
                              "libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]\n"
                              "base = ctypes.addressof(ctypes.c_char.from_buffer(mapped))\n"
                              "for i in range(0, min(8000, len(mapped) // mmap.PAGESIZE), 2):\n"
                              "    assert libc.mprotect(base + i * mmap.PAGESIZE, mmap.PAGESIZE, 1) == 0\n"
                              'print("ready"')
        process = self.worker(self.file, "private", code=many)
        [line] = self.lines_of(process, files=[self.file]).values()
        self.assertGreaterEqual(line["mapped_bytes"], self.file.stat().st_size)
        self.assertTrue(line["writable"])

    def test_another_file_of_this_name_is_not_counted(self):
        mounts.need(self, "unshare")
        other = self.make("other.pt", count=1)
        for place in (f"mount --bind {other} {self.file}",
                      # On another file system, and deleted once it is mapped.
                      f"cp {other} /dev/shm/ps_test.$$ && mount -t tmpfs tmpfs {self.folder} &&"
                      f" mv /dev/shm/ps_test.$$ {self.file}"):
            elsewhere = self.worker(self.file, within=["unshare", "--mount", "sh", "-c",
                                                       place + ' && exec "$@"', "sh"])
            here = self.worker(self.file)
            self.assertEqual(list(self.lines_of(here, elsewhere, files=[self.file])), [here.pid])
            if "tmpfs" in place:
                subprocess.run(["nsenter", "-t", str(elsewhere.pid), "-m", "rm", self.file],
                               check=True)
                maps = pathlib.Path(f"/proc/{elsewhere.pid}/maps").read_text()
                self.assertIn(f"{self.file} (deleted)", maps)
                self.assertEqual(list(self.lines_of(here, elsewhere, files=[self.file])),
                                 [here.pid])

    def test_says_how_many_processes_it_could_not_look_at(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become somebody else")
        self.worker(self.file)

        def become_nobody():
            os.setgid(65534)
            os.setuid(65534)

        try:
            done = self.run_tool(preexec_fn=become_nobody)
        except PermissionError:
            self.skipTest("the tool lies where only root may run it")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\n[1-9]\d* process(es)? of user root[\d, ]* could not be "
                         r"looked at, which takes root with CAP_SYS_PTRACE\n$")
        self.assertTrue(done.stdout.startswith("no process that this user may look at has "
                                               "a checkpoint mapped\n"), done.stdout)

    def test_neither_waits_for_a_file_system_nor_drops_what_it_has_cached(self):
        server = mounts.bindfs(self, self.folder / "lower", self.folder / "upper")
        shutil.copy(self.file, self.folder / "lower" / "model.pt")
        served = self.folder / "upper" / "model.pt"
        worker = self.worker(served)
        stop(server)
        try:
            done = self.ends(0, "--json", timeout=60)
        finally:
            server.send_signal(signal.SIGCONT)
        [line] = [line for line in json.loads(done.stdout)["processes"]
                  if line["pid"] == worker.pid]
        self.assertEqual(line["file"], str(served))
        self.assertGreater(line["resident_bytes"], 0)

    def test_gives_up_a_file_whose_file_system_does_not_answer_and_no_other(self):
        server = mounts.bindfs(self, self.folder / "lower", self.folder / "upper")
        mounts.overlay(self, self.folder, lower="upper", upper="over")
        shutil.copy(self.file, self.folder / "lower" / "model.pt")
        (self.folder / "link.pt").symlink_to(self.folder / "upper" / "model.pt")
        stop(server)
        try:
            asked = [self.start(self.folder / name)
                     for name in ("upper/model.pt", "link.pt", self.file.name)]
            said = [each.communicate(timeout=60) for each in asked]
        finally:
            server.send_signal(signal.SIGCONT)
        for (out, error), name in zip(said, ("upper/model.pt", "link.pt")):
            self.assertEqual(out, "")
            self.assertIn(f"{self.folder / name}: its file system has not answered within 10 s",
                          error)
        self.assertEqual([each.returncode for each in asked], [1, 1, 0])


class Staged(Case):
    def test_a_catalog_in_memory_is_no_checkpoint(self):
        holder = self.ready([sys.executable, "-c", """
import mmap, os, sys
content = open(sys.argv[1], "rb").read()
mapped = []
for name in ("weightmap-catalog", "weightmap:staged.pt"):
    memory = os.memfd_create(name)
    os.write(memory, content)
    mapped.append(mmap.mmap(memory, 0, mmap.MAP_SHARED, mmap.PROT_READ))
print("ready", flush=True)
sys.stdin.read()
""", self.make("small.pt", count=1)])
        files = [line["file"] for line in self.document()["processes"] if line["pid"] == holder.pid]
        self.assertEqual(files, ["/memfd:weightmap:staged.pt"])

    def test_staged_copies_are_found(self):
        stager = subprocess.Popen([TOOL, "stage", self.file], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
        self.addCleanup(stager.communicate)
        self.addCleanup(stager.send_signal, signal.SIGTERM)
        path = stager.stdout.readline().strip()
        workers = [self.worker(path) for _ in range(2)]
        for files in ((path,), ()):
            lines = self.lines_of(*workers, files=files)
            self.assertEqual(len(lines), 2)
            for line in lines.values():
                self.assertEqual((line["file"], line["version"]),
                                 ("/memfd:weightmap:model.pt", "current"))
        [total] = self.document(path)["files"]
        self.assertLessEqual(total["pss_bytes"], 1.03 * self.file.stat().st_size)

    def test_named_copies_are_found(self):
        name = f"weightmap-ps-test-{os.getpid()}"
        subprocess.run([TOOL, "stage", self.file, "--name", name], check=True, capture_output=True)
        worker = self.worker(f"/dev/shm/{name}")
        subprocess.run([TOOL, "stage", "--remove", name], check=True)
        [line] = self.lines_of(worker, files=[f"/dev/shm/{name}"]).values()
        self.assertEqual((line["file"], line["version"]), (f"/dev/shm/{name}", "deleted"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
