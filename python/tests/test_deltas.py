"""write_delta() and apply_delta(), against what Python's own packages read and write.

The publisher and the receiver here do what those of slime, miles and ModelExpress do, by the
packages that these use.
"""

import fcntl
import json
import os
import tempfile
import zlib

import pytest

import weightmap

numpy = pytest.importorskip("numpy", reason="these tests compute deltas with it")
safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="these tests write with it")
zstandard = pytest.importorskip("zstandard", reason="frames are compared with its")
xxhash = pytest.importorskip("xxhash", reason="sums are compared with its")

CHECKSUMS = {
    "xxh3-128": lambda content: xxhash.xxh3_128(content).hexdigest(),
    "adler32": lambda content: f"{zlib.adler32(content):08x}",
}


def bytes_of(array):
    return numpy.ascontiguousarray(array).view(numpy.uint8).reshape(-1)


def tensors(seed):
    chance = numpy.random.default_rng(seed)
    return {
        "embed.weight": chance.standard_normal((300, 64)).astype(numpy.float32),
        "norm.weight": chance.standard_normal(64).astype(numpy.float16),
        "step": numpy.array(seed, dtype=numpy.int64),
    }


def stepped(state, seed):
    """A small step of training: some elements of some tensors change."""
    chance = numpy.random.default_rng(seed)
    new = {name: array.copy() for name, array in state.items()}
    weight = new["embed.weight"].reshape(-1)
    weight[chance.integers(0, weight.size, weight.size // 50)] *= 1.001
    new["step"] += 1
    return new


def save(folder, state):
    folder.mkdir()
    safetensors_numpy.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text("{}")
    return folder


def published(folder, old, new, encoding, checksum):
    """The delta as a trainer publishes it."""
    frames, sums = {}, {}
    for name, array in new.items():
        before, after = bytes_of(old[name]), bytes_of(array)
        mask = before != after
        if not mask.any():
            continue
        if encoding == "xor":
            diff = before ^ after
        else:
            places = numpy.flatnonzero(mask).astype("<u4")
            parts = [numpy.array([places.size], "<u4").view(numpy.uint8),
                     places.view(numpy.uint8), after[mask]]
            diff = numpy.concatenate(parts)
        packed = zstandard.ZstdCompressor(level=1).compress(diff.tobytes())
        frames[name] = numpy.frombuffer(packed, dtype=numpy.uint8)
        sums[name] = CHECKSUMS[checksum](after.tobytes())
    folder.mkdir()
    file = "model-00000-of-00001.safetensors"
    (folder / file).write_bytes(safetensors_numpy.save(frames, metadata=sums))
    facts = {"version": "000001", "base_version": "000000", "delta_encoding": encoding,
             "compression_format": "zstd", "checksum_format": checksum}
    index = {"metadata": facts, "weight_map": dict.fromkeys(frames, file)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def received(folder, old):
    """The new bytes of each tensor, as a receiver makes them in place."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    facts, new = index["metadata"], {name: bytes_of(array).copy() for name, array in old.items()}
    assert facts["compression_format"] == "zstd"
    for name, file in index["weight_map"].items():
        with weightmap.safe_open(folder / file, "numpy") as shard:
            sums, frame = shard.metadata(), shard.get_tensor(name).tobytes()
        diff = numpy.frombuffer(zstandard.ZstdDecompressor().decompress(frame), numpy.uint8)
        if facts["delta_encoding"] == "xor":
            new[name] ^= diff
        else:
            count = int(diff[:4].view("<u4")[0])
            places = diff[4 : 4 + 4 * count].view("<u4")
            new[name][places] = diff[4 + 4 * count :]
        assert CHECKSUMS[facts["checksum_format"]](new[name].tobytes()) == sums[name]
    return new


@pytest.fixture
def models(tmp_path):
    old = tensors(1)
    new = stepped(old, 2)
    return tmp_path, old, new, save(tmp_path / "old", old), save(tmp_path / "new", new)


@pytest.mark.parametrize("checksum", CHECKSUMS)
@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_a_delta_of_a_trainer_is_applied(models, encoding, checksum):
    tmp_path, old, new, base, expected = models
    delta = published(tmp_path / "delta", old, new, encoding, checksum)
    report = weightmap.apply_delta(base, delta, tmp_path / "made")
    assert (report.version, report.base_version) == ("000001", "000000")
    assert (report.deltas, report.tensors, report.changed_tensors) == (1, 3, 2)
    made = tmp_path / "made" / "model.safetensors"
    assert report.files == [str(made)]
    assert made.read_bytes() == (expected / "model.safetensors").read_bytes()
    assert report.bytes == made.stat().st_size


@pytest.mark.parametrize("checksum", CHECKSUMS)
@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
def test_a_receiver_reads_what_is_written(models, encoding, checksum):
    tmp_path, old, new, base, expected = models
    report = weightmap.write_delta(
        base, expected, tmp_path / "weight_v000007", encoding=encoding, sums=checksum
    )
    assert (report.version, report.base_version) == ("000007", "000000")
    assert (report.tensors, report.changed_tensors) == (3, 2)
    assert report.bytes == sum(os.path.getsize(file) for file in report.files)
    got = received(tmp_path / "weight_v000007", old)
    assert all((got[name] == bytes_of(array)).all() for name, array in new.items())


def test_a_chain_is_applied_at_once(models):
    tmp_path, old, new, base, _ = models
    last = save(tmp_path / "last", stepped(new, 3))
    weightmap.write_delta(base, tmp_path / "new", tmp_path / "weight_v000001")
    weightmap.write_delta(
        tmp_path / "new", last, tmp_path / "weight_v000002", base_version="000001"
    )
    chain = [tmp_path / "weight_v000001", tmp_path / "weight_v000002"]
    report = weightmap.apply_delta(base, chain, tmp_path / "made", threads=1, durable=False)
    assert (report.version, report.deltas) == ("000002", 2)
    made = (tmp_path / "made" / "model.safetensors").read_bytes()
    assert made == (last / "model.safetensors").read_bytes()
    with pytest.raises(weightmap.InvalidArgumentError, match="is for version"):
        weightmap.apply_delta(base, reversed(chain), tmp_path / "again")


def test_a_version_is_published_under_a_link_and_followed(models):
    tmp_path, old, new, base, _ = models
    delta = published(tmp_path / "delta", old, new, "xor", "xxh3-128")
    weightmap.publish(base, tmp_path / "now")
    with weightmap.open(tmp_path / "now") as before:
        weightmap.apply_delta(tmp_path / "now", delta, tmp_path / "made")
        weightmap.publish(tmp_path / "made", tmp_path / "now")
        assert before["step"].item() == 1
        assert not before.is_current()
    with weightmap.open(tmp_path / "now") as after:
        assert after["step"].item() == 2


def test_in_place_changes_the_files_that_nobody_has_open(models):
    tmp_path, old, new, base, expected = models
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            pytest.skip(f"needs leases of the file system: {error}")
    delta = published(tmp_path / "delta", old, new, "xor", "xxh3-128")
    with weightmap.open(base):
        with pytest.raises(weightmap.FileError, match="is open or mapped elsewhere"):
            weightmap.apply_delta(base, delta, in_place=True)
    for wrong in ({}, {"folder": tmp_path / "made", "in_place": True}):
        with pytest.raises(weightmap.InvalidArgumentError, match="give the new folder"):
            weightmap.apply_delta(base, delta, **wrong)
    report = weightmap.apply_delta(base, delta, in_place=True)
    assert (report.version, report.files) == ("000001", [str(base / "model.safetensors")])
    made = (base / "model.safetensors").read_bytes()
    assert made == (expected / "model.safetensors").read_bytes()


def test_what_fails_leaves_nothing(models):
    tmp_path, old, new, base, expected = models
    delta = published(tmp_path / "delta", old, new, "xor", "xxh3-128")
    names = sorted(os.listdir(tmp_path))

    with pytest.raises(weightmap.CorruptError, match="would have the sum"):
        weightmap.apply_delta(expected, delta, tmp_path / "made")
    with pytest.raises(weightmap.NotACheckpointError, match="is no delta"):
        weightmap.apply_delta(base, expected, tmp_path / "made")
    with pytest.raises(weightmap.InvalidArgumentError, match="is there already"):
        weightmap.apply_delta(base, delta, expected)
    with pytest.raises(ValueError, match="encoding is one of xor, overwrite"):
        weightmap.write_delta(base, expected, tmp_path / "d", encoding="add")
    with pytest.raises(weightmap.InvalidArgumentError, match="the level of zstd"):
        weightmap.write_delta(base, expected, tmp_path / "d", level=30)
    assert sorted(os.listdir(tmp_path)) == names


def test_blake3_is_its_package_s_or_refused(models):
    tmp_path, old, new, base, expected = models
    blake3 = pytest.importorskip("blake3", reason="sums are compared with its")
    try:
        weightmap.write_delta(base, expected, tmp_path / "delta", sums="blake3")
    except weightmap.UnsupportedError as error:
        assert "this build has no BLAKE3" in str(error)
        return
    CHECKSUMS["blake3"] = lambda content: blake3.blake3(content).hexdigest()
    try:
        received(tmp_path / "delta", old)
    finally:
        del CHECKSUMS["blake3"]
    weightmap.apply_delta(base, tmp_path / "delta", tmp_path / "made")


def test_checkpoints_of_other_formats_are_compared(models):
    tmp_path, old, new, base, _ = models
    torch = pytest.importorskip("torch", reason="these are torch's")
    for name, state in (("old.pt", old), ("new.pt", new)):
        torch.save({key: torch.from_numpy(array) for key, array in state.items()}, tmp_path / name)
    weightmap.write_delta(tmp_path / "old.pt", tmp_path / "new.pt", tmp_path / "delta")
    weightmap.apply_delta(base, tmp_path / "delta", tmp_path / "made")
    assert all((bytes_of(new[name]) == numpy.frombuffer(tensor.tobytes(), numpy.uint8)).all()
               for name, tensor in weightmap.open(tmp_path / "made").items())
    torch.save({"weight": torch.ones(2, 3).t()}, tmp_path / "turned.pt")
    with pytest.raises(weightmap.UnsupportedError, match='"weight" does not lie as a row'):
        weightmap.write_delta(tmp_path / "turned.pt", tmp_path / "turned.pt", tmp_path / "other")
