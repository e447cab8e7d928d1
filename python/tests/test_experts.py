"""Units that are in memory within a budget: weightmap.experts."""

import gc
import os
import threading
import time

import pytest

import weightmap
from weightmap import experts
from weightmap.experts import Part, ResidentSet, Unit

numpy = pytest.importorskip("numpy", reason="this test makes tensors with it")

COUNT, ROWS, COLUMNS = 8, 48, 64
SLOT = 12 << 10  # of one expert in float16, in whole pages


def values(layer, kind):
    """Integers that float16 has exactly."""
    shape = COUNT, ROWS, COLUMNS
    first = 300 * layer + 100 * "gate up down".split().index(kind)
    numbers = numpy.arange(first, first + numpy.prod(shape)) % 2039
    return numbers.astype(numpy.float16).reshape(shape)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """gate and up of an expert do not lie one after the other, so they are joined in a slot."""
    path = tmp_path_factory.mktemp("experts") / "experts.safetensors"
    tensors = {"down": values(1, "down"), "scales": numpy.arange(8, dtype=numpy.float32)}
    for kind in ("gate", "up"):
        for expert in range(COUNT):
            tensors[f"experts.{expert}.{kind}.weight"] = values(0, kind)[expert]
    weightmap.save_safetensors(tensors, path)
    return path


@pytest.fixture(scope="module")
def opened(path):
    return weightmap.open(path)


def joined_units():
    return [
        Unit(f"e{expert}", (Part(f"experts.{expert}.gate.weight"),
                            Part(f"experts.{expert}.up.weight", joined=True)))
        for expert in range(COUNT)
    ]


@pytest.fixture
def resident(opened):
    with ResidentSet(opened, joined_units(), budget=2 * SLOT, wait=0.01) as resident:
        yield resident


def both(expert):
    return numpy.concatenate([values(0, "gate")[expert], values(0, "up")[expert]])


def test_units_are_found_by_name(opened):
    found = experts.units(opened, "experts.*")
    assert len(found) == COUNT
    assert found[3] == Unit("experts.3", (Part("experts.3.gate.weight"), Part("experts.3.up.weight")))
    assert found[3].parts[1] == Part(tensor="experts.3.up.weight", index=None, joined=False)
    with pytest.raises(weightmap.TensorNotFoundError):
        experts.units(opened, "nothing.*")


def test_a_set_is_of_all_experts_by_default(opened):
    with ResidentSet(opened, budget="1MiB") as resident:
        assert resident.units == tuple(experts.units(opened))
        assert resident.unit_bytes[0] == 2 * ROWS * COLUMNS * 2
        assert len(resident) == COUNT and resident.position("experts.7") == 7


def test_parts_are_arrays_that_cannot_be_written_to(resident):
    with resident.acquire([5, "e2"]) as leases:
        assert len(leases) == 2 and [lease.unit.name for lease in leases] == ["e5", "e2"]
        gate = leases[0].numpy()
        assert numpy.array_equal(gate, values(0, "gate")[5]) and not gate.flags.writeable
        assert numpy.array_equal(leases[1].numpy(1), values(0, "up")[2])
        assert leases[0].numpy().ctypes.data == gate.ctypes.data  # and not copies
        assert not leases[0].is_mapped


def test_joined_parts_are_one_tensor(resident):
    torch = pytest.importorskip("torch", reason="this test makes tensors of them")
    with resident.acquire([4]) as leases:
        assert numpy.array_equal(leases[0].numpy(0, 2), both(4))
        tensor = leases[0].torch(0, 2)
        assert tensor.dtype == torch.float16 and tensor.shape == (2 * ROWS, COLUMNS)
        assert numpy.array_equal(tensor.numpy(), both(4))
        assert tensor.data_ptr() == leases[0].numpy().ctypes.data


def test_a_slice_has_the_shape_without_the_first_dimension(opened):
    torch = pytest.importorskip("torch", reason="this test makes tensors of them")
    units = [Unit("3", (Part("down", 3), Part("scales", 3), Part("scales")))]
    with ResidentSet(opened, units, budget=1 << 20) as resident, resident.acquire([0]) as leases:
        assert torch.equal(leases[0].torch(), torch.from_numpy(values(1, "down")[3]))
        assert leases[0].torch(1).shape == () and leases[0].torch(1).item() == 3
        assert leases[0].numpy(2).tolist() == list(range(8))


def test_dlpack_says_that_the_memory_is_read_only(resident):
    with resident.acquire([1]) as leases:
        array = numpy.from_dlpack(leases[0].dlpack(0, 2))
    assert numpy.array_equal(array, both(1)) and not array.flags.writeable


@pytest.mark.parametrize("take", ["numpy", "torch", "dlpack"])
def test_what_outlives_its_lease_keeps_its_bytes(resident, take):
    if take == "torch":
        pytest.importorskip("torch", reason="this test makes tensors of them")
    with resident.acquire([0]) as leases:
        kept = getattr(leases[0], take)(0, 2)
    for expert in range(1, COUNT):  # through the other slot
        with resident.acquire([expert]) as others:
            assert numpy.array_equal(others[0].numpy(0, 2), both(expert))
    assert numpy.array_equal(numpy.from_dlpack(kept) if take == "dlpack" else kept, both(0))
    with pytest.raises(weightmap.LimitExceededError):  # the budget is for two
        resident.acquire([1, 2])
    assert resident.stats().leased_units == 1
    del kept
    gc.collect()
    resident.acquire([1, 2]).end()
    assert resident.stats().leased_units == 0


@pytest.mark.parametrize("use", [
    lambda lease: lease.numpy(), lambda lease: lease.torch(), lambda lease: lease.dlpack(),
    lambda lease: lease.unit, lambda lease: lease.is_mapped,
], ids=["numpy", "torch", "dlpack", "unit", "is_mapped"])
def test_a_lease_that_has_ended_raises(resident, use):
    with resident.acquire([0]) as leases:
        pass
    with pytest.raises(weightmap.InvalidArgumentError, match="the lease has ended"):
        use(leases[0])


def test_arrays_keep_a_set_that_was_closed(path):
    with weightmap.open(path) as opened, ResidentSet(opened, joined_units(), budget=SLOT) as resident:
        array = resident.acquire([6])[0].numpy(0, 2)
    with pytest.raises(weightmap.InvalidArgumentError, match="the set of units is closed"):
        resident.acquire([0])
    assert repr(resident) == "<weightmap.experts.ResidentSet of 8 units, closed>"
    del opened, resident
    gc.collect()
    assert numpy.array_equal(array, both(6))


def test_statistics_and_histories_count(resident):
    for expert in (0, 1, 0, 2):
        resident.acquire([expert]).end()
    stats = resident.stats()
    assert (stats.hits, stats.misses, stats.evicted_units) == (1, 3, 1)
    assert stats.missed_bytes == 3 * 2 * ROWS * COLUMNS * 2
    assert (stats.budget_bytes, stats.slot_bytes, stats.resident_units) == (2 * SLOT, 2 * SLOT, 2)
    assert stats.processes == 1 and stats.waited_seconds > 0
    assert [each.uses for each in resident.history()] == [2, 1, 1, 0, 0, 0, 0, 0]
    assert resident.history()[2].last_used == 4


def test_what_the_page_cache_has_beside_slots_is_counted(resident, path):
    path.read_bytes()
    assert resident.cached_bytes() == sum(resident.unit_bytes)
    resident.acquire([3, 6]).end()
    assert resident.cached_bytes() == sum(resident.unit_bytes) - 2 * resident.unit_bytes[3]


def test_what_is_prefetched_is_there(resident):
    resident.prefetch(["e3"])
    while resident.stats().prefetched_units == 0:
        time.sleep(0.001)
    resident.acquire([3]).end()
    assert resident.stats().misses == 0
    resident.prefetch([])


def test_a_profile_fills_a_set(resident, opened, tmp_path):
    for expert in (0, 7, 1):
        resident.acquire([expert]).end()
    resident.save_profile(tmp_path / "profile")
    with ResidentSet(opened, joined_units(), budget="24 KiB") as other:
        other.load_profile(tmp_path / "profile")
        while other.stats().resident_units < 2:
            time.sleep(0.001)
        other.acquire(["e1", "e7"]).end()
        assert other.stats().misses == 0
    with pytest.raises(weightmap.MissingFileError):
        resident.load_profile(tmp_path / "none")


def test_others_run_while_one_waits(opened):
    """The wait ends by what another thread does in Python."""
    with ResidentSet(opened, joined_units(), budget=SLOT, wait=60) as resident:
        held = resident.acquire([0])
        waiting = threading.Thread(target=lambda: resident.acquire([1]).end())
        waiting.start()
        held.end()
        waiting.join()
        assert [each.uses for each in resident.history()[:2]] == [1, 1]


def test_sets_of_one_name_share_slots(opened):
    name = f"test_experts-{os.getpid()}"
    with ResidentSet(opened, joined_units(), budget=2 * SLOT, share=name) as first:
        first.acquire([5]).end()
        with ResidentSet(opened, joined_units(), budget=2 * SLOT, share=name) as second:
            second.acquire([5]).end()
            assert (second.stats().hits, second.stats().misses) == (1, 1)
        with pytest.raises(weightmap.InvalidArgumentError):
            ResidentSet(opened, joined_units(), budget=SLOT, share=name)


def of(parts):
    return [Unit("e", tuple(parts))]


@pytest.mark.parametrize("make, error, message", [
    ({"units": []}, weightmap.InvalidArgumentError, "there are no units"),
    ({"units": of([Part("nothing")])}, weightmap.TensorNotFoundError, "nothing"),
    ({"units": of([Part("down", 8)])}, weightmap.InvalidArgumentError, "slice 8"),
    ({"units": of([Part("down", joined=True)])}, weightmap.InvalidArgumentError, "joined"),
    ({"budget": 100}, weightmap.LimitExceededError, "e0"),
    ({"budget": 0}, weightmap.InvalidArgumentError, "the budget is 0, expected"),
    ({"budget": -1}, weightmap.InvalidArgumentError, "the budget is -1, expected"),
    ({"budget": True}, weightmap.InvalidArgumentError, "the budget is True, expected"),
    ({"budget": "8GB"}, weightmap.InvalidArgumentError, "'8GB', expected .* text such as '8GiB'"),
    ({"budget": "GiB"}, weightmap.InvalidArgumentError, "'GiB', expected"),
    ({"policy": "best"}, weightmap.InvalidArgumentError, "no policy .best., expected lru, lfu"),
    ({"wait": -1}, weightmap.InvalidArgumentError, "wait is -1, expected seconds"),
], ids=str)
def test_a_set_is_refused(opened, make, error, message):
    with pytest.raises(error, match=message):
        ResidentSet(opened, **{"units": joined_units(), "budget": SLOT, **make})


def test_a_writable_checkpoint_is_refused(path):
    with weightmap.open(path, writable=True, sharing="private") as opened:
        with pytest.raises(weightmap.InvalidArgumentError, match="writable"):
            ResidentSet(opened, joined_units(), budget=SLOT)


@pytest.mark.parametrize("units, message", [
    (["e9"], "there is no unit 'e9'"), ([8], "there is no unit 8 of 8"),
    ([-1], "there is no unit -1 of 8"), ("e1", "a list of positions or names, not 'e1'"),
])
def test_what_is_no_unit_is_refused(resident, units, message):
    for call in (resident.acquire, resident.prefetch):
        with pytest.raises(weightmap.InvalidArgumentError, match=message):
            call(units)


@pytest.mark.parametrize("units, part, count, message", [
    (joined_units()[:1], 2, 1, "there are no 1 parts from 2 on, it has 2"),
    (joined_units()[:1], 0, 0, "there are no 0 parts from 0 on"),
    (of([Part("down", 0), Part("down", 1)]), 0, 2, "part 1 is not joined to the one before it"),
    (of([Part("down", 0), Part("scales", joined=True)]), 0, 2, "part 1 differs from the first one"),
])
def test_what_is_no_part_is_refused(opened, units, part, count, message):
    with ResidentSet(opened, units, budget=1 << 20) as resident, resident.acquire([0]) as leases:
        with pytest.raises(weightmap.InvalidArgumentError, match=message):
            leases[0].numpy(part, count)


@pytest.mark.parametrize("text, number", [
    (None, 0), ("auto", 0), (5, 5), ("1KiB", 1024), ("1.5 MiB", 3 << 19), ("8GiB", 8 << 30),
    ("1TiB", 1 << 40),
])
def test_budgets_are_numbers_or_text(text, number):
    assert experts.budget_bytes(text) == number
