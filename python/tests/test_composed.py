"""Quantized, sparse, nested and meta tensors, as Checkpoint.composed_tensors() tells them."""

from __future__ import annotations

import pytest
import weightmap


def composed(path):
    with weightmap.open(path) as checkpoint:
        return {each.name: each for each in checkpoint.composed_tensors()}, list(checkpoint)


def test_a_file_of_dense_tensors_has_none(data):
    assert composed(data / "state_dict.pt")[0] == {}


def test_quantized_tensors_have_scale_zero_point_and_axis(data):
    found, names = composed(data / "quantized.pt")
    qint8 = found["qint8"]
    assert (qint8.form, qint8.dtype, qint8.shape) == ("quantized", "qint8", (3, 4))
    assert (qint8.scale, qint8.zero_point) == (0.5, 3)
    channels = found["channels"]
    assert (channels.form, channels.axis) == ("per_channel", 0)
    parts = names[channels.first_part : channels.first_part + channels.part_count]
    assert parts == ["channels", "channels.4.1", "channels.4.2"]


def test_sparse_tensors_have_a_layout_and_parts(data):
    found, names = composed(data / "sparse.pt")
    coo, csr = found["coo"], found["csr"]
    assert (coo.form, coo.shape, coo.is_coalesced) == ("sparse_coo", (2, 3), True)
    assert (csr.form, csr.is_coalesced) == ("sparse_csr", None)
    assert names[csr.first_part : csr.first_part + csr.part_count] == [
        "csr.1.0", "csr.1.1", "csr.1.2",
    ]


def test_a_jagged_nested_tensor_is_one_composed_tensor(tmp_path):
    torch = pytest.importorskip("torch", reason="saves a nested tensor, and torch is not installed")
    rows = [torch.ones(2, 3), torch.zeros(1, 3)]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    for value in (jagged.detach(), jagged):
        torch.save({"a": torch.ones(1), "n": value, "z": torch.ones(2)}, tmp_path / "n.pt")
        checkpoint = weightmap.open(tmp_path / "n.pt")
        (whole,) = checkpoint.composed_tensors()
        assert (whole.name, whole.form) == ("n", "nested")
        assert whole.requires_grad == value.requires_grad
        names = list(checkpoint)
        parts = names[whole.first_part : whole.first_part + whole.part_count]
        assert parts[:2] == ["n.2.0.values", "n.2.0.offsets"]
        assert names == ["a", *parts, "z"]
        assert not any("_values" in name for name in names)


def test_nested_tensors_have_four_parts(data):
    found, _ = composed(data / "nested_tensor.pt")
    assert (found["nested"].form, found["nested"].part_count) == ("nested", 4)


def test_meta_tensors_are_listed_though_they_have_no_bytes(tmp_path):
    torch = pytest.importorskip("torch", reason="saves a meta tensor, and torch is not installed")
    torch.save({"m": torch.empty(3, 4, device="meta")}, tmp_path / "meta.pt")
    found, names = composed(tmp_path / "meta.pt")
    assert names == []
    assert (found["m"].form, found["m"].dtype, found["m"].shape) == ("meta", "float32", (3, 4))
