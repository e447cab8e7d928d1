"""docs/formats.md: every cell of its table, on files that their real writers made.

A cell that begins with "yes" must hold; one that begins with "no" must fail, so that the page does
not go on to deny what has come to work. A kind or a column that only the page or only this file has
fails, too.
"""

import functools
import pathlib
import pickle
import re
import shutil
import tarfile
import warnings

import pytest

import weightmap

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
for needed in ("gguf", "safetensors.torch", "ml_dtypes"):
    pytest.importorskip(needed)

import format_files  # noqa: E402
from conftest import DATA  # noqa: E402
import gguf  # noqa: E402
import ml_dtypes  # noqa: E402
import safetensors.torch  # noqa: E402

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "formats.md"


class Net(torch.nn.Module):
    """What trainers pickle whole: a buffer that is no state, and weights with two names."""

    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("mask", torch.ones(2), persistent=False)


class Node:
    """Points to its parent, as OmegaConf's nodes do."""

    def __init__(self, parent=None):
        self.parent = parent
        self.children = [] if parent else [Node(self)]


class Kind:
    """A file, the tensors that are in it by name, and values that root() must have by path."""

    def __init__(self, path, tensors, values=()):
        self.path, self.tensors, self.values = path, tensors, dict(values)


def training():
    """State, optimizer and plain values, in a nested dict."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
            "names": ["a", "b"]}


TRAINING_VALUES = {("epoch",): 3, ("names",): ["a", "b"]}


def flat(state, path=()):
    """The tensors of nested dicts and lists by joined name."""
    if torch.is_tensor(state):
        return {".".join(path): state.detach()}
    items = state.items() if isinstance(state, dict) else enumerate(state)
    return {name: tensor for key, value in items if isinstance(value, (dict, list, torch.Tensor))
            for name, tensor in flat(value, (*path, str(key))).items()}


def written(write, name, tensors, values=()):
    """A kind of which a function writes the file of this name."""

    def make(folder):
        write(folder / name)
        return Kind(folder / name, tensors(folder / name), values)

    return make


def write_state_dict(path, **options):
    torch.save(format_files.apart(), path, **options)


def write_mixed_npz(path):
    numbers = numpy.arange(6, dtype="f4")
    numpy.savez(path, w=numbers, b=numbers.astype(ml_dtypes.bfloat16))


def apart(path):
    return format_files.apart()


def all_tensors(path):
    return format_files.tensors()


def first_six(name):
    return lambda path: {name: torch.arange(6.0)}


def training_checkpoint(folder):
    state = training()
    torch.save(state, folder / "train.ckpt")
    return Kind(folder / "train.ckpt", flat(state), TRAINING_VALUES)


def whole_module(folder):
    net = Net()
    torch.save({"epoch": 1, "model": net}, folder / "last.pt")
    expected = {f"model.{name}": tensor for name, tensor in net.state_dict().items()}
    return Kind(folder / "last.pt", expected, {("epoch",): 1})


def holds_itself(folder):
    torch.save({"w": torch.ones(2), "config": Node(), "epoch": 2}, folder / "hydra.ckpt")
    return Kind(folder / "hydra.ckpt", {"w": torch.ones(2)}, {("epoch",): 2})


def gguf_of_floats(folder):
    expected = format_files.some(("weight", "tied", "low"))
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    for name, tensor in expected.items():
        writer.add_tensor(name, tensor.numpy())
    for step in ("header_to_file", "kv_data_to_file", "tensors_to_file"):
        getattr(writer, f"write_{step}")()
    writer.close()
    return Kind(folder / "model.gguf", expected, {("general.architecture",): "llama"})


def bare_pickle(folder, protocol=pickle.DEFAULT_PROTOCOL):
    zoo = {"model": {"w": numpy.arange(6, dtype="f4")}, "__author__": "zoo"}
    (folder / "zoo.pkl").write_bytes(pickle.dumps(zoo, protocol))
    return Kind(folder / "zoo.pkl", {"model.w": torch.arange(6.0)}, {("__author__",): "zoo"})


def joblib_pickle(folder):
    """A file of joblib, which need not be there to read it; see make_pickle_fixtures.py."""
    shutil.copy(DATA / "pickles/joblib_1.6.pkl", folder)
    return Kind(folder / "joblib_1.6.pkl", {"model.half": torch.arange(6).half().reshape(2, 3),
                                            "model.zeros": torch.zeros(4).double()},
                {("epoch",): 3, ("names",): ["a", (1, None)]})


def dcp_folder(folder):
    state = training()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        format_files.dcp.save(state, checkpoint_id=folder / "dcp")
    return Kind(folder / "dcp", flat(state), TRAINING_VALUES)


def nemo(folder):
    kind = training_checkpoint(folder)
    with tarfile.open(folder / "model.nemo", "w:") as archive:
        archive.add(kind.path, arcname="./model_weights.ckpt")
    return Kind(f"{folder}/model.nemo//model_weights.ckpt", kind.tensors, kind.values)


KINDS = {
    "a state dict of torch.save": written(write_state_dict, "model.pt", apart),
    "a training checkpoint of torch.save": training_checkpoint,
    "the stream of torch before 1.6": written(
        functools.partial(write_state_dict, _use_new_zipfile_serialization=False), "old.pt", apart
    ),
    "the weights in a `.nemo` (`FILE//MEMBER`)": nemo,
    "a pickled `nn.Module`": whole_module,
    "objects that hold themselves (OmegaConf)": holds_itself,
    "TorchScript": written(format_files.write_torchscript, "model.pt", all_tensors),
    "`.pt2`": written(format_files.write_pt2, "model.pt2", all_tensors),
    "safetensors": written(
        format_files.write_safetensors, "model.safetensors", apart, {("format",): "pt"}
    ),
    "safetensors in shards": written(format_files.write_shards, "shards", apart),
    "GGUF of floats": gguf_of_floats,
    # The values are the bytes of the blocks.
    "GGUF of blocks (q8_0)": written(
        format_files.write_gguf, "model.gguf", format_files.read_gguf
    ),
    "`.npz`": written(format_files.write_npz, "model.npz", apart),
    "`.npz` with bfloat16": written(write_mixed_npz, "mlx.npz", first_six("w")),
    "`.npy`": written(
        lambda path: numpy.save(path, numpy.arange(6, dtype="f4")), "a.npy", first_six("arr_0")
    ),
    "a bare pickle of arrays (protocols 3 to 5)": bare_pickle,
    "a bare pickle of arrays (protocols 0 to 2)": functools.partial(bare_pickle, protocol=2),
    "a pickle of joblib": joblib_pickle,
    "a folder of torch.distributed.checkpoint": dcp_folder,
}


def same(found, expected):
    return (found.dtype, found.shape) == (expected.dtype, expected.shape) and torch.equal(
        found, expected)


def has_names(kind, folder):
    with weightmap.open(kind.path) as checkpoint:
        assert set(kind.tensors) <= set(checkpoint)


def has_values(kind, folder):
    check_tensors(kind.path, kind.tensors)
    with weightmap.open(kind.path) as checkpoint:
        root = checkpoint.root()
        for path, expected in kind.values.items():
            found = root
            for key in path:
                found = found[key]
            assert found == expected


def check_tensors(path, expected):
    with weightmap.open(path) as checkpoint:
        for name, tensor in expected.items():
            assert same(checkpoint[name].torch(), tensor), name


def is_saved_back(kind, folder):
    with weightmap.open(kind.path) as checkpoint:
        weightmap.save(checkpoint, folder / "saved.pt")
    has_values(Kind(folder / "saved.pt", kind.tensors, kind.values), folder)


def is_converted(kind, folder, python):
    run = python(None, "-m", "weightmap", "convert", kind.path, folder / "out.safetensors")
    assert run.returncode == 0, run.stderr
    found = safetensors.torch.load_file(folder / "out.safetensors")
    for name, tensor in kind.tensors.items():
        assert same(found[name], tensor), name


COLUMNS = {
    "names": has_names,
    "values": has_values,
    "saved": is_saved_back,
    "converted": is_converted,
}


def cells():
    """(kind, column, text) of each cell of the page's table."""
    rows = [re.split(r"\s*\|\s*", line.strip("| \n"))
            for line in PAGE.read_text().splitlines() if line.startswith("|")]
    [_, *columns], _, *kinds = rows
    return [(kind, column, text) for kind, *texts in kinds
            for column, text in zip(columns, texts, strict=True)]


def test_the_page_has_a_cell_for_each_kind_and_column():
    expected = [(kind, column) for kind in KINDS for column in COLUMNS]
    assert [cell[:2] for cell in cells()] == expected


@pytest.mark.parametrize("kind, column, text", cells(), ids=[", ".join(cell) for cell in cells()])
def test_a_cell_is_true(kind, column, text, tmp_path, python):
    file = KINDS[kind](tmp_path)
    check = COLUMNS[column]
    arguments = (file, tmp_path, python) if check is is_converted else (file, tmp_path)
    if text.startswith("yes"):
        check(*arguments)
    else:
        assert text.startswith("no"), text
        with pytest.raises((AssertionError, LookupError, weightmap.Error)):
            check(*arguments)
