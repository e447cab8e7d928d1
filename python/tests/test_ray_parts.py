"""What of weightmap.ray needs no Ray: chunks, names, files in /dev/shm, the command line."""

import errno
import os
import re
import uuid
from pathlib import Path

import pytest

import weightmap
from weightmap._ray import copy as copy_module
from weightmap._ray.command import main, table
from weightmap._ray.copy import Copy
from weightmap._ray.node_files import NodeFiles, checked_name
from weightmap._ray.stored import Stored, name_of
from weightmap._ray.records import NodeStatus, Request, Version

PACKAGE = str(Path(weightmap.__file__).parents[1])

# --- chunks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "ranges"),
    [(10, [(0, 4), (4, 4), (8, 2)]), (8, [(0, 4), (4, 4)]), (3, [(0, 3)]), (0, [])],
)
def test_a_file_is_cut_into_chunks(size, ranges):
    made = Version(1, Stored("https://host/a", "t", size, None), 4, True, 2.0)
    assert made.ranges() == ranges


# --- peers or the store -----------------------------------------------------------------------


@pytest.mark.parametrize("source, nodes, uses_peers", [
    ("auto", 6, False),
    ("auto", 7, True),
    ("peers", 1, True),
    ("store", 1000, False),
])
def test_peers_are_for_many_nodes_unless_told_otherwise(source, nodes, uses_peers):
    request = Request("https://host/a", None, source, True, 1, 2.0, None)
    assert request.uses_peers(nodes) is uses_peers


# --- URLs -------------------------------------------------------------------------------------

SECRET = "https://user:password@host:8/folder/model.pt?X-Amz-Signature=secret#part"


class Fixed:
    size, tag = 8, '"a"'

    def __init__(self, url):
        pass


class Changed(Fixed):
    tag = '"b"'


class Untagged(Fixed):
    tag = ""


def test_a_name_is_of_the_url_without_its_signature():
    assert name_of(SECRET) == name_of("https://host:8/folder/model.pt") == "model.pt-35750ff4"
    assert name_of("s3://bucket/other/model.pt") != name_of("s3://bucket/model.pt")


@pytest.mark.parametrize("one, other", [
    ("https://h/download?model=a", "https://h/download?model=b"),
    ("https://h/download", "https://h/download?model=b"),
    ("https://h/a?versionId=1&X-Amz-Signature=s", "https://h/a?versionId=2&X-Amz-Signature=s"),
    ("https://h/a?token=1", "https://h/a?token=2"),
    ("https://h/a?se=1", "https://h/a?se=2"),  # no "sig": nothing is signed
    ("https://h/a?X-Amz-Other=1", "https://h/a?X-Amz-Other=2"),
])
def test_a_query_that_names_a_file_makes_another_fleet(one, other):
    assert name_of(one) != name_of(other)
    assert Stored(one, "t", 8, None).digest != Stored(other, "t", 8, None).digest


@pytest.mark.parametrize("signature", [
    "X-Amz-Algorithm=a&X-Amz-Credential=c&X-Amz-Date=d&X-Amz-Expires=9&X-Amz-Signature=s",
    "X-Goog-Date=d&X-Goog-Signature=s",
    "AWSAccessKeyId=k&Expires=1&Signature=s&x-amz-security-token=t",
    "GoogleAccessId=k&Expires=1&Signature=s",
    "Policy=p&Key-Pair-Id=k&Signature=s",
    "sv=1&ss=b&srt=o&sp=r&st=1&se=2&spr=https&sip=1&skoid=1&sktid=2&skt=3&ske=4&sks=b&skv=5&sr=b&sig=s",
])
def test_a_signature_makes_no_other_fleet(signature):
    for begin, signed in [("https://h/a", "https://h/a?"), ("https://h/a?model=b", "https://h/a?model=b&")]:
        assert name_of(begin) == name_of(signed + signature)


def test_a_fleet_s_name_shows_nothing_of_a_query():
    assert re.fullmatch(r"a\.pt-[0-9a-f]{8}", name_of("https://h/x/a.pt?token=secret"))


def test_a_digest_is_of_url_tag_and_size():
    one = Stored("https://host/a", '"a"', 8, None)
    others = [
        Stored("https://host/b", '"a"', 8, None),
        Stored("https://host/a", '"b"', 8, None),
        Stored("https://host/a", '"a"', 9, None),
    ]
    assert len({each.digest for each in [one, *others]}) == 4
    assert Stored("https://host/a?X-Amz-Signature=s", '"a"', 8, Fixed).digest == one.digest


def test_a_version_is_opened_while_the_store_has_it():
    stored = Stored.at(SECRET, Fixed)
    assert (stored.tag, stored.size) == ('"a"', 8)
    assert isinstance(stored.open(), Fixed)


def test_another_version_is_refused():
    stored = Stored(SECRET, '"a"', 8, Changed)
    with pytest.raises(weightmap.FileError) as raised:
        stored.open()
    assert str(raised.value) == (
        "https://host:8/folder/model.pt: changed: the store has \"b\" of 8 bytes instead of \"a\""
        " of 8 bytes"
    )


def test_a_store_that_names_no_version_is_refused():
    with pytest.raises(weightmap.UnsupportedError, match="no ETag"):
        Stored.at(SECRET, Untagged)


# --- files in /dev/shm ------------------------------------------------------------------------


def version(generation, tag='"a"'):
    return Version(generation, Stored("https://host/model.pt", tag, 4, None), 4, True, 2.0)


@pytest.fixture
def files():
    made = NodeFiles(f"test-{uuid.uuid4().hex}", "node")
    yield made
    made.remove_all()


def put(files, version, content=b"data"):
    with Copy(4) as copy:
        copy.write(0, memoryview(content))
        copy.name(files.copy_of(version))


def test_a_copy_without_a_name_leaves_nothing(files):
    with Copy(4) as copy:
        copy.write(0, memoryview(b"data"))
        assert not files.has(version(1))
        assert os.pread(copy.descriptor, 9, 0) == b"data"
    assert not files.has(version(1))


def test_a_copy_can_be_read_and_no_more_and_has_its_name_once(files):
    put(files, version(1))
    path = Path(files.copy_of(version(1)))
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"data", 0o400)
    with pytest.raises(FileExistsError):
        put(files, version(1))


def test_memory_is_reserved_in_steps(monkeypatch):
    monkeypatch.setattr(copy_module, "_STEP", 1 << 20)
    with Copy(3 << 19) as copy:
        reserved = [os.fstat(copy.descriptor).st_blocks * 512 for _ in copy.reserving()]
    assert reserved == [1 << 20, 3 << 19]


def test_more_memory_than_there_is_is_refused_at_once():
    status = os.statvfs("/dev/shm")
    if status.f_blocks == 0:
        pytest.skip("/dev/shm has no limit here")
    with pytest.raises(weightmap.FileError, match="^/dev/shm: has [0-9,]+ bytes left") as raised:
        Copy((status.f_blocks + 1) * status.f_frsize)
    assert raised.value.errno == errno.ENOSPC


def test_the_current_copy_is_pointed_to(files):
    assert (files.current(), files.current_generation()) == (None, 0)
    put(files, version(12))
    files.point_to(version(12))
    assert (files.current(), files.current_generation()) == (files.copy_of(version(12)), 12)
    files.point_nowhere()
    assert (files.current(), files.has(version(12))) == (None, True)
    files.point_to(version(12))
    files.remove(version(12))
    assert files.current() is None


def test_older_copies_are_removed_and_newer_ones_stay(files):
    for generation in (2, 3, 10):
        put(files, version(generation))
    files.remove_copies(before=3)
    assert [files.has(version(each)) for each in (2, 3, 10)] == [False, True, True]


def test_a_link_leads_to_each_current_copy(files, tmp_path):
    link = tmp_path / "model.pt"
    put(files, version(1), b"old.")
    files.point_to(version(1))
    files.keep_link(str(link))
    assert link.read_bytes() == b"old."
    put(files, version(2), b"new.")
    files.point_to(version(2))
    assert link.read_bytes() == b"new."
    files.keep_link(str(link))  # again
    files.remove_all()
    assert os.listdir(tmp_path) == []


def test_a_link_is_made_where_nothing_is(files, tmp_path):
    mine = tmp_path / "model.pt"
    mine.write_bytes(b"mine")
    with pytest.raises(weightmap.InvalidArgumentError, match="is no link to a copy"):
        files.keep_link(str(mine))
    files.remove_all()
    assert mine.read_bytes() == b"mine"


def test_a_link_that_was_replaced_is_left_alone(files, tmp_path):
    link = tmp_path / "model.pt"
    put(files, version(1))
    files.point_to(version(1))
    files.keep_link(str(link))
    link.unlink()
    link.write_bytes(b"mine")
    files.remove_all()
    assert link.read_bytes() == b"mine"


def names_of_fleets():
    """Each is the beginning of others, with what the names of files have."""
    begin = f"test-{uuid.uuid4().hex}"
    return [begin + end for end in ("", ".2-70b", ".pt-0a1b2c3d", ".current", ".link-x", ".1-x.node",
                                    "-2", "_", ".", ".2-x.current")]


@pytest.mark.parametrize("does", ["release", "publish"])
def test_no_fleet_touches_the_files_of_another(does):
    names = names_of_fleets()
    for name in names:
        fleets = {each: NodeFiles(each, "node") for each in names}
        for files in fleets.values():
            put(files, version(2))
            files.point_to(version(2))
        if does == "release":
            fleets[name].remove_all()
        else:
            put(fleets[name], version(3))
            fleets[name].point_to(version(3))
            fleets[name].remove_copies(before=3)
        found = {each: files.current_generation() for each, files in fleets.items()}
        for files in fleets.values():
            files.remove_all()
        assert found == {**dict.fromkeys(names, 2), name: 0 if does == "release" else 3}


@pytest.mark.parametrize("name", ["a@b", "@", "a/b", "", "a" * 101])
def test_no_fleet_has_a_name_that_files_could_not_have(name):
    with pytest.raises(weightmap.InvalidArgumentError, match="is not up to 100 letters"):
        checked_name(name)


def test_nodes_of_one_machine_have_files_of_their_own():
    fleet = f"test-{uuid.uuid4().hex}"
    one, other = NodeFiles(fleet, "one"), NodeFiles(fleet, "other")
    put(one, version(1)), put(other, version(1))
    one.remove_all()
    assert (one.has(version(1)), other.has(version(1))) == (False, True)
    other.remove_all()


def test_the_file_of_another_user_is_not_trusted(files, monkeypatch):
    put(files, version(1))
    files.point_to(version(1))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert (files.current(), files.has(version(1))) == (None, False)


# --- the command line -------------------------------------------------------------------------


def test_nodes_are_told_in_a_table():
    ready = NodeStatus("a" * 56, "ready", 2, '"1"', 3 << 20, 512, 1, 1.25, "")
    failed = NodeStatus("b" * 56, "failed", 0, '"1"', 0, 0, 0, 60.0, "no room")
    assert table([ready, failed]) == (
        "NODE          STATE   GENERATION  FROM STORE  FROM PEERS  RETRIES  SECONDS\n"
        "aaaaaaaaaaaa  ready            2     3.0 MiB       512 B        1      1.2\n"
        "bbbbbbbbbbbb  failed           0         0 B         0 B        0     60.0\n"
        "bbbbbbbbbbbb: no room"
    )


@pytest.mark.parametrize("words", [
    [],
    ["keep"],
    ["hold"],
    ["hold", "https://host/a.pt", "--source", "disk"],
    ["hold", "https://host/a.pt", "--opener", "no_such_module:open"],
    ["hold", "https://host/a.pt", "--opener", "os:no_such_function"],
    ["publish", "name"],
    ["status", "name", "--quorum", "2"],
    ["release", "name", "--time", "1"],
])
def test_wrong_usage(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def test_the_command_says_that_it_needs_ray(python, tmp_path):
    (tmp_path / "ray.py").write_text("raise ImportError")
    path = os.pathsep.join([str(tmp_path), PACKAGE])
    done = python(None, "-m", "weightmap.ray", "status", "name", PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "weightmap: weightmap.ray needs the package ray: pip install 'weightmap[ray]'\n"
    )


def test_the_command_says_how_it_is_called(python):
    done = python(None, "-m", "weightmap.ray", "hold", "--help", COLUMNS="100")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: python -m weightmap.ray hold [-h] [--address ADDRESS] ")
