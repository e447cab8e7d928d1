"""Rows of tables by their numbers: Checkpoint.rows()."""

import array

import pytest
from memory_maps import mapping_at

import weightmap

numpy = pytest.importorskip("numpy", reason="this test makes tables with it")


@pytest.fixture(scope="module")
def table():
    return numpy.arange(4000 * 64, dtype=numpy.float32).reshape(4000, 64)


@pytest.fixture(scope="module")
def opened(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("rows") / "table.safetensors"
    scales = numpy.arange(4000, dtype=numpy.int16)
    weightmap.save_safetensors({"table": table, "scales": scales, "scalar": numpy.float32(1)}, path)
    return weightmap.open(path)


@pytest.mark.parametrize("ids", [
    [3, 0, 3999, 3],
    (7,),
    range(10, 5, -1),
    numpy.array([[1, 2], [3, 1]], dtype=numpy.int32),
    numpy.array([5, 6, 7, 8])[::-2],
    numpy.array(9),
    [],
], ids=str)
def test_rows_come_as_indexing_would_give_them(opened, table, ids):
    rows = opened.rows("table").numpy(ids)
    assert rows.dtype == table.dtype
    assert numpy.array_equal(rows, table[numpy.asarray(list(ids) if isinstance(ids, range) else ids,
                                                       dtype=numpy.int64)])


def test_several_tables_are_read_by_one_call(opened, table):
    rows = opened.rows(["table", "scales"], budget_bytes=0)
    assert len(rows) == 4000
    weights, scales = rows.numpy([2, 5])
    assert numpy.array_equal(weights, table[[2, 5]]) and list(scales) == [2, 5]


def test_rows_are_copied_into_the_callers_memory(opened, table):
    out = numpy.empty((2, 64), numpy.float32)
    opened.rows("table").gather(array.array("q", [8, 1]), out)
    assert numpy.array_equal(out, table[[8, 1]])


def test_torch_gives_and_takes_tensors(opened, table):
    torch = pytest.importorskip("torch", reason="this test gathers tensors")
    ids = torch.randint(0, 4000, (3, 50), dtype=torch.int32)
    rows = opened.rows("table").torch(ids)
    assert rows.shape == (3, 50, 64) and torch.equal(rows, torch.from_numpy(table)[ids.long()])
    assert opened.rows("table").torch([]).shape == (0, 64)
    assert opened.rows(["table", "scales"]).torch([4])[1].tolist() == [4]
    with pytest.raises(weightmap.InvalidArgumentError, match="ids are integers, not torch.float32"):
        opened.rows("table").torch(torch.ones(2))


@pytest.mark.parametrize("names, error, message", [
    ([], weightmap.InvalidArgumentError, "no table is named"),
    ("tabel", weightmap.TensorNotFoundError, "tabel"),
    (["scalar"], weightmap.InvalidArgumentError, "is a scalar, which has no rows"),
])
def test_what_is_no_table_is_refused(opened, names, error, message):
    with pytest.raises(error, match=message):
        opened.rows(names)


@pytest.mark.parametrize("ids, message", [
    ([4000], "id 4000, number 0, is no row of \"table\", which has 4000"),
    ([0, -1], "id -1, number 1, is no row"),
    (numpy.array([0.5]), "ids are integers, not float64"),
    (numpy.array([2**63], dtype=numpy.uint64), "id -9223372036854775808, number 0"),
])
def test_what_is_no_row_is_refused(opened, ids, message):
    with pytest.raises(weightmap.InvalidArgumentError, match=message):
        opened.rows("table").numpy(ids)


def test_buffers_that_do_not_fit_are_refused(opened):
    with pytest.raises(weightmap.InvalidArgumentError, match="0 buffers for 1 tables"):
        opened.rows("table").gather([1], [])
    with pytest.raises(weightmap.InvalidArgumentError, match="has 4 bytes, not 1 rows of 256"):
        opened.rows("table").gather([1], bytearray(4))
    with pytest.raises(BufferError):
        opened.rows("table").gather([1], bytes(256))


def test_a_writable_checkpoint_has_no_rows(opened):
    with weightmap.open(opened.path, writable=True) as writable:
        with pytest.raises(weightmap.InvalidArgumentError, match="the checkpoint is writable"):
            writable.rows("table")


def test_tensors_are_advised_by_their_names(opened, table):
    assert opened.advise("tab*", "random") == ["table"]
    assert numpy.array_equal(opened["table"].numpy()[3999], table[3999])
    assert opened.advise("none*", "normal") == []
    with pytest.raises(weightmap.InvalidArgumentError, match="access is 'normal' or 'random'"):
        opened.advise("table", "r")


def is_random(array):
    """Whether the system reads nothing ahead where the middle of an array is mapped."""
    return "rr" in mapping_at(array.ctypes.data + array.nbytes // 2)["flags"]


def test_an_open_advises_what_matches(opened):
    with weightmap.open(opened.path, access={"*": "normal", "tab*": "random"}) as advised:
        assert is_random(advised["table"].numpy())
    with weightmap.open(opened.path, access={"tab*": "random", "table": "normal"}) as advised:
        assert not is_random(advised["table"].numpy())


@pytest.mark.parametrize("access, message", [
    ({"tabel*": "random"}, 'the option access has "tabel*", which matches the name of no tensor'),
    ({"table": "rand"}, "access has 'table': 'rand', expected a pattern of names and "
                        '"normal" or "random"'),
    ({3: "random"}, "access has 3: 'random', expected a pattern of names and"),
    (["table"], "access is ['table'], expected a dict such as"),
], ids=str)
def test_a_wrong_access_is_refused(opened, access, message):
    with pytest.raises(weightmap.InvalidArgumentError) as refused:
        weightmap.open(opened.path, access=access)
    assert message in str(refused.value)


def test_what_is_random_is_not_warmed(opened):
    whole = opened.warm(["*"]).bytes
    with weightmap.open(opened.path, access={"*": "random"}) as advised:
        assert whole > 1_000_000 > advised.warm().bytes


def test_torch_maps_what_is_random_so(opened):
    pytest.importorskip("torch", reason="this test makes tensors")
    for access, expected in (({"tab*": "random"}, True), (None, False)):
        loaded = weightmap.torch.load(opened.path, access=access)["table"]
        assert is_random(loaded.numpy()) == expected


def test_rows_keep_their_checkpoint_open(opened, table):
    other = weightmap.open(opened.path)
    rows = other.rows("table")
    other.close()
    del other
    assert numpy.array_equal(rows.numpy([1]), table[[1]])
