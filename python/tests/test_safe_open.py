"""safe_open(), as those know it who come from safetensors."""

import pytest

import weightmap


# --- names, slices, metadata ------------------------------------------------------------------


def test_lists_names_by_where_they_lie(data):
    with weightmap.safe_open(data / "old_order.pt") as opened:
        # Written in lexicographic order of the keys 0, 1, 10, 11, 2, ...
        assert opened.offset_keys() == [
            *("layer0", "layer1", "layer10", "layer11", "layer2", "layer3"),
            *("layer4", "layer5", "layer6", "layer7", "layer8", "layer9"),
        ]
        assert list(weightmap.open(data / "old_order.pt")) == [f"layer{i}" for i in range(12)]


@pytest.mark.parametrize("name, dtype", [
    ("float64", "F64"), ("float32", "F32"), ("float16", "F16"), ("bfloat16", "BF16"),
    ("int64", "I64"), ("int32", "I32"), ("int16", "I16"), ("int8", "I8"), ("uint64", "U64"),
    ("uint32", "U32"), ("uint16", "U16"), ("uint8", "U8"), ("bool", "BOOL"),
    ("complex64", "C64"), ("float8_e5m2", "F8_E5M2"), ("float8_e4m3fn", "F8_E4M3"),
    ("float8_e8m0fnu", "F8_E8M0"),
])
def test_names_dtypes_as_safetensors_does(data, name, dtype):
    with weightmap.safe_open(data / "dtypes.pt") as opened:
        assert opened.get_slice(name).get_dtype() == dtype


# --- tensors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["np", "numpy"])
def test_gives_numpy_arrays(data, numpy, framework):
    with weightmap.safe_open(data / "state_dict.pt", framework=framework) as opened:
        array = opened.get_tensor("embedding.weight")
        part = opened.get_slice("embedding.weight")[1:3, ::2]
        scalar = opened.get_tensor("steps")
    assert type(array) is numpy.ndarray
    assert array[5].tolist() == [20, 21, 22, 23]
    assert part.tolist() == [[4, 6], [8, 10]]
    assert numpy.shares_memory(array, part)
    assert scalar.tolist() == 12345678901


@pytest.mark.parametrize("framework", ["pt", "torch", "pytorch"])
def test_gives_torch_tensors(data, torch, framework):
    with weightmap.safe_open(data / "state_dict.pt", framework=framework) as opened:
        tensor = opened.get_tensor("embedding.weight")
        part = opened.get_slice("embedding.weight")[1:3, ::2]
        scalar = opened.get_tensor("steps")
    assert type(tensor) is torch.Tensor
    assert tensor[5].tolist() == [20, 21, 22, 23]
    assert part.tolist() == [[4, 6], [8, 10]]
    assert part.data_ptr() == tensor.data_ptr() + 16
    assert (scalar.dtype, scalar.item()) == (torch.int64, 12345678901)


@pytest.mark.parametrize("device", ["cpu", "cpu:0", None, "torch.device"])
def test_takes_each_word_for_the_cpu(data, torch, device):
    device = torch.device("cpu") if device == "torch.device" else device
    with weightmap.safe_open(data / "state_dict.pt", "pt", device=device) as opened:
        first, second = (opened.get_tensor("layers.0.bias") for _ in range(2))
    assert first.tolist() == [0, 1, 2, 3]
    assert first.data_ptr() == second.data_ptr()  # still no copy


def test_takes_the_meta_device(data, torch):
    with weightmap.safe_open(data / "state_dict.pt", "pt", device="meta") as opened:
        tensor = opened.get_tensor("layers.0.bias")
        assert (tensor.device.type, tensor.shape) == ("meta", (4,))


def test_tensors_that_share_bytes_still_do(data, torch):
    with weightmap.safe_open(data / "views.pt") as opened:
        base, tied = opened.get_tensor("base"), opened.get_tensor("tied")
    assert base.data_ptr() == tied.data_ptr()


def test_does_not_write_to_the_file(copy_of, torch):
    path = copy_of("views.pt")
    before = path.read_bytes()
    with weightmap.safe_open(path) as opened:
        opened.get_tensor("base").fill_(1)
    assert path.read_bytes() == before


KEYS = [
    *("[0, 1]", "[-1]", "[]", "[1, 0]", "None", "(None, 0)", "(None, None)", "(slice(None), [0, 2])"),
    *("([0, 1], [0, 2])", "(0, [1, 2], slice(0, 2))", "(slice(0, 1), None)", "(0, None, [0])"),
    *("True", "(..., 0)", "(0, 0, 0)", "slice(None, None, 2)", "-1", "()", "slice(5, 9)"),
    *("slice(-1, None)", "slice(0, 100)", "0", "slice(5, 3)", "slice(None)", "...", "(0, 0)"),
    *("(slice(None), 2)", "(slice(1, 3), slice(0, 4))", "(slice(None), slice(-3, -1))"),
]


@pytest.mark.parametrize("framework", ["pt", "np"])
@pytest.mark.parametrize("key", KEYS)
def test_slices_are_those_of_safetensors(tmp_path, torch, key, framework):
    safetensors = pytest.importorskip("safetensors.torch", reason="compares with safetensors")
    tensors = {"a": torch.arange(24.0).reshape(2, 3, 4), "b": torch.ones(2)}
    torch.save(tensors, tmp_path / "model.pt")
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    with safetensors.safe_open(tmp_path / "model.safetensors", framework) as theirs:
        try:
            expected = theirs.get_slice("a")[eval(key)]
        except Exception:
            assert framework == "np"  # of which it knows less
            expected = tensors["a"].numpy()[eval(key)]
    with weightmap.safe_open(tmp_path / "model.pt", framework) as ours:
        part = ours.get_slice("a")[eval(key)]
    if key == "True" and framework == "np":
        assert part.shape == (1, 2, 3, 4)  # as in numpy; safetensors takes it for 1
        return
    assert (part.shape, part.dtype) == (expected.shape, expected.dtype)
    assert part.tolist() == expected.tolist()


def test_get_tensors_is_that_of_safetensors(tmp_path, torch):
    safetensors = pytest.importorskip("safetensors.torch", reason="compares with safetensors")
    tensors = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones(2)}
    torch.save(tensors, tmp_path / "model.pt")
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as theirs:
        expected = theirs.get_tensors()
    with weightmap.safe_open(tmp_path / "model.pt", "pt") as ours:
        assert ours.offset_keys() == ["b", "a"]
        loaded = ours.get_tensors()
    assert list(loaded) == ["b", "a"]
    assert {name: tensor.tolist() for name, tensor in loaded.items()} == {
        name: tensor.tolist() for name, tensor in expected.items()
    }


def test_has_every_method_that_safetensors_has(data):
    safetensors = pytest.importorskip("safetensors", reason="compares with safetensors")
    public = {name for name in dir(safetensors.safe_open) if not name.startswith("_")}
    assert public == {
        *("get_slice", "get_tensor", "get_tensors", "keys", "metadata", "offset_keys")
    }
    with weightmap.safe_open(data / "state_dict.pt") as opened:
        assert public <= set(dir(opened))


# --- what can go wrong ------------------------------------------------------------------------


def test_a_missing_tensor_is_a_key_error(data):
    with weightmap.safe_open(data / "views.pt", "np") as opened:
        with pytest.raises(weightmap.TensorNotFoundError, match="nothing"):
            opened.get_tensor("nothing")
        with pytest.raises(KeyError):
            opened.get_slice("nothing")


@pytest.mark.parametrize("framework", ["tf", "", "PT", None, 3, ["pt"]])
def test_an_unknown_framework_is_refused(data, framework):
    with pytest.raises(weightmap.InvalidArgumentError, match="expected 'pt' or 'np'"):
        weightmap.safe_open(data / "views.pt", framework=framework)


def test_numpy_has_no_other_device(data):
    with pytest.raises(weightmap.InvalidArgumentError, match="cuda:0"):
        weightmap.safe_open(data / "views.pt", framework="np", device="cuda:0")


def test_is_closed_after_its_block(data, numpy):
    with weightmap.safe_open(data / "views.pt", "np") as opened:
        part = opened.get_slice("base")
    for use in (opened.keys, opened.offset_keys, lambda: opened.get_tensor("base")):
        with pytest.raises(weightmap.InvalidArgumentError, match="closed"):
            use()
    # A slice that was taken keeps what it needs.
    assert part[0, :3].tolist() == [0, 1, 2]


def test_follows_the_configuration(data, numpy):
    with weightmap.config.override({"load.writable": True, "load.mmap_flags": 2}):
        with weightmap.safe_open(data / "views.pt", "np") as opened:
            assert opened.get_tensor("base").flags.writeable


# --- beside safetensors -----------------------------------------------------------------------


@pytest.fixture
def both(tmp_path, torch):
    """The same tensors in both formats."""
    pytest.importorskip("safetensors", reason="compares with safetensors")
    from safetensors.torch import save_file

    tensors = {
        "b.weight": torch.arange(24, dtype=torch.float32).reshape(4, 6),
        "a.bias": torch.arange(5).to(torch.bfloat16),
        "half": torch.arange(6, dtype=torch.float16).reshape(2, 3),
        "ids": torch.arange(6, dtype=torch.int64).reshape(1, 2, 3),
        "mask": torch.tensor([True, False, True]),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty(0, 3),
        "bytes": torch.arange(7, dtype=torch.uint8),
        "eight": torch.arange(4).to(torch.float8_e4m3fn),
        "complex": torch.tensor([1 + 2j]),
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    torch.save(tensors, tmp_path / "model.pt")
    return tmp_path / "model.safetensors", tmp_path / "model.pt", list(tensors)


@pytest.fixture
def answers(both):
    """safetensors' open file and ours, with the names."""
    import safetensors

    theirs, ours, names = both
    with safetensors.safe_open(theirs, framework="pt", device="cpu") as first:
        with weightmap.safe_open(ours, framework="pt", device="cpu") as second:
            yield first, second, names


def test_has_the_names_and_metadata_of_safetensors(answers):
    theirs, ours, names = answers
    assert sorted(ours.keys()) == sorted(theirs.keys()) == sorted(names)
    assert type(ours.keys()) is type(theirs.keys())
    assert ours.metadata() == theirs.metadata()
    assert sorted(ours.offset_keys()) == sorted(theirs.offset_keys())


def test_has_the_tensors_of_safetensors(answers, torch):
    theirs, ours, names = answers
    for name in names:
        expected, got = theirs.get_tensor(name), ours.get_tensor(name)
        assert type(got) is type(expected)
        assert (got.dtype, got.shape, got.stride()) == (
            expected.dtype,
            expected.shape,
            expected.stride(),
        )
        assert got.device == expected.device
        assert got.contiguous().flatten().view(torch.uint8).tolist() == (
            expected.contiguous().flatten().view(torch.uint8).tolist()
        ), name


def test_describes_slices_as_safetensors_does(answers):
    theirs, ours, names = answers
    for name in names:
        expected, got = theirs.get_slice(name), ours.get_slice(name)
        assert got.get_shape() == expected.get_shape()
        assert got.get_dtype() == expected.get_dtype()


@pytest.mark.parametrize("key", [9, -5, (0, 0, 0)], ids=repr)
def test_refuses_the_slices_that_safetensors_refuses(answers, key):
    theirs, ours, _ = answers
    for opened in (theirs, ours):
        with pytest.raises(IndexError):
            opened.get_slice("b.weight")[key]
