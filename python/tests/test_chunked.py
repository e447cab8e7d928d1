"""Tensors that lie in several pieces: of shards as torch's HuggingFaceStorageWriter leaves them."""

import json
import pickle

import pytest

import weightmap

numpy = pytest.importorskip("numpy", reason="the pieces are made with numpy")

WHOLE = numpy.arange(60, dtype=numpy.float32).reshape(6, 10)
# Where pieces are cut, along each dimension.
GRID = [(slice(0, 4), slice(0, 3)), (slice(0, 4), slice(3, 10)), (slice(4, 6), slice(0, 3)),
        (slice(4, 6), slice(3, 10))]


def write_ranks(folder, ranks):
    """ranks: for each a dict name -> (offsets, array)."""
    for number, tensors in enumerate(ranks, 1):
        info = {name: {"saved_offsets": list(at)} for name, (at, _) in tensors.items()}
        weightmap.save_safetensors(
            {name: numpy.ascontiguousarray(array) for name, (_, array) in tensors.items()},
            folder / f"shard-0000{number}-model-00001-of-00001.safetensors",
            metadata={"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0"},
        )


@pytest.fixture
def folder(tmp_path):
    write_ranks(
        tmp_path,
        [
            {
                "grid": ((rows.start, columns.start), WHOLE[rows, columns]),
                "rows": ((rows.start, columns.start), WHOLE[rows, columns]),
                **({"alone": ((0,), numpy.arange(3))} if number == 0 else {}),
            }
            for number, (rows, columns) in enumerate(GRID)
        ],
    )
    return tmp_path


@pytest.fixture
def grid(folder):
    return weightmap.open(folder)["grid"]


@pytest.mark.parametrize("path", ["alone", ("alone",), ("grid[0:4, 0:3]",)])
def test_a_tensor_or_a_piece_of_one_is_no_subtree(folder, path):
    with pytest.raises(weightmap.TensorNotFoundError, match="has (nothing called|no tensors below)"):
        weightmap.open(folder).subtree(path)


def test_the_whole_stands_for_its_pieces(folder):
    opened = weightmap.open(folder)
    assert sorted(opened) == ["alone", "grid", "rows"]
    assert len(opened) == 3
    assert "grid" in opened
    assert "grid[0:4, 0:3]" in opened  # a piece is a tensor, too
    assert opened.get("grid") is opened["grid"]
    assert opened.get("none") is None
    assert opened.find("g*") == ["grid"]
    assert opened["alone"].tolist() == [0, 1, 2]
    assert {name for name, _ in opened.items()} == set(opened)
    assert len(list(opened.values())) == 3


def test_a_chunked_tensor_has_a_length_and_is_shown(grid):
    assert (type(grid), len(grid)) == (weightmap.ChunkedTensor, 6)
    assert repr(grid) == "<weightmap.ChunkedTensor 'grid' float32 [6, 10] in 4 pieces>"


def test_pieces_are_views_in_order(grid):
    assert [offsets for offsets, _ in grid.pieces] == [(0, 0), (0, 3), (4, 0), (4, 3)]
    for (rows, columns), (_, piece) in zip(GRID, grid.pieces):
        assert piece.numpy().base is not None
        assert numpy.array_equal(piece.numpy(), WHOLE[rows, columns])


@pytest.mark.parametrize("key", [
    numpy.s_[1:5, 2:9],
    numpy.s_[3],
    numpy.s_[-1],
    numpy.s_[..., 3],
    numpy.s_[2:5],
    numpy.s_[::2, ::3],
    numpy.s_[1::3, 1],
    numpy.s_[5:2],
    numpy.s_[:, 4:4],
    numpy.s_[...],
    numpy.s_[()],
    numpy.s_[3:5, 2:4],
], ids=str)
def test_a_part_is_what_numpy_says(grid, key):
    part = grid[key]
    assert part.shape == WHOLE[key].shape
    assert numpy.array_equal(part.numpy(), WHOLE[key])
    assert part.tobytes() == WHOLE[key].tobytes()


def test_a_part_of_a_part(grid):
    part = grid[1:][::2, 1:9]
    assert part.shape == (3, 8)
    assert numpy.array_equal(part.numpy(), WHOLE[1:][::2, 1:9])
    assert numpy.array_equal(part[1:, ::3].numpy(), WHOLE[1:][::2, 1:9][1:, ::3])


def test_a_part_in_one_piece_is_a_view(grid):
    part = grid[1:3, 4:9]
    assert isinstance(part, weightmap.Tensor)
    assert part.name == "grid[0:4, 3:10]"
    assert numpy.array_equal(part.numpy(), WHOLE[1:3, 4:9])
    assert isinstance(grid[0, 0], weightmap.Tensor)
    assert isinstance(grid[0], weightmap.ChunkedTensor)


def test_an_index_that_is_none_is_refused(grid):
    with pytest.raises(IndexError, match="index 6 is out of bounds for a dimension of size 6"):
        grid[6]
    with pytest.raises(IndexError, match="too many indices: the tensor has 2 dimensions"):
        grid[0, 0, 0]
    for key in (None, [0], True, 1.5):
        with pytest.raises(TypeError, match="sliced by integers, slices and an ellipsis"):
            grid[key]
    with pytest.raises(ValueError, match="a slice of a tensor goes forward"):
        grid[::-1]


def test_pieces_are_those_of_boxes(grid):
    assert [offsets for offsets, _ in grid[3:5, 2:4].pieces] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(weightmap.InvalidArgumentError, match="sliced by a step or an integer"):
        grid[::2].pieces


def test_a_buffer_of_another_size_is_refused(grid):
    with pytest.raises(weightmap.InvalidArgumentError, match="has 239 bytes, the part needs 240"):
        grid.gather(bytearray(239))


def test_saving_puts_the_pieces_together(folder, tmp_path):
    opened = weightmap.open(folder)
    weightmap.save_safetensors(opened, tmp_path / "whole.st")
    again = weightmap.open(tmp_path / "whole.st")
    assert numpy.array_equal(again["grid"].numpy(), WHOLE)
    assert sorted(again) == sorted(opened)
    weightmap.save_safetensors({"part": opened["grid"][1:3]}, tmp_path / "part.st")
    assert numpy.array_equal(weightmap.open(tmp_path / "part.st")["part"].numpy(), WHOLE[1:3])


def test_torch_gets_whole_tensors(folder, tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    opened = weightmap.open(folder)
    whole = torch.from_numpy(WHOLE)
    assert torch.equal(opened["grid"].torch(), whole)
    assert torch.equal(opened["grid"][1::2, 2:].torch(), whole[1::2, 2:])
    assert torch.equal(opened.torch()["grid"], whole)
    assert opened["grid"].location == "cpu"
    for place in (None, "cpu", torch.device("cpu")):
        assert torch.equal(weightmap.torch.load(folder, map_location=place)["rows"], whole)
    weightmap.save(opened, tmp_path / "whole.pt")
    assert torch.equal(torch.load(tmp_path / "whole.pt")["grid"], whole)


def test_safe_open_takes_no_more_than_a_part(folder):
    file = weightmap.safe_open(folder, "np")
    assert file.keys() == ["alone", "grid", "rows"]
    assert sorted(file.offset_keys()) == file.keys()
    assert numpy.array_equal(file.get_tensor("grid"), WHOLE)
    part = file.get_slice("grid")
    assert part.get_shape() == [6, 10]
    assert part.get_dtype() == "F32"
    assert numpy.array_equal(part[2:5, 1:8], WHOLE[2:5, 1:8])
    assert numpy.array_equal(part[[0, 5]], WHOLE[[0, 5]])


def test_what_acts_on_tensors_takes_all_pieces(folder):
    opened = weightmap.open(folder)
    assert opened.warm(["grid"]).bytes > 0
    opened.demand(opened["grid"])
    assert opened.demand_order() == [f"grid[{p}]" for p in ("0:4, 0:3", "0:4, 3:10", "4:6, 0:3",
                                                           "4:6, 3:10")]
    assert len(opened.residency().tensors) == 9
    assert opened.verify_crc()
    composed = {tensor.name: tensor for tensor in opened.composed_tensors()}
    assert composed["grid"].form == "chunked"
    assert composed["grid"].offsets == ((0, 0), (0, 3), (4, 0), (4, 3))


def test_a_part_outlives_its_checkpoint_and_is_pickled(folder):
    opened = weightmap.open(folder)
    part = opened["grid"][2:5]
    opened.close()
    assert numpy.array_equal(part.numpy(), WHOLE[2:5])
    assert numpy.array_equal(pickle.loads(pickle.dumps(part)).numpy(), WHOLE[2:5])
