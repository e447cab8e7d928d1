"""examples/patches: the lines with which a library loads through weightmap where it is installed, as
patches of released versions. Each runs in a copy of the installed package.
"""
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="these libraries use torch")
pytest.importorskip("weightmap.torch", reason="this torch is too old")

PATCHES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "patches"
LOADS = {
    "accelerate": "from accelerate.utils.modeling import load_state_dict as load",
    "lightning_fabric": "from lightning_fabric.utilities.cloud_io import _load as load",
}
# Prints the file that the library comes from, whether the tensor lies in a mapping of the file, and
# whether its values are those that were saved.
PROGRAM = """
import sys
if sys.argv[2] == "without":
    sys.modules["weightmap"] = None
    import importlib.util
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name: None if name == "weightmap" else find(name)
{load}
import torch
state = load(sys.argv[1])
print(sys.modules[load.__module__].__file__)
print(any(sys.argv[1] in line for line in open("/proc/self/maps")))
print(torch.equal(state["w"], torch.arange(1 << 20, dtype=torch.float32)))
"""


def patch_of(package):
    (found,) = PATCHES.glob(f"{package}-*.patch")
    return found


@pytest.fixture(params=LOADS)
def patched(request, tmp_path):
    """The name of a library, and the folder that has its patched copy."""
    package, patch = request.param, patch_of(request.param)
    version = patch.stem.partition("-")[2]
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        installed = "not"
    if installed != version:
        pytest.skip(f"the patch is for {package} {version}, which is {installed} installed")
    source = importlib.util.find_spec(package).submodule_search_locations[0]
    shutil.copytree(source, tmp_path / "copy" / package,
                    ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", "--unidiff-zero", patch], cwd=tmp_path / "copy", check=True)
    return package, tmp_path / "copy"


@pytest.mark.parametrize("weightmap", ["with", "without"])
def test_a_patched_library_maps_the_file_where_weightmap_is_installed(
    patched, tmp_path, weightmap
):
    package, folder = patched
    file = tmp_path / "pytorch_model.bin"
    torch.save({"w": torch.arange(1 << 20, dtype=torch.float32)}, file)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(load=LOADS[package]), file, weightmap],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])},
        capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    place, is_mapped, is_equal = ran.stdout.splitlines()
    assert place.startswith(f"{folder}/")
    assert is_mapped == str(weightmap == "with")
    assert is_equal == "True"


@pytest.mark.parametrize("package", LOADS)
def test_a_patch_adds_at_most_ten_lines(package):
    lines = patch_of(package).read_text().splitlines()
    changes = [line[0] for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changes.count("-") == 0
    assert changes.count("+") <= 10
