"""Tensors that wrap others, as torchao and DTensor do: they say that they are strided and on the CPU,
and have no memory of their own."""


import pytest
from memory_maps import permissions

import weightmap

torch = pytest.importorskip("torch", reason="these tests make tensors of it")
pytest.importorskip("weightmap.torch", reason="this torch is too old")
two_tensor = pytest.importorskip(
    "torch.testing._internal.two_tensor", reason="this torch has no such class"
)
TwoTensor = two_tensor.TwoTensor


@pytest.fixture
def registered():
    with torch.serialization.safe_globals([TwoTensor]):
        yield


def wrapping(first):
    return TwoTensor(torch.full((4, 2), first), torch.full((4, 2), first + 1))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = torch.nn.Parameter(torch.ones(4))
        self.wrapped = torch.nn.Parameter(wrapping(2.0))
        self.nested = torch.nn.Parameter(TwoTensor(wrapping(4.0), wrapping(6.0)))


@pytest.fixture
def saved(tmp_path):
    model = Model()
    path = tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    return model, path


def test_a_summary_counts_what_is_wrapped():
    summary = weightmap.torch.summary(Model())
    assert (summary.all.tensors, summary.all.elements) == (3, 4 + 8 + 8)
    assert summary.all.bytes == 4 * (4 + 2 * 8 + 4 * 8)
    assert summary.own_bytes >= summary.all.bytes
    assert summary.ties == ()
    assert {name: share.bytes for name, share in summary.prefixes.items()} == {
        "plain": 16, "wrapped": 64, "nested": 128,
    }


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("options, mode", [({}, "rw-p"), ({"copy_on_write": False}, "r--s")])
def test_load_model_makes_wrappers_of_what_is_mapped(saved, options, mode):
    expected, path = saved
    model = weightmap.torch.load_model(Model, path, **options)
    assert type(model.wrapped) is TwoTensor and isinstance(model.wrapped, torch.nn.Parameter)
    for wrapper, own in ((model.wrapped, expected.wrapped), (model.nested.b, expected.nested.b)):
        for part in ("a", "b"):
            assert torch.equal(getattr(wrapper, part), getattr(own, part))
            assert permissions(getattr(wrapper, part)) == mode
    assert weightmap.torch.summary(model).own_bytes < 4096
    if mode == "r--s":
        with pytest.raises(weightmap.UnsupportedError, match="read-only mapping has no gradient"):
            (model.wrapped * 2).sum().backward()


def test_load_model_names_what_is_to_be_registered(saved):
    with pytest.raises(weightmap.UnsafePickleError, match="two_tensor.TwoTensor"):
        weightmap.torch.load_model(Model, saved[1])


@pytest.mark.usefixtures("registered")
def test_save_writes_them_where_they_are_registered(saved, tmp_path):
    model, path = saved
    state = model.state_dict()
    weightmap.save(state, tmp_path / "again.pt")
    again = torch.load(tmp_path / "again.pt", weights_only=True)
    assert type(again["wrapped"]) is TwoTensor
    assert torch.equal(again["nested"].a.b, state["nested"].a.b)
    weightmap.torch.save(state, tmp_path / "same.pt")
    assert len(weightmap.open(tmp_path / "same.pt")) == len(weightmap.open(path)) == 7


def test_save_says_what_is_to_be_registered(saved, tmp_path):
    with pytest.raises(weightmap.UnsupportedError, match=r"\['wrapped'\].*two_tensor.TwoTensor.* regist"):
        weightmap.save(saved[0].state_dict(), tmp_path / "again.pt")


@pytest.mark.usefixtures("registered")
def test_a_recorder_notes_what_is_wrapped_by_the_names_of_the_checkpoint(saved):
    opened = weightmap.open(saved[1])
    with weightmap.torch.SliceRecorder() as recorder:
        for name, tensor in weightmap.torch.load(opened).items():
            recorder.add(name, tensor)
            if name != "plain":
                (tensor + 1).sum()
    plan = recorder.plan()
    assert set(plan) == set(opened) - {"plain"}
    assert len(plan) == 6
    assert opened.warm(plan).bytes >= 6 * 32


def test_a_tensor_of_a_class_without_memory_counts_as_none(caplog):
    class Bodiless(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            raise NotImplementedError

    module = torch.nn.Module()
    made = torch.Tensor._make_wrapper_subclass(Bodiless, (3,), dtype=torch.float32)
    module.register_buffer("bodiless", made)
    assert weightmap.torch.summary(module).own_bytes == 0


def test_a_DTensor_is_what_it_has_here(tmp_path):
    distributed = pytest.importorskip("torch.distributed", reason="this torch has none")
    if not distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    tensors = pytest.importorskip("torch.distributed.tensor", reason="this torch has no DTensor")
    from torch.distributed.device_mesh import init_device_mesh

    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))

        def model():
            made = torch.nn.Linear(4, 4)
            local = tensors.distribute_tensor(made.weight.detach().clone(), mesh, [tensors.Shard(0)])
            made.weight = torch.nn.Parameter(local)
            return made

        made = model()
        summary = weightmap.torch.summary(made)
        assert (summary.all.tensors, summary.all.bytes) == (2, 4 * (16 + 4))
        path = tmp_path / "model.pt"
        weightmap.save(made.state_dict(), path)
        state = weightmap.torch.load(path)
        assert torch.equal(state["weight"].to_local(), made.weight.to_local())
        served = weightmap.torch.load_model(lambda: torch.nn.Linear(4, 4), path)
        assert type(served.weight).__name__ == "DTensor"
        assert torch.equal(served.weight.to_local(), made.weight.to_local())
        with weightmap.torch.SliceRecorder() as recorder:
            recorder.add("weight", state["weight"])
            state["weight"] + 1
        assert list(recorder.plan()) == ["weight.3.1._local_tensor"]
        assert set(recorder.plan()) < set(weightmap.open(path))
    finally:
        distributed.destroy_process_group()
