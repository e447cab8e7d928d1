"""Measures how fast a checkpoint in the page cache is copied to a CUDA device.

    gpu_check.py [--file FILE.safetensors] [--gib 4] [--rounds 7] [--library FILE] [--write FILE]
                 [--contenders link slots ...]

This interpreter needs weightmap; the driver is libcuda.so.1, or --library. Each contender runs in a
process of its own, and then in two at a time, which live through all rounds; a round has a turn of
each. The first upload of each is not measured: it is copied back from the device and compared.

    link        the same number of bytes from one pinned buffer, which is the limit
    mapping, registered, slots    the ways of weightmap.cuda.Uploader
    torch       each mapped tensor with .to("cuda")
    safetensors safetensors.torch.load_file(device="cuda")

Makes FILE of random bytes where there is none. Prints a table as Markdown; --write puts it between
the markers in FILE.
"""
import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from samples import check_between, machine_line, publish, ratio_text, table

MARKERS = "<!-- measured gpu: begin -->", "<!-- measured gpu: end -->"
WAYS = "mapping", "registered", "slots"
CONTENDERS = "link", *WAYS, "torch", "safetensors"
TENSORS = 64
LINK_BYTES = 256 << 20


def make_file(path, nbytes):
    """Writes TENSORS float16 matrices of random bytes as safetensors."""
    size = nbytes // TENSORS // 8192 * 8192 or 8192
    head = json.dumps({
        f"layers.{i}.weight": {"dtype": "F16", "shape": [size // 8192, 4096],
                               "data_offsets": [i * size, (i + 1) * size]}
        for i in range(TENSORS)
    }).encode()
    head += b" " * (-len(head) % 4096 + 4088)  # aligned as weightmap.save_safetensors() does
    block = os.urandom(size)
    with open(f"{path}.part", "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for _ in range(TENSORS):
            file.write(block)
    os.rename(f"{path}.part", path)


class Mismatch(Exception):
    """The device has other bytes than the file, which no row of a table may hide."""


class Driver:
    """What the comparisons need of the driver API: a pinned buffer, and copies back."""

    def __init__(self, library):
        self._driver = ctypes.CDLL(library or "libcuda.so.1")
        self.call("cuInit", 0)
        self._context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self.call("cuCtxPushCurrent_v2", self._context)

    def call(self, function, *arguments):
        status = getattr(self._driver, function)(*arguments)
        if status != 0:
            raise OSError(f"{function} failed: CUDA error {status}")

    def close(self):
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self.call("cuDevicePrimaryCtxRelease_v2", 0)

    def bytes_of(self, tensor):
        out = ctypes.create_string_buffer(tensor.nbytes)
        self.call("cuMemcpyDtoH_v2", out, ctypes.c_uint64(tensor.data_ptr),
                  ctypes.c_size_t(tensor.nbytes))
        return out.raw


class Link:
    """Copies as many bytes as the file has from one pinned buffer."""

    def __init__(self, arguments):
        self._driver = driver = Driver(arguments.library)
        self._left = os.path.getsize(arguments.file)
        self._host, self._device = ctypes.c_void_p(), ctypes.c_uint64()
        self._stream = ctypes.c_void_p()
        self._block = min(LINK_BYTES, self._left)
        driver.call("cuMemHostAlloc", ctypes.byref(self._host), ctypes.c_size_t(self._block), 0)
        driver.call("cuMemAlloc_v2", ctypes.byref(self._device), ctypes.c_size_t(self._block))
        driver.call("cuStreamCreate", ctypes.byref(self._stream), 1)

    def check(self):
        self.run()

    def run(self):
        for start in range(0, self._left, self._block):
            size = ctypes.c_size_t(min(self._block, self._left - start))
            self._driver.call("cuMemcpyHtoDAsync_v2", self._device, self._host, size, self._stream)
        self._driver.call("cuStreamSynchronize", self._stream)
        return {}


class Upload:
    """One way of weightmap.cuda.Uploader. The tensors are kept until all are there."""

    def __init__(self, arguments):
        import weightmap

        self._library = arguments.library
        self._uploader = weightmap.cuda.Uploader(
            way=arguments.contender, library=arguments.library)
        self._checkpoint = weightmap.open(arguments.file)

    def check(self):
        driver = Driver(self._library)
        for name, tensor in self._uploader.upload(self._checkpoint):
            if driver.bytes_of(tensor) != self._checkpoint[name].tobytes():
                raise Mismatch(f"tensor {name!r} has other bytes on the device than in the file")
        driver.close()

    def run(self):
        upload = self._uploader.upload(self._checkpoint)
        tensors = list(upload)
        report = upload.report
        assert len(tensors) == len(self._checkpoint)
        return {"calls": report.driver_calls, "registrations": report.registrations,
                "note": report.refusal}


class Torch:
    """Mapped tensors, by torch's copy from pageable memory."""

    def __init__(self, arguments):
        import torch
        import weightmap

        torch.cuda.init()
        self.torch = torch
        self._file = arguments.file
        self._load = weightmap.open(arguments.file).torch

    def check(self):
        mapped = self._load()
        for name, moved in self.moved().items():
            if not self.torch.equal(moved.cpu(), mapped[name]):
                raise Mismatch(f"tensor {name!r} has other bytes on the device than in the file")

    def moved(self):
        return {name: tensor.to("cuda") for name, tensor in self._load().items()}

    def run(self):
        tensors = self.moved()
        self.torch.cuda.synchronize()
        del tensors
        self.torch.cuda.empty_cache()
        return {}


class Safetensors(Torch):
    def moved(self):
        from safetensors.torch import load_file

        return load_file(self._file, device="cuda")


KINDS = {"link": Link, "torch": Torch, "safetensors": Safetensors} | dict.fromkeys(WAYS, Upload)


def be_contender(arguments):
    """In a process of its own: runs once for each line of standard input."""
    try:
        contender = KINDS[arguments.contender](arguments)
        contender.check()
    except Mismatch:
        raise
    except Exception as refusal:  # of the driver, or a package that is missing
        print(json.dumps({"refused": f"{refusal}"}), flush=True)
        return
    print(json.dumps({}), flush=True)
    for _ in sys.stdin:
        gc.collect()
        start = time.perf_counter()
        facts = contender.run()
        print(json.dumps({"seconds": time.perf_counter() - start, **facts}), flush=True)


class Group:
    """The processes of one contender that run at the same time."""

    def __init__(self, arguments, name, count):
        self.name, self.count = name, count
        command = [sys.executable, __file__, "--contender", name, "--file", arguments.file,
                   "--library", arguments.library]
        self._processes = [subprocess.Popen(command, text=True, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE) for _ in range(count)]
        self.refused = [answer["refused"] for answer in self._answers() if "refused" in answer]
        self.seconds = []
        self.facts = {}

    def _answers(self):
        answers = [process.stdout.readline() for process in self._processes]
        if "" in answers:
            raise SystemExit(f"gpu_check: a process of {self.name} failed")
        return [json.loads(answer) for answer in answers]

    def run(self):
        for process in self._processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = self._answers()
        self.seconds.append(max(answer["seconds"] for answer in answers))
        self.facts = answers[0]

    def close(self):
        for process in self._processes:
            process.stdin.close()
            process.wait()
            process.stdout.close()

    def cells(self, nbytes, limit):
        """A row of the table; `limit`: the group of the link that has as many processes."""
        head = [self.name, str(self.count)]
        if self.refused:
            return [*head, "", "", "", "", f"refused: {self.refused[0]}"]
        rates = sorted(self.count * nbytes / seconds / 1e9 for seconds in self.seconds)
        shares = [link / own for link, own in zip(limit.seconds, self.seconds)]
        share = {"value": statistics.median(shares), "low": min(shares), "high": max(shares)}
        return [*head, f"{statistics.median(rates):.2f} [{rates[0]:.2f}, {rates[-1]:.2f}]",
                "" if self is limit else ratio_text(share), str(self.facts.get("calls", "")),
                str(self.facts.get("registrations", "")), self.facts.get("note", "")]


def measure(arguments):
    groups = [Group(arguments, name, count) for count in (1, 2)
              for name in arguments.contenders]
    running = [group for group in groups if not group.refused]
    limits = {group.count: group for group in running if group.name == "link"}
    if len(limits) != 2:
        raise SystemExit(f"gpu_check: {(groups[0].refused or ['no link is measured'])[0]}")
    for _ in range(arguments.rounds):
        for group in running:
            group.run()
    for group in groups:
        group.close()
    nbytes = os.path.getsize(arguments.file)
    head = ["contender", "processes", "GB/s", "of the link", "driver calls", "registrations", ""]
    rows = [group.cells(nbytes, limits[group.count]) for group in groups]
    return [machine_line(f"{device_line()}, a file of {nbytes / 1e9:.2f} GB in {TENSORS} tensors",
                         arguments.rounds), "", *table(head, rows)]


def device_line():
    """The device and the driver by their names, as nvidia-smi tells them."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "a device that nvidia-smi does not name"
    name, version = text.splitlines()[0].split(", ")
    return f"{name}, driver {version}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--file", help="default: a temporary one")
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--library", default="")
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        return be_contender(arguments)
    check_between(parser, arguments.write, *MARKERS)
    try:
        Driver(arguments.library).close()
    except OSError as error:
        raise SystemExit(f"gpu_check: {error}")
    with tempfile.TemporaryDirectory() as folder:
        arguments.file = arguments.file or os.path.join(folder, "model.safetensors")
        if not os.path.exists(arguments.file):
            make_file(arguments.file, int(arguments.gib * (1 << 30)))
        lines = measure(arguments)
    publish(lines, arguments.write, *MARKERS)


if __name__ == "__main__":
    main()
