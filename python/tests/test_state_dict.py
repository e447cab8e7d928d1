"""A Checkpoint as a state dict, and in patterns."""


import pytest
from conftest import torch_since

import weightmap


def make_model(torch, device=None):
    with torch.device(device or "cpu"):
        model = torch.nn.ModuleDict(
            {"embed": torch.nn.Embedding(5, 3), "head": torch.nn.Linear(3, 5, bias=False)}
        )
    model["head"].weight = model["embed"].weight
    return model


@pytest.fixture
def saved(torch, tmp_path):
    """{"model": a model with a tie, "epoch": 3}, and the model."""
    model = make_model(torch)
    torch.save({"model": model.state_dict(), "epoch": 3}, tmp_path / "train.pt")
    return tmp_path / "train.pt", model


# --- torch()


def test_a_state_dict_keeps_ties(saved, tmp_path, torch):
    path, model = saved
    with weightmap.open(path) as checkpoint:
        state = checkpoint.torch()
    assert list(state) == ["model.embed.weight", "model.head.weight"]
    assert state["model.embed.weight"] is state["model.head.weight"]
    assert torch.equal(state["model.embed.weight"], model["embed"].weight)
    torch.save(state, tmp_path / "again.pt")
    with weightmap.open(tmp_path / "again.pt") as again:
        assert again.info.storages == 1


def test_views_of_one_storage_have_one_storage_object(torch, tmp_path):
    base = torch.arange(12.0)
    value = {"base": base, "row": base[4:8], "empty": base[:0]}
    torch.save(value, tmp_path / "v.pt")
    state = weightmap.open(tmp_path / "v.pt").torch()
    torch.save(state, tmp_path / "again.pt")
    assert weightmap.open(tmp_path / "again.pt").info.storages == 1
    assert {name: tensor.tolist() for name, tensor in state.items()} == {
        name: tensor.tolist() for name, tensor in value.items()
    }
    state["row"].zero_()
    assert state["base"].tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 8, 9, 10, 11]
    assert torch.load(tmp_path / "v.pt")["base"].tolist() == list(range(12))


def test_a_prefix_is_taken_away(saved):
    with weightmap.open(saved[0]) as checkpoint:
        assert list(checkpoint.torch("model.")) == ["embed.weight", "head.weight"]
        assert list(checkpoint.torch("model")) == ["embed.weight", "head.weight"]
        assert checkpoint.torch("model.e") == {}
        assert checkpoint.torch("other.") == {}
        assert list(checkpoint.subtree("model").torch()) == ["embed.weight", "head.weight"]


def test_converted_tensors_are_converted_once(saved, torch):
    with weightmap.open(saved[0]) as checkpoint:
        state = checkpoint.torch("model.", dtype=torch.float16)
        assert state["embed.weight"].dtype == torch.float16
        assert state["embed.weight"] is state["head.weight"]
        assert checkpoint.torch(device="meta")["model.embed.weight"].is_meta


@pytest.mark.parametrize("name", [
    pytest.param("dtypes.pt", marks=torch_since((2, 8), "float4_e2m1fn_x2")), "views.pt",
    "conjugate.pt", "big_endian.pt"])
def test_each_tensor_is_what_it_is_alone(data, torch, name):
    with weightmap.open(data / name) as checkpoint:
        state = checkpoint.torch()
        assert list(state) == list(checkpoint)
        for key, tensor in checkpoint.items():
            alone = tensor.torch()
            assert state[key].dtype == alone.dtype
            assert state[key].stride() == alone.stride()
            assert (state[key].is_conj(), state[key].is_neg()) == (alone.is_conj(), alone.is_neg())
            assert bytes(state[key].resolve_conj().resolve_neg().contiguous().view(-1)
                         .view(torch.uint8).tolist()) == bytes(
                alone.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).tolist()
            )


def write_safetensors(torch, folder, name="model.safetensors", prefix=""):
    tensors = {f"{prefix}weight": torch.arange(12.0).reshape(3, 4).to(torch.bfloat16),
               f"{prefix}bias": torch.arange(3), f"{prefix}scalar": torch.tensor(2.5)}
    weightmap.save_safetensors(tensors, folder / name)
    return folder / name


def write_shards(torch, folder):
    for number in (1, 2):
        write_safetensors(torch, folder, f"model-0000{number}-of-00002.safetensors", f"{number}.")
    return folder


def write_gguf(torch, folder):
    gguf = pytest.importorskip("gguf", reason="GGUF files are made by the package gguf")
    writer = gguf.GGUFWriter(folder / "model.gguf", "test")
    values = torch.arange(64.0).reshape(2, 32).numpy()
    blocks = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("float", values)
    writer.add_tensor("blocks", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "model.gguf"


@pytest.mark.parametrize("write", [write_safetensors, write_shards, write_gguf])
def test_no_function_of_torch_makes_tensors_of_their_own_bytes(write, tmp_path, torch, monkeypatch):
    from weightmap._torch import tensors

    path = write(torch, tmp_path)
    alone = {name: tensor.torch() for name, tensor in weightmap.open(path).items()}
    monkeypatch.setattr(tensors, "_over", None)
    monkeypatch.setattr(tensors, "view", None)
    monkeypatch.setattr(tensors, "storage", None)
    for state in (weightmap.torch.load(path), weightmap.open(path).torch()):
        assert list(state) == list(alone)
        for name, tensor in state.items():
            assert torch.equal(tensor, alone[name])
            assert (tensor.dtype, tensor.stride()) == (alone[name].dtype, alone[name].stride())
            assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_where_torch_would_ask_a_mode_its_functions_make_the_tensors(tmp_path, torch):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Asked(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.calls += 1
            return function(*args, **(kwargs or {}))

    path = write_safetensors(torch, tmp_path)
    with Asked() as mode:
        state = weightmap.torch.load(path)
    assert mode.calls >= len(state) == 3
    assert state["weight"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_a_part_beside_its_whole_storage_shares_it_in_any_order(torch, tmp_path):
    base = torch.arange(6.0)
    torch.save({"part": base[2:4], "whole": base, "again": base}, tmp_path / "v.pt")
    state = weightmap.open(tmp_path / "v.pt").torch()
    assert state["whole"] is state["again"]
    state["part"].zero_()
    assert state["whole"].tolist() == [0, 1, 0, 0, 4, 5]


def test_quantized_tensors_are_refused_as_one_by_one(data, torch):
    with weightmap.open(data / "quantized.pt") as checkpoint:
        with pytest.raises(weightmap.UnsupportedError, match="needs its scales"):
            checkpoint.torch()


# --- load_into()


def test_a_model_takes_the_tensors_of_the_file(saved, torch):
    path, model = saved
    mapped = make_model(torch, "meta")
    with weightmap.open(path) as checkpoint:
        report = checkpoint.load_into(mapped, "model.")
    assert report == weightmap.reports.LoadReport([], [])
    assert torch.equal(mapped["embed"].weight, model["embed"].weight)
    assert mapped["embed"].weight is mapped["head"].weight
    assert mapped["embed"].weight.requires_grad


def test_what_is_not_tied_in_the_file_is_not_tied(torch, tmp_path):
    torch.save({"embed.weight": torch.ones(5, 3), "head.weight": torch.zeros(5, 3)},
               tmp_path / "m.pt")
    mapped = make_model(torch, "meta")
    weightmap.open(tmp_path / "m.pt").load_into(mapped)
    assert (mapped["embed"].weight.sum(), mapped["head"].weight.sum()) == (15, 0)


def test_names_that_differ_are_reported_or_refused(torch, tmp_path):
    torch.save({"embed.weight": torch.ones(5, 3), "other": torch.ones(1)}, tmp_path / "m.pt")
    with weightmap.open(tmp_path / "m.pt") as checkpoint:
        report = checkpoint.load_into(make_model(torch), strict=False)
        assert report == weightmap.reports.LoadReport(["head.weight"], ["other"])
        with pytest.raises(RuntimeError, match="Missing key"):
            checkpoint.load_into(make_model(torch))


@pytest.mark.parametrize("parts, message", [
    ([], "Missing key"),
    (["model"], 'all below "model": take checkpoint.load_into(model, "model")'),
    (["run.model", "run.ema"],
     'all below "run.model" and below "run.ema": take checkpoint.load_into(model, "run.model")'),
    (["a", "b", "c", "d"],
     'all below "a" and below "b" and below "c" and elsewhere: take checkpoint.load_into(model, "a")'),
])
@pytest.mark.parametrize("is_flat", [False, True])
def test_a_model_that_is_a_part_of_the_file_is_found(parts, message, is_flat, torch, tmp_path):
    state = {"head.weight": torch.ones(1), "epoch": 3, "other": {"head.weight": torch.ones(1)}}
    for part in parts:
        model = make_model(torch).state_dict()
        if is_flat:
            state.update({f"{part}.{name}": tensor for name, tensor in model.items()})
        else:
            state.setdefault(part.split(".")[0], {})[part.split(".")[-1]] = model
            if "." not in part:
                state[part] = model
    torch.save(state, tmp_path / "train.pt")
    checkpoint = weightmap.open(tmp_path / "train.pt")
    with pytest.raises(RuntimeError) as refused:
        checkpoint.load_into(make_model(torch))
    assert message in str(refused.value)
    for part in parts[:1]:
        model = make_model(torch, "meta")
        checkpoint.load_into(model, part)
        assert not model["head"].weight.is_meta


def test_a_model_below_a_subtree_is_found(saved, torch):
    path, model = saved
    torch.save({"run": {"nets": {"model": model.state_dict()}}}, path)
    checkpoint = weightmap.open(path)
    for way in (lambda: checkpoint.subtree("run").load_into(make_model(torch)),
                lambda: checkpoint.load_into(make_model(torch), "run.")):
        with pytest.raises(RuntimeError) as refused:
            way()
        assert str(refused.value) == (
            f'{path}: the tensors of the model are all below "run.nets.model": take '
            'checkpoint.load_into(model, "run.nets.model")'
        )


def test_a_part_that_fits_but_for_a_few_tensors_is_found(torch, tmp_path):
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(3)))
    state = model.state_dict()
    del state["0.bias"]
    state["1.weight"] = torch.ones(3, 2)
    torch.save({"model": state, "ema": {"0.bias": torch.ones(2)}}, tmp_path / "train.pt")
    checkpoint = weightmap.open(tmp_path / "train.pt")
    with pytest.raises(RuntimeError) as refused:
        checkpoint.load_into(model)
    assert str(refused.value) == (
        f'{tmp_path / "train.pt"}: most tensors of the model are below "model": take '
        'checkpoint.load_into(model, "model"), where others differ: \'0.bias\' is missing, '
        "'1.weight' is [3, 2] there and [2, 2] in the model"
    )


def test_a_part_that_is_not_there_has_near_names(saved, torch):
    path, model = saved
    torch.save({"model": model.state_dict()}, path)
    with pytest.raises(weightmap.TensorNotFoundError, match="below 'modell'; did you mean \"model\"?"):
        weightmap.open(path).load_into(make_model(torch), "modell")


# --- patterns


def test_warms_what_matches_a_pattern(float_archive):
    contents = {"blocks.0.w": bytes(400), "blocks.0.b": bytes(40), "norm": bytes(4)}
    with weightmap.open(float_archive(contents)) as checkpoint:
        both = checkpoint.warm(["blocks.0.w", "blocks.0.b"])
        assert checkpoint.warm(["blocks.0.*"]).bytes == both.bytes > 0
        with pytest.raises(weightmap.TensorNotFoundError):
            checkpoint.warm(["blocks.7.*"])
        with pytest.raises(TypeError, match="names are a list"):
            checkpoint.warm("norm")
