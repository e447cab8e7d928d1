"""weightmap.patch(), weightmap.patch() and WEIGHTMAP_PATCH: who is served."""

import concurrent.futures
import gzip
import io
import os
import pathlib
import signal
import subprocess
import threading

import pytest
from conftest import torch_version
from memory_maps import anonymous_bytes, mapping_of, mappings_of, permissions

import weightmap

torch = pytest.importorskip("torch", reason="these tests patch torch.load")
pytest.importorskip("weightmap.torch", reason="this torch is too old")

LARGE = 1 << 20  # bytes from which on files are mapped


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"w": torch.arange(16 * LARGE / 4)}, path)
    return path


@pytest.fixture
def safetensors():
    return pytest.importorskip("safetensors.torch", reason="this test patches it")


@pytest.fixture
def package(safetensors):
    import safetensors as package

    return package


@pytest.fixture
def shard(tmp_path, safetensors):
    path = tmp_path / "model.safetensors"
    safetensors.save_file({"b": torch.ones(3), "a": torch.arange(8.0)}, path, {"format": "pt"})
    return path


def is_mapped(tensor, path):
    return mapping_of(tensor)["file"] == str(path)


# --- weightmap.patch() -------------------------------------------------------


def test_all_files_are_mapped_whatever_the_call_says_of_mmap(model):
    with weightmap.patch() as report:
        for options in ({}, {"mmap": False}, {"mmap": True}, {"map_location": "cpu"},
                        {"weights_only": True}):
            state = torch.load(model, **options)
            assert is_mapped(state["w"], model), options
    assert [call.why for call in report.calls] == [""] * 5
    assert not is_mapped(torch.load(model)["w"], model)


def test_the_report_says_who_was_served_and_who_was_not_and_why(model, tmp_path):
    small = tmp_path / "small.pt"
    torch.save({"w": torch.ones(2)}, small)
    other = tmp_path / "object.pt"
    torch.save({"w": torch.arange(LARGE / 2), "e": ValueError("x")}, other)
    with weightmap.patch() as report:
        torch.load(model)
        torch.load(small)
        torch.load(model, weights_only=False)
        torch.load(io.BytesIO(model.read_bytes()))
        with pytest.raises(Exception, match="Weights only load failed"):
            torch.load(other)
    assert report.served == [("torch.load", str(model), __name__, "")]
    assert [(call.file, call.why) for call in report.left[:2]] == [
        (str(small), "is smaller than 1 MiB"), (str(model), "asks for weights_only=False"),
    ]
    assert report.left[2].why == "is a BytesIO, no path"
    assert report.left[3].why.startswith("Weights only load failed. Unsupported global")
    lines = str(report).splitlines()
    assert lines[0] == f"torch.load({model}) by {__name__}: weightmap"
    assert lines[1] == f"torch.load({small}) by {__name__}: is smaller than 1 MiB"


def test_an_open_file_is_mapped_where_it_is_read_as_it_is_from_its_beginning(model, tmp_path):
    packed = tmp_path / "model.pt.gz"
    with gzip.open(packed, "wb", compresslevel=0) as file:
        file.write(model.read_bytes())
    small = tmp_path / "small.pt"
    torch.save({"w": torch.ones(2)}, small)
    with weightmap.patch() as report:
        with open(model, "rb") as file:
            assert is_mapped(torch.load(file)["w"], model)
        for make, why in (
            (lambda: gzip.open(packed), "is a GzipFile, no path"),
            (lambda: open(small, "rb"), "is smaller than 1 MiB"),
            (lambda: open(model, "rb", buffering=0), "is a FileIO, no path"),
        ):
            with make() as file:
                assert not is_mapped(torch.load(file)["w"], model)
            assert report.left[-1].why == why
        with open(model, "rb") as file:
            file.seek(4)
            with pytest.raises(Exception):
                torch.load(file)
    assert report.served == [("torch.load", str(model), __name__, "")]
    assert report.left[-1].why == "is a BufferedReader at byte 4"


def test_what_fsspec_opens_of_a_local_file_is_mapped(model, tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="Lightning opens files by it")
    packed = tmp_path / "model.pt.gz"
    with gzip.open(packed, "wb", compresslevel=0) as file:
        file.write(model.read_bytes())
    files = fsspec.filesystem("file")
    with weightmap.patch() as report:
        with files.open(model, "rb") as file:
            assert is_mapped(torch.load(file, map_location="cpu", weights_only=True)["w"], model)
        with files.open(packed, "rb", compression="gzip") as file:
            assert not is_mapped(torch.load(file)["w"], model)
    assert [call.file for call in report.served] == [str(model)]
    assert report.left[0].why in ("is a LocalFileOpener, no path", "is a GzipFile, no path")


def test_what_weightmap_refuses_is_refused_in_torchs_words(tmp_path):
    torn = tmp_path / "torn.pt"
    torn.write_bytes(b"PK\x03\x04" + bytes(2 * LARGE))
    with pytest.raises(Exception) as by_torch:
        torch.load(torn)
    with weightmap.patch():
        with pytest.raises(type(by_torch.value)) as patched:
            torch.load(torn)
        with pytest.raises(FileNotFoundError):
            torch.load(tmp_path / "missing.pt")
    assert str(patched.value) == str(by_torch.value)


def test_a_save_does_not_cut_what_is_mapped(model):
    with weightmap.patch() as report:
        state = torch.load(model)
        state["step"] = 5
        torch.save(state, model)
        assert float(state["w"][-1]) == 16 * LARGE / 4 - 1
        torch.save(state, model, pickle_protocol=4)  # which weightmap does not write
        assert float(state["w"][-1]) == 16 * LARGE / 4 - 1
    assert [call.function for call in report.served] == ["torch.load", "torch.save"]
    assert [call.function for call in report.left] == ["torch.save"]
    assert torch.load(model, weights_only=False)["step"] == 5


UNSAVEABLE = {"f": lambda: 0}


def test_a_save_that_fails_leaves_the_file(model):
    before = model.read_bytes()
    with weightmap.patch() as report:
        with pytest.raises(Exception, match="pickle"):
            torch.save(UNSAVEABLE, model)
    assert model.read_bytes() == before
    assert os.listdir(model.parent) == [model.name]
    assert [call.function for call in report.left] == ["torch.save"]


def test_what_torch_saves_takes_the_place_of_the_file(model):
    linked = model.with_name("linked.bin")
    linked.symlink_to(model.name)
    model.chmod(0o640)
    with weightmap.patch():
        torch.save({"w": torch.ones(2)}, linked, _use_new_zipfile_serialization=False)
    assert linked.is_symlink() and model.stat().st_mode & 0o777 == 0o640
    assert torch.load(model)["w"].tolist() == [1, 1]


def test_a_save_is_refused_where_nothing_can_be_written_beside_the_file(model, monkeypatch):
    before = model.read_bytes()

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    with weightmap.patch():
        monkeypatch.setattr(os, "mkdir", refuse)
        monkeypatch.setattr(os, "unlink", refuse)
        with pytest.raises(weightmap.FileError, match="cannot write beside it: Permission denied"):
            torch.save({}, model, _use_new_zipfile_serialization=False)
    assert model.read_bytes() == before


KILLED = """
import os, signal, sys, torch, weightmap
class Killer:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)
with weightmap.patch():
    torch.save({"new": torch.zeros(1 << 20), "killer": Killer()}, sys.argv[1],
               _use_new_zipfile_serialization=False)
"""


def patched_save(value, path):
    with weightmap.patch():
        torch.save(value, path, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("save, name", [
    (patched_save, "pytorch_model.bin"), (weightmap.torch.save, "pytorch_model.bin"),
    (weightmap.save, "pytorch_model.bin"), (weightmap.save_safetensors, "model.safetensors"),
])
def test_what_a_killed_save_left_is_removed_by_any_other(model, python, save, name):
    before = model.read_bytes()
    target = model.with_name(name)
    assert python(KILLED, target).returncode == -signal.SIGKILL
    assert model.read_bytes() == before
    assert len(os.listdir(model.parent)) == 2
    save({"w": torch.ones(2)}, target)
    assert {*os.listdir(model.parent)} == {model.name, name}


@pytest.mark.parametrize("options", [{}, {"pickle_protocol": 4}])
def test_a_path_with_a_nul_is_refused(tmp_path, options):
    with weightmap.patch():
        with pytest.raises(weightmap.Error):
            torch.save({}, f"{tmp_path}/a\0b", **options)
    with pytest.raises(weightmap.InvalidArgumentError, match="NUL"):
        weightmap.replacing("a\0b")


def test_blocks_of_both_kinds_may_overlap(model):
    original, own_save = torch.load, torch.save
    with weightmap.patch(files="mmap") as outer:
        with weightmap.patch() as inner:
            assert is_mapped(torch.load(model)["w"], model)
        assert torch.save is own_save
        assert not is_mapped(torch.load(model)["w"], model)
        assert is_mapped(torch.load(model, mmap=True)["w"], model)
    assert torch.load is original
    assert [call.why for call in inner.calls] == [""]
    assert [call.why for call in outer.calls] == ["", "does not ask for mmap", ""]


def test_save_may_be_left_alone():
    own = torch.save
    with weightmap.patch(save=False):
        assert torch.save is own


def test_other_words_for_files_are_refused():
    with pytest.raises(weightmap.InvalidArgumentError, match="files is 'some', expected"):
        with weightmap.patch(files="some"):
            pass


def test_the_setting_says_what_kind_of_tensors_there_are(model):
    with weightmap.config.override("load.copy_on_write", False), weightmap.patch():
        state = torch.load(model)
    assert {mapping["permissions"] for mapping in mappings_of(model)} == {"r--s"}
    assert is_mapped(state["w"], model)


# --- weightmap.patch() ------------------------------------------------------------------------


@pytest.mark.parametrize("inner, mode", [(None, "r--s"), (True, "rw-p")])
def test_settings_travel_with_the_block_into_threads(model, shard, inner, mode, package):
    def modes():
        with weightmap.config.override({} if inner is None else {"load.copy_on_write": inner}):
            state = torch.load(model)
            with package.safe_open(shard, framework="pt") as opened:
                tensors = state["w"], opened.get_tensor("a")
        return [permissions(tensor) for tensor in tensors]

    with weightmap.config.override("load.copy_on_write", False), weightmap.patch():
        with weightmap.patch(), concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert pool.submit(modes).result() == [mode, mode]


class Beside:
    """A thread that runs already, and calls what it is given."""

    def __init__(self):
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.call(int)

    def call(self, function, *arguments):
        return self.pool.submit(function, *arguments).result()


def test_settings_reach_no_thread_that_runs_beside_the_block(model, shard, package):
    def modes():
        with package.safe_open(shard, framework="pt") as opened:
            tensors = torch.load(model)["w"], opened.get_tensor("a")
        return [permissions(tensor) for tensor in tensors]

    def started():
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(modes).result()

    start = threading.Thread.start
    before, other = Beside(), Beside()
    with weightmap.config.override("load.copy_on_write", False), weightmap.patch():
        assert started() == modes() == ["r--s", "r--s"]
        assert before.call(modes) == before.call(started) == ["rw-p", "rw-p"]
        inner = other.call(lambda: weightmap.patch())
        other.call(inner.__enter__)
        assert other.call(modes) == ["rw-p", "rw-p"] and modes() == ["r--s", "r--s"]
        other.call(inner.__exit__, None, None, None)
    assert threading.Thread.start is start


def test_safe_open_is_weightmaps_wherever_it_was_imported_to(shard, safetensors, package):
    original = package.safe_open
    with weightmap.patch() as report:
        assert package.safe_open is safetensors.safe_open is not original
        assert package._safetensors_rust.safe_open is package.safe_open
        loaded = safetensors.load_file(shard)
        with package.safe_open(shard, framework="pt", device="cpu") as opened:
            assert type(opened) is weightmap.SafeOpen
            assert opened.metadata() == {"format": "pt"}
            assert list(opened.keys()) == ["a", "b"]
            part = opened.get_slice("a")[2:4]
    assert package.safe_open is safetensors.safe_open is package._safetensors_rust.safe_open
    assert package.safe_open is original
    assert loaded["a"].tolist() == list(range(8)) and part.tolist() == [2, 3]
    assert is_mapped(loaded["a"], shard)
    assert [call.function for call in report.served] == ["safe_open", "safe_open"]
    assert report.served[0].by == __name__


def test_safe_open_is_a_class_as_ever(shard, package):
    with package.safe_open(shard, framework="pt") as own, weightmap.patch():
        with package.safe_open(shard, framework="pt") as opened:
            assert isinstance(opened, package.safe_open)
        assert isinstance(own, package.safe_open) and type(own) is not type(opened)
        assert not isinstance(shard, package.safe_open)


def test_a_child_that_is_forked_in_the_midst_of_a_call_loads(model, shard, package):
    from weightmap._patching.report import lock

    ended = []
    with weightmap.patch() as report:
        held, done = threading.Event(), threading.Event()

        def hold():
            with lock():
                held.set()
                done.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        child = os.fork()
        if child == 0:
            try:
                package.safe_open(shard, framework="pt")
                torch.load(model)
                os._exit(len(report.served))
            finally:
                os._exit(100)
        ended = os.waitpid(child, 0)
        done.set()
        holder.join()
    assert os.waitstatus_to_exitcode(ended[1]) == 2


def test_reports_are_read_while_threads_load(shard, package):
    with weightmap.patch() as report, concurrent.futures.ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(package.safe_open, shard, "pt") for _ in range(2000)]
        while not all(load.done() for load in loads):
            assert len(report.served) + len(report.left) >= 0 and str(report).count("x") >= 0
    assert len(report.served) == 2000


def test_safe_open_takes_files_of_torch_too(model, safetensors):
    with weightmap.patch():
        loaded = safetensors.load_file(model)
    assert float(loaded["w"][7]) == 7


def test_numpy_arrays_and_models(shard, safetensors):
    numpy = pytest.importorskip("safetensors.numpy", reason="this test patches it")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (torch.nn.Parameter(torch.zeros(n)) for n in (8, 3))

    module = Model()
    with weightmap.patch() as report:
        assert numpy.load_file(shard)["b"].tolist() == [1, 1, 1]
        assert safetensors.load_model(module, str(shard)) == (set(), [])
    assert module.a.tolist() == list(range(8))
    assert len(report.served) == 2 and not report.left


def test_what_weightmap_refuses_goes_to_safetensors(tmp_path, shard, package):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\xff" * 64)
    with weightmap.patch() as report:
        with pytest.raises(package.SafetensorError) as error:
            package.safe_open(broken, framework="pt")
        with pytest.raises(FileNotFoundError):
            package.safe_open(tmp_path / "missing.safetensors", framework="pt")
        with pytest.raises(Exception, match="framework"):
            package.safe_open(shard, framework="jaxx")
    assert not isinstance(error.value, weightmap.Error)
    assert [call.file for call in report.left] == [
        str(broken), str(tmp_path / "missing.safetensors"), str(shard),
    ]
    assert all(call.why for call in report.left)


def test_blocks_end_in_any_order(package):
    originals = package.safe_open, torch.load
    first, second = weightmap.patch(), weightmap.patch()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert package.safe_open is not originals[0] and torch.load is not originals[1]
    second.__exit__(None, None, None)
    assert (package.safe_open, torch.load) == originals and torch.serialization.load is torch.load


def test_a_function_that_outlives_its_block_still_opens(tmp_path, shard, package):
    with weightmap.patch():
        kept = package.safe_open
    assert list(kept(shard, framework="pt").keys()) == ["a", "b"]
    with pytest.raises(FileNotFoundError):
        kept(tmp_path / "missing.safetensors", framework="pt")


# --- accelerate -------------------------------------------------------------------------------


LAYERS, WIDTH = 4, 2048


def layers():
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


@pytest.fixture
def accelerate():
    return pytest.importorskip("accelerate", reason="this test loads with it")


def test_a_bin_file_by_accelerate_costs_less_than_two_percent(tmp_path, accelerate):
    torch.save(layers().state_dict(), tmp_path / "pytorch_model.bin")
    size = (tmp_path / "pytorch_model.bin").stat().st_size

    def loaded():
        with torch.device("meta"):
            module = layers()
        return accelerate.load_checkpoint_and_dispatch(
            module, str(tmp_path / "pytorch_model.bin"), device_map={"": "cpu"}
        )

    with weightmap.patch() as report:
        loaded()  # what is imported is imported now
        before = anonymous_bytes()
        module = loaded()
        with torch.no_grad():
            assert module[0].weight.sum().isfinite()
        grown = anonymous_bytes() - before
    assert is_mapped(module[0].weight, tmp_path / "pytorch_model.bin")
    assert [(call.function, call.by) for call in report.served] == [
        ("torch.load", "accelerate.utils.modeling")] * 2
    assert grown <= 0.02 * size


# --- WEIGHTMAP_PATCH --------------------------------------------------------------------------

PROGRAM = """
import sys
import torch
from safetensors.torch import load_file
state, shard = torch.load(sys.argv[1]), load_file(sys.argv[2])
print(any(sys.argv[1] in line for line in open("/proc/self/maps")), load_file.__globals__["safe_open"].__module__)
"""


@pytest.mark.parametrize("value, patched", [("1", True), ("report", True), ("0", False),
                                            ("", False)])
def test_the_variable_patches_programs_that_know_nothing_of_it(model, shard, run, value, patched):
    ended = run("-c", PROGRAM, model, shard, value=value)
    assert ended.stdout.split() == (["True", "weightmap._patching.patch"] if patched else ["False", "builtins"])
    report = [f"torch.load({model}) by __main__: weightmap",
              f"safe_open({shard}) by __main__: weightmap"] if value == "report" else []
    assert [line for line in ended.stderr.splitlines() if "weightmap" in line] == report


# As of packages that were installed with -e: no folder of sys.path has them.
EDITABLE = """
import os, sys
from importlib.machinery import PathFinder
folders = [folder for folder in sys.path if os.path.isdir(f"{folder}/torch")]
sys.path = [folder for folder in sys.path if folder not in folders]
class Editable:
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, path or folders, target)
sys.meta_path.append(Editable)
"""


@pytest.mark.parametrize("before", [
    "from importlib.util import find_spec; assert find_spec('torch') and find_spec('safetensors')",
    "import transformers",
    "import weightmap.torch",
    "import weightmap\nwith weightmap.patch(): pass",
    EDITABLE,
    "import warnings, importlib.metadata as m; m.version('torch')",
], ids=["find_spec", "transformers", "weightmap.torch", "patch", "editable", "metadata"])
def test_the_variable_outlasts_what_a_program_does_before_it_loads(model, shard, run, before):
    if "transformers" in before:
        pytest.importorskip("transformers", reason="this test imports it first")
    ended = run("-c", before + PROGRAM, model, shard)
    assert ended.stdout.split() == ["True", "weightmap._patching.patch"], ended.stderr


OTHER_FINDER = """
import sys
from importlib.machinery import PathFinder
sys.meta_path.insert(0, PathFinder)
import torch, copy
"""


def test_a_package_that_another_finder_has_imported_is_named_at_the_end(run):
    ended = run("-c", OTHER_FINDER, value="report")
    assert [line for line in ended.stderr.splitlines() if "weightmap" in line] == [
        "weightmap: WEIGHTMAP_PATCH has not patched torch: another finder of modules was put before "
        "weightmap's and imported it"
    ]


def test_a_loader_may_be_copied(run):
    ended = run("-c", "import copy, importlib.util as u; s = u.find_spec('torch').loader;"
                      "print(type(copy.copy(s)) is type(s), copy.copy(s).name)")
    assert ended.stdout == "True torch\n", ended.stderr


STICKING = """
import sys, weightmap
with weightmap.config.override("load.copy_on_write", False):
    import torch
    from safetensors.torch import load_file
    inside = torch.load(sys.argv[1]), load_file(sys.argv[2])
after = torch.load(sys.argv[1]), load_file(sys.argv[2])
def mode(tensor):
    for line in open("/proc/self/maps"):
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= tensor.data_ptr() < end:
            return line.split()[1]
print(*(mode(tensors[name]) for pair in (inside, after) for tensors, name in zip(pair, "wa")))
"""


def test_settings_of_a_block_end_with_it_if_it_imports_torch(model, shard, run):
    ended = run("-c", STICKING, model, shard)
    assert ended.stdout.split() == ["r--s", "r--s", "rw-p", "rw-p"], ended.stderr


def test_isolated_interpreters_are_patched(model, shard, run):
    ended = run("-c", PROGRAM, model, shard, flags=["-I"])
    assert ended.stdout.split() == ["True", "weightmap._patching.patch"], ended.stderr


SPAWNING = """
import multiprocessing, sys
def look(model, shard):
    import torch, safetensors
    print(torch.load.__module__, safetensors.safe_open.__module__, flush=True)
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=look, args=sys.argv[1:])
    child.start()
    child.join()
"""


def test_children_of_multiprocessing_are_patched(tmp_path, model, shard, run):
    (tmp_path / "program.py").write_text(SPAWNING)
    ended = run(tmp_path / "program.py", model, shard)
    assert ended.stdout.split() == ["weightmap._patching.torch_patch", "weightmap._patching.patch"], ended.stderr


@pytest.mark.parametrize("first", ["", "import torch, safetensors"])
def test_without_the_start_file_the_first_import_of_weightmap_patches(python, model, shard, first):
    # A folder on PYTHONPATH is not one whose .pth files are read.
    ended = python(f"{first}\nimport weightmap\n{PROGRAM}", model, shard, WEIGHTMAP_PATCH="1")
    assert ended.stdout.split() == ["True", "weightmap._patching.patch"], ended.stderr


def test_a_torch_that_is_too_old_is_left_alone_aloud(tmp_path, run):
    (tmp_path / "torch.py").write_text("__version__ = '1.0'\n")
    ended = run("-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import torch")
    assert ended.stderr.startswith(
        "weightmap: WEIGHTMAP_PATCH leaves torch alone: weightmap.torch needs torch 2.6"
    )


def test_doctor_says_whether_the_variable_reaches_an_interpreter(environment, start_file):
    if not (pathlib.Path(weightmap.__file__).parent / "bin" / "weightmap").exists():
        pytest.skip("this package was built without the command line tool")
    interpreter, packages = environment

    def doctor():
        command = [interpreter, "-m", "weightmap", "doctor"]
        settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(command, env=settings, capture_output=True, text=True).stdout

    found, advice, way = doctor().splitlines()
    assert found == (
        f"slow     patching       WEIGHTMAP_PATCH does not reach {interpreter}: weightmap_patch.pth "
        "is in no folder whose .pth files it reads"
    )
    by = f"good     torch          torch {torch.__version__} makes tensors by torch._C._from_dlpack"
    assert way == by if torch_version() >= (2, 9) else way.startswith(f"{by}; a newer one has")
    command = advice.partition("do: ")[2]
    assert command == f"cp {start_file} {packages}"
    subprocess.run(command, shell=True, check=True)
    assert doctor().splitlines()[0] == f"good     patching       WEIGHTMAP_PATCH reaches {interpreter}"
    (packages / "weightmap_patch.pth").unlink()


@pytest.mark.parametrize("value, imported", [("", "False"), ("1", "True")])
def test_the_start_file_looks_at_the_variable_only(python, value, imported, start_file):
    line, *_ = start_file.read_text().splitlines()  # of test_template.py, and test_read_ahead.py
    ended = python(f"import sys\n{line}\nprint('weightmap' in sys.modules)", WEIGHTMAP_PATCH=value)
    assert ended.stdout.strip() == imported
