"""weightmap.open_for_filling(): reserved storages, filled in place by many."""

import json
import multiprocessing
import zipfile

import pytest

import weightmap

numpy = pytest.importorskip("numpy", reason="fills from arrays of numpy, which is not installed")

SHAPE = (40, 25)


def values_of(number):
    return numpy.arange(1000, dtype=numpy.float32).reshape(SHAPE) + 1000 * number


@pytest.fixture
def path(tmp_path):
    """Eight layers that are reserved."""
    layers = {f"layer.{i}": weightmap.empty(SHAPE) for i in range(8)}
    weightmap.save({**layers, "step": numpy.int64(7)}, tmp_path / "model.pt")
    return tmp_path / "model.pt"


def fill_all(fill):
    for i in range(8):
        fill[f"layer.{i}"] = values_of(i)


def test_what_is_filled_and_sealed_is_read_by_everybody(path):
    with weightmap.open_for_filling(path) as fill:
        fill_all(fill)
        assert fill.unwritten() == []
        fill.seal()
    with weightmap.open(path) as checkpoint:
        assert checkpoint.verify_crc().storages_checked == 8
        for i in range(8):
            assert numpy.array_equal(checkpoint[f"layer.{i}"].numpy(), values_of(i))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_the_storages_are_where_the_report_of_save_says(tmp_path):
    report = weightmap.save({"a": weightmap.empty((3,), "bfloat16")}, tmp_path / "a.pt")
    [saved] = report.storages
    assert saved.reserved
    with weightmap.open_for_filling(tmp_path / "a.pt") as fill:
        assert fill.storages == (
            weightmap.reports.ReservedStorage(saved.key, saved.offset, saved.nbytes, False),
        )


def test_unwritten_tensors_are_named(path):
    with weightmap.open_for_filling(path) as fill:
        fill_all(fill)
    weightmap.save({"a": weightmap.empty((2,)), "b": weightmap.empty((2,))}, path)
    with weightmap.open_for_filling(path) as fill:
        fill["b"] = numpy.ones(2, numpy.float32)
        assert fill.unwritten() == ["a"]
        with pytest.raises(
            weightmap.InvalidArgumentError,
            match="1 of 2 reserved storages are not marked as written: data/0",
        ):
            fill.seal()


def test_in_place_and_then_marked(path):
    with weightmap.open_for_filling(path) as fill:
        fill_all(fill)
    weightmap.save({"a": weightmap.empty((4,))}, path)
    with weightmap.open_for_filling(path) as fill:
        array = fill.array("a")
        array[:2] = 1
        array[2:] = 2
        assert fill.unwritten() == ["a"]
        fill.mark_written("a")
        fill.seal()
    assert weightmap.open(path)["a"].numpy().tolist() == [1, 1, 2, 2]


def test_torch_tensors_and_torch_reads_it(path):
    torch = pytest.importorskip("torch")
    weightmap.save({"w": weightmap.empty((2, 3), torch.bfloat16), "b": weightmap.empty(2)}, path)
    weight = torch.arange(6, dtype=torch.bfloat16).reshape(3, 2).T
    with weightmap.open_for_filling(path) as fill:
        fill["w"] = weight
        fill.torch("b").fill_(3)
        fill.mark_written("b")
        fill.seal()
    for mmap in (False, True):
        loaded = torch.load(path, weights_only=True, mmap=mmap)
        assert torch.equal(loaded["w"], weight)
        assert loaded["b"].tolist() == [3, 3]


def test_a_tensor_of_another_checkpoint_is_copied(path, tmp_path):
    weightmap.save({"layer.3": values_of(3)}, tmp_path / "other.pt")
    with weightmap.open_for_filling(path) as fill, weightmap.open(tmp_path / "other.pt") as other:
        fill["layer.3"] = other["layer.3"]
    assert numpy.array_equal(weightmap.open(path)["layer.3"].numpy(), values_of(3))


def fill_one(arguments):
    path, number = arguments
    with weightmap.open_for_filling(path) as fill:
        fill[f"layer.{number}"] = values_of(number)


def test_processes_fill_at_once_what_one_fills(path, tmp_path):
    alone = tmp_path / "alone" / "model.pt"
    alone.parent.mkdir()
    alone.write_bytes(path.read_bytes())
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        pool.map(fill_one, [(str(path), i) for i in range(8)])
    with weightmap.open_for_filling(alone) as fill:
        fill_all(fill)
        fill.seal()
    with weightmap.open_for_filling(path) as fill:
        fill.seal()
    assert path.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize("values, message", [
    (numpy.zeros(SHAPE), r"is float32 \[40, 25\], got float64 \[40, 25\]"),
    (numpy.zeros(3, numpy.float32), r"is float32 \[40, 25\], got float32 \[3\]"),
])
def test_values_of_another_type_or_shape_are_refused(path, values, message):
    with weightmap.open_for_filling(path) as fill:
        with pytest.raises(weightmap.InvalidArgumentError, match=message):
            fill["layer.0"] = values
        assert "layer.0" in fill.unwritten()


def test_a_name_that_is_not_there_is_refused(path):
    with weightmap.open_for_filling(path) as fill:
        with pytest.raises(KeyError):
            fill["layer.9"] = values_of(0)


def test_a_sealed_file_is_refused(path):
    with weightmap.open_for_filling(path) as fill:
        fill_all(fill)
        fill.seal()
    with pytest.raises(weightmap.InvalidArgumentError, match="is sealed"):
        weightmap.open_for_filling(path)


def test_sealing_while_another_fills_is_refused(path):
    with weightmap.open_for_filling(path) as fill, weightmap.open_for_filling(path):
        fill_all(fill)
        with pytest.raises(weightmap.FileError, match="others have the file open for filling"):
            fill.seal()


def test_a_filling_that_was_closed_says_so(path):
    fill = weightmap.open_for_filling(path)
    fill.close()
    with pytest.raises(weightmap.InvalidArgumentError, match="was closed"):
        fill.seal()
    assert repr(fill) == "<weightmap.Filling closed>"


@pytest.fixture
def tool(python):
    return lambda *arguments: python(None, "-m", "weightmap", *arguments)


def test_the_tool_says_what_is_missing_until_the_file_is_sealed(path, tool):
    with weightmap.open_for_filling(path) as fill:
        for i in (0, 2, 3, 4, 6, 7):
            fill[f"layer.{i}"] = values_of(i)
    assert "8 storages, 2 unwritten (data/1, data/5), not sealed\n" in tool("ls", "--info", path).stdout
    assert json.loads(tool("ls", "--info", "--json", path).stdout)["reserved"] == {
        "storages": 8,
        "unwritten": [1, 5],
        "sealed": False,
    }
    [head, *rows] = tool("ls", path).stdout.splitlines()
    assert head.endswith("  WRITTEN")
    assert rows[0].endswith("  yes") and rows[1].endswith("  no")
    listed = json.loads(tool("ls", "--json", path).stdout)["tensors"]
    assert [tensor["name"] for tensor in listed if not tensor["written"]] == ["layer.1", "layer.5"]
    verified = tool("verify", path)
    assert verified.returncode == 1
    assert "storage data/5 of 4000 bytes is reserved, and nobody has written it" in verified.stdout
    with weightmap.open_for_filling(path) as fill:
        fill["layer.1"] = values_of(1)
        fill["layer.5"] = values_of(5)
    assert "but the file is not sealed: it has no checksums" in tool("verify", path).stdout
    with weightmap.open_for_filling(path) as fill:
        fill.seal()
    assert tool("verify", "--crc", path).returncode == 0
    assert "8 storages, all written, sealed\n" in tool("ls", "--info", path).stdout
    assert "WRITTEN" not in tool("ls", path).stdout
