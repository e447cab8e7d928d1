"""Runs the programs of examples/python and examples/serving as their users do."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
SERVER = ROOT / "examples" / "serving" / "server.py"
STATE_DICT = ROOT / "tests" / "data" / "state_dict.pt"

sys.path.insert(0, str(ROOT / "tests" / "serving"))
import serving_test  # noqa: E402  the same tests that the server in C++ passes


def run(example, *arguments):
    command = [sys.executable, EXAMPLES / example, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


class TestServer(serving_test.ServerTests):
    command = [sys.executable, SERVER]

    def setUp(self):
        pytest.importorskip("numpy", reason="server.py takes arrays")
        super().setUp()


def test_quickstart_lists_and_shows():
    pytest.importorskip("numpy", reason="quickstart.py takes an array")
    done = run("quickstart.py", STATE_DICT, "embedding.weight")
    assert done.stderr == ""
    assert done.stdout == (
        "embedding.weight float32 [6, 4]\n"
        "layers.0.weight bfloat16 [4, 4]\n"
        "layers.0.bias float16 [4]\n"
        "layers.1.weight float64 [4, 4]\n"
        "layers.1.mask bool [2, 2]\n"
        "steps int64 []\n"
        "position_ids int32 [1, 6]\n"
        "the first rows of embedding.weight, writable: False\n"
        "[[0. 1. 2. 3.]\n"
        " [4. 5. 6. 7.]]\n"
    )
    assert done.returncode == 0


def test_torch_state_gives_a_model_its_weights():
    pytest.importorskip("torch", reason="torch_state.py is about a torch model")
    done = run("torch_state.py")
    assert done.stderr == ""
    assert done.stdout == (
        "without memory at first: True\n"
        "loaded: 0.weight, 1.weight, 1.bias, 3.weight, 3.bias\n"
        "the model's weights are the mapped tensors: True\n"
        "the same answers: True\n"
    )
    assert done.returncode == 0
