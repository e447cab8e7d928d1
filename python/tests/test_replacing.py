"""replacing(): what becomes of a checkpoint that is saved over."""

import os
import shutil
from pathlib import Path

import pytest

import weightmap


@pytest.fixture
def model(copy_of):
    """The path of a checkpoint, and its bytes."""
    path = copy_of("views.pt")
    return path, path.read_bytes()


def names_in(path):
    return sorted(os.listdir(path.parent))


def test_the_new_file_lies_beside_the_old_one_under_its_own_name(model, data):
    path, before = model
    with weightmap.replacing(path) as new:
        assert type(new) is str
        assert os.path.basename(new) == "views.pt"
        assert os.path.dirname(os.path.dirname(new)) == str(path.parent)
        shutil.copyfile(data / "dtypes.pt", new)
        assert path.read_bytes() == before
    assert path.read_bytes() == (data / "dtypes.pt").read_bytes()
    assert names_in(path) == ["views.pt"]


def test_who_has_the_old_file_open_keeps_it(model, data):
    path, _ = model
    with weightmap.open(path) as checkpoint:
        bytes_before = checkpoint["base"].tobytes()
        with weightmap.replacing(path) as new:
            shutil.copyfile(data / "dtypes.pt", new)
        assert checkpoint.state() == "replaced"
        assert checkpoint["base"].tobytes() == bytes_before


def test_permissions_are_those_of_the_old_file(model, data):
    path, _ = model
    path.chmod(0o640)
    with weightmap.replacing(path) as new:
        shutil.copyfile(data / "dtypes.pt", new)
        os.chmod(new, 0o666)
    assert path.stat().st_mode & 0o777 == 0o640


def test_there_need_be_no_old_file(tmp_path, data):
    with weightmap.replacing(os.fsencode(tmp_path / "new.pt")) as new:
        shutil.copyfile(data / "dtypes.pt", new)
    assert os.listdir(tmp_path) == ["new.pt"]
    assert len(weightmap.open(tmp_path / "new.pt")) == len(weightmap.open(data / "dtypes.pt"))


def test_a_symbolic_link_stays_one(model, data, tmp_path):
    path, _ = model
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "latest.pt"
    link.symlink_to(path)
    with weightmap.replacing(link) as new:
        assert new.startswith(str(path.parent / ".views.pt.weightmap-"))
        shutil.copyfile(data / "dtypes.pt", new)
    assert link.is_symlink()
    assert path.read_bytes() == (data / "dtypes.pt").read_bytes()


def failing(error):
    def write(new, data):
        shutil.copyfile(data / "dtypes.pt", new)
        raise error

    return write


def write_a_text(new, data):
    Path(new).write_text("these are no weights")


def write_wrong_checksums(new, data):
    content = bytearray((data / "dtypes.pt").read_bytes())
    with weightmap.open(data / "dtypes.pt") as opened:
        content[opened["float64"].file_offset] ^= 1
    Path(new).write_bytes(content)


@pytest.mark.parametrize("write, raised, message", [
    *((failing(error), error, "") for error in (ValueError, KeyboardInterrupt, SystemExit)),
    (write_a_text, weightmap.NotACheckpointError, ""),
    (write_wrong_checksums, weightmap.CorruptError, ""),
    (lambda new, data: None, weightmap.InvalidArgumentError, "nothing was written"),
], ids=["ValueError", "Ctrl-C", "SystemExit", "no checkpoint", "checksums", "nothing"])
def test_nothing_changes_if_the_block_fails(model, data, write, raised, message):
    path, before = model
    with pytest.raises(raised, match=message) as caught:
        with weightmap.replacing(path, crc=True) as new:
            write(new, data)
    assert not message or caught.value.file == str(path)
    assert path.read_bytes() == before
    assert names_in(path) == ["views.pt"]


def test_another_format_is_not_published(model, tmp_path):
    path, before = model
    other = tmp_path / "other"
    weightmap.save_safetensors({}, other)
    with pytest.raises(weightmap.InvalidArgumentError, match="is torch_zip, and the new file is safet"):
        with weightmap.replacing(path) as new:
            shutil.copyfile(other, new)
    with pytest.raises(weightmap.InvalidArgumentError, match="has the name of gguf, and the new file"):
        weightmap.publish(other, tmp_path / "a.gguf")
    assert path.read_bytes() == before
    content = other.read_bytes()
    weightmap.publish(other, path, any_format=True)
    assert path.read_bytes() == content


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(weightmap.InvalidArgumentError, match="is not the name of a file"):
        weightmap.replacing(tmp_path).__enter__()


def test_a_missing_directory_is_a_file_error(tmp_path):
    with pytest.raises(weightmap.MissingFileError) as caught:
        weightmap.replacing(tmp_path / "none" / "model.pt").__enter__()
    assert caught.value.file == str(tmp_path / "none" / "model.pt")


def test_entering_twice_is_refused(model):
    replacing = weightmap.replacing(model[0])
    with pytest.raises(weightmap.InvalidArgumentError, match="nothing was written"):
        with replacing:
            with pytest.raises(weightmap.InvalidArgumentError, match="already"):
                replacing.__enter__()


HALF = """
import sys, weightmap
with weightmap.replacing(sys.argv[1]) as new:
    open(new, "w").write("half of a checkpoint")
    print(new, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_is_removed_by_the_next_and_no_other(model, data, start_python):
    path, _ = model
    killed, other = start_python(HALF, path), start_python(HALF, path)
    left, in_use = killed.stdout.readline().strip(), other.stdout.readline().strip()
    killed.kill()
    killed.wait()
    assert os.path.exists(left)
    with weightmap.replacing(path) as new:
        assert not os.path.exists(left)
        assert os.path.exists(in_use)
        shutil.copyfile(data / "dtypes.pt", new)


def test_a_loaded_checkpoint_is_saved_over_its_own_file(tmp_path, python):
    pytest.importorskip("torch", reason="saves with torch")
    program = """
import sys, torch, weightmap
path = sys.argv[1]
torch.save({"w": torch.arange(1 << 20), "step": 1}, path)
state = weightmap.torch.load(path)
state["step"] = 2
with weightmap.replacing(path) as new:
    torch.save(state, new)
again = weightmap.torch.load(path, verify="crc")
print(again["step"], int(again["w"].sum()), int(state["w"].sum()))
"""
    ran = python(program, tmp_path / "self.pt")
    assert (ran.returncode, ran.stdout) == (0, "2 549755289600 549755289600\n"), ran.stderr


def test_the_new_file_is_what_torch_would_write_to_the_old_name(tmp_path):
    torch = pytest.importorskip("torch", reason="saves with torch")
    (tmp_path / "plain").mkdir()
    state = {"w": torch.arange(5)}
    torch.save(state, tmp_path / "plain" / "model.pt")
    with weightmap.replacing(tmp_path / "model.pt") as new:
        torch.save(state, new)
    expected = (tmp_path / "plain" / "model.pt").read_bytes()
    assert (tmp_path / "model.pt").read_bytes() == expected
