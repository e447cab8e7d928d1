#!/usr/bin/env python3
"""Writes the checkpoints of this folder with a real torch, and manifest.json beside them.

    python tests/data/make_fixtures.py [FOLDER]

The manifest says for each file how it was made and, for each tensor, what torch itself says about
it; `hex` holds the stored elements, row-major, of tensors of up to 64 bytes, `sha256` of all.
Files that torch.save cannot write as they are (old record order, storage keys that are addresses, no
byteorder record, big-endian data) are laid out by torch's own PyTorchFileWriter or patched here, and
the manifest says so.
"""

import contextlib
import gzip
import io
import json
import pathlib
import re
import sys
import tarfile
import unittest.mock
import warnings
import zipfile
from collections import OrderedDict
from typing import List

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))

import torch  # noqa: E402
from describe import (  # noqa: E402
    Storages,
    bytes_in_file,
    describe,
    digest,
    element_bytes,
    storage_bytes,
    walk,
)
from records import write_again, write_by_hand  # noqa: E402
from torch.utils.serialization import config  # noqa: E402

FIXED_TIME = (1980, 1, 1, 0, 0, 0)


class Fixtures:
    def __init__(self, folder):
        self.folder = folder
        self.files = {}

    def save(self, name, value, how, tensors=None, **options):
        """torch.save, then a manifest entry. `tensors`: (path, tensor) pairs if a walk of `value`
        does not say what the file lists."""
        torch.save(value, self.folder / name, **options)
        self.record(name, how, walk(value) if tensors is None else tensors)

    def record(self, name, how, tensors, key_of=None, reader=None, **facts):
        reader = reader or torch._C.PyTorchFileReader(str(self.folder / name))
        content = (self.folder / name).read_bytes()
        tensors = list(tensors)
        key_of = key_of or Storages().key
        entries = describe(tensors, reader, key_of)
        for entry, (_, tensor) in zip(entries, tensors):
            data = element_bytes(tensor)
            if facts.get("byteorder") != "big":
                # The file must hold what the manifest says, before anybody reads it.
                assert bytes_in_file(content, entry, tensor.element_size()) == data, entry
            entry["sha256"] = digest(data)
            if len(data) <= 64:
                entry["hex"] = data.hex()
        sizes = {key_of(tensor): tensor.untyped_storage().nbytes() for _, tensor in tensors}
        storages = {
            key: {"offset": reader.get_record_offset("data/" + key), "nbytes": size}
            for key, size in sizes.items()
        }
        self.files[name] = {"how": how, "storages": storages, "tensors": entries, **facts}

    def refused(self, name, how, code):
        self.files[name] = {"how": how, "error": code}


def numbers(count, dtype=torch.float32, start=0):
    return torch.arange(start, start + count).to(dtype)


@contextlib.contextmanager
def saving(**options):
    """config.save fields for the duration of a with."""
    before = {name: getattr(config.save, name) for name in options}
    for name, value in options.items():
        setattr(config.save, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config.save, name, value)


def swapped(tensor):
    """The storage's bytes with every number in it reversed."""
    data = storage_bytes(tensor)
    unit = tensor.element_size() // (2 if tensor.dtype.is_complex else 1)
    return data.reshape(-1, unit)[:, ::-1].tobytes()


# --- what people save -------------------------------------------------------------------------


def state_dict(fixtures):
    value = OrderedDict(
        [
            ("embedding.weight", numbers(24).reshape(6, 4)),
            ("layers.0.weight", numbers(16, torch.bfloat16).reshape(4, 4)),
            ("layers.0.bias", numbers(4, torch.float16)),
            ("layers.1.weight", numbers(16, torch.float64).reshape(4, 4)),
            ("layers.1.mask", torch.tensor([[True, False], [False, True]])),
            ("steps", torch.tensor(12345678901)),
            ("position_ids", numbers(6, torch.int32).reshape(1, 6)),
        ]
    )
    value._metadata = OrderedDict([("", {"version": 1}), ("layers.0", {"version": 2})])
    fixtures.save("state_dict.pt", value, "a state_dict with _metadata, several dtypes")
    fixtures.save("renamed.tar.pt", {"w": numbers(3)}, "the archive name is renamed.tar")


def training_checkpoint(fixtures):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(5, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
    value = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": {
            "step_size": scheduler.step_size,
            "gamma": scheduler.gamma,
            "last_epoch": scheduler.last_epoch,
            "base_lrs": scheduler.base_lrs,
        },
        "epoch": 2,
        "best_loss": 0.125,
        "name": "tiny",
        "resumed_from": None,
        "finished": False,
        "big": 2**80,
        "negative": -(2**40),
        "history": [[1.0, 0.5], [0.25, [numbers(2), "nested"]]],
        "shape": torch.Size([3, 4]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "raw": b"\x00\xffbytes",
        "tags": {"a"},
        "betas": (0.9, 0.999),
    }
    fixtures.save("training.pt", value, "model, Adam with integer keys, scheduler, plain values")


def views(fixtures):
    base = numbers(24).reshape(4, 6)
    value = {
        "base": base,
        "transposed": base.t(),
        "every_second_column": base[:, ::2],
        "middle_rows": base[1:3],
        "one_column": base[:, 5],
        "diagonal": torch.as_strided(base, (4,), (7,)),
        "overlapping": torch.as_strided(base, (3, 4), (2, 1), 1),
        "expanded": base[0].expand(3, 6),
        "scalar_expanded": base[0, 0].expand(2, 2),
        "permuted": numbers(24, torch.int16).reshape(2, 3, 4).permute(2, 0, 1),
        "tied": base,
        "same_bytes_other_shape": base.reshape(2, 12),
    }
    fixtures.save("views.pt", value, "tied weights and views, non-contiguous and expanded")
    shared = [numbers(3), numbers(2)]
    fixtures.save("shared_list.pt", {"a": shared, "b": shared}, "one list reached by two names")


def scalars_and_empty(fixtures):
    value = {
        "scalar": torch.tensor(2.5),
        "scalar_int": torch.tensor(-7, dtype=torch.int8),
        "empty": torch.empty(0),
        "empty_rows": torch.empty(0, 5),
        "empty_columns": torch.empty(5, 0, dtype=torch.int64),
        "empty_slice": numbers(6)[3:3],
        "one": torch.ones(1, 1, 1),
        "rank_eight": numbers(2).reshape(1, 1, 1, 2, 1, 1, 1, 1),
    }
    fixtures.save("scalars_and_empty.pt", value, "rank 0, no elements, rank 8")
    # A reader once took the first scalar of bytes for something that it had measured already.
    value = {"w": torch.tensor(186, dtype=torch.uint8), "b": [torch.tensor(7, dtype=torch.uint8)]}
    fixtures.save("uint8_scalar.pt", value, "scalars of one byte and nothing else")
    fixtures.save("only_empty.pt", {"a": torch.empty(0), "b": torch.empty(3, 0)}, "no bytes at all")
    fixtures.save("no_tensors.pt", {"epoch": 3, "loss": [0.5]}, "a pickle without a tensor")


def dtypes(fixtures):
    plain = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8"]
    plain += ["uint64", "uint32", "uint16", "uint8", "complex128", "complex64", "complex32"]
    eight_bit = ["float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"]
    value = {name: numbers(5, getattr(torch, name), start=1) for name in plain + eight_bit}
    value["bool"] = torch.tensor([True, False, True])
    pattern = torch.tensor([0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF], dtype=torch.uint8)
    for name in ["float8_e8m0fnu", "float4_e2m1fn_x2", "bits8", "bits1x8", "bits2x4", "bits4x2"]:
        value[name] = pattern.clone().view(getattr(torch, name))
    value["bits16"] = pattern.clone().view(torch.bits16)
    tried = [f"{sign}{bits}" for sign in ("uint", "int") for bits in range(1, 8)]
    refused = {}
    for name in tried:
        try:
            value[name] = pattern.clone().view(getattr(torch, name))
            torch.save({name: value[name]}, io.BytesIO())
        except Exception as error:  # noqa: BLE001 torch raises many kinds
            refused[name] = str(error).splitlines()[0]
            value.pop(name, None)
    fixtures.save("dtypes.pt", value, "each dtype that this torch saves, named by itself")
    fixtures.files["dtypes.pt"]["not_saved_by_torch"] = refused


def quantized(fixtures):
    source = numbers(12).reshape(3, 4)
    scales = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    zeros = torch.tensor([0, 1, 2])
    value = {
        "qint8": torch.quantize_per_tensor(source, 0.5, 3, torch.qint8),
        "quint8": torch.quantize_per_tensor(source, 0.5, 3, torch.quint8),
        "qint32": torch.quantize_per_tensor(source, 0.5, 3, torch.qint32),
        "channels": torch.quantize_per_channel(source, scales, zeros, 0, torch.qint8),
    }
    channels = value["channels"]
    tensors = [((name,), tensor) for name, tensor in value.items()]
    # qparams, argument 4 of _rebuild_qtensor, is (scheme, scales, zero points, axis).
    tensors += [
        (("channels", 4, 1), channels.q_per_channel_scales()),
        (("channels", 4, 2), channels.q_per_channel_zero_points()),
    ]
    fixtures.save("quantized.pt", value, "affine quantized tensors", tensors)


def parameters(fixtures):
    torch.manual_seed(1)
    module = torch.nn.Linear(2, 3)
    module.bias.requires_grad_(False)
    value = {
        "weight": module.weight,
        "bias": module.bias,
        "leaf": numbers(3).requires_grad_(),
        "plain": numbers(3),
    }
    tagged = torch.nn.Parameter(numbers(2))
    tagged.group = "slow"
    value["with_attributes"] = tagged
    fixtures.save("parameters.pt", value, "Parameters, one frozen, one with a python attribute")


def lazy_bits(fixtures):
    base = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    value = {"base": base, "conjugate": base.conj()}
    fixtures.save("conjugate.pt", value, "a tensor with torch's conjugate bit")
    # A real view of complex bytes cannot share a file with them.
    value = {"negative": base.conj().imag}
    fixtures.save("negative.pt", value, "a tensor with torch's negative bit")


def sparse(fixtures):
    dense = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    coo, csr = dense.to_sparse(), dense.to_sparse_csr()
    # data, argument 1 of _rebuild_sparse_tensor.
    tensors = [
        (("coo", 1, 0), coo._indices()),
        (("coo", 1, 1), coo._values()),
        (("csr", 1, 0), csr.crow_indices()),
        (("csr", 1, 1), csr.col_indices()),
        (("csr", 1, 2), csr.values()),
        (("dense",), dense),
    ]
    value = {"coo": coo, "csr": csr, "dense": dense}
    fixtures.save("sparse.pt", value, "COO and CSR: their parts are listed", tensors)


def nested(fixtures):
    value = {"nested": torch.nested.nested_tensor([numbers(3), numbers(2, start=10)])}
    parts = value["nested"]
    tensors = [
        (("nested", 0), parts.values()),
        (("nested", 1), parts._nested_tensor_size()),
        (("nested", 2), parts._nested_tensor_strides()),
        (("nested", 3), parts._nested_tensor_storage_offsets()),
    ]
    fixtures.save("nested_tensor.pt", value, "a nested tensor: its parts are listed", tensors)


def attributes(fixtures):
    tensor = numbers(4)
    tensor.note = "calibrated"
    tensor.limits = [0.5, numbers(2, start=7)]
    # The state is argument 3 of _rebuild_from_type_v2.
    tensors = [(("w",), tensor), (("w", 3, "limits", 1), tensor.limits[1])]
    fixtures.save("attributes.pt", {"w": tensor}, "python attributes on a tensor", tensors)


class Model(torch.nn.Module):
    """A class that no reader of the file knows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first = torch.nn.Linear(2, 3)
        self.register_buffer("running", numbers(3))


def whole_module(fixtures):
    model = Model()
    tensors = [
        (("running",), model.running),
        (("first", "weight"), model.first.weight),
        (("first", "bias"), model.first.bias),
    ]
    fixtures.save("module.pt", model, "a whole nn.Module of an unknown class", tensors)


def bare_storages(fixtures):
    """Storages that were saved by themselves, one of which a tensor views, too."""
    shared = numbers(8, torch.uint8, 10)
    value = {
        "view": shared[1:3],
        "shared": shared.untyped_storage(),
        "untyped": numbers(3, torch.uint8, 1).untyped_storage(),
        "typed": numbers(2, torch.float64, 5).storage(),
    }
    fixtures.save("bare_storages.pt", value, "storages without tensors")


def names(fixtures):
    value = {
        "größe": numbers(1),
        "权重": numbers(2),
        "🙂.weight": numbers(3),
        "n" * 300: numbers(4),
        "": numbers(5),
        "with \"quotes\" \\ and \n newline": numbers(6),
        " ": numbers(7),
    }
    fixtures.save("names.pt", value, "names that are not plain words")
    value = {"a.b": numbers(1), "a": {"b": numbers(2), "c": numbers(3)}}
    fixtures.save("colliding_names.pt", value, "two paths with the joined name a.b")
    value = {0: numbers(1), "0": numbers(2), -5: numbers(3), 2**40: {7: numbers(4)}}
    fixtures.save("int_keys.pt", value, "integer keys beside the text of one of them")


def roots(fixtures):
    fixtures.save("list_root.pt", [numbers(2), {"x": numbers(3)}, (numbers(1),)], "root is a list")
    fixtures.save("tensor_root.pt", numbers(6).reshape(2, 3), "root is one tensor")
    fixtures.save("parameter_root.pt", torch.nn.Parameter(numbers(2)), "root is one Parameter")


# --- how it may be laid out -------------------------------------------------------------------


def small_model(count=12):
    return {f"layer{i}": numbers(3 + 5 * i, torch.float32, start=i) for i in range(count)}


def save_options(fixtures):
    with saving(compute_crc32=False):
        fixtures.save("no_crc.pt", small_model(), "config.save.compute_crc32 = False: CRC 0")
    with saving(storage_alignment=4096):
        fixtures.save("aligned_4096.pt", small_model(3), "config.save.storage_alignment = 4096")
    how = "_disable_byteorder_record=True: the record stands at the end"
    fixtures.save("byteorder_at_end.pt", small_model(2), how, _disable_byteorder_record=True)
    for protocol in (1, 3, 4, 5):
        fixtures.save(
            f"protocol{protocol}.pt",
            {"w": numbers(2), "blob": b"bytes", "set": {1}, "long": "x" * 300},
            f"pickle_protocol={protocol}",
            pickle_protocol=protocol,
        )
    buffer = io.BytesIO()
    value = {"w": numbers(5)}
    torch.save(value, buffer)
    (fixtures.folder / "from_buffer.pt").write_bytes(buffer.getvalue())
    fixtures.record("from_buffer.pt", "saved into a buffer: the archive is `archive`", walk(value))


def odd_storage(fixtures):
    """Storages whose bytes are no multiple of the element size (the pickle rounds down)."""
    value = {}
    for i, size in enumerate([10, 63, 64, 49, 130, 3, 47]):
        storage = torch.UntypedStorage(list(range(i, i + size)))
        view = torch.empty(0).set_(storage, 0, (size // 4,), (1,))
        value[f"odd{size}"] = view
    fixtures.save("odd_storage.pt", value, "float32 views of 10, 63, 64 ... bytes")


def old_layouts(fixtures):
    value = small_model()
    path = fixtures.folder / "old_order.pt"
    key_of = write_by_hand(path, value, order=sorted, byteorder=b"little")
    how = "laid out as torch 2.6 and older do, by torch's PyTorchFileWriter: lexicographic order"
    fixtures.record(path.name, how, walk(value), key_of)

    path = fixtures.folder / "address_keys.pt"
    value = small_model(4)
    names = ["94052342342784", "94052342341120", "94052342350000", "139921003421"]
    key_of = write_by_hand(path, value, lambda number: names[number])
    how = "laid out by torch's PyTorchFileWriter: keys are addresses, as torch 1.6 wrote them"
    fixtures.record(path.name, how, walk(value), key_of)

    path = fixtures.folder / "from_cuda.pt"
    value = small_model(2)
    modern = [(".format_version", b"1"), (".storage_alignment", b"64")]
    key_of = write_by_hand(path, value, location="cuda:1", head=modern)
    how = "laid out by torch's PyTorchFileWriter: tensors that lived on cuda:1"
    fixtures.record(path.name, how, walk(value), key_of)
    for entry in fixtures.files[path.name]["tensors"]:
        entry["location"] = "cuda:1"


def many_tensors(fixtures):
    """So many that most of them are read by the short ways of the pickle machine and the catalog."""

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(5, 2)
            self.layers = torch.nn.ModuleList(
                torch.nn.Sequential(torch.nn.Linear(2, width), torch.nn.LayerNorm(width))
                for width in [2, 3, 4] * 7
            )
            self.head = torch.nn.Linear(2, 5)
            self.head.weight = self.embedding.weight

    torch.manual_seed(0)
    model = Tied()
    how = "a module's state_dict: _metadata of each layer, two tensors in one storage"
    fixtures.save("many_state_dict.pt", model.state_dict(), how)

    optimizer = torch.optim.Adam(model.layers[-4:].parameters())
    sum(parameter.square().sum() for parameter in model.parameters()).backward()
    optimizer.step()
    shared = {f"s{i}": numbers(2, start=i) for i in range(10)}
    value = {
        "epoch": 3,
        "model": model.state_dict(),
        "ema": {"decay": 0.5, "shadow": {"shared": shared, "again": dict(shared), 7: numbers(1)}},
        "optimizer": optimizer.state_dict(),
        "views": {f"v{i}": numbers(10)[i:] for i in range(10)},
        "wrapped": {f"p{i}": torch.nn.Parameter(numbers(2)) for i in range(10)},
    }
    value["twice"] = value["ema"]["shadow"]
    how = "a training checkpoint: nested dicts, integer keys, tensors and dicts in several places"
    fixtures.save("many_training.pt", value, how)

    path = fixtures.folder / "many_old_order.pt"
    value = OrderedDict((f"layer{i}.weight", numbers(i % 3 + 1, start=i)) for i in range(110))
    key_of = write_by_hand(path, value, order=sorted, byteorder=b"little")
    how = "laid out as torch 2.6 and older do, by torch's PyTorchFileWriter: 0, 1, 10, 100, 101"
    fixtures.record(path.name, how, walk(value), key_of)


def byte_orders(fixtures):
    value = {
        "float32": numbers(3),
        "float64": numbers(2, torch.float64),
        "bfloat16": numbers(3, torch.bfloat16),
        "int64": numbers(2, torch.int64),
        "int16": numbers(3, torch.int16),
        "uint8": numbers(3, torch.uint8),
        "bool": torch.tensor([True, False]),
        "complex64": torch.tensor([1 + 2j, 3 - 4j]),
        "transposed": numbers(6, torch.int32).reshape(2, 3).t(),
    }
    path = fixtures.folder / "big_endian.pt"
    key_of = write_by_hand(path, value, storage_data=swapped, byteorder=b"big")
    how = "what a big-endian machine writes, laid out by torch's PyTorchFileWriter: every number "
    how += "in the storages reversed; hex and sha256 are of the values in little-endian order"
    fixtures.record(path.name, how, walk(value), key_of, byteorder="big")

    # The record cannot be left out (the writer adds it), so it is given a name that nobody knows.
    path = fixtures.folder / "no_byteorder.pt"
    key_of = write_by_hand(path, small_model(2), byteorder=b"little")
    data = path.read_bytes()
    assert data.count(b"/byteorder") == 2
    path.write_bytes(data.replace(b"/byteorder", b"/bytexrder"))
    value = small_model(2)
    fixtures.record(path.name, "the byteorder record renamed to bytexrder", walk(value))


def rezipped(fixtures):
    for method, word in ((zipfile.ZIP_STORED, "stored"), (zipfile.ZIP_DEFLATED, "deflated")):
        path = fixtures.folder / f"rezipped_{word}.pt"
        with zipfile.ZipFile(fixtures.folder / "state_dict.pt") as source:
            with zipfile.ZipFile(path, "w") as target:
                for entry in source.infolist():
                    copy = zipfile.ZipInfo(entry.filename, FIXED_TIME)
                    copy.compress_type = method
                    target.writestr(copy, source.read(entry))
        how = f"state_dict.pt unpacked and packed again by Python's zipfile, {word}"
        if method == zipfile.ZIP_DEFLATED:
            fixtures.files[path.name] = {"how": how}  # places in the file say nothing
            continue
        value = torch.load(path, weights_only=False)
        fixtures.record(path.name, how, walk(value))


class Scripted(torch.nn.Module):
    pieces: List[torch.Tensor]

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.tied = self.linear.weight
        self.pieces = [numbers(2), numbers(3)]
        self.register_buffer("steps", numbers(3, torch.uint16))
        self.register_buffer("small", numbers(4).to(torch.float8_e4m3fn))

    def forward(self, x):
        return self.linear(x) + self.pieces[0]


def save_script(fixtures, name, module, how, tensors):
    """torch.jit.save without what differs from run to run: debug records hold the paths of the
    machine that made the file."""
    stream = io.BytesIO()
    torch.jit.save(module, stream)
    stream.seek(0)
    write_again(stream, fixtures.folder / name,
                lambda record, data: None if record.endswith(".debug_pkl") else data)
    fixtures.record(name, how + ", written again without its debug records", tensors)


def torchscript(fixtures):
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = torch.nn.Sequential(OrderedDict(linear=torch.nn.Linear(2, 2)))
        traced = torch.jit.trace(plain, torch.ones(1, 2))
        save_script(
            fixtures,
            "torchscript.pt",
            traced,
            "torch.jit.save of a traced module",
            [(("linear", part), getattr(traced.linear, part)) for part in ("weight", "bias")],
        )
        scripted = torch.jit.script(Scripted())
        save_script(
            fixtures,
            "scripted.pt",
            scripted,
            "torch.jit.save of a scripted module",
            [
                (("tied",), scripted.tied),
                (("steps",), scripted.steps),
                (("small",), scripted.small),
                (("pieces", 0), scripted.pieces[0]),
                (("pieces", 1), scripted.pieces[1]),
                (("linear", "weight"), scripted.linear.weight),
                (("linear", "bias"), scripted.linear.bias),
            ],
        )


# --- the stream of before torch 1.6 -----------------------------------------------------------


class LegacyReader:
    """Where storages are in a stream: what a PyTorchFileReader says of an archive."""

    def __init__(self, path, sizes):
        # At the end of the file, in the order of their keys, each behind a count of eight bytes.
        self.offsets = {}
        at = path.stat().st_size
        for key in sorted(sizes, reverse=True):
            at -= sizes[key]
            self.offsets["data/" + key] = at
            at -= 8

    def get_record_offset(self, name):
        return self.offsets[name]


def legacy(fixtures):
    (fixtures.folder / "legacy").mkdir(exist_ok=True)

    def key_of(tensor):
        return str(tensor.untyped_storage()._cdata)

    def save(name, value, how, tensors):
        path = fixtures.folder / "legacy" / name
        torch.save(value, path, _use_new_zipfile_serialization=False)
        sizes = {key_of(tensor): tensor.untyped_storage().nbytes() for _, tensor in tensors}
        how = f"torch.save(_use_new_zipfile_serialization=False): {how}"
        reader = LegacyReader(path, sizes)
        fixtures.record("legacy/" + name, how, tensors, key_of, reader)

    base = numbers(12).reshape(3, 4)
    value = {
        "w": numbers(3),
        "b": numbers(2, torch.int64),
        "odd": numbers(3, torch.uint8),
        "base": base,
        "transposed": base.t(),
        "row": base[1],
        "parameter": torch.nn.Parameter(numbers(4)),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 2),
        "nested": [{"x": numbers(5, torch.float16)}, 7],
    }
    save("dict.pt", value, "views, a parameter, an empty tensor", list(walk(value)))
    value = {str(dtype).removeprefix("torch."): numbers(5).to(dtype) for dtype in LEGACY_DTYPES}
    save("dtypes.pt", value, "dtypes", list(walk(value)))
    torch.manual_seed(5)
    module = torch.nn.Linear(2, 3)
    tensors = [((name,), tensor) for name, tensor in module.named_parameters()]
    # torch would note where it is installed, and its own text.
    source = ["class Linear: ...\n"], 1, "linear.py"
    with unittest.mock.patch("torch.serialization.get_source_lines_and_file", lambda _: source):
        save("module.pt", module, "a whole module, with the name and text of its source", tensors)


LEGACY_DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2,
)


# --- what is not a checkpoint -----------------------------------------------------------------


def strangers(fixtures):
    (fixtures.folder / "strangers").mkdir(exist_ok=True)

    def stranger(name, data, how, code="not_a_checkpoint"):
        (fixtures.folder / "strangers" / name).write_bytes(data)
        fixtures.refused("strangers/" + name, how, code)

    oid = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 548105171\n"
    stranger("lfs_pointer.pt", pointer.encode(), "a Git LFS pointer")
    page = b"<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>\n"
    stranger("page.pt", page, "an HTML error page")
    compressed = gzip.compress((fixtures.folder / "tensor_root.pt").read_bytes(), mtime=0)
    stranger("compressed.pt.gz", compressed, "a checkpoint compressed by gzip")
    stranger("archive.7z", b"7z\xbc\xaf\x27\x1c\x00\x04" + bytes(24), "a 7z header")
    path = fixtures.folder / "strangers/archive.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("storages"), io.BytesIO())
    fixtures.refused("strangers/archive.tar", "a tar archive", "not_a_checkpoint")
    stranger("empty.pt", b"", "no bytes")
    whole = (fixtures.folder / "training.pt").read_bytes()
    stranger("truncated.pt", whole[: len(whole) * 3 // 5], "a download that stopped", "corrupt")
    with zipfile.ZipFile(fixtures.folder / "strangers/documents.zip", "w") as target:
        target.writestr(zipfile.ZipInfo("docs/readme.txt", FIXED_TIME), "hello")
    fixtures.refused("strangers/documents.zip", "a zip without data.pkl", "not_a_checkpoint")


def in_one_line(json_text):
    """Texts in it hold no newline of their own."""
    return re.sub(r"\n *", "", re.sub(r",\n *", ", ", json_text))


def main():
    here = pathlib.Path(__file__).resolve().parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    fixtures = Fixtures(folder)
    for make in (
        state_dict, training_checkpoint, views, scalars_and_empty, dtypes, quantized, parameters,
        lazy_bits, sparse, nested, attributes, whole_module, bare_storages, names, roots, save_options,
        odd_storage, old_layouts, many_tensors, byte_orders, rezipped, legacy, torchscript, strangers,
    ):
        make(fixtures)
    manifest = {"torch": torch.__version__, "files": fixtures.files}
    text = json.dumps(manifest, indent=1, ensure_ascii=True)
    text = re.sub(r"\{[^{}]*\}", lambda item: in_one_line(item[0]), text)  # storages, tensors
    (folder / "manifest.json").write_text(text + "\n")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"torch {torch.__version__}: {len(fixtures.files)} files, {size} bytes in {folder}")


if __name__ == "__main__":
    main()
