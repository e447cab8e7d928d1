"""The README and docs/python.md show what there is."""

from __future__ import annotations

import argparse
import pathlib
import re

import pytest

import weightmap

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_lines_for_torch_in_the_readme_run(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="runs what the README shows for torch")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = next(block for block in blocks if "weightmap.patch" in block)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(lines, names)
    saved = torch.load("model.pt")["weight"]
    assert torch.equal(names["rows"], saved[:1024])
    assert torch.equal(names["same"], saved[:1024])
    assert torch.equal(names["state"]["weight"], saved)
    assert torch.equal(names["model"].weight, saved)


def test_the_lines_for_a_training_checkpoint_in_the_readme_run(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="runs what the README shows for torch")
    numpy = pytest.importorskip("numpy", reason="runs what the README shows for numpy")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = "".join(block for block in blocks if "train.pt" in block)
    monkeypatch.chdir(tmp_path)
    arguments = argparse.Namespace(lr=0.5)
    random = numpy.random.get_state()
    state = {"epoch": 3, "args": arguments, "numpy": random, "model": {"w": torch.ones(2)}}
    torch.save(state, "train.pt")
    names = {"weightmap": weightmap}
    exec(lines, names)
    assert names["checkpoint"].root()["args"].lr == 0.5
    saved = torch.load("train.pt", weights_only=False)
    assert (saved["epoch"], saved["args"]) == (4, arguments)
    assert numpy.array_equal(saved["numpy"][1], random[1])
    torch.nn.ParameterDict({"w": torch.zeros(2)}).load_state_dict(names["run"]["model"])
    assert list(names["model"]) == ["w"]
    assert torch.equal(names["model"]["w"], torch.ones(2))


def test_the_manual_names_every_exception_and_setting():
    manual = (ROOT / "docs" / "python.md").read_text()
    exceptions = [name for name in weightmap.__all__ if name.endswith("Error")]
    assert len(exceptions) == 13
    for name in exceptions:
        assert f"`{name}`" in manual, name
    options = (ROOT / "docs" / "options.md").read_text()
    for name in dir(weightmap.config.load):
        assert f"`{name}`" in options, name


def test_the_reference_has_every_public_name():
    reference = (ROOT / "docs" / "api" / "weightmap.md").read_text()
    names = {name for name in weightmap.__all__ if name not in ("__version__", "config")}
    assert set(re.findall(r"^::: weightmap\.(\w+)$", reference, re.MULTILINE)) == names


def test_the_manual_names_every_public_attribute_of_a_tensor():
    manual = (ROOT / "docs" / "python.md").read_text()
    public = [name for name in dir(weightmap.Tensor) if not name.startswith("_")]
    missing = [name for name in public if not re.search(rf"\.{name}\b", manual)]
    assert missing == []


def test_the_manual_names_every_field_of_a_residency():
    manual = (ROOT / "docs" / "python.md").read_text()
    fields = {*weightmap.reports.Residency.__match_args__, *weightmap.reports.RangeResidency.__match_args__}
    assert len(fields) == 15
    assert [name for name in sorted(fields) if f"`.{name}`" not in manual] == []
