"""bench/gpu_check.py, with the driver that has no device: fake_cuda.py."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "gpu_check.py"


@pytest.fixture
def check(cuda_library, tmp_path):
    """Runs the script on a file of 1 MiB."""

    def run(*options):
        return subprocess.run(
            [sys.executable, SCRIPT, "--file", tmp_path / "model.safetensors", "--gib", "0.001",
             "--library", cuda_library, "--rounds", "2", "--contenders", "link",
             "mapping", "registered", "slots", *options],
            capture_output=True, text=True)

    return run


def cells(lines):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_way_of_the_device_has_a_rate_and_the_others_a_reason(check):
    ran = check()
    assert ran.returncode == 0, ran.stderr
    rows = {(row[0], row[1]): row[2:] for row in cells(ran.stdout.splitlines()[2:])}
    for count in ("1", "2"):
        rate, share, calls, registrations, note = rows["slots", count]
        assert float(rate.split()[0]) > 0 and float(share.split()[0]) > 0
        assert int(calls) > 64 and registrations == "0" and note == ""
        assert rows["link", count][1] == ""
        for refused in ("mapping", "registered"):
            assert rows[refused, count][:2] == ["", ""]
            assert rows[refused, count][4].startswith("refused: ")


def test_the_table_goes_between_the_markers(check, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n<!-- measured gpu: begin -->\nNothing.\n<!-- measured gpu: end -->\nEnd\n")
    assert check("--write", page).returncode == 0
    lines = page.read_text().splitlines()
    assert lines[:2] == ["# Page", "<!-- measured gpu: begin -->"]
    assert lines[-2:] == ["<!-- measured gpu: end -->", "End"]
    assert any(line.startswith("| slots |") for line in lines) and "Nothing." not in lines


def test_a_page_without_markers_is_wrong_usage(check, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n")
    ran = check("--write", page)
    assert ran.returncode == 2 and "measured gpu: begin" in ran.stderr


def test_other_bytes_on_the_device_are_an_error(tmp_path):
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        gpu_check = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(gpu_check)
    finally:
        sys.path.remove(str(SCRIPT.parent))

    class Tensor:
        def __init__(self, data):
            self.data = data

        def tobytes(self):
            return self.data

    class OneByteOff(gpu_check.Upload):
        def __init__(self):
            self._library = ""
            self._checkpoint = {"w": Tensor(b"abc")}
            self._uploader = self

        def upload(self, checkpoint):
            return [("w", Tensor(b"abd"))]

    class Driver:
        def __init__(self, library):
            pass

        def bytes_of(self, tensor):
            return tensor.data

    gpu_check.Driver = Driver
    with pytest.raises(gpu_check.Mismatch, match="'w' has other bytes on the device"):
        OneByteOff().check()
