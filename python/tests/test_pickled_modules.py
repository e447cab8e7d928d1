"""Whole pickled modules: their tensors have the names that state_dict() gives them."""

import collections

import pytest
import torch

import weightmap


class Net(torch.nn.Module):
    """As torchvision's: blocks, a list, a dict, a buffer, a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Identity()])
        self.heads = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 2), "b": torch.nn.ReLU()})
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.several = torch.nn.ParameterList([torch.ones(2), torch.zeros(3)])
        self.named = torch.nn.ParameterDict({"x": torch.ones(5)})
        self.register_parameter("absent", None)
        self.register_buffer("steps", torch.tensor(3))
        self.register_buffer("gone", None)


class Cached(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 3)
        self.register_buffer("kept", torch.arange(3.0))
        self.register_buffer("cache", torch.arange(4.0) + 7, persistent=False)


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.again = self.head


class Hidden(torch.nn.Module):
    """Has tensors that state_dict() does not know: one that aliases, one that is its own."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 3)
        self.transposed = self.layer.weight.detach().t()
        self.layers = [self.layer]
        self.anchors = torch.arange(6.0)
        self.sizes = {"small": self.anchors, "large": torch.ones(2)}


def sparse():
    made = Cached()
    made.register_buffer("sparse", torch.eye(3).to_sparse())
    return made


MODULES = {
    "linear": lambda: torch.nn.Linear(3, 2),
    "no_bias": lambda: torch.nn.Linear(3, 2, bias=False),
    "lstm": lambda: torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True),
    "gru": lambda: torch.nn.GRU(3, 4),
    "batch_norm": lambda: torch.nn.BatchNorm1d(4),
    "attention": lambda: torch.nn.MultiheadAttention(8, 2),
    "attention_of_others": lambda: torch.nn.MultiheadAttention(8, 2, kdim=4, vdim=6),
    "transformer": lambda: torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False
    ),
    "sequential": lambda: torch.nn.Sequential(
        collections.OrderedDict(first=torch.nn.Linear(2, 2), second=torch.nn.Linear(2, 1))
    ),
    "net": Net,
    "not_persistent": Cached,
    "tied": Tied,
    "parallel": lambda: torch.nn.DataParallel(Net()),
    "spectral": lambda: torch.nn.utils.spectral_norm(torch.nn.Linear(3, 2)),
}
ways = pytest.mark.parametrize("zipped", [True, False], ids=["archive", "stream"])


@ways
@pytest.mark.parametrize("kind", MODULES)
def test_names_are_those_of_the_state_dict(tmp_path, kind, zipped):
    module, path = MODULES[kind](), tmp_path / "module.pt"
    state = module.state_dict()
    for saved, prefix in ((module, ""), ({"epoch": 1, "model": module, "ema": None}, "model.")):
        torch.save(saved, path, _use_new_zipfile_serialization=zipped)
        checkpoint = weightmap.open(path)
        extra = ["weight"] if kind == "spectral" else []  # computed, kept as an attribute
        assert list(checkpoint) == [prefix + name for name in state]
        for name, tensor in state.items():
            assert torch.equal(checkpoint[prefix + name].torch(), tensor)
        if prefix:
            assert list(checkpoint.subtree("model")) == list(state)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_names_do_not_depend_on_the_protocol(tmp_path, protocol):
    module = Cached()
    torch.save(module, tmp_path / "module.pt", pickle_protocol=protocol)
    assert list(weightmap.open(tmp_path / "module.pt")) == list(module.state_dict())


@pytest.mark.parametrize("kind", ["lstm", "net", "not_persistent"])
def test_a_module_converts_and_loads_without_a_word_about_sharing(tmp_path, kind):
    module = MODULES[kind]()
    torch.save({"model": module}, tmp_path / "module.pt")
    checkpoint = weightmap.open(tmp_path / "module.pt")
    weightmap.save_safetensors(checkpoint, tmp_path / "all.safetensors")
    with weightmap.safe_open(tmp_path / "all.safetensors", "pt") as file:
        assert sorted(file.keys()) == sorted(f"model.{name}" for name in module.state_dict())
    other = MODULES[kind]()
    report = checkpoint.subtree("model").load_into(other)
    assert not report.missing and not report.unexpected
    for name, tensor in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)


def test_load_model_takes_a_whole_module(tmp_path):
    module = MODULES["lstm"]()
    torch.save(module, tmp_path / "module.pt")
    loaded = weightmap.torch.load_model(MODULES["lstm"], tmp_path / "module.pt")
    assert torch.equal(loaded.weight_hh_l0, module.weight_hh_l0)


def test_what_a_state_dict_leaves_out_keeps_its_place_and_its_bytes(tmp_path):
    module = Cached()
    torch.save({"model": module}, tmp_path / "module.pt")
    checkpoint = weightmap.open(tmp_path / "module.pt")
    assert "model.cache" not in checkpoint
    cache = checkpoint["model", "_buffers", "cache"]
    assert cache.tolist() == [7, 8, 9, 10]
    root = checkpoint.root()["model"]
    assert root.state["_buffers"]["cache"].tolist() == [7, 8, 9, 10]
    with torch.serialization.safe_globals([Cached, torch.nn.Linear]):
        loaded = weightmap.torch.load(tmp_path / "module.pt")["model"]
    assert torch.equal(loaded.cache, module.cache)
    assert torch.equal(loaded.layer.weight, module.layer.weight)


def test_raw_places_lead_to_the_tensors(tmp_path):
    module = MODULES["lstm"]()
    torch.save({"model": module}, tmp_path / "module.pt")
    checkpoint = weightmap.open(tmp_path / "module.pt")
    for place in ("_parameters", "weight_ih_l0"), ("weight_ih_l0",), ("_flat_weights", 0):
        assert torch.equal(checkpoint[("model", *place)].torch(), module.weight_ih_l0)


def test_attributes_are_listed_unless_they_alias(tmp_path):
    module = Hidden()
    torch.save(module, tmp_path / "module.pt")
    checkpoint = weightmap.open(tmp_path / "module.pt")
    assert list(checkpoint) == ["layer.weight", "layer.bias", "anchors", "sizes.large"]
    state = checkpoint.root().state
    assert state["transposed"].shape == (2, 3)
    assert state["layers"][0].state["_parameters"]["weight"].shape == (3, 2)


class Detector(torch.nn.Module):
    """As torchvision's detectors and those of ultralytics: tensors of its own that are no state."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
        self.stride = torch.tensor([8.0, 16.0])
        self.cells = [torch.ones(2), torch.zeros(3)]


def test_a_model_takes_a_module_that_has_attributes(tmp_path):
    module = Detector()
    path, deep = tmp_path / "module.pt", tmp_path / "checkpoint.pt"
    torch.save(module, path)
    torch.save({"a": {"model": module}, "epoch": 1}, deep)
    for take in (
        lambda: weightmap.torch.load_model(Detector, path).state_dict(),
        lambda: taken(weightmap.open(path)),
        lambda: taken(weightmap.open(deep).subtree(("a", "model"))),
        lambda: taken(weightmap.open(deep), "a.model"),
    ):
        state = take()
        assert list(state) == list(module.state_dict())
        assert all(torch.equal(state[name], each) for name, each in module.state_dict().items())


def taken(mapping, *prefix):
    model = Detector()
    report = mapping.load_into(model, *prefix)
    assert (report.missing, report.unexpected) == ([], [])
    return model.state_dict()


class Versioned(torch.nn.Module):
    """As torchvision's MNASNet: takes no state without the version of its modules."""

    _version = 2

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 3)

    def _load_from_state_dict(self, state, prefix, metadata, *others):
        if metadata.get("version") != 2:
            raise ValueError(f"version is {metadata.get('version')}")
        super()._load_from_state_dict(state, prefix, metadata, *others)


@pytest.mark.parametrize("save", [lambda each: each, lambda each: each.state_dict()])
def test_versions_of_modules_reach_the_model(tmp_path, save):
    module, path, deep = Versioned(), tmp_path / "model.pt", tmp_path / "checkpoint.pt"
    torch.save(save(module), path)
    torch.save({"a": {"model": save(module)}}, deep)
    loaded = weightmap.torch.load_model(Versioned, path)
    assert torch.equal(loaded.layer.weight, module.layer.weight)
    for mapping, prefix in (
        (weightmap.open(path), ()),
        (weightmap.open(deep).subtree("a.model"), ()),
        (weightmap.open(deep), ("a.model",)),
    ):
        model = Versioned()
        mapping.load_into(model, *prefix)
        assert torch.equal(model.layer.weight, module.layer.weight)


def test_a_file_without_versions_has_none(tmp_path):
    torch.save(dict(Versioned().state_dict()), tmp_path / "plain.pt")
    weightmap.save_safetensors(Versioned().state_dict(), tmp_path / "plain.safetensors")
    for path in tmp_path.iterdir():
        with pytest.raises(ValueError, match="version is None"):
            weightmap.torch.load_model(Versioned, path)


def test_a_graph_module_of_torch_fx_is_a_module_too(tmp_path):
    made = torch.fx.symbolic_trace(Detector().layer)
    made.anchors = torch.ones(2)
    torch.save({"model": made}, tmp_path / "traced.pt")
    checkpoint = weightmap.open(tmp_path / "traced.pt")
    names = [f"model.{name}" for name in made.state_dict()]
    assert list(checkpoint) == [*names, "model.anchors"]
    assert torch.equal(checkpoint["model.1.running_var"].torch(), made.state_dict()["1.running_var"])
    assert checkpoint["model", "_modules", "0", "_parameters", "bias"].name == "model.0.bias"
    report = checkpoint.subtree("model").load_into(torch.fx.symbolic_trace(Detector().layer))
    assert (report.missing, report.unexpected) == ([], [])


def test_what_a_model_does_not_know_is_an_error_still(tmp_path):
    parts = collections.OrderedDict(layer=Detector().layer, other=torch.nn.Linear(1, 1))
    plain = {**Detector().state_dict(), "stride": torch.ones(2)}
    for saved in (plain, torch.nn.Sequential(parts)):
        torch.save(saved, tmp_path / "x.pt")
        with pytest.raises(RuntimeError, match="Unexpected key"):
            weightmap.torch.load_model(Detector, tmp_path / "x.pt")


def test_a_sparse_buffer_is_one_composed_tensor(tmp_path):
    torch.save(sparse(), tmp_path / "module.pt")
    checkpoint = weightmap.open(tmp_path / "module.pt")
    assert [whole.name for whole in checkpoint.composed_tensors()] == ["sparse"]


@pytest.mark.parametrize(
    "make", [lambda: torch.empty(3, 4, device="meta"), lambda: torch.eye(3).to_sparse()]
)
def test_a_composed_parameter_is_listed_once(tmp_path, make):
    for value in (make(), torch.nn.Parameter(make())):
        torch.save({"w": value}, tmp_path / "w.pt")
        checkpoint = weightmap.open(tmp_path / "w.pt")
        assert [whole.name for whole in checkpoint.composed_tensors()] == ["w"]
