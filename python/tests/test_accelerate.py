"""weightmap.accelerate.offload(): accelerate's hooks over a mapped checkpoint."""

import pytest
from memory_maps import anonymous_bytes, permissions

import weightmap

torch = pytest.importorskip("torch", reason="these tests offload models")
pytest.importorskip("weightmap.torch", reason="this torch is too old")
accelerate = pytest.importorskip("accelerate", reason="these tests offload with it")

WIDTH, LAYERS = 1024, 8
PARTLY = {str(layer): "disk" if layer % 2 else "cpu" for layer in range(LAYERS)}


def layers():
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def empty_layers():
    with accelerate.init_empty_weights():
        return layers()


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A model and its file, alone in the folder that the test runs in."""
    torch.manual_seed(1)
    model = layers()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    monkeypatch.chdir(tmp_path)
    return model, tmp_path / "model.pt"


@torch.no_grad()
def test_an_offloaded_model_answers_the_same_and_no_file_is_written(saved):
    original, path = saved
    model = empty_layers()
    assert weightmap.accelerate.offload(model, path, PARTLY) is model
    assert [model[layer].weight.is_meta for layer in range(4)] == [False, True, False, True]
    entry = torch.ones(2, WIDTH)
    assert torch.equal(model(entry), original(entry))
    assert model[1].weight.is_meta
    assert list(path.parent.iterdir()) == [path]


@torch.no_grad()
def test_a_layer_runs_on_the_mapped_bytes(saved):
    model = weightmap.accelerate.offload(empty_layers(), saved[1], PARTLY)
    seen = []
    # accelerate's hooks are in the module's forward(), so that torch's own come before and after.
    multiply = torch.nn.functional.linear

    def look(entry, weight, bias):
        seen.append(permissions(weight))
        return multiply(entry, weight, bias)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", look)
        model(torch.ones(1, WIDTH))
    assert seen == ["r--s"] * LAYERS


@torch.no_grad()
def test_offloading_costs_less_than_two_percent_of_anonymous_memory(saved):
    path = saved[1]
    entry = torch.ones(1, WIDTH)
    weightmap.accelerate.offload(empty_layers(), path, PARTLY)(entry)  # what is imported is now
    before = anonymous_bytes()
    model = weightmap.accelerate.offload(empty_layers(), path, PARTLY)
    model(entry)
    assert anonymous_bytes() - before <= 0.02 * path.stat().st_size


@torch.no_grad()
def test_a_model_on_one_device_is_mapped_whole(saved):
    original, path = saved
    model = weightmap.accelerate.offload(empty_layers(), path, {"": "cpu"})
    assert {permissions(tensor) for tensor in model.parameters()} == {"r--s"}
    assert torch.equal(model(torch.ones(1, WIDTH)), original(torch.ones(1, WIDTH)))


@torch.no_grad()
def test_options_are_those_of_dispatch_model(saved):
    original, path = saved
    original.register_buffer("scale", torch.ones(2))
    torch.save(original.state_dict(), path)
    model = layers()
    model.register_buffer("scale", torch.zeros(2))
    weightmap.accelerate.offload(model, path, {"": "disk"}, offload_buffers=True)
    assert model.scale.is_meta


def test_a_parameter_in_the_mapping_takes_no_gradient(saved):
    model = weightmap.accelerate.offload(empty_layers(), saved[1], {"": "cpu"})
    with pytest.raises(weightmap.UnsupportedError, match="read-only mapping"):
        model(torch.ones(1, WIDTH)).sum().backward()


def test_names_that_differ_are_refused(saved):
    with pytest.raises(RuntimeError, match='Missing key.*"8.weight"'):
        weightmap.accelerate.offload(empty_layers().append(torch.nn.Linear(2, 2)), saved[1], PARTLY)


def test_without_accelerate_it_is_said(python):
    ended = python(
        "import sys; sys.modules['accelerate'] = None\n"
        "import weightmap\nweightmap.accelerate.offload(None, 'x', {})"
    )
    assert ended.returncode == 1
    assert "needs the package accelerate: pip install accelerate" in ended.stderr


def test_importing_it_imports_neither_torch_nor_accelerate(python):
    ended = python(
        "import sys, weightmap; weightmap.accelerate\n"
        "print('torch' in sys.modules, 'accelerate' in sys.modules)"
    )
    assert ended.stdout == "False False\n"
