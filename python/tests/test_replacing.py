"""replacing(): what becomes of a checkpoint that is saved over."""

import os
import shutil
import signal
import subprocess
import sys

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


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_changes_if_the_block_fails(model, data, raised):
    path, before = model
    with pytest.raises(raised):
        with weightmap.replacing(path) as new:
            shutil.copyfile(data / "dtypes.pt", new)
            raise raised
    assert path.read_bytes() == before
    assert names_in(path) == ["views.pt"]


def test_what_is_no_checkpoint_is_not_published(model):
    path, before = model
    with pytest.raises(weightmap.NotACheckpointError):
        with weightmap.replacing(path) as new, open(new, "w") as stream:
            stream.write("these are no weights")
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


def test_a_new_file_with_a_wrong_checksum_is_not_published_with_crc(model, data):
    path, before = model
    content = bytearray((data / "dtypes.pt").read_bytes())
    with weightmap.open(data / "dtypes.pt") as opened:
        content[opened["float64"].file_offset] ^= 1
    with pytest.raises(weightmap.CorruptError):
        with weightmap.replacing(path, crc=True) as new, open(new, "wb") as stream:
            stream.write(content)
    assert path.read_bytes() == before


def test_a_block_that_writes_nothing_is_an_error(model):
    path, before = model
    with pytest.raises(weightmap.InvalidArgumentError, match="nothing was written") as caught:
        with weightmap.replacing(path):
            pass
    assert caught.value.file == str(path)
    assert path.read_bytes() == before
    assert names_in(path) == ["views.pt"]


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


def test_what_a_killed_process_left_is_removed_by_the_next_and_no_other(model, data):
    path, _ = model
    program = (
        "import sys, weightmap\n"
        "with weightmap.replacing(sys.argv[1]) as new:\n"
        "    open(new, 'w').write('half of a checkpoint')\n"
        "    print(new, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    arguments = [sys.executable, "-c", program, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, **pipes) as killed, subprocess.Popen(arguments, **pipes) as other:
        left, in_use = killed.stdout.readline().strip(), other.stdout.readline().strip()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert os.path.exists(left)
        with weightmap.replacing(path) as new:
            assert not os.path.exists(left)
            assert os.path.exists(in_use)
            shutil.copyfile(data / "dtypes.pt", new)
        other.send_signal(signal.SIGKILL)
        other.wait()


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
