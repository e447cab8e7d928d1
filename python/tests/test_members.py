"""FILE//MEMBER, in archives that the real programs' libraries write."""

import io
import pathlib
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

import weightmap

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")

STATE = {
    "encoder.weight": torch.arange(12.0, dtype=torch.float64).reshape(3, 4),
    "encoder.bias": torch.arange(5),
    "epoch": 3,
}


def saved(**how):
    made = io.BytesIO()
    torch.save(STATE, made, **how)
    return made.getvalue()


@pytest.fixture
def nemo(tmp_path):
    """As NeMo packs a folder: tar.add(folder, arcname=".")."""
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "model_config.yaml").write_text("name: x\n")
    (folder / "model_weights.ckpt").write_bytes(saved())
    with tarfile.open(tmp_path / "model.nemo", "w:") as archive:
        archive.add(folder, arcname=".")
    return f"{tmp_path}/model.nemo"


def check(path):
    checkpoint = weightmap.open(path)
    assert checkpoint.root()["epoch"] == 3
    for name in ("encoder.weight", "encoder.bias"):
        assert torch.equal(checkpoint[name].torch(), STATE[name])
        assert np.array_equal(checkpoint[name].numpy(), STATE[name].numpy())
    loaded = weightmap.torch.load(path)
    assert loaded["epoch"] == 3
    assert torch.equal(loaded["encoder.weight"], STATE["encoder.weight"])
    checkpoint.verify_crc()
    return checkpoint


def test_the_weights_of_a_nemo(nemo, tmp_path):
    checkpoint = check(nemo + "//model_weights.ckpt")
    again = pickle.loads(pickle.dumps(checkpoint["encoder.bias"]))
    assert again.numpy().tolist() == [0, 1, 2, 3, 4]
    weightmap.save(checkpoint, tmp_path / "whole.pt")
    assert torch.load(tmp_path / "whole.pt")["epoch"] == 3
    weightmap.save_safetensors(checkpoint, tmp_path / "a.safetensors")
    assert weightmap.open(tmp_path / "a.safetensors")["encoder.bias"].numpy().tolist()[4] == 4
    with weightmap.safe_open(nemo + "//model_weights.ckpt", "pt") as file:
        assert torch.equal(file.get_tensor("encoder.weight"), STATE["encoder.weight"])
    assert checkpoint.state() == "current"
    with open(nemo, "ab") as appended:
        appended.write(b"\0")
    assert checkpoint.state() == "modified"


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_kind_of_tar(tmp_path, kind):
    name = "weights/" * (3 if kind == tarfile.USTAR_FORMAT else 40) + "modèle.ckpt"
    with tarfile.open(tmp_path / "x.tar", "w:", format=kind) as archive:
        for each in (name + ".other", name):
            member = tarfile.TarInfo(each)
            member.size = len(saved())
            archive.addfile(member, io.BytesIO(saved()))
    check(f"{tmp_path}/x.tar//{name}")


@pytest.mark.parametrize("pad", [0, 1, 3])
@pytest.mark.parametrize("how", [{}, {"_use_new_zipfile_serialization": False}])
def test_a_stored_member_of_a_zip_at_any_place(tmp_path, pad, how):
    """Also of zip64, as large models need it. numpy and torch get the tensors whose bytes do not
    lie as theirs should."""
    with zipfile.ZipFile(tmp_path / "x.mar", "w") as archive:
        archive.writestr("first" + "x" * pad, "")
        with archive.open("model.pt", "w", force_zip64=True) as member:
            member.write(saved(**how))
    check(f"{tmp_path}/x.mar//model.pt")


def test_the_model_of_a_llamafile(tmp_path):
    """A program, and behind it a zip archive with the model at a multiple of 16 KiB."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("blk.0.w", np.arange(64, dtype=np.float32).reshape(2, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = tmp_path / "x.llamafile"
    file.write_bytes(b"MZqFpD='\n" + bytes(range(256)) * 33)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(".args", "-m\nm.gguf\n")
        member = zipfile.ZipInfo("m.gguf")
        filler = -(archive.start_dir + 30 + len(member.filename) + 4) % 16384
        member.extra = b"\xfe\xca" + filler.to_bytes(2, "little") + bytes(filler)
        archive.writestr(member, (tmp_path / "m.gguf").read_bytes())
    checkpoint = weightmap.open(f"{file}//m.gguf")
    assert checkpoint["blk.0.w"].file_offset % 32 == 0
    assert checkpoint["blk.0.w"].numpy().sum() == 2016
    assert checkpoint.info.format == "gguf"
    with pytest.raises(weightmap.NotACheckpointError, match=r"is a llamafile.*FILE//MEMBER"):
        weightmap.open(file)


def test_what_is_no_member_is_said(nemo, tmp_path):
    with pytest.raises(FileNotFoundError, match=r'has no member "none"; it has "model_config'):
        weightmap.open(nemo + "//none")
    # pathlib makes one slash of two.
    with pytest.raises(weightmap.FileError, match=r"is FILE//MEMBER, with two slashes"):
        weightmap.open(pathlib.Path(nemo + "//model_weights.ckpt"))
    with tarfile.open(tmp_path / "old.nemo", "w:gz") as archive:
        archive.add(nemo, arcname="model_weights.ckpt")
    with pytest.raises(weightmap.NotACheckpointError, match=r"compressed with gzip.*tar xzf"):
        weightmap.open(f"{tmp_path}/old.nemo//model_weights.ckpt")
    with pytest.raises(weightmap.UnsupportedError, match="whole files are staged"):
        weightmap.stage(nemo + "//model_weights.ckpt")
    with pytest.raises(weightmap.UnsupportedError, match="extract it, and publish what that makes"):
        weightmap.publish(nemo + "//model_weights.ckpt", tmp_path / "target.pt")
