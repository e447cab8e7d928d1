"""What the tests of commands on the fixtures share: pickles made by hand, a terminal, and files that
are cached or evicted."""

import errno
import json
import os
import pty
import struct
import subprocess
import zipfile

from tool_case import DATA, MAKER, ToolCase

from held_pages import keep_cached


def pickled(word):
    text = word.encode()
    return b"X" + struct.pack("<I", len(text)) + text


def numpy_dtype(kind, order):
    return (b"cnumpy\ndtype\n(" + pickled(kind) + b"K\x00K\x01tR(K\x03" + pickled(order)
            + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")


def numpy_scalar(kind, order, content):
    return (b"cnumpy.core.multiarray\nscalar\n(" + numpy_dtype(kind, order)
            + b"C" + bytes([len(content)]) + content + b"tR")


def numpy_array(kind, order, shape, content, is_fortran=False):
    """As protocol 2 has it, which spells bytes as text."""
    dims = b"(" + b"".join(b"K" + bytes([size]) for size in shape) + b"t"
    return (b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tc_codecs\nencode\n("
            + pickled("b") + pickled("latin1") + b"tRtR(K\x01" + dims + numpy_dtype(kind, order)
            + (b"\x88" if is_fortran else b"\x89") + b"c_codecs\nencode\n("
            + pickled(content.decode("latin1")) + pickled("latin1") + b"tRtb")


# The pickle of a tensor of the four floats in data/0.
FLOATS = (
    b"ctorch._utils\n_rebuild_tensor_v2\n((" + pickled("storage") + b"ctorch\nFloatStorage\n"
    + pickled("0") + pickled("cpu") + b"K\x04tQK\x00K\x04\x85K\x01\x85\x89"
    b"ccollections\nOrderedDict\n)RtR"
)


class Terminal:
    """A terminal of 80 cells for one of the tool's outputs, and what appears on it."""

    def __init__(self):
        self.ours, self.theirs = pty.openpty()
        self.text = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.ours)
        if self.theirs is not None:
            os.close(self.theirs)

    def leave_to_child(self):
        """After this, read() sees the end once the child is gone."""
        os.close(self.theirs)
        self.theirs = None

    def read(self):
        """What has come since, at least something; False at the end."""
        try:
            text = os.read(self.ours, 1 << 16).decode()
        except OSError as error:  # EIO: nobody has the other side any more
            if error.errno != errno.EIO:
                raise
            text = ""
        self.text += text
        return bool(text)

    def read_all(self):
        while self.read():
            pass
        return self.text


class Case(ToolCase):
    """Runs the tool in the folder of the fixtures."""

    def run_tool(self, *arguments, **options):
        return super().run_tool(*arguments, **{"cwd": DATA, **options})

    def raw(self, *arguments):
        return self.run_tool("cat", *arguments, "--raw", text=False).stdout

    def archive(self, content):
        """A checkpoint of this pickle and one storage of 16 bytes."""
        path = self.folder / "archive.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", content)
            archive.writestr("archive/data/0", bytes(16))
            archive.writestr("archive/version", "3\n")
        return path

    def make(self, *arguments):
        path = self.folder / "made.pt"
        subprocess.run([MAKER, path, *map(str, arguments)], check=True)
        return path


def on_disk(path):
    """Writes what the page cache alone has of a file."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return path


def read_pages(path, offset, length):
    """Brings in the pages of a range and no others, which the system may take at any time."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        page = os.sysconf("SC_PAGE_SIZE")
        for at in range(offset // page * page, offset + length, page):
            os.pread(file.fileno(), 1, at)


class Caching(Case):
    """Cases whose files are evicted, which files in memory cannot be."""

    def evicted(self, path):
        report = self.evict_report(path)
        if report["reason"] == "memory_file_system":
            self.skipTest("the temporary folder is in memory, where nothing can be evicted")
        self.assertEqual(report["cached_after"], 0)
        return path

    def evict_report(self, path):
        return json.loads(self.run_tool("residency", "--evict", "--json", on_disk(path)).stdout)["files"][0]

    def model(self):
        """Six tensors of 4 MiB, all on the disk, none in the page cache."""
        return self.evicted(self.make("--count", 6, "--shape", "1024x2048"))

    def keep_tensor_cached(self, path, index):
        tensor = self.document("ls", "--json", path)["tensors"][index]
        keep_cached(self, path, tensor["file_offset"], tensor["nbytes"])
