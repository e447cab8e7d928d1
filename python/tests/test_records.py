"""Records: made, compared, shown, copied; and that they stay as they are."""

import copy
import inspect
import pickle
import typing

import pytest

import weightmap

GENERATION = weightmap.reports.Generation(1, 2, 3, 4, 5)


def test_a_record_is_made_by_position_or_by_name():
    named = {"device": 1, "inode": 2, "size": 3, "mtime_ns": 4, "ctime_ns": 5}
    assert weightmap.reports.Generation(**named) == GENERATION
    assert weightmap.reports.Generation(1, 2, 3, ctime_ns=5, mtime_ns=4) == GENERATION
    assert GENERATION.size == 3


@pytest.mark.parametrize("values, named", [
    ((1, 2, 3, 4), {}), ((1, 2, 3, 4, 5, 6), {}), ((1, 2, 3, 4, 5), {"ctime_ns": 5}),
    ((1, 2, 3, 4), {"size": 3}), ((1, 2, 3, 4), {"age": 5}), ((1, 2, 3, 4, 5), {"age": 5}),
])
def test_a_record_takes_each_field_once(values, named):
    fields = "device, inode, size, mtime_ns, ctime_ns"
    with pytest.raises(TypeError, match=rf"^Generation\(\) takes {fields}$"):
        weightmap.reports.Generation(*values, **named)


def test_what_is_left_out_has_its_default():
    report = weightmap.reports.WarmReport(1, 2, "", "populate", "", 3, 0.5, takeovers=1)
    assert (report.was_reader, report.takeovers, report.why_alone) == (False, 1, "")


def test_a_record_stays_as_it_is():
    with pytest.raises(AttributeError, match="^'size' of a Generation stays as it is$"):
        GENERATION.size = 4
    with pytest.raises(AttributeError, match="^'size' of a Generation stays as it is$"):
        del GENERATION.size
    with pytest.raises(AttributeError):
        GENERATION.age = 4
    assert not hasattr(GENERATION, "__dict__")
    assert GENERATION.size == 3


def test_records_are_equal_if_all_their_fields_are():
    assert weightmap.reports.Generation(1, 2, 3, 4, 5) == GENERATION
    assert weightmap.reports.Generation(1, 2, 3, 4, 6) != GENERATION
    assert {GENERATION: "one"}[weightmap.reports.Generation(1, 2, 3, 4, 5)] == "one"
    assert weightmap.Global("a", "b") != ("a", "b")
    assert weightmap.reports.CrcReport(1, 2, 3) != weightmap.reports.EvictReport(1, 2, 3)


def test_a_record_shows_its_fields():
    shown = "Generation(device=1, inode=2, size=3, mtime_ns=4, ctime_ns=5)"
    assert repr(GENERATION) == shown
    signature = inspect.signature(weightmap.reports.CrcReport)
    assert str(signature) == "(storages_checked, storages_without_crc, bytes)"
    warm = inspect.signature(weightmap.reports.WarmReport).parameters
    assert warm["why_alone"].default == "" and warm["bytes"].default is inspect.Parameter.empty


def test_the_types_of_fields_can_be_asked_for():
    hints = typing.get_type_hints(weightmap.reports.Residency)
    assert hints["is_fragmented"] == bool | None
    assert hints["tensors"] == tuple[weightmap.reports.RangeResidency, ...]
    assert list(hints) == list(weightmap.reports.Residency.__match_args__)


def test_a_record_can_be_matched():
    match GENERATION:
        case weightmap.reports.Generation(1, inode, size=size):
            assert (inode, size) == (2, 3)
        case _:
            pytest.fail("it did not match")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_records_are_copied_and_pickled(checkpoint, protocol):
    opened = checkpoint("training.pt")
    for record in (GENERATION, opened.info, opened.stats, opened.residency()):
        assert pickle.loads(pickle.dumps(record, protocol)) == record
        assert copy.copy(record) == record
        assert copy.deepcopy(record) == record


def test_an_object_shows_what_it_holds_and_ends_where_it_holds_itself():
    made = weightmap.Object(weightmap.Global("m", "n"), (1,))
    made.state = made
    assert repr(made) == (
        "Object(callable=Global(module='m', name='n'), arguments=(1,), is_new=False, "
        "elements=[], items=[], state=...)"
    )
    same = pickle.loads(pickle.dumps(made))
    assert same.state is same and same.arguments == (1,) and same != made
    assert weightmap.Object(1, ()).elements is not weightmap.Object(1, ()).elements
