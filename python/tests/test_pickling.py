"""What of checkpoints and tensors goes to other processes, and what is refused."""

import copy
import os
import pickle
import shutil

import pytest

import weightmap
from weightmap import _core

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


# --- checkpoints

def test_a_pickled_checkpoint_is_opened_by_its_path_and_options(copy_of, monkeypatch, tmp_path):
    path = copy_of("views.pt")
    monkeypatch.chdir(tmp_path)
    checkpoint = weightmap.open(path.name, sharing="private", writable=True)
    pickled = pickle.dumps(checkpoint)
    checkpoint.close()
    monkeypatch.chdir("/")
    again = pickle.loads(pickled)
    assert again.path == str(path)
    assert list(again) == list(weightmap.open(path))
    assert (again.info.sharing, again.info.writable) == ("private", True)
    assert pickle.loads(pickle.dumps(again)).info == again.info


@pytest.mark.parametrize("take", [lambda c: c, lambda c: c["base"]], ids=["checkpoint", "tensor"])
def test_another_generation_is_not_taken_for_the_pickled_one(copy_of, data, take):
    path = copy_of("views.pt")
    pickled = pickle.dumps(take(weightmap.open(path)))
    os.chmod(path, 0o600)
    assert type(pickle.loads(pickled)) in (weightmap.Checkpoint, weightmap.Tensor)
    shutil.copyfile(data / "views.pt", path.parent / "new.pt")
    weightmap.publish(path.parent / "new.pt", path)
    with pytest.raises(weightmap.FileError) as caught:
        pickle.loads(pickled)
    assert caught.value.file == str(path)
    assert caught.value.message == (
        "is not the file that was pickled: it was replaced or written to since"
    )
    path.unlink()
    with pytest.raises(weightmap.MissingFileError):
        pickle.loads(pickled)


def test_what_is_closed_is_not_pickled(data):
    with weightmap.open(data / "views.pt") as closed:
        pass
    with pytest.raises(weightmap.InvalidArgumentError, match="is closed"):
        pickle.dumps(closed)


def test_options_that_were_not_given_are_those_of_the_other_process(copy_of, monkeypatch):
    monkeypatch.setenv("WEIGHTMAP_SHARING", "private")
    pickled = pickle.dumps(weightmap.open(copy_of("views.pt"), verify="crc"))
    monkeypatch.delenv("WEIGHTMAP_SHARING")
    again = pickle.loads(pickled)
    assert (again.info.sharing, again.stats.verify_bytes_read > 0) == ("shared", True)


def test_a_copy_of_a_checkpoint_is_closed_by_itself(copy_of, mappings_of):
    path = copy_of("views.pt")
    checkpoint = weightmap.open(path)
    same = copy.copy(checkpoint)
    assert (same.path, mappings_of(path)) == (checkpoint.path, 1)
    checkpoint.close()
    assert list(same)[0] == "base"
    deep = copy.deepcopy(same)
    assert mappings_of(path) == 2
    assert deep.info == same.info


def test_a_subtree_is_pickled(copy_of):
    model = weightmap.open(copy_of("training.pt")).subtree("model")
    again = pickle.loads(pickle.dumps(model))
    assert (list(again), again.path, repr(again)) == (list(model), model.path, repr(model))


# --- tensors


def same(one, two):
    """Whether they are the same elements of the same tensor."""
    fields = ("name", "dtype", "shape", "strides", "storage", "storage_offset", "index",
              "file_offset", "byteorder", "is_conjugate", "is_negative", "requires_grad")
    return all(getattr(one, field) == getattr(two, field) for field in fields)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tensors_are_pickled(checkpoint, protocol):
    for file in ("views.pt", "dtypes.pt", "scalars_and_empty.pt", "big_endian.pt", "conjugate.pt"):
        for tensor in checkpoint(file).values():
            again = pickle.loads(pickle.dumps(tensor, protocol))
            assert same(again, tensor)
            if not (tensor.is_conjugate or tensor.is_negative):
                assert again.tobytes() == tensor.tobytes()


PARTS = {
    "a row": lambda t: t[1],
    "one element": lambda t: t[2, 3],
    "columns": lambda t: t[:, 2:5],
    "with steps": lambda t: t[1::2, ::3],
    "a part of a part": lambda t: t[1:][1:, 1:][0],
    "nothing of it": lambda t: t[3:3],
    "its bits": lambda t: t.bits(),
    "bits of a part": lambda t: t[2:].bits(),
    "a part of its bits": lambda t: t.bits()[:, 4],
}


@pytest.mark.parametrize("take", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_parts_of_tensors_are_pickled(checkpoint, protocol, take):
    part = take(checkpoint("views.pt")["base"])
    again = pickle.loads(pickle.dumps(part, protocol))
    assert same(again, part)
    assert again.tobytes() == part.tobytes()


def test_parts_of_views_and_of_lazy_tensors_are_pickled(checkpoint):
    views = checkpoint("views.pt")
    parts = [views["permuted"][0, :, 1:], views["expanded"][1:3, :2], views["overlapping"][1:]]
    for tensor in checkpoint("conjugate.pt").values():
        parts += [tensor[1:], tensor[1:].bits()] if tensor.ndim and tensor.itemsize < 16 else []
    for part in parts:
        assert same(pickle.loads(pickle.dumps(part)), part)


@pytest.mark.parametrize("convert", [copy.copy, copy.deepcopy])
def test_tensors_are_copied(checkpoint, convert):
    tensor = checkpoint("views.pt")["base"][1:, 2]
    assert same(convert(tensor), tensor)
    assert convert(tensor).tolist() == [8.0, 14.0, 20.0]


def test_tensors_of_one_name_are_pickled_by_path(checkpoint):
    collisions = checkpoint("colliding_names.pt")
    names = list(collisions)
    twice = next(name for name in names if names.count(name) > 1)
    for tensor in collisions.values():
        assert same(pickle.loads(pickle.dumps(tensor)), tensor)
    assert collisions.paths()[names.index(twice)] in [
        tensor.__reduce__()[1][1] for tensor in collisions.values()
    ]


def test_tensors_outlive_their_checkpoint_and_are_pickled_then(copy_of):
    path = copy_of("views.pt")
    with weightmap.open(path, sharing="private", writable=True) as checkpoint:
        tensor = checkpoint["base"]
    del checkpoint
    again = pickle.loads(pickle.dumps(tensor))
    assert same(again, tensor) and again.is_writable


@pytest.mark.parametrize("take", [lambda c: [c, *c.values()], lambda c: [*c.values(), c],
                                  lambda c: [c["base"][:, i] for i in range(6)]])
def test_many_tensors_of_one_checkpoint_open_it_once(copy_of, mappings_of, take):
    path = copy_of("views.pt")
    with weightmap.open(path) as checkpoint:
        pickled = pickle.dumps(take(checkpoint))
    del checkpoint
    assert mappings_of(path) == 0
    again = pickle.loads(pickled)
    assert (len(again) > 5, mappings_of(path)) == (True, 1)


def test_two_opens_of_one_file_stay_two(copy_of, mappings_of):
    path = copy_of("views.pt")
    pickled = pickle.dumps([weightmap.open(path)["base"], weightmap.open(path)["base"]])
    again = pickle.loads(pickled)
    assert (len(again), mappings_of(path)) == (2, 2)


def test_nothing_is_kept_of_what_was_pickled(copy_of, mappings_of):
    path = copy_of("views.pt")
    checkpoint = weightmap.open(path)
    pickle.dumps([checkpoint, *checkpoint.values()])
    del checkpoint
    assert mappings_of(path) == 0


def test_a_plain_tree_with_tensors_is_pickled(checkpoint):
    root = checkpoint("training.pt").root()
    again = pickle.loads(pickle.dumps(root))
    assert again.keys() == root.keys()


DATASET = """
import multiprocessing, sys, weightmap

class Dataset:
    def __init__(self, path):
        self.checkpoint = weightmap.open(path)
        self.rows = list(self.checkpoint["base"])
        self.bits = self.checkpoint["base"][1:].bits()

def look(dataset):
    mapped = [line for line in open("/proc/self/maps") if line.endswith("/views.pt\\n")]
    return [row.tolist()[0] for row in dataset.rows], dataset.bits.shape, len(mapped)

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(look, [Dataset(sys.argv[1])]))
"""


def test_tensors_go_to_a_process_that_is_spawned(copy_of, python):
    path = copy_of("views.pt")
    script = path.parent / "program.py"
    script.write_text(DATASET)
    ran = python(None, script, path)
    assert ran.stdout == "([0.0, 6.0, 12.0, 18.0], (3, 6), 1)\n", ran.stderr


# --- refused


def refusal(use):
    with pytest.raises(weightmap.Error) as caught:
        use()
    return type(caught.value).__name__, caught.value.file, caught.value.message


def test_a_tensor_of_a_descriptor_is_refused_as_its_checkpoint_is(data):
    with open(data / "views.pt", "rb") as stream:
        checkpoint = weightmap.open(stream)
        file = f"descriptor {stream.fileno()}"
    expected = (
        "InvalidArgumentError", file, "cannot be pickled, since only this process knows what it is"
    )
    assert refusal(lambda: pickle.dumps(checkpoint)) == expected
    assert refusal(lambda: pickle.dumps(checkpoint["base"])) == expected
    assert refusal(lambda: pickle.dumps(checkpoint["base"][1:])) == expected
    assert refusal(lambda: copy.deepcopy(checkpoint["base"])) == expected
    assert same(copy.copy(checkpoint["base"]), checkpoint["base"])


def test_a_tensor_of_a_staged_copy_is_refused_as_its_checkpoint_is(data):
    with weightmap.stage(data / "views.pt") as staged:
        checkpoint = weightmap.open(staged)
    expected = refusal(lambda: pickle.dumps(checkpoint))
    assert expected[2] == "cannot be pickled, since only this process knows what it is"
    assert refusal(lambda: pickle.dumps(checkpoint["base"])) == expected


LARGEST = 2**63 - 1


@pytest.mark.parametrize("offset, shape, strides", [
    (0, (25,), (1,)),
    (24, (1,), (1,)),
    (25, (0,), (1,)),
    (20, (5,), (1,)),
    (0, (4,), (8,)),
    (0, (4,), (-1,)),
    (0, (-1,), (1,)),
    (0, (4,), (1, 1)),
    (0, (1,) * 9, (1,) * 9),
    (0, (LARGEST,), (LARGEST,)),
    (0, (3, 3), (LARGEST, LARGEST)),
    (0, (LARGEST, 4), (0, 0)),
    (0, (25,), (0,)),
])
def test_a_part_that_the_tensor_does_not_have_is_refused(checkpoint, offset, shape, strides):
    tensor = checkpoint("views.pt")["base"]
    with pytest.raises(weightmap.InvalidArgumentError) as caught:
        _core.part_of(tensor, offset, shape, strides)
    assert caught.value.message == "has no such part"


def test_a_part_is_what_its_numbers_say(checkpoint):
    tensor = checkpoint("views.pt")["base"]
    assert _core.part_of(tensor, 23, (1,), (LARGEST,)).tolist() == [23.0]
    assert _core.part_of(tensor, 24, (0, LARGEST), (1, 1)).numel == 0
    assert _core.part_of(tensor, 7, (), ()).item() == 7.0
    assert _core.part_of(tensor, 6, (2, 3), (0, 2)).tolist() == [[6.0, 8.0, 10.0]] * 2
    with pytest.raises(TypeError):
        _core.part_of(tensor, -1, (1,), (1,))


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_tensor_that_is_not_listed_says_what_to_take(take, tmp_path):
    torch = pytest.importorskip("torch")
    module = torch.nn.Module()
    module.register_buffer("mask", torch.arange(3.0), persistent=False)
    torch.save(module, tmp_path / "module.pt")
    with weightmap.open(tmp_path / "module.pt") as opened:
        mask = opened.root().state["_buffers"]["mask"]
        assert list(opened) == [] and mask.numpy().tolist() == [0, 1, 2]
        with pytest.raises(weightmap.InvalidArgumentError, match='tensor "mask" cannot be pickled or copied, '
                           r"since it is not listed: .*; take tensor.numpy\(\) or tensor.torch\(\)"):
            take(mask)
