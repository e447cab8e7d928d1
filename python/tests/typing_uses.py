"""What programs write, for mypy and pyright (scripts/test). Nothing here runs.

Each name of the package's front is used as the documentation uses it, with the type that it is to
have: a signature that becomes Any, or loses a keyword, is an error here.
"""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, ValuesView
from pathlib import Path
from typing import Any, assert_type

import numpy
import torch

import weightmap
from weightmap import reports


def opening(path: Path) -> None:
    with weightmap.open(path, sharing="private", verify="headers", copy_on_write="small") as opened:
        assert_type(opened, weightmap.Checkpoint)
    assert_type(weightmap.open([path, "second.safetensors"]), weightmap.Checkpoint)
    with open(path, "rb") as file:
        assert_type(weightmap.open(file, progress=print), weightmap.Checkpoint)
    assert_type(weightmap.open(memoryview(b""), trust=True), weightmap.Checkpoint)
    assert_type(weightmap.guard_is_active(), bool)
    assert_type(weightmap.unsafe_globals(path, safe_globals=["argparse.Namespace"]), list[str])


def tensors(checkpoint: weightmap.Checkpoint) -> None:
    found = checkpoint["optimizer", "state", 0]
    assert_type(found, weightmap.CheckpointTensor)
    assert_type(found.shape, tuple[int, ...])
    assert_type(found.nbytes, int)
    assert_type(found[:10, ..., 3], weightmap.CheckpointTensor)
    assert_type(found.torch(), torch.Tensor)
    assert_type(found.tobytes(), bytes)
    assert_type(checkpoint.keys(), KeysView[str])
    assert_type(checkpoint.values(), ValuesView[weightmap.CheckpointTensor])
    assert_type(checkpoint.items(), ItemsView[str, weightmap.CheckpointTensor])
    assert_type(checkpoint.paths(), list[tuple[str | int, ...]])
    assert_type(checkpoint.find("blocks.0.*"), list[str])
    assert_type(checkpoint.torch("model", dtype=torch.float16), dict[str, torch.Tensor])
    assert_type(checkpoint.files, list[str])
    assert_type(checkpoint.is_current(), bool)
    assert_type(checkpoint.reopen(), weightmap.Checkpoint)
    checkpoint.copy_to(found, bytearray(found.nbytes))
    if checkpoint.state() == "lost":
        checkpoint.close()


def either_kind(plain: weightmap.Tensor, pieces: weightmap.ChunkedTensor) -> None:
    both: list[weightmap.CheckpointTensor] = [plain, pieces]
    found = both[0]
    if isinstance(found, weightmap.ChunkedTensor):
        assert_type(found.parts(), list[weightmap.Tensor])
        found.gather(bytearray(found.nbytes))
    assert_type(plain[0], weightmap.Tensor)
    assert_type(plain.strides, tuple[int, ...])
    assert_type(plain.torch(copy_on_write=False), torch.Tensor)
    assert_type(plain.buffer(), memoryview)
    assert_type(plain.bits(), weightmap.Tensor)
    assert_type(plain.stats(), reports.TensorStats)
    assert_type(pieces[0], weightmap.Tensor | weightmap.ChunkedTensor)


def parts(checkpoint: weightmap.Checkpoint, model: torch.nn.Module) -> None:
    below = checkpoint.subtree(("model",))
    assert_type(below, weightmap.Subtree)
    assert_type(below["weight"], weightmap.CheckpointTensor)
    assert_type(below.torch(), dict[str, torch.Tensor])
    assert_type(below.load_into(model, strict=False), reports.LoadReport)
    assert_type(checkpoint.load_into(model, "model").missing, list[str])


def answers(checkpoint: weightmap.Checkpoint) -> None:
    assert_type(checkpoint.info, reports.Info)
    assert_type(checkpoint.info.tensors, int)
    assert_type(checkpoint.stats, reports.Stats)
    assert_type(checkpoint.summary(depth=2), reports.Summary)
    assert_type(checkpoint.summary().ties, tuple[tuple[str, ...], ...])
    assert_type(checkpoint.generation, reports.Generation)
    assert_type(checkpoint.residency().tensors, tuple[reports.RangeResidency, ...])
    assert_type(checkpoint.composed_tensors(), list[reports.ComposedTensor])
    assert_type(checkpoint.verify_crc(progress=lambda done, size: None), reports.CrcReport)


def warming(checkpoint: weightmap.Checkpoint) -> None:
    assert_type(checkpoint.warm(), reports.WarmReport)
    assert_type(checkpoint.warm(["a", "blocks.*"], budget_bytes=1 << 30, crc=True).bytes, int)
    checkpoint.warm({"a": None, "b": (slice(None), slice(0, 512))}, threads=4, one_reader=True)
    plan = weightmap.SlicePlan({"a": [weightmap.SlicePart(0, (2, 2), (4, 1))], "b": None})
    checkpoint.warm(plan)
    plan.save("plan.json")
    assert_type(weightmap.SlicePlan.load("plan.json"), weightmap.SlicePlan)
    checkpoint.demand(checkpoint["a"])
    assert_type(checkpoint.demand_order(), list[str])
    checkpoint.save_order()


def settings() -> None:
    weightmap.config.load.verify = "crc"
    with weightmap.config.override("load.verify", "chain"):
        pass
    with weightmap.config.override({"load.populate": True}):
        pass


def patching() -> None:
    with weightmap.patch() as report:
        assert_type(report, reports.PatchReport)
    with weightmap.patch(files="mmap", save=True) as report:
        assert_type([call.why for call in report.left], list[str])


def writing(checkpoint: weightmap.Checkpoint, path: Path) -> None:
    saved = weightmap.save({"a": numpy.zeros(3)}, path, crc=False, alignment=4096)
    assert_type(saved, reports.SaveReport)
    assert_type(saved.storages, tuple[reports.SavedStorage, ...])
    weightmap.save({"later": weightmap.empty((2, 3), "bfloat16")}, path, reserve=["later"])
    written = weightmap.save_safetensors(checkpoint, path, max_size=1 << 30, shared="drop")
    assert_type(written, reports.SafetensorsReport)
    with weightmap.open_for_filling(path) as fill:
        assert_type(fill, weightmap.Filling)
        fill["later"] = numpy.zeros((2, 3))
        assert_type(fill.storages, tuple[reports.ReservedStorage, ...])
        fill.seal()
    with weightmap.replacing(path) as new:
        assert_type(new, str)
    assert_type(weightmap.publish(path, "target.pt", crc=True), reports.PublishReport)
    assert_type(weightmap.write_delta(path, path, "delta", sums="adler32"), reports.DeltaReport)
    assert_type(weightmap.apply_delta(path, [path], "new").files, list[str])
    assert_type(weightmap.evict(path).reason, str)


def in_memory(path: Path) -> None:
    with weightmap.stage(path, budget_bytes=1 << 34) as staged:
        assert_type(staged, weightmap.StagedFile)
        assert_type(staged.report, reports.StageReport)
        weightmap.open(staged)
    weightmap.remove_staged("name")
    assert_type(weightmap.processes(path), reports.Processes)


def starting(path: Path) -> None:
    weightmap.prefetch(path)
    assert_type(next(iter(weightmap.watch(path, interval=0.5))), str)
    assert_type(weightmap.snapshot_here(new=["PORT"]), bool)


def by_safe_open(path: Path) -> None:
    with weightmap.safe_open(path, framework="pt", device="cpu") as file:
        assert_type(file, weightmap.SafeOpen)
        assert_type(file.keys(), list[str])
        assert_type(file.metadata(), dict[str, str] | None)


def with_torch(path: Path, model: torch.nn.Module) -> None:
    state = weightmap.torch.load(path, only=["model", ("ema", 0)], on_unknown="object")
    weightmap.torch.save(state, path, durable=False)
    weightmap.torch.load(path, variant="fp16", dtypes={"a": "bfloat16"})
    loaded = weightmap.torch.load_model(lambda: model, path, copy_on_write=False, variant="fp16")
    assert_type(loaded, torch.nn.Module)
    assert_type(weightmap.torch.summary(loaded), reports.Summary)
    assert_type(weightmap.torch.protect(path), reports.WriteProtection)
    recorder = weightmap.torch.SliceRecorder()
    with recorder:
        recorder.add("a", torch.zeros(2))
    assert_type(recorder.plan(), weightmap.SlicePlan)


def on_a_device(checkpoint: weightmap.Checkpoint) -> None:
    uploader = weightmap.cuda.Uploader(0, slots=2, way="slots")
    for name, tensor in uploader.upload(checkpoint, ["a"]):
        assert_type(name, str)
        assert_type(tensor, weightmap.cuda.DeviceTensor)
        assert_type(tensor.torch(), torch.Tensor)


def remotely(path: Path) -> None:
    class Own:
        name = "own"
        size = 3
        tag = ""

        def read_into(self, offset: int, buffer: memoryview) -> None: ...

    source = weightmap.remote.open_url("https://host/a", signer=lambda url, again: url)
    assert_type(source, weightmap.remote.Source)
    assert_type(source.read_into(0, bytearray(3)), int)
    assert_type(weightmap.remote.metadata(Own()), weightmap.Checkpoint)
    with weightmap.remote.stage(source, order=["a"], progress=print) as staging:
        assert_type(staging.wait("a"), weightmap.Tensor)
        assert_type(staging.checkpoint, weightmap.Checkpoint)
        assert_type(staging.finish(), weightmap.StagedFile)
    assert_type(weightmap.remote.fetch("s3://bucket/a", path), list[reports.FetchReport])
    assert_type(weightmap.remote.model_files(source), list[reports.ModelFile])
    assert_type(weightmap.remote.from_obstore(object(), "a").tag, str)
    weightmap.remote.fetch_model(
        "https://host/a/", path,
        check=lambda folder: weightmap.remote.verify_signature(folder, public_key=path))


def errors(path: Path) -> str | None:
    try:
        value: Any = weightmap.open(path).root()
        return repr(value)
    except weightmap.UnsafePickleError as error:
        return error.message
    except weightmap.Error as error:
        return error.file
