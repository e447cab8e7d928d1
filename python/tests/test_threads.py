"""Many threads at once, with the GIL and without.

scripts/test --long also runs this file under ThreadSanitizer, in a Python without the GIL, which
reports what only luck has kept from going wrong here.
"""

import gc
import pickle
import queue
import struct
import sys
import sysconfig
import threading
import weakref

import pytest
from conftest import torch_since

import weightmap

BASE = struct.pack("<24f", *range(24))
THREADS = 6
ROUNDS = 20


def runs_without_gil():
    return not getattr(sys, "_is_gil_enabled", lambda: True)()


def at_once(*works):
    """Calls each work with a number, in a thread of its own, together; raises the first error."""
    errors = []
    barrier = threading.Barrier(len(works))

    def run(number):
        try:
            barrier.wait()
            works[number](number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def in_threads(work, count=THREADS):
    at_once(*[work] * count)


def test_importing_leaves_the_gil_off(python):
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("this Python has the GIL always")
    # -W error: that an extension has switched it on is a warning.
    ran = python(None, "-W", "error", "-c", "import weightmap, sys; print(sys._is_gil_enabled())")
    assert (ran.stdout, ran.stderr) == ("False\n", "")


# --- opens ------------------------------------------------------------------------------------


def test_they_open_and_read(copy_of, mappings_of):
    path = copy_of("training.pt")
    with weightmap.open(path) as opened:
        expected = {key: opened[key].tobytes() for key in opened.paths()}

    def work(_):
        for _ in range(ROUNDS):
            with weightmap.open(path) as opened:
                assert opened.root()["epoch"] == 2
                assert {key: opened[key].tobytes() for key in opened.paths()} == expected

    in_threads(work)
    gc.collect()
    assert mappings_of(path) == 0


def test_they_are_refused(data):
    def work(_):
        for _ in range(ROUNDS):
            with pytest.raises(weightmap.NotACheckpointError):
                weightmap.open(data / "strangers" / "page.pt")
            with pytest.raises(weightmap.MissingFileError), weightmap.safe_open(data / "none.pt"):
                pass

    in_threads(work)


def test_they_change_settings(data):
    def override(number):
        verify = ("chain", "headers")[number % 2]
        for _ in range(ROUNDS):
            with weightmap.config.override("load.verify", verify):
                assert weightmap.config.load.verify == verify
                weightmap.open(data / "views.pt").close()

    def assign(_):
        for _ in range(ROUNDS):
            weightmap.config.load.populate = True
            weightmap.config.load.populate = None

    at_once(*[override] * THREADS, assign)


# --- one checkpoint ---------------------------------------------------------------------------


def test_they_share_one_checkpoint(copy_of):
    opened = weightmap.open(copy_of("views.pt"))

    def work(number):
        for _ in range(ROUNDS):
            assert opened["base"].tobytes() == BASE
            assert bytes(opened["base"][number % 4]) == BASE[24 * (number % 4) :][:24]
            assert opened.root()["base"].shape == (4, 6)
            assert len(list(opened.items())) == 12
            assert opened.find("b*") == ["base"]
            assert opened.info.tensors == 12 and opened.is_current()
            with pytest.raises(weightmap.TensorNotFoundError):
                opened["bas"]
        opened.verify_crc()
        opened.verify_headers()

    in_threads(work)


@pytest.mark.parametrize("first", [
    lambda opened: opened["base"].__dlpack__(max_version=(1, 0)),
    lambda opened: opened.composed_tensors(),
    lambda opened: opened.keys(),
    lambda opened: opened.residency(),
    lambda opened: pickle.loads(pickle.dumps([opened, opened["base"]])),
    lambda opened: opened.subtree(()).root(),
    lambda opened: opened.summary(),
])
def test_they_ask_for_the_first_time(copy_of, first):
    # What a Checkpoint finds out or maps when it is first asked for.
    path = copy_of("views.pt")
    for _ in range(ROUNDS):
        with weightmap.open(path) as opened:
            in_threads(lambda _: first(opened))


def test_they_take_pieces_for_the_first_time(data):
    for _ in range(ROUNDS):
        with weightmap.open(data / "dcp" / "per_rank") as opened:
            expected = set(opened._core.keys())

            def work(_):
                assert set(opened) == expected
                for tensor in opened.values():
                    tensor.tobytes()

            in_threads(work)


def test_they_take_arrays(copy_of, numpy):
    opened = weightmap.open(copy_of("views.pt"))

    def work(number):
        for _ in range(ROUNDS):
            tensor = opened["base"]
            assert tensor.numpy().sum() == 276
            assert numpy.from_dlpack(tensor).sum() == 276
            assert numpy.asarray(tensor[number % 4]).tobytes() == bytes(tensor[number % 4])
            assert memoryview(tensor.buffer()).tolist()[3][5] == 23

    in_threads(work)


def test_they_take_the_first_writable_memory(copy_of, mappings_of, torch):
    for _ in range(ROUNDS // 4):
        path = copy_of("views.pt")
        opened = weightmap.open(path)
        pointers = []
        in_threads(lambda _: pointers.append(opened["base"].torch().data_ptr()))
        assert len(set(pointers)) == 1
        assert mappings_of(path) <= 2
        opened.close()
        gc.collect()
        assert mappings_of(path) == 0


@torch_since((2, 8), "float4_e2m1fn_x2")
def test_they_take_tensors_of_every_dtype(copy_of, torch):
    opened = weightmap.open(copy_of("dtypes.pt"))

    def work(_):
        for _ in range(ROUNDS):
            for tensor in opened.values():
                assert tensor.torch().numel() == tensor.numel

    in_threads(work)


# --- warmers ----------------------------------------------------------------------------------


def test_they_warm_and_demand(float_archive):
    path = float_archive({f"w{number}": bytes(64 << 10) for number in range(16)})
    opened = weightmap.open(path)
    parts = {name: slice(0, 100) for name in opened}

    def warm(_):
        for _ in range(ROUNDS):
            weightmap.evict(path)
            assert opened.warm(threads=3, progress=lambda done, all: None).bytes > 0

    def warm_parts(_):
        for _ in range(ROUNDS):
            assert opened.warm(parts).bytes > 0

    def give_up(_):
        def stop(done, all):
            raise KeyError("enough")

        for _ in range(ROUNDS):
            with pytest.raises(KeyError):
                opened.warm(progress=stop)

    def demand(number):
        for _ in range(ROUNDS):
            for name in list(opened)[number::3]:
                opened.demand(opened[name])
            assert set(opened.demand_order()) <= set(opened)

    at_once(warm, warm_parts, give_up, demand, demand, demand)


# --- the end of things ------------------------------------------------------------------------


def test_one_closes_while_others_read(copy_of, mappings_of):
    path = copy_of("views.pt")
    for _ in range(ROUNDS):
        opened = weightmap.open(path)
        tensor = opened["base"]
        outcomes = []

        def read(_):
            try:
                for _ in range(100):
                    assert tensor.tobytes() == BASE
                    assert opened["base"].tobytes() == BASE
                outcomes.append("read")
            except weightmap.InvalidArgumentError:
                outcomes.append("closed")

        at_once(lambda _: opened.close(), *[read] * 3)
        assert len(outcomes) == 3
        del tensor
        assert mappings_of(path) == 0


def test_the_last_reference_goes_in_another_thread(copy_of, mappings_of):
    path = copy_of("views.pt")
    for _ in range(ROUNDS // 4):
        handed = queue.SimpleQueue()

        def take(_):
            with weightmap.open(path) as opened:
                tensor = opened["base"]
                handed.put([opened, tensor, tensor[1:].buffer(), iter(opened.items())])
                handed.put([tensor.__dlpack__(max_version=(1, 0)), weakref.ref(opened)])

        def drop(_):
            for _ in range(4):
                handed.get().clear()

        at_once(take, take, take, take, drop, drop)
        gc.collect()
        assert mappings_of(path) == 0


# --- writing ----------------------------------------------------------------------------------


def test_they_save_and_fill(copy_of, tmp_path, numpy):
    opened = weightmap.open(copy_of("views.pt"))
    arrays = {f"w{number}": numpy.full((2, 8), number, "float32") for number in range(THREADS)}
    names = list(arrays)
    weightmap.save(arrays, tmp_path / "room.pt", reserve=True)

    with weightmap.open_for_filling(tmp_path / "room.pt") as fill:

        def work(number):
            for _ in range(3):
                weightmap.save({"base": opened["base"]}, tmp_path / f"{number}.pt", durable=False)
                fill[names[number]] = arrays[names[number]]
            with weightmap.open(tmp_path / f"{number}.pt") as saved:
                assert saved["base"].tobytes() == BASE

        in_threads(work)
        fill.seal()
    with weightmap.open(tmp_path / "room.pt") as filled:
        assert [filled[name].numpy().max() for name in names] == list(range(THREADS))
