"""weightmap.ray, with four raylets on this machine and a store on loopback that counts.

For scripts/test --long: a cluster takes seconds to start, and most tests start workers on it.
"""

import glob
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from pathlib import Path

import conftest
import pytest
from range_store import RangeStore, open_source

import weightmap

ray = pytest.importorskip("ray", reason="is for Ray clusters")

from ray.cluster_utils import Cluster  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

from weightmap.ray import Fleet, hold, local  # noqa: E402

CHUNK = 256 << 10  # smaller objects than 100 KiB would not be in Ray's object store
CHUNKS = 32
NODES = 4
NODE = {"num_cpus": 2, "object_store_memory": 100 << 20, "node_ip_address": "127.0.0.1"}
NAME = "weightmap-test"
HEAD = "node:__internal_head__"  # a resource that Ray gives to the head alone

needs_libcurl = pytest.mark.skipif(
    util.find_spec("weightmap._curl") is None, reason="this build of the package has no libcurl"
)


def model(seed):
    """A checkpoint of CHUNKS chunks, with one tensor."""
    content = random.Random(seed).randbytes(CHUNKS * CHUNK - 1024)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as target:
        tensor = conftest._tensor("0", len(content) // 4)
        target.writestr("archive/data.pkl", b"\x80\x02}" + conftest._text("w") + tensor + b"s.")
        target.writestr("archive/byteorder", "little")
        target.writestr("archive/data/0", content)
        target.writestr("archive/version", "3\n")
    return written.getvalue()


OLD, NEW = model(1), model(2)


@pytest.fixture(scope="module")
def cluster():
    found_in = [str(Path(weightmap.__file__).parents[1]), str(Path(__file__).parent)]
    with pytest.MonkeyPatch.context() as patch:
        # Of the raylets, and so of all workers.
        patch.setenv("PYTHONPATH", os.pathsep.join([*found_in, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Of this process: ray.init() takes the loopback address for that of an interface otherwise.
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
        made = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **NODE})
        for _ in range(NODES - 1):
            made.add_node(**NODE)
        ray.init(address=made.address, log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def node(cluster):
    """Adds one, which is gone in the end, also for Ray. Its id, and how to kill it."""
    added = cluster.add_node(**NODE)

    def kill():
        cluster.remove_node(added, allow_graceful=False)

    yield added.node_id, kill
    if added in cluster.worker_nodes:
        cluster.remove_node(added)
    while added.node_id in alive():
        time.sleep(0.1)


class Gate:
    """Holds the requests back that come after the first `free`, until it is opened."""

    def __init__(self, store, free):
        self.reached = threading.Event()
        self._opened = threading.Event()
        self._free = free
        store.before = self._pass

    def _pass(self, number):
        if number > self._free:
            self.reached.set()
            self._opened.wait()

    def open(self):
        self._opened.set()


@pytest.fixture
def store():
    with RangeStore(OLD) as made:
        yield made
        made.before = lambda _number: None
        made.shutdown()


@pytest.fixture
def start(cluster, store):
    """Holds the file of the store, patiently unless told otherwise; released in the end."""

    def start(**options):
        options = {"source": "peers", "patience": 600.0, "opener": open_source, **options}
        return hold(store.url, name=NAME, chunk_bytes=CHUNK, **options)

    yield start
    try:
        Fleet(NAME).release()
    except weightmap.InvalidArgumentError:  # it was released
        pass
    assert files() == []


@pytest.fixture
def background():
    """Runs a call in a thread."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


def files():
    return sorted(glob.glob(f"/dev/shm/weightmap-{NAME}@*"))


def copies():
    return [Path(path) for path in files() if not os.path.islink(path)]


def alive():
    return [each["NodeID"] for each in ray.nodes() if each["Alive"]]


def not_the_head():
    """A node without the directory, which itself opens each file. Ray lists nodes in any order."""
    nodes = [each for each in ray.nodes() if each["Alive"]]
    return next(each["NodeID"] for each in nodes if HEAD not in each["Resources"])


def on(node, function, *arguments):
    """Calls a function on a node."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0)(function).options(scheduling_strategy=there)
    return task.remote(*arguments)


def path_on(node):
    """Of the copy there, once it is."""
    return ray.get(on(node, lambda: local(NAME)))


def keeper_on(node):
    return ray.get_actor(f"{NAME}/{node}", namespace="weightmap")


def directory():
    return ray.get_actor(NAME, namespace="weightmap")


# --- bytes ------------------------------------------------------------------------------------


def test_peers_spare_the_store(start, store):
    fleet = start()
    assert store.sent <= 1.2 * len(OLD)
    assert [path.read_bytes() == OLD for path in copies()] == [True] * NODES
    status = fleet.status()
    assert sorted(status) == sorted(alive())
    assert {(each.state, each.generation, each.tag) for each in status.values()} == {
        ("ready", 1, store.tag)
    }
    of_all = [each.bytes_from_store + each.bytes_from_peers for each in status.values()]
    assert of_all == [len(OLD)] * NODES
    assert sum(each.bytes_from_store for each in status.values()) == store.sent
    in_turns = {each.bytes_from_store // CHUNK for each in status.values()}
    assert in_turns <= {CHUNKS // NODES, CHUNKS // NODES - 1}  # the last chunk is shorter


@needs_libcurl
@pytest.mark.parametrize("source", ["peers", "store"])
def test_urls_are_opened_by_weightmap_remote(start, store, source):
    start(opener=None, source=source)
    assert [path.read_bytes() == OLD for path in copies()] == [True] * NODES
    assert store.sent <= (1.2 if source == "peers" else 1.2 * NODES) * len(OLD)


@needs_libcurl
def test_a_file_is_held(cluster, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(OLD)
    fleet = hold(f"file://{path}", source="peers", chunk_bytes=CHUNK, patience=600.0, verify=True)
    try:
        assert Path(local(fleet)).read_bytes() == OLD
    finally:
        fleet.release()


@pytest.mark.parametrize("source", ["store", "auto"])
def test_few_nodes_read_from_the_store(start, store, source):
    fleet = start(source=source)
    assert store.sent == NODES * len(OLD)
    assert {each.bytes_from_peers for each in fleet.status().values()} == {0}
    assert [path.read_bytes() == OLD for path in copies()] == [True] * NODES


def test_a_chunk_that_is_late_comes_from_the_store(start, store):
    held_back = threading.Event()

    def before(number):
        if number == 1:
            held_back.wait()

    store.before = before
    fleet = start(patience=0.5)
    held_back.set()
    for each in alive():
        assert Path(path_on(each)).read_bytes() == OLD
    assert store.sent > len(OLD)
    assert sum(each.retries for each in fleet.status().values()) >= 1


def test_wrong_bytes_get_no_name(start, store):
    wrong = bytearray(OLD)
    wrong[len(wrong) // 2] ^= 1
    store.content = bytes(wrong)
    with pytest.raises(weightmap.CorruptError) as raised:
        start()
    assert raised.value.file == store.url.partition("?")[0]
    assert files() == []


def test_checksums_are_compared_only_if_asked_for(start, store):
    wrong = bytearray(OLD)
    wrong[len(wrong) // 2] ^= 1
    store.content = bytes(wrong)
    start(verify=False)
    assert len(copies()) == NODES


def test_what_is_no_checkpoint_gets_no_name(start, store):
    store.content = bytes(CHUNK * 2)
    with pytest.raises(weightmap.NotACheckpointError):
        start(verify=False)
    assert files() == []


# --- one version ------------------------------------------------------------------------------


def test_a_file_that_changes_meanwhile_is_not_held(start, store, background):
    gate = Gate(store, CHUNKS // 2)
    holding = background(start)
    gate.reached.wait()
    store.content = NEW
    gate.open()
    with pytest.raises(weightmap.FileError, match="changed: "):
        holding.result()
    assert files() == []


def test_a_file_that_changes_meanwhile_is_not_published(start, store, background):
    fleet = start()
    store.content, store.ranges = NEW, 0
    gate = Gate(store, CHUNKS // 2)
    publishing = background(fleet.publish, store.url)
    gate.reached.wait()
    store.content = OLD
    gate.open()
    with pytest.raises(weightmap.FileError, match="changed: "):
        publishing.result()
    assert fleet.generation == 1
    assert [path.read_bytes() == OLD for path in copies()] == [True] * NODES


# --- failures ---------------------------------------------------------------------------------


def test_nobody_waits_for_a_node_that_died(start, store, background, node):
    gate = Gate(store, CHUNKS // 2)
    holding = background(start, patience=2.0)
    gate.reached.wait()
    dead, kill = node
    kill()
    gate.open()
    holding.result()
    for each in set(alive()) - {dead}:  # Ray knows of it later
        assert Path(path_on(each)).read_bytes() == OLD


def test_nobody_waits_for_a_node_that_keeps_silent_and_it_follows_later(start, store):
    here = not_the_head()
    fleet = start(patience=2.0)
    keeper = ray.get(keeper_on(here).__ray_call__.remote(lambda _: os.getpid()))
    store.content = NEW
    os.kill(keeper, signal.SIGSTOP)
    try:
        assert fleet.publish(store.url) == 2
        assert fleet.status()[here].state == "silent"
    finally:
        os.kill(keeper, signal.SIGCONT)
    while fleet.status()[here].generation != 2:
        time.sleep(0.1)
    assert Path(path_on(here)).read_bytes() == NEW


def test_a_keeper_that_died_starts_again(start, store, background):
    gate = Gate(store, CHUNKS // 2)
    holding = background(start)
    gate.reached.wait()
    ray.kill(keeper_on(alive()[1]), no_restart=False)
    gate.open()
    holding.result()
    assert [path.read_bytes() == OLD for path in copies()] == [True] * NODES


def test_a_keeper_that_starts_again_finds_its_copy(start, store):
    fleet = start()
    sent, here = store.sent, alive()[1]
    path = path_on(here)
    ray.kill(keeper_on(here), no_restart=False)
    fleet.publish(store.url)
    assert path_on(here) != path
    ray.kill(keeper_on(here), no_restart=False)
    path = path_on(here)
    assert ray.get(on(here, lambda: local(NAME))) == path
    assert store.sent <= sent + 1.2 * len(OLD)


def test_a_directory_that_died_starts_again(start, store, background):
    gate = Gate(store, CHUNKS // 2)
    holding = background(start)
    gate.reached.wait()
    ray.kill(directory(), no_restart=False)
    gate.open()
    fleet = holding.result()
    assert fleet.generation == 1
    assert [path.read_bytes() == OLD for path in copies()] == [True] * NODES
    assert store.sent <= (1 + NODES) * len(OLD)


def test_keepers_finish_without_a_directory_and_a_new_one_adopts_them(start, store, background):
    gate = Gate(store, CHUNKS // 2)
    holding = background(start)
    gate.reached.wait()
    ray.kill(directory())
    with pytest.raises(weightmap.FileError):
        holding.result()
    gate.open()
    fleet = start()
    assert fleet.generation == 1
    assert [path.read_bytes() == OLD for path in copies()] == [True] * NODES
    # Each chunk once by a task that died with the directory, and once for each node.
    assert store.sent <= (1 + NODES) * len(OLD)


def test_a_directory_that_starts_again_knows_what_was_published(start, store):
    fleet = start()
    store.content = NEW
    fleet.publish(store.url)
    ray.kill(directory(), no_restart=False)
    assert fleet.generation == 2
    assert {each.generation for each in fleet.status().values()} == {2}
    assert fleet.publish(store.url) == 3


def test_other_nodes_than_those_that_were_named_hold_nothing(start, node):
    here, _ = node
    fleet = start(nodes=[each for each in alive() if each != here])
    assert here not in fleet.status()
    with pytest.raises(weightmap.InvalidArgumentError, match=f"is not held on node {here}"):
        try:
            path_on(here)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None


def test_a_node_that_joins_gets_the_copy_and_one_that_died_leaves_none(start, store, node):
    here, kill = node
    fleet = start()
    assert Path(path_on(here)).read_bytes() == OLD
    kill()
    while here in alive():
        time.sleep(0.1)
    assert any(path.name.endswith(here) for path in copies())
    ray.kill(keeper_on(alive()[0]), no_restart=False)
    fleet.publish(store.url)  # asks all keepers
    assert not any(path.name.endswith(here) for path in copies())


# --- publish ----------------------------------------------------------------------------------


def test_a_publication_replaces_the_copies_under_those_who_use_them(start, store, tmp_path):
    link = tmp_path / "model.pt"
    fleet = start()
    assert local(fleet, link=str(link)) == os.readlink(link)
    with weightmap.open(link) as opened:
        store.content = NEW
        assert fleet.publish(store.url) == fleet.generation == 2
        assert opened["w"].tobytes() == tensor_of(OLD)
        assert not opened.is_current()
    with weightmap.open(link) as opened:
        assert opened["w"].tobytes() == tensor_of(NEW)
    assert local(fleet) == os.readlink(link)
    assert [path.read_bytes() == NEW for path in copies()] == [True] * NODES


def tensor_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return archive.read("archive/data/0")


class FailsOn:
    """An opener whose second file cannot be read on a node, once all others have it."""

    def __init__(self, node):
        self._node = node

    def __call__(self, url):
        if "second" in url and ray.get_runtime_context().get_node_id() == self._node:
            while len(glob.glob(f"/dev/shm/weightmap-{NAME}@2-*")) < NODES - 1:
                time.sleep(0.1)
            raise weightmap.FilePermissionError("refused")
        return open_source(url)


def test_a_publication_that_fails_on_a_node_changes_nothing(start, store):
    bad = not_the_head()
    fleet = start(source="store", opener=FailsOn(bad))
    store.content = NEW
    with pytest.raises(weightmap.FilePermissionError, match="refused"):
        fleet.publish(f"{store.url}&second")
    assert fleet.generation == 1
    assert [path.read_bytes() == OLD for path in copies()] == [True] * NODES
    assert Path(path_on(alive()[0])).read_bytes() == OLD


def test_a_quorum_is_enough(start, store):
    bad = not_the_head()
    fleet = start(source="store", opener=FailsOn(bad))
    store.content = NEW
    assert fleet.publish(f"{store.url}&second", quorum=NODES - 1) == 2
    assert [path.read_bytes() == NEW for path in copies()] == [True] * (NODES - 1)
    with pytest.raises(ray.exceptions.RayTaskError, match="refused"):
        path_on(bad)
    status = fleet.status()
    assert (status[bad].state, status[bad].generation) == ("failed", 0)
    assert "refused" in status[bad].error


def test_less_than_the_quorum_changes_nothing(start, store):
    bad = not_the_head()
    fleet = start(source="store", opener=FailsOn(bad))
    store.content = NEW
    with pytest.raises(weightmap.FilePermissionError, match="refused"):
        fleet.publish(f"{store.url}&second", quorum=NODES)
    assert fleet.generation == 1
    assert [path.read_bytes() == OLD for path in copies()] == [True] * NODES


def test_a_publication_ends_in_time(start, store):
    fleet = start()
    store.content, store.ranges = NEW, 0
    gate = Gate(store, CHUNKS // 2)
    with pytest.raises(weightmap.FileError, match="not held within 0.1 s"):
        fleet.publish(store.url, timeout=0.1)
    gate.open()
    assert fleet.generation == 1
    assert fleet.publish(store.url) == 3
    assert [path.read_bytes() == NEW for path in copies()] == [True] * NODES


# --- calls ------------------------------------------------------------------------------------


def test_local_waits(start, store, background):
    gate = Gate(store, 0)
    holding = background(start)
    gate.reached.wait()
    paths = [on(each, lambda: local(NAME)) for each in alive()]
    assert ray.wait(paths, timeout=0)[0] == []
    with pytest.raises(weightmap.FileError, match="not held within 0.1 s"):
        local(NAME, timeout=0.1)
    gate.open()
    assert sorted(map(Path, ray.get(paths))) == copies()
    holding.result()


def tool(address, *words):
    """Of `python -m weightmap.ray`, in another process."""
    folders = [str(Path(weightmap.__file__).parents[1]), str(Path(__file__).parent)]
    # The second one: see the fixture `cluster`.
    environment = {"PYTHONPATH": os.pathsep.join(folders), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    command = [sys.executable, "-m", "weightmap.ray", *words, "--address", address]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_a_fleet_is_used_from_the_command_line(cluster, start, store, tmp_path):
    def said(*words):
        done = tool(cluster.address, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    held = said("hold", store.url, "--name", NAME, "--opener", "range_store:open_source")
    assert held == f"{NAME}\n"
    link = tmp_path / "model.pt"
    path = Path(said("local", NAME, "--link", str(link)).rstrip())
    assert path.read_bytes() == OLD
    store.content = NEW
    assert said("publish", NAME, store.url) == "2\n"
    assert link.read_bytes() == NEW
    nodes = json.loads(said("status", NAME, "--json"))
    assert {(node["state"], node["generation"]) for node in nodes} == {("ready", 2)}
    assert said("status", NAME).count("ready") == len(nodes) == NODES
    assert said("release", NAME) == f"{NAME}: released\n"
    assert files() == []
    refused = tool(cluster.address, "status", NAME)
    assert refused.returncode == 1
    assert refused.stderr == f"weightmap: {NAME}: no such fleet is held\n"


def test_an_address_that_is_none_is_told_in_one_line(cluster):
    done = tool("nonsense", "status", NAME)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("weightmap: nonsense: ")
    assert done.stderr.count("\n") == 1


def test_what_is_held_is_held_once(start, store):
    assert start().generation == start().generation == 1
    assert store.sent <= 1.2 * len(OLD)
    with pytest.raises(weightmap.InvalidArgumentError, match="publish\\(\\) replaces it"):
        hold("http://127.0.0.1:1/other.pt", name=NAME, opener=open_source)
    assert Fleet(NAME).generation == 1


def test_a_fleet_is_found_by_its_url_and_in_tasks(start, store):
    fleet = hold(store.url, chunk_bytes=CHUNK, opener=open_source)
    try:
        assert fleet.name.startswith("model.pt-")
        assert local(store.url) == local(fleet) == local(fleet.name)
        assert ray.get(on(alive()[0], local, fleet)).endswith(alive()[0])
    finally:
        fleet.release()


def test_release_leaves_nothing(start, tmp_path):
    link = tmp_path / "model.pt"
    fleet = start()
    with weightmap.open(local(fleet, link=str(link))) as opened:
        fleet.release()
        assert opened["w"].tobytes() == tensor_of(OLD)
    assert (files(), os.listdir(tmp_path)) == ([], [])
    with pytest.raises(weightmap.InvalidArgumentError, match="no such fleet is held"):
        local(fleet)


def test_an_object_that_is_not_there_is_an_error(start, store):
    with pytest.raises(weightmap.FileError, match="HTTPError"):
        hold(store.url.replace("folder", "missing"), name=NAME, opener=open_source)


@pytest.mark.parametrize(
    "arguments", [{"name": "a/b"}, {"name": ""}, {"source": "nearby"}, {"chunk_bytes": 0}]
)
def test_wrong_arguments_are_refused(cluster, arguments):
    with pytest.raises(weightmap.InvalidArgumentError):
        hold("http://127.0.0.1:1/model.pt", **arguments)
