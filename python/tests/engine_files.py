"""What the tests of the plug-ins for inference engines share."""

import contextlib
import glob
import os
import subprocess
import sys
import threading
import types

from safetensors_files import file_of, floats

import weightmap
from weightmap._engines.options import parse_engine_options


def install(monkeypatch, modules):
    """Puts modules, by name and with these contents, in the place of an engine's."""
    for name, contents in modules.items():
        module = types.ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)


def stock_parts(seen):
    """What both engines call so: iterators over files, and the bar, of which `seen` is told."""

    def iterator(files, *options, **named_options):
        for file in files:
            yield from seen.stock[os.path.basename(file)].items()

    def tqdm(files, desc, disable, bar_format):
        seen.progress.append((list(map(os.path.basename, files)), disable))
        return files

    return {"pt_weights_iterator": iterator, "safetensors_weights_iterator": iterator, "tqdm": tqdm}


def first_matching(folder, patterns):
    """The files of the first pattern that has some, and that pattern."""
    for pattern in patterns:
        files = glob.glob(os.path.join(folder, pattern))
        if files:
            break
    # In no order that a loader could rely on.
    return sorted(files, reverse=True), pattern


def take_weights(model):
    """What a model, which may have secondary weights, is given: the model, and the list."""
    taken = []
    model = model or types.SimpleNamespace()
    model.load_weights = lambda weights: taken.extend(weights)
    return model, taken


def watched_release(monkeypatch, mapped=((),), stays=()):
    """The files that are evicted. mapped: the (file, process) of each look at what is mapped, of the
    last one for good. stays: what the first calls leave cached."""
    import weightmap._engines.release as module

    evicted, mapped, stays = [], list(mapped), list(stays)

    def evict(file):
        evicted.append(file)
        return types.SimpleNamespace(cached_after=stays.pop(0) if stays else 0)

    def processes(*files):
        now = mapped.pop(0) if len(mapped) > 1 else mapped[0]
        return types.SimpleNamespace(mapped=[
            types.SimpleNamespace(file=str(file), process=process) for file, process in now
        ])

    monkeypatch.setattr(module, "evict", evict)
    monkeypatch.setattr(module, "processes", processes)
    return evicted


@contextlib.contextmanager
def imported_anew(engine):
    """In it the plug-in of an engine is imported for the engine that is there now."""

    def forget():
        for name in (engine, f"_engines.{engine}_loader", f"_engines.{engine}_rank"):
            sys.modules.pop(f"weightmap.{name}", None)

    forget()
    try:
        yield
    finally:
        forget()


def check_import_is_light(engine):
    """Neither torch nor the engine comes with the module that registers the load format."""
    program = (
        f"import sys, weightmap.{engine}\n"
        f"print([name for name in ('torch', '{engine}', 'numpy') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert printed.stdout == "[]\n", printed.stderr


def write(folder, file, tensors):
    weightmap.save_safetensors(tensors, folder / file)


def asked_to_warm(monkeypatch):
    """What an engine's load has of each file warmed, from now on."""
    import weightmap._engines.load as module

    asked = []

    class Watched(module.WarmingAhead):
        def __init__(self, plan, *rest):
            asked.extend(wanted for _, wanted in plan)
            super().__init__(plan, *rest)

    monkeypatch.setattr(module, "WarmingAhead", Watched)
    return asked


def names(pairs):
    return [name for name, _ in pairs]


def file_with_dtype_beyond_torch(path):
    """A safetensors file of a float32 tensor, and behind it one that torch has no dtype for."""
    tensors = {"known": floats(7.0), "strange": ("F6_E2M3", [4], b"\1\2\3")}
    path.write_bytes(file_of(tensors, align=1))


def load(files, keys, stock=None):
    """What the loader of any engine yields of files, and the line that it writes at the end."""
    from weightmap._engines.load import EngineLoad

    lines = []
    logger = types.SimpleNamespace(
        info=lambda form, *values: lines.append(form % values),
        warning=lambda form, *values: lines.append(form % values),
    )
    engine = EngineLoad(parse_engine_options(keys), "Engine", logger)
    weights = engine.weights(
        map(str, files),
        stock_weights=lambda file: iter((stock or {})[os.path.basename(file)].items()),
        progress=lambda files, desc: files,
        is_wanted=lambda name: True,
        copies_uploads=False,
    )
    return engine.reporting(weights), lines


class FakeCheckpoint:
    """Tensors of one size, of which those at `cold` are not cached, or nobody tells what is."""

    def __init__(self, count, cold=None, *, path="", size=200 << 20, budget=16 << 30,
                 is_remote=False, warm=lambda: None, waited_for=7):
        self._core = self
        self.path, self.count, self.cold, self.size = path, count, cold, size
        self.budget, self.remote, self.before_warming = budget, is_remote, warm
        self.waited_for = waited_for
        self.calls, self.warmed, self.threads = [], [], []  # (positions, one_reader); positions
        self.changed = threading.Condition()

    def is_remote(self):
        return self.remote

    def at(self, index):
        return types.SimpleNamespace(
            index=index, nbytes=self.size, file_offset=index * self.size
        )

    def residency(self):
        if self.cold is None:
            raise weightmap.FilePermissionError("may not be asked")
        return types.SimpleNamespace(tensors=[
            types.SimpleNamespace(
                file_offset=index * self.size,
                extent_bytes=self.size,
                cached_bytes=0 if index in self.cold else self.size,
            )
            for index in range(self.count)
        ])

    def warm(self, indices, parts, threads, budget, crc, one_reader, progress):
        self.before_warming()
        progress(0, 1)
        with self.changed:
            self.calls.append((indices or parts, one_reader))
            self.warmed += indices
            self.threads.append(threads)
            self.changed.notify_all()
        return {
            "bytes": self.size, "bytes_read": 5, "bytes_waited_for": self.waited_for, "seconds": 1.0,
            "takeovers": len(indices) - 1, "was_reader": True, "why_alone": "",
            "bytes_left_out": 0, "budget_reason": "", "budget_bytes": self.budget,
        }

    def wait_until_warmed(self, count):
        with self.changed:
            self.changed.wait_for(lambda: len(self.warmed) >= count)
