"""What the tests of the plug-ins for inference engines share."""

import contextlib
import os
import subprocess
import sys
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
