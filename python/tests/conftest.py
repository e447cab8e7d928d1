"""What the tests share: the fixtures of tests/data, and small checkpoints laid out by hand.

Every open of the run also compares each calculated offset with its record's local header, unless
the environment already asks for another level.
"""

from __future__ import annotations

import gc
import os

os.environ.setdefault("WEIGHTMAP_VERIFY", "headers")

import math
import shutil
import signal
import struct
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import fake_cuda
import pytest

import weightmap

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
sys.path[:0] = [str(DATA.parent / folder) for folder in ("support", "remote")]


@pytest.fixture(scope="session")
def data():
    """The folder of checkpoints that torch wrote."""
    return DATA


@pytest.fixture
def numpy():
    return pytest.importorskip("numpy", reason="this test takes arrays")


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="this test takes torch tensors")


@pytest.fixture
def checkpoint(data):
    """Opens one of them by name; closed again at the end of the test."""
    opened = []

    def open_by_name(name, **options):
        opened.append(weightmap.open(data / name, **options))
        return opened[-1]

    yield open_by_name
    for one in opened:
        one.close()


@pytest.fixture
def copy_of(data, tmp_path):
    """The path of a private copy, which the test may write to and find in /proc/self/maps."""

    def copy(name):
        path = tmp_path / name
        shutil.copyfile(data / name, path)
        return path

    return copy


@pytest.fixture
def archive(tmp_path):
    """Writes a checkpoint around the bytes of a pickle, as zipfile lays it out."""

    def write(pickled, storages=None, name="archive.pt"):
        path = tmp_path / name
        with zipfile.ZipFile(path, "w") as target:
            target.writestr("archive/data.pkl", pickled)
            target.writestr("archive/byteorder", "little")
            for key, content in (storages or {}).items():
                target.writestr(f"archive/data/{key}", content)
            target.writestr("archive/version", "3\n")
        return path

    return write


def torch_since(version, what):
    """A mark that skips a test under an older torch, which lacks `what`."""
    return pytest.mark.skipif(
        torch_version() < version,
        reason=f"before torch {version[0]}.{version[1]} there is no {what}",
    )


def torch_version():
    """Without an import; a torch that is missing is another reason, which the test itself has."""
    try:
        installed = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return (math.inf,)
    return tuple(map(int, installed.split(".")[:2]))


def dtype_params(names):
    """The dtypes for parametrize, those that an older torch lacks with a mark."""
    since = {"float8_e8m0fnu": (2, 7)}
    return [
        pytest.param(name, marks=torch_since(since[name], name)) if name in since else name
        for name in names
    ]


# What torch's list of safe globals had once, and lost.
NO_LONGER_SAFE = {"torch._utils._rebuild_nested_tensor"} if torch_version() >= (2, 15) else set()


def _text(text):
    encoded = text.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _tensor(key, count, shape=None, strides=(1,)):
    """The opcodes of a float32 tensor, as torch.save writes them; of one dimension by default."""
    number = b"J" + struct.pack("<i", count)
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text(key) + _text("cpu")
    shape_and_strides = b""
    for numbers in (shape or (count,), strides):
        shape_and_strides += b"(" + b"".join(b"J" + struct.pack("<i", n) for n in numbers) + b"t"
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + (storage + number + b"tQ")
        + (b"K\x00" + shape_and_strides + hooks)
        + b"tR"
    )


@pytest.fixture
def float_archive(archive):
    """Writes {name: float32 tensor of these bytes}, without torch."""

    def write(contents, name="floats.pt"):
        pickled = b"\x80\x02}("
        for key, (tensor_name, content) in enumerate(contents.items()):
            pickled += _text(tensor_name) + _tensor(str(key), len(content) // 4)
        storages = {str(key): content for key, content in enumerate(contents.values())}
        return archive(pickled + b"u.", storages, name)

    return write


@pytest.fixture
def cube(archive):
    """Writes "w": float32 of so many dimensions of 2, all of stride 1, over 64 numbers: 0 to 63."""

    def write(rank, name="cube.pt"):
        tensor = _tensor("0", 64, (2,) * rank, (1,) * rank)
        pickled = b"\x80\x02}" + _text("w") + tensor + b"s."
        return archive(pickled, {"0": struct.pack("<64f", *range(64))}, name)

    return write


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """The folder where processes of the test meet, and no others."""
    folder = tmp_path / "runtime"
    monkeypatch.setenv("WEIGHTMAP_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def mappings_of():
    """How many mappings of a file this process has."""

    def count(path):
        with open("/proc/self/maps") as maps:
            return sum(line.rstrip("\n").endswith(f" {path}") for line in maps)

    return count


def fresh_python(program, arguments, environment):
    """How an interpreter is started that finds the same packages."""
    # An installed package needs no help; one on sys.path for another reason does.
    found_in = str(Path(weightmap.__file__).parents[1])
    paths = [found_in, *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    command = [sys.executable, *(["-c", program] if program else []), *map(str, arguments)]
    return {"args": command, "env": settings, "text": True}


@pytest.fixture(scope="module")
def only_new_objects():
    """Collections look at what the module's tests have made alone: torch has made very much."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def python():
    """Runs a program in a fresh interpreter."""

    def run(program, *arguments, **environment):
        return subprocess.run(**fresh_python(program, arguments, environment), capture_output=True)

    return run


@pytest.fixture
def start_python():
    """Starts programs in fresh interpreters, at the other end of pipes; kills all in the end."""
    started = []

    def start(program, *arguments, **environment):
        started.append(subprocess.Popen(**fresh_python(program, arguments, environment),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


@pytest.fixture
def interrupts():
    """SIGINT raises KeyboardInterrupt, which whoever started this may have had ignored, as a shell
    does for what it leaves behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def server(tmp_path):
    """A server of ranges, of the files in a folder of its own."""
    import range_server

    (tmp_path / "served").mkdir()
    with range_server.RangeServer(tmp_path / "served") as running:
        yield running


@pytest.fixture(scope="session")
def cuda_library(tmp_path_factory):
    """The file of the driver without a device, compiled for the run."""
    return fake_cuda.compiled(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def driver(cuda_library):
    """That driver, which has no fault to tell of and has got everything back in the end."""
    made = fake_cuda.Driver(cuda_library)
    made.reset()
    yield made
    gc.collect()
    assert made.faults() == ""
    assert made.held() == ""


@pytest.fixture(scope="session")
def start_file():
    return Path(weightmap.__file__).resolve().parents[1] / "weightmap_patch.pth"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The interpreter of a virtual environment that reaches the packages of this one by a .pth, and
    the folder of it that has those files."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    [packages] = folder.glob("lib/python*/site-packages")
    paths = [path for path in sys.path if os.path.isdir(path)]
    (packages / "a_packages.pth").write_text("\n".join(paths))
    return folder / "bin" / "python", packages


@pytest.fixture
def run(environment, start_file):
    """Runs a program with arguments in the environment, which has the start file."""
    interpreter, packages = environment
    shutil.copy(start_file, packages)

    def run(program, *arguments, value="1", flags=()):
        settings = {**os.environ, "WEIGHTMAP_PATCH": value}
        settings.pop("PYTHONPATH", None)
        return subprocess.run([interpreter, *flags, program, *arguments], env=settings,
                              capture_output=True, text=True)

    yield run
    (packages / "weightmap_patch.pth").unlink()
