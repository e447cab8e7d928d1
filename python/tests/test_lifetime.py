"""Who keeps the mapping, and until when; what lets other threads run; forks."""

import gc
import os
import struct
import sys
import threading

import pytest
from conftest import torch_since
import memory_maps
from memory_maps import anonymous_bytes
from test_threads import runs_without_gil

import weightmap

pytestmark = pytest.mark.usefixtures("only_new_objects")
BASE = struct.pack("<24f", *range(24))


def open_fds():
    return len(os.listdir("/proc/self/fd"))


# --- what was taken from a checkpoint outlives it ---------------------------------------------


# Each is called with a checkpoint, and answers what was taken, and how that is read.
TAKES = {
    "tensor": lambda opened: (opened["base"].tobytes, lambda taken: taken()),
    "slice": lambda opened: (opened["base"][:2], lambda taken: taken.tobytes() + BASE[48:]),
    "memoryview": lambda opened: (opened["base"].buffer(), bytes),
    "memoryview of a slice": lambda opened: (
        opened["base"][:2].buffer(), lambda taken: bytes(taken) + BASE[48:]),
    "bits": lambda opened: (opened["base"].bits(), lambda taken: taken.tobytes()),
    "root": lambda opened: (opened.root(), lambda taken: taken["base"].tobytes()),
    "values": lambda opened: (list(opened.values()), lambda taken: taken[0].tobytes()),
    "capsule": lambda opened: (
        opened["base"].__dlpack__(max_version=(1, 0)), lambda taken: BASE),
    "iterator": lambda opened: (iter(opened.items()), lambda taken: next(taken)[1].tobytes()),
}
ARRAYS = {
    "array": lambda opened: (opened["base"].numpy(), lambda taken: taken.tobytes()),
    "array of an array": lambda opened: (
        opened["base"].numpy().T[::2].T, lambda taken: BASE if taken.sum() == 132 else None),
    "array by buffer": lambda opened: (
        sys.modules["numpy"].asarray(opened["base"]), lambda taken: taken.tobytes()),
    "array by DLPack": lambda opened: (
        sys.modules["numpy"].from_dlpack(opened["base"]), lambda taken: taken.tobytes()),
}


SINCE_2_9 = torch_since((2, 9), "torch.from_dlpack() of read-only tensors")


def take_torch_by_dlpack(opened):
    import torch

    if SINCE_2_9.args[0]:
        pytest.skip(SINCE_2_9.kwargs["reason"])
    return torch.from_dlpack(opened["base"]), lambda taken: taken.numpy().tobytes()


TORCH = {
    "torch": lambda opened: (opened["base"].torch(), lambda taken: taken.numpy().tobytes()),
    "torch, a view": lambda opened: (
        opened["base"].torch()[1:].t(), lambda taken: BASE[:24] + taken.t().numpy().tobytes()),
    "torch, a storage": lambda opened: (opened["base"].torch().untyped_storage(), bytes),
    "torch by DLPack": take_torch_by_dlpack,
}
TAKES |= ARRAYS | TORCH


@pytest.fixture
def take(request):
    """One of them, by its name, where what it needs is there."""
    for module, takes in (("numpy", ARRAYS), ("torch", TORCH)):
        if request.param in takes:
            request.getfixturevalue(module)
    return TAKES[request.param]


def close(path, take):
    opened = weightmap.open(path)
    taken = take(opened)
    opened.close()
    return taken


def leave_with_block(path, take):
    with weightmap.open(path) as opened:
        return take(opened)


def leave_with_block_by_error(path, take):
    try:
        with weightmap.open(path) as opened:
            taken = take(opened)
            raise ZeroDivisionError
    except ZeroDivisionError:
        return taken


def forget(path, take):
    return take(weightmap.open(path))


def forget_in_a_cycle(path, take):
    cycle = [weightmap.open(path)]
    cycle.append(cycle)
    return take(cycle[0])


ENDS = [close, leave_with_block, leave_with_block_by_error, forget, forget_in_a_cycle]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("take", TAKES, indirect=True)
def test_what_was_taken_outlives_the_checkpoint(copy_of, mappings_of, take, end):
    path = copy_of("views.pt")
    taken, read = end(path, take)
    gc.collect()
    path.unlink()  # only the mapping is left
    assert mappings_of(f"{path} (deleted)") >= 1
    assert read(taken) == BASE
    del taken, read
    gc.collect()
    assert mappings_of(f"{path} (deleted)") == 0


def test_safe_open_lets_tensors_outlive_it(copy_of, mappings_of, numpy):
    path = copy_of("views.pt")
    with weightmap.safe_open(path, framework="np") as opened:
        array = opened.get_tensor("base")
        part = opened.get_slice("base")
    del opened
    gc.collect()
    assert array.tobytes() == BASE
    assert part[:1].tobytes() == BASE[:24]
    del array, part
    gc.collect()
    assert mappings_of(path) == 0


class Node:
    """Garbage that reads its view for the last time while it is collected."""

    def __init__(self, opened, taken, read, seen):
        self.opened, self.taken, self.read, self.seen = opened, taken, read, seen

    def __del__(self):
        self.seen.append(self.read(self.taken))


# Python ends a generator that is garbage before it calls __del__ of what refers to it.
@pytest.mark.parametrize("take", [name for name in TAKES if name != "iterator"], indirect=True)
def test_views_and_their_checkpoint_go_in_one_cycle(copy_of, mappings_of, take):
    path, seen, rounds = copy_of("views.pt"), [], 20
    for _ in range(rounds):
        opened = weightmap.open(path)
        node = Node(opened, *take(opened), seen)
        node.itself = node
        if take is TAKES["torch"]:  # the view is part of the cycle, too
            node.taken.node = node
        del opened, node
    gc.collect()
    assert seen == [BASE] * rounds
    assert mappings_of(path) == 0


# --- the mapping goes away --------------------------------------------------------------------


def test_closing_takes_the_mapping_away_at_once(copy_of, mappings_of):
    path = copy_of("views.pt")
    opened = weightmap.open(path)
    assert mappings_of(path) >= 1
    opened.close()
    assert mappings_of(path) == 0


def test_the_last_of_many_takes_it_away(copy_of, mappings_of, numpy):
    path = copy_of("views.pt")
    with weightmap.open(path) as opened:
        base = opened["base"]
        taken = [base, base[1], base.numpy(), base.buffer()]
        del base
    while taken:
        assert mappings_of(path) >= 1
        taken.pop(0)
    assert mappings_of(path) == 0


@SINCE_2_9
def test_torch_and_dlpack_of_one_checkpoint_share_one_copy_on_write_mapping(
    copy_of, mappings_of, torch
):
    path = copy_of("views.pt")
    opened = weightmap.open(path)
    taken = [tensor.torch() for tensor in opened.values()]
    taken += [torch.from_dlpack(tensor) for tensor in opened.values()]
    assert mappings_of(path) <= 2
    del taken
    opened.close()
    gc.collect()
    assert mappings_of(path) == 0


def test_a_refused_file_leaves_nothing_behind(copy_of, mappings_of, data):
    path = copy_of("rezipped_deflated.pt")
    before = open_fds()
    for _ in range(50):
        with pytest.raises(weightmap.Error):
            weightmap.open(path, zero_copy_only=True)
        weightmap.open(path).close()
        with pytest.raises(weightmap.Error):
            weightmap.open(data / "strangers" / "page.pt")
    assert mappings_of(path) == 0
    assert open_fds() == before


def check_leave_nothing(use, times):
    for _ in range(20):
        use()
    gc.collect()
    fds, objects, blocks = open_fds(), len(gc.get_objects()), sys.getallocatedblocks()
    for _ in range(times):
        use()
    gc.collect()
    assert open_fds() == fds
    # One object, or one block, left by each would be so many.
    assert len(gc.get_objects()) - objects < 200
    assert sys.getallocatedblocks() - blocks < 500


def test_a_thousand_opens_leave_nothing_behind(copy_of, mappings_of):
    path = copy_of("training.pt")

    def use():
        with weightmap.open(path) as opened:
            opened["model.0.weight"][1:].buffer()
            opened.root()
            opened.paths()
            opened.info, opened.stats  # noqa: B018
            "nothing" in opened  # noqa: B015
            return opened["model.0.bias"].tobytes()

    check_leave_nothing(use, 1000)
    assert mappings_of(path) == 0


@SINCE_2_9
def test_a_thousand_arrays_and_tensors_leave_nothing_behind(copy_of, mappings_of, torch, numpy):
    path = copy_of("views.pt")

    def use():
        opened = weightmap.open(path)
        opened["base"].torch().sum()
        torch.from_dlpack(opened["base"]).sum()
        numpy.from_dlpack(opened["base"]).sum()
        numpy.asarray(opened["base"]).sum()
        opened["base"].numpy().sum()

    check_leave_nothing(use, 1000)
    assert mappings_of(path) == 0


def test_failed_calls_leave_nothing_behind(checkpoint):
    opened = checkpoint("conjugate.pt")
    tensor = opened["base"]
    lazy = opened["conjugate"]

    def fail():
        for use in (
            lambda: opened["nothing"],
            lambda: opened["base", 1],
            lambda: tensor[99],
            lambda: tensor["x"],
            lambda: lazy.tobytes(),
            lambda: lazy.numpy(),
            lambda: lazy.buffer(),
            lambda: lazy.__dlpack__(max_version=(1, 0)),
        ):
            with pytest.raises(Exception):  # noqa: B017
                use()

    check_leave_nothing(fail, 1000)


def test_reading_through_a_mapping_costs_no_memory_of_its_own(float_archive):
    size = 32 << 20
    path = float_archive({"w": bytes(size)})
    with weightmap.open(path) as opened:
        view = opened["w"].buffer().cast("B")
        before = anonymous_bytes()
        assert sum(view[:: 1 << 12]) == 0  # touches every page
        assert anonymous_bytes() - before < 8 << 20


def test_a_read_only_checkpoint_is_not_mapped_writable(copy_of):
    path = copy_of("views.pt")
    opened = weightmap.open(path)
    assert len(opened) == 12
    assert [mapping["permissions"] for mapping in memory_maps.mappings_of(path)] == ["r--s"]


# --- the GIL ------------------------------------------------------------------------------------


def gives_way(call, attempts):
    """Whether another Python thread gets to run while `call` does, in any of so many attempts.

    With a switch interval of minutes a thread runs only when this one lets go of the GIL by itself.
    """
    for _ in range(attempts):
        progress = []
        gate = threading.Lock()
        gate.acquire()

        def other():
            gate.acquire()
            progress.append(True)

        thread = threading.Thread(target=other)
        thread.start()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(600)
        try:
            gate.release()
            call()
            has_run = bool(progress)
        finally:
            sys.setswitchinterval(interval)
        thread.join()
        if has_run:
            return True
    return False


@pytest.fixture
def sixteen_mebibytes(float_archive):
    return float_archive({"w": bytes(16 << 20)})


@pytest.mark.skipif(runs_without_gil(), reason="without the GIL others always run")
def test_the_count_of_progress_can_tell(checkpoint):
    opened = checkpoint("views.pt")
    with open("/dev/zero", "rb", buffering=0) as zeros:
        assert gives_way(lambda: zeros.read(1 << 20), 1000)
    assert not gives_way(lambda: [opened["base"] for _ in range(100)], 200)


def test_lets_others_run_while_it_works(sixteen_mebibytes, data):
    opened = weightmap.open(sixteen_mebibytes)
    assert gives_way(opened.verify_crc, 1000)
    assert gives_way(opened["w"].tobytes, 1000)
    assert gives_way(lambda: weightmap.open(sixteen_mebibytes, verify="crc"), 1000)
    assert gives_way(lambda: weightmap.open(sixteen_mebibytes, verify="chain"), 20_000)
    assert gives_way(weightmap.open(data / "old_order.pt").verify_headers, 20_000)


# --- fork -------------------------------------------------------------------------------------


def in_child(work):
    """Runs `work` in a forked child; its exit status is 0 if the answer is true."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_child_reads_what_its_parent_opened(copy_of, numpy):
    opened = weightmap.open(copy_of("views.pt"))
    tensor, array, view = opened["base"], opened["base"].numpy(), opened["base"].buffer()

    def reads():
        seen = [tensor.tobytes(), array.tobytes(), bytes(view), opened["tied"].tobytes()]
        return seen == [BASE] * 4

    assert in_child(reads) == 0
    assert in_child(lambda: not reads()) == 1
    assert reads()


def test_a_child_closes_for_itself_only(copy_of, mappings_of):
    path = copy_of("views.pt")
    opened = weightmap.open(path)

    def closes():
        opened.close()
        return mappings_of(path) == 0

    assert in_child(closes) == 0
    assert mappings_of(path) >= 1
    assert opened["base"].tobytes() == BASE


def test_private_writes_of_a_child_stay_there(copy_of, numpy):
    opened = weightmap.open(copy_of("views.pt"), sharing="private", writable=True)
    array = opened["base"].numpy()
    array[0, 0] = 5

    def writes():
        was = array[0, 0]
        array[:] = 77
        return was == 5 and opened["base"].tobytes() == struct.pack("<24f", *[77] * 24)

    assert in_child(writes) == 0
    assert array[0].tolist() == [5, 1, 2, 3, 4, 5]


def test_shared_writes_of_a_child_reach_its_parent(copy_of, numpy):
    opened = weightmap.open(copy_of("views.pt"), sharing="shared", writable=True)
    array = opened["base"].numpy()

    def writes():
        array[3, 5] = 77
        return True

    assert in_child(writes) == 0
    assert array[3, 5] == 77


@pytest.mark.parametrize("before", ["nothing", "tensor", "checkpoint"])
def test_torch_tensors_of_a_file_that_was_cut_are_refused_each_time(torch, tmp_path, before):
    path = tmp_path / "cut.pt"
    torch.save({"w": torch.arange(200000.0)}, path)
    opened = weightmap.open(path, protection="guard")
    tensor = opened["w"]
    kept = {"nothing": list, "tensor": tensor.torch, "checkpoint": opened.torch}[before]()
    os.truncate(path, 4096)
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.ones(200000))
    for ask in (tensor.torch, opened.torch, lambda: opened.load_into(model, strict=False),
                lambda: weightmap.torch.load(opened)):
        for _ in range(2):
            with pytest.raises(weightmap.FileError):
                ask()
    assert model.w.sum().item() == 200000
    del kept
