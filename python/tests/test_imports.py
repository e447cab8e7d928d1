"""What the package imports, what it does without its optional packages, and python -m weightmap."""

import ast
import os
import signal
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import weightmap
from weightmap.__main__ import main

# Makes packages look as if they were not installed: put before a program.
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture
def without(python, data):
    """Runs a program with the path of views.pt, where some packages are not installed."""

    def run(blocked, program, file="views.pt"):
        ran = python(BLOCKER.format(blocked=blocked) + program, data / file)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


# --- what is imported -------------------------------------------------------------------------


SLOW = ("dataclasses", "typing", "inspect", "pickle", "re", "contextlib", "importlib.metadata")


# What a program does, and what it does not import for that.
LIGHT = {
    "opening and reading": ("""
with weightmap.open(sys.argv[1]) as opened:
    opened["base"][1:].tobytes(), opened.info, opened.stats, opened.paths(), opened.root()
""", SLOW),
    "what others take": ("""
with weightmap.open(sys.argv[1]) as opened:
    opened["base"].buffer(), repr(opened["base"]), opened["base"].__array_interface__
    opened["base"].__dlpack__(max_version=(1, 0)), opened["base"].bits()
""", ("torch", "numpy", "ml_dtypes")),
    "arrays": ("""
with weightmap.open(sys.argv[1]) as opened:
    assert opened["base"].numpy()[1, 1] == 7
with weightmap.safe_open(sys.argv[1], framework="np") as opened:
    assert opened.get_tensor("base")[1, 2] == 8
""", ("torch", "ml_dtypes")),
    "weightmap.remote": ("from weightmap import remote",
                         ("weightmap._curl", "obstore", "fsspec", "pyarrow")),
}


@pytest.mark.parametrize("name", LIGHT)
def test_does_not_import(python, data, name):
    if name == "arrays":
        pytest.importorskip("numpy", reason="takes numpy arrays")
    does, not_imported = LIGHT[name]
    program = f"""
import sys
before = set(sys.modules)
import weightmap
{does}
print(sorted({set(not_imported)!r} & (set(sys.modules) - before)))
"""
    ran = python(program, data / "views.pt")
    assert ran.stdout == "[]\n", ran.stderr


def test_importing_gives_no_warning(python):
    ran = python("import warnings; warnings.simplefilter('error'); import weightmap")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_is_imported_on_demand_is_there_as_ever(python):
    program = """
import weightmap
listed = dir(weightmap)
from weightmap import Global, SafeOpen, StagedFile, processes, reports, safe_open, stage
assert weightmap.stage is stage and weightmap.Global is Global
assert weightmap.reports.PatchReport.__name__ == "PatchReport"
print(set(weightmap.__all__) <= set(listed), set(listed) <= set(dir(weightmap)))
"""
    ran = python(program)
    assert ran.stdout == "True True\n", ran.stderr


def test_weightmap_torch_is_imported_when_asked_for(python):
    pytest.importorskip("torch", reason="imports weightmap.torch")
    program = """
import sys, weightmap
assert "torch" not in sys.modules
print(weightmap.torch.load.__name__, "torch" in sys.modules)
"""
    ran = python(program)
    assert ran.stdout == "load True\n", ran.stderr


def imports_of(file, modules):
    """Which of the package's modules a file imports: at once, in functions and for type checkers."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in modules)
        elif isinstance(node, ast.ImportFrom):
            inside = {f"{node.module}.{name.name}" for name in node.names} & modules
            yield from inside or {node.module} & modules


def test_no_two_modules_import_one_another():
    root = Path(weightmap.__file__).parent
    files = {
        ".".join(file.relative_to(root.parent).with_suffix("").parts): file
        for file in root.rglob("*.py")
        if file.name != "__init__.py"
    }
    left = {name: set(imports_of(file, files.keys())) for name, file in files.items()}
    while leaves := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in leaves}
    assert left == {}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'weightmap' has no attribute 'nothing'"):
        weightmap.nothing
    assert not hasattr(weightmap, "jax")


def test_exports_what_it_says():
    for module in (weightmap, weightmap.remote, weightmap.reports):
        for name in module.__all__:
            assert getattr(module, name) is not None
        assert module.__all__ == sorted(set(module.__all__))


def test_has_one_version(data):
    text = (data.parents[1] / "CMakeLists.txt").read_text()
    assert f"VERSION {weightmap.__version__}" in text


# --- without optional packages ----------------------------------------------------------------


def test_without_any_package_the_bytes_are_still_there(without):
    program = """
import weightmap
with weightmap.open(sys.argv[1]) as opened:
    tensor = opened["base"]
    print(len(opened), tensor[1].tobytes().hex()[:16], tensor.buffer().tolist()[3][5])
    print(opened.root()["base"].shape)
"""
    assert without(["torch", "numpy", "ml_dtypes"], program) == "12 0000c0400000e040 23.0\n(4, 6)\n"


# The call, the packages that are missing, and the word that the error must have.
NEEDS = [
    ('opened["base"].numpy()', ["numpy"], "numpy"),
    ('opened["base"].__array__()', ["numpy"], "numpy"),
    ('opened["base"][4:].numpy()', ["numpy"], "numpy"),
    ('opened["base"].torch()', ["torch"], "torch"),
    ('weightmap.safe_open(sys.argv[1], "np").get_tensor("base")', ["numpy"], "numpy"),
    ('weightmap.safe_open(sys.argv[1], "pt").get_tensor("base")', ["torch"], "torch"),
    ('weightmap.safe_open(sys.argv[1], "pt").get_slice("base")[0]', ["torch"], "torch"),
    ("weightmap.torch.load(sys.argv[1])", ["torch"], "torch"),
    ("weightmap.torch", ["torch"], "torch"),
]


@pytest.mark.parametrize(("call", "blocked", "package"), NEEDS)
def test_what_needs_a_missing_package_says_which(without, call, blocked, package):
    program = f"""
import weightmap
opened = weightmap.open(sys.argv[1])
for _ in range(2):  # the second time as well
    try:
        {call}
    except ImportError as error:
        print(type(error).__name__, error)
"""
    lines = without(blocked, program).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("MissingPackageError ")
        assert f"pip install {package}" in line


def test_without_ml_dtypes_only_its_types_are_missing(without):
    pytest.importorskip("numpy", reason="takes numpy arrays")
    program = """
import weightmap
opened = weightmap.open(sys.argv[1])
print(opened["float16"].numpy().tolist(), opened["bfloat16"].bits().numpy()[0])
for name in ("bfloat16", "float8_e4m3fn"):
    try:
        opened[name].numpy()
    except weightmap.MissingPackageError as error:
        print(error)
"""
    first, *others = without(["ml_dtypes"], program, "dtypes.pt").splitlines()
    assert first == "[1.0, 2.0, 3.0, 4.0, 5.0] 16256"
    for name, line in zip(("bfloat16", "float8_e4m3fn"), others, strict=True):
        assert name in line and "pip install ml_dtypes" in line


def test_without_torch_a_star_import_names_the_rest(without):
    program = """
from weightmap import *
print(safe_open.__name__, Error.__name__)
"""
    assert without(["torch"], program) == "safe_open Error\n"


# --- python -m weightmap ----------------------------------------------------------------------


@pytest.fixture
def tool(python):
    """Runs python -m weightmap with these arguments."""
    return lambda *arguments, **options: python(None, "-m", "weightmap", *arguments, **options)


def test_the_tool_lists_tensors(tool, data):
    ran = tool("ls", data / "state_dict.pt")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0].split() == ["NAME", "DTYPE", "SHAPE", "SIZE"]
    words = ["embedding.weight", "float32", "[6,", "4]", "96", "B"]
    assert ran.stdout.splitlines()[1].split() == words
    assert ran.stdout.splitlines()[-1] == "7 tensors, 7 storages, 300 B"


def test_bench_measures_with_the_interpreter_that_it_is_called_by(tool, tmp_path):
    pytest.importorskip("torch", reason="is what bench looks for")
    ran = tool("bench", "--list", PATH=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert f"torch.load(mmap=True) {metadata.version('torch')}" in ran.stdout
    other = tmp_path / "none"
    ran = tool("bench", "--list", f"--python={other}", PATH=str(tmp_path))
    assert f"cannot run {other}" in ran.stdout


@pytest.mark.parametrize("arguments, becomes", [
    (["doctor", "a.pt"], ["doctor", "--python", "{}", "a.pt"]),
    (["doctor"], ["doctor", "--python", "{}"]),
    (["doctor", "--", "a", "--python", "b"], ["doctor", "--", "a", "--python", "b"]),
    (["doctor", "--ready", "1s", "--", "a"], ["doctor", "--ready", "1s", "--", "a"]),
    (["doctor", "--python=b", "a.pt"], ["doctor", "--python=b", "a.pt"]),
    (["bench", "a.pt"], ["bench", "--python", "{}", "a.pt"]),
    (["bench", "--remote", "http://h/a.pt"], ["bench", "--remote", "http://h/a.pt"]),
    (["bench", "--remote=http://h/a.pt"], ["bench", "--remote=http://h/a.pt"]),
    (["bench", "--start", "--", "a", "--python", "b"],
     ["bench", "--python", "{}", "--start", "--", "a", "--python", "b"]),
    (["run", "--", "doctor"], ["run", "--", "doctor"]),
    ([], []),
])
def test_the_tool_gets_this_interpreter_where_it_takes_one(monkeypatch, arguments, becomes):
    called = []
    monkeypatch.setattr(os, "execv", lambda _path, words: called.extend(words))
    defaults = []  # not set here, or a closed connection would end this process
    monkeypatch.setattr(signal, "signal", lambda number, _handler: defaults.append(number))
    monkeypatch.setattr(sys, "argv", ["weightmap", *arguments])
    main()
    assert defaults == [signal.SIGPIPE, signal.SIGXFSZ]
    assert called == ["weightmap", *(sys.executable if word == "{}" else word for word in becomes)]


@pytest.mark.parametrize("arguments, status", [(["ls", "missing.pt"], 1), (["frobnicate"], 2)])
def test_the_tool_ends_with_its_own_status(tool, arguments, status):
    ran = tool(*arguments)
    assert (ran.returncode, ran.stdout) == (status, "")
    assert ran.stderr.startswith("weightmap: ")


def test_the_tool_calls_itself_weightmap(tool):
    ran = tool("--help")
    assert ran.returncode == 0
    assert "weightmap" in ran.stdout and "__main__" not in ran.stdout


def test_the_tool_writes_bytes_as_they_are(tool, data, tmp_path):
    target = tmp_path / "base.bin"
    ran = tool("cat", "--raw", "-o", target, data / "views.pt", "base")
    assert ran.returncode == 0, ran.stderr
    with weightmap.open(data / "views.pt") as opened:
        assert target.read_bytes() == opened["base"].tobytes()


def test_the_tool_needs_no_optional_package(data, python):
    program = BLOCKER.format(blocked=["torch", "numpy"]) + """
import runpy
sys.argv[0:1] = ["weightmap"]
runpy.run_module("weightmap", run_name="__main__")
"""
    ran = python(program, "ls", data / "views.pt")
    assert ran.stdout.endswith("12 tensors, 2 storages, 696 B\n"), ran.stderr


def test_the_tool_reads_arguments_that_are_not_text(tmp_path, data):
    folder = os.fsencode(tmp_path)
    path = folder + b"/\xff.pt"
    with open(path, "wb") as target:
        target.write((data / "views.pt").read_bytes())
    found_in = str(Path(weightmap.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-m", "weightmap", "ls", path],
        env={**os.environ, "PYTHONPATH": found_in},
        capture_output=True,
    )
    assert ran.returncode == 0
    assert ran.stdout.endswith(b"12 tensors, 2 storages, 696 B\n")


def test_is_typed():
    assert resources.files("weightmap").joinpath("py.typed").is_file()


def test_an_installed_package_has_its_metadata():
    try:
        found = metadata.distribution("weightmap")
    except metadata.PackageNotFoundError:
        pytest.skip("the package is on the path and not installed, so it has no metadata")
    assert found.version == weightmap.__version__
    assert sorted((entry.group, entry.name, entry.value) for entry in found.entry_points) == [
        ("console_scripts", "weightmap", "weightmap.__main__:main"),
        ("sglang.srt.plugins", "weightmap", "weightmap.sglang:register"),
        ("vllm.general_plugins", "weightmap", "weightmap.vllm:register"),
    ]
    assert not [need for need in found.requires or [] if "extra ==" not in need]


IN_A_SUBINTERPRETER = """
import sys
import _xxsubinterpreters as interpreters
import weightmap
code = '''
import sys
sys.path[:0] = PATHS
try:
    import weightmap
except ImportError as error:
    assert str(error) == "weightmap works in the main interpreter only", error
else:
    raise AssertionError("it was imported")
'''
one = interpreters.create()
interpreters.run_string(one, code.replace("PATHS", repr(sys.path)))
interpreters.destroy(one)
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself refuses it")
def test_a_subinterpreter_cannot_import_it(python):
    run = python(IN_A_SUBINTERPRETER)
    assert run.returncode == 0, run.stderr


# --- torch's private names --------------------------------------------------------------------


def private_names_of_torch(source):
    """What a module takes from torch that begins with an underscore."""
    for node in ast.walk(ast.parse(source)):
        parts = []
        if isinstance(node, ast.ImportFrom):
            parts = [*str(node.module).split("."), *(alias.name for alias in node.names)]
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.insert(0, node.id)
        if parts[:1] and parts[0] in ("torch", "serialization", "unpickler"):
            yield from (part for part in parts if part.startswith("_") and part[1] != "_")


def test_private_names_of_torch_are_in_one_module():
    package = Path(weightmap.__file__).parent
    found = {str(path.relative_to(package)): [*private_names_of_torch(path.read_text())]
             for path in package.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}
    assert [*private_names_of_torch("from torch import _utils")] == ["_utils"]
    assert {*private_names_of_torch("torch._utils.f(x)._y")} == {"_utils"}
