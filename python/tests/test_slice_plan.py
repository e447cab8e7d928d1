"""Plans of what a rank needs of each tensor: learned from a load, kept as a file, warmed."""

import json
import os
import struct
import sys

import pytest

import weightmap
from weightmap import SlicePart, SlicePlan

KIB = 1 << 10
DATA = 64 * KIB  # where the tensors of `matrices` begin: a page, whatever its size


@pytest.fixture
def matrices(tmp_path):
    """Evicted: "wide" of 16 rows of 128 KiB, and "tall" of 64 rows of 8 KiB; bytes that differ."""
    header = {
        "wide": {"dtype": "U8", "shape": [16, 128 * KIB], "data_offsets": [0, 2048 * KIB]},
        "tall": {"dtype": "F32", "shape": [64, 2048], "data_offsets": [2048 * KIB, 2560 * KIB]},
    }
    text = json.dumps(header).encode().ljust(DATA - 8)
    path = tmp_path / "matrices.safetensors"
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + os.urandom(2560 * KIB))
        file.flush()
        os.fsync(file.fileno())
    return path


def evicted(path):
    """Opened, with nothing of it cached; or the test is skipped."""
    opened = weightmap.open(path)
    report = weightmap.evict(path)
    if report.cached_after:
        pytest.skip(f"nothing is cold here: {report.reason}")
    return opened


# --- warming ----------------------------------------------------------------------------------


def test_warms_what_is_in_brackets_and_nothing_else(matrices):
    opened = evicted(matrices)
    report = opened.warm({"wide": (slice(None), slice(0, 16 * KIB)), "tall": slice(0, 32)})
    assert report.bytes == 16 * 16 * KIB + 32 * 8 * KIB
    wide, tall = opened.residency().tensors
    assert wide.cached_bytes <= 16 * 16 * KIB
    assert tall.cached_bytes <= 32 * 8 * KIB


def test_a_plan_is_saved_beside_what_others_have_put_there(tmp_path):
    path = tmp_path / "plan.json"
    other = tmp_path / "other"
    other.write_text("kept")
    (tmp_path / f"plan.json.{os.getpid()}").symlink_to(other)
    SlicePlan({"a": None}).save(path)
    assert other.read_text() == "kept"
    assert dict(SlicePlan.load(path)) == {"a": None}


def test_two_ranks_need_all_of_it_once(matrices):
    opened = evicted(matrices)
    done = [
        opened.warm({
            "wide": (slice(None), slice(rank * 64 * KIB, (rank + 1) * 64 * KIB)),
            "tall": slice(rank * 32, (rank + 1) * 32),
        }).bytes
        for rank in (0, 1)
    ]
    assert done == [1280 * KIB, 1280 * KIB]
    assert sum(done) == 2560 * KIB  # every byte of the tensors, none twice


def test_none_is_all_of_a_tensor(matrices):
    with weightmap.open(matrices) as opened:
        assert opened.warm({"tall": None}).bytes == 512 * KIB
        assert opened.warm({}).bytes == 0
        assert opened.warm({"tall": slice(3, 3)}).bytes == 0


def test_parts_are_counted_in_elements(matrices):
    with weightmap.open(matrices) as opened:
        rows = SlicePart(offset=2048, shape=(2, 2048), strides=(2048, 1))
        assert opened.warm(SlicePlan({"tall": [rows]})).bytes == 16 * KIB
        far = SlicePart(offset=2048 * 32, shape=(1, 1), strides=(2048, 1))
        assert opened.warm({"tall": rows}).bytes == 16 * KIB
        assert opened.warm({"tall": [rows, far]}).bytes == 20 * KIB


def test_warming_refuses_a_name_that_is_not_there(matrices):
    with weightmap.open(matrices) as opened, pytest.raises(weightmap.TensorNotFoundError):
        opened.warm({"small": None})


def has_note(error, note):
    """Python 3.10 has no notes."""
    return sys.version_info < (3, 11) or error.__notes__ == [note]


def test_warming_refuses_a_part_that_a_tensor_has_not(matrices):
    beyond = SlicePart(offset=64 * 2048, shape=(1,), strides=(1,))
    with weightmap.open(matrices) as opened:
        with pytest.raises(weightmap.InvalidArgumentError, match="has no such part") as caught:
            opened.warm({"tall": beyond})
        assert has_note(caught.value, f"in a plan, of tensor 'tall': {beyond!r}")
        with pytest.raises(IndexError) as caught:
            opened.warm({"tall": None, "wide": 16})
        assert has_note(caught.value, "in a plan, of tensor 'wide': 16")


def test_chunked_tensors_are_warmed_by_what_is_in_brackets(checkpoint):
    opened = checkpoint("dcp/per_rank")
    name = next(name for name in opened if isinstance(opened[name], weightmap.ChunkedTensor))
    all_of_it = opened.warm({name: None}).bytes
    assert 0 < opened.warm({name: slice(0, 1)}).bytes <= all_of_it
    with pytest.raises(weightmap.InvalidArgumentError, match="lies in several chunks"):
        opened.warm({name: SlicePart(0, (1,), (1,))})


# --- files ------------------------------------------------------------------------------------


def test_a_plan_is_a_file_of_json(tmp_path):
    path = tmp_path / "rank0.json"
    part = SlicePart(offset=8, shape=(2, 3), strides=(12, 1))
    plan = SlicePlan({"a": [part], "b": None, "\udc80": [part, part]})
    plan.save(path)
    assert path.read_text() == (
        '{"format": "weightmap slices 1", "tensors": {"a": [[8, [2, 3], [12, 1]]], "b": null, '
        '"\\udc80": [[8, [2, 3], [12, 1]], [8, [2, 3], [12, 1]]]}}'
    )
    assert SlicePlan.load(path) == plan
    assert os.listdir(tmp_path) == ["rank0.json"]
    assert repr(plan) == "<weightmap.SlicePlan of 3 tensors>"


def test_a_plan_that_cannot_be_written_leaves_the_one_before(tmp_path):
    path = tmp_path / "rank0.json"
    SlicePlan({"a": None}).save(path)
    with pytest.raises(TypeError):
        SlicePlan({"a": [SlicePart(object(), (), ())]}).save(path)
    assert dict(SlicePlan.load(path)) == {"a": None}
    assert os.listdir(tmp_path) == ["rank0.json"]


@pytest.mark.parametrize("text, why", [
    ("", "Expecting value"),
    ("[" * 100_000, "recursion|Stack overflow"),
    ("[]", "its format is not 'weightmap slices 1'"),
    ('{"format": "weightmap slices 2", "tensors": {}}', "its format is not"),
    ('{"format": "weightmap slices 1"}', "tensors is not an object"),
    ('{"format": "weightmap slices 1", "tensors": {"a": 3}}', "the parts of tensor 'a'"),
    ('{"format": "weightmap slices 1", "tensors": {"a": [3]}}', "a part of tensor 'a'"),
    ('{"format": "weightmap slices 1", "tensors": {"a": [[1, [2]]]}}', "a part of tensor 'a'"),
    ('{"format": "weightmap slices 1", "tensors": {"a": [["1", [2], [1]]]}}', "a part of"),
    ('{"format": "weightmap slices 1", "tensors": {"a": [[true, [2], [1]]]}}', "a part of"),
    ('{"format": "weightmap slices 1", "tensors": {"a": [[1, 2, [1]]]}}', "a part of"),
    ('{"format": "weightmap slices 1", "tensors": {"a": [[1, [2], [1.5]]]}}', "a part of"),
])
def test_refuses_a_file_that_is_no_plan(tmp_path, text, why):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(weightmap.InvalidArgumentError, match=why) as caught:
        SlicePlan.load(path)
    assert caught.value.file == str(path)


def test_a_plan_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError):
        SlicePlan.load(tmp_path / "plan.json")


# --- learning ---------------------------------------------------------------------------------


@pytest.fixture
def learn(torch, matrices):
    """The plan of what a function does with the tensors."""

    def run(use):
        with weightmap.open(matrices) as opened, weightmap.torch.SliceRecorder() as recorder:
            state = opened.torch()
            for name, tensor in state.items():
                recorder.add(name, tensor)
            use(**state)
        return dict(recorder.plan())

    return run


# What is done with the tensors, and the plan.
LEARNED = {
    "copies": (
        lambda torch, wide, tall: [
            torch.empty(32, 2048).copy_(tall.narrow(0, 32, 32)),
            torch.empty(16, 5, dtype=torch.uint8).copy_(wide[:, 100:105]),
        ],
        {"tall": (SlicePart(32 * 2048, (32, 2048), (2048, 1)),),
         "wide": (SlicePart(100, (16, 5), (128 * KIB, 1)),)},
    ),
    "several parts, each once": (
        lambda torch, wide, tall: [torch.stack([tall[0], tall[2]]) for _ in range(2)],
        {"tall": (SlicePart(0, (2048,), (1,)), SlicePart(2 * 2048, (2048,), (1,)))},
    ),
    "views": (lambda torch, wide, tall: tall.narrow(0, 1, 1).t().view(-1).detach(), {}),
    "what is read whole": (
        lambda torch, wide, tall: [tall[0].clone(), tall.t().contiguous(), tall[1].clone()],
        {"tall": None},
    ),
    "other elements": (
        lambda torch, wide, tall: wide[0, :8].view(torch.int16).clone(), {"wide": None}
    ),
    "what has no memory": (
        lambda torch, wide, tall: [
            torch.empty(3, device="meta").clone(),
            torch.sparse_coo_tensor([[0]], [1.0], (3,), check_invariants=True).clone(),
            tall[0:0].clone(),
        ],
        {},
    ),
}


@pytest.mark.parametrize("name", LEARNED)
def test_learns(torch, learn, name):
    use, expected = LEARNED[name]
    assert learn(lambda wide, tall: use(torch, wide, tall)) == expected


def test_too_many_parts_make_it_whole(learn, monkeypatch):
    from weightmap._torch import slice_recorder as _slice_recorder

    monkeypatch.setattr(_slice_recorder, "_MOST_PARTS", 2)
    assert learn(lambda wide, tall: [tall[row].clone() for row in (0, 1)])["tall"] is not None
    assert learn(lambda wide, tall: [tall[row].clone() for row in (0, 1, 2)])["tall"] is None


def test_tensors_of_one_storage_are_told_apart(torch, tmp_path):
    both = torch.arange(10.0)
    weightmap.save({"early": both[:4], "late": both[4:]}, tmp_path / "both.pt")
    state = weightmap.torch.load(tmp_path / "both.pt")
    with weightmap.torch.SliceRecorder() as recorder:
        for name, tensor in state.items():
            recorder.add(name, tensor)
        state["late"][1:3].clone()
    assert dict(recorder.plan()) == {"late": (SlicePart(1, (2,), (1,)),)}


def test_learns_in_keyword_arguments_and_lists(torch, learn):
    def use(wide, tall):
        torch.cat([tall[:1], tall[2:3]])
        torch.add(input=tall[4], other=tall[5])

    assert [part.offset // 2048 for part in learn(use)["tall"]] == [0, 2, 4, 5]


def test_a_learned_plan_warms_what_was_read(torch, learn, matrices):
    plan = SlicePlan(learn(lambda wide, tall: wide[:, : 16 * KIB].clone()))
    opened = evicted(matrices)
    assert opened.warm(plan).bytes == 16 * 16 * KIB
    wide, tall = opened.residency().tensors
    assert (wide.cached_bytes <= 16 * 16 * KIB, tall.cached_bytes) == (True, 0)
