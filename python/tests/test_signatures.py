"""inspect.signature() of all that is public: what help(), editors and notebooks show of it."""

import ast
import inspect
from pathlib import Path

import pytest

import weightmap

MODULES = [weightmap, weightmap.config, weightmap.cuda, weightmap.remote, weightmap.reports]
STUBS = ast.parse(Path(weightmap.__file__).with_name("_core.pyi").read_text())


def is_ours(kind, name):
    """Whether a class of ours, or of the standard library's Python, has this and no built-in."""
    owner = next(one for one in kind.__mro__ if name in vars(one))
    return owner.__module__ != "builtins"


def public_callables():
    """Each by its name."""
    found = {}
    for module in MODULES:
        for name in getattr(module, "__all__", ["override"]):
            value = getattr(module, name)
            if getattr(value, "_is_protocol", False):  # which nobody calls
                continue
            if callable(value):
                found[f"{module.__name__}.{name}"] = value
            if not inspect.isclass(value):
                continue
            for member in dir(value):
                if not member.startswith("_") and is_ours(value, member):
                    if callable(getattr(value, member)):
                        found[f"{module.__name__}.{name}.{member}"] = getattr(value, member)
    return found


CALLABLES = public_callables()


def in_stubs():
    """The names of the parameters of each public method of the extension module's Tensor."""
    (tensor,) = [node for node in STUBS.body if getattr(node, "name", None) == "Tensor"]
    found = {}
    for node in tensor.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            if not node.decorator_list:  # a property
                found[node.name] = [one.arg for one in node.args.args + node.args.kwonlyargs]
    return found


def test_there_is_much_that_is_public():
    assert {"weightmap.open", "weightmap.Tensor.torch", "weightmap.Checkpoint.warm",
            "weightmap.Subtree.get", "weightmap.reports.WarmReport", "weightmap.config.override",
            "weightmap.guard_is_active"} <= CALLABLES.keys()


@pytest.mark.parametrize("name", CALLABLES)
def test_a_public_callable_has_a_signature(name):
    """Which says more than that it takes whatever comes."""
    parameters = list(inspect.signature(CALLABLES[name]).parameters.values())
    catch_alls = [p.name for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    assert catch_alls == (["paths"] if name == "weightmap.processes" else [])


def test_the_methods_of_a_tensor_have_the_parameters_of_the_stubs():
    methods = {
        name.rpartition(".")[2]: list(inspect.signature(value).parameters)
        for name, value in CALLABLES.items()
        if name.startswith("weightmap.Tensor.")
    }
    assert methods == in_stubs()
    assert len(methods) == 9


@pytest.mark.parametrize("name", in_stubs())
def test_a_method_of_one_tensor_needs_nothing_more(checkpoint, name):
    method = getattr(checkpoint("views.pt")["base"], name)
    assert str(inspect.signature(method)) == ("(*, copy_on_write=None)" if name == "torch" else "()")
    assert "--" not in inspect.getdoc(method) and "self" not in inspect.getdoc(method)
    with pytest.raises(TypeError, match=rf"{name}\(\) takes no"):
        method(1)
    with pytest.raises(TypeError, match=rf"{name}\(\) takes no keyword arguments"):
        method(dtype="float32")


def test_the_functions_of_weightmap_torch_have_signatures():
    pytest.importorskip("torch", reason="imports weightmap.torch")
    for name in weightmap.torch.__all__:
        inspect.signature(getattr(weightmap.torch, name))


def test_a_record_has_its_fields():
    for name, value in CALLABLES.items():
        if inspect.isclass(value) and hasattr(value, "__match_args__"):
            assert tuple(inspect.signature(value).parameters) == value.__match_args__, name


# Plain values, and functions that make one or return what says it.
SAY_NOTHING_OF_THREADS = {"Global", "Object", "SlicePart", "empty", "guard_is_active",
                          "open_for_filling", "replacing", "safe_open", "CheckpointTensor"}


def test_a_docstring_says_what_threads_may_do():
    silent = {
        name
        for name in weightmap.__all__
        if not (name.endswith("Error") or name.startswith("__"))
        and "thread" not in inspect.getdoc(getattr(weightmap, name))
    }
    assert silent == SAY_NOTHING_OF_THREADS


def test_a_docstring_of_weightmap_remote_says_what_threads_may_do():
    for name in weightmap.remote.__all__:
        said = inspect.getdoc(getattr(weightmap.remote, name))
        assert "thread" in said and "fork" in said, name


def test_a_docstring_of_weightmap_torch_says_what_threads_may_do():
    pytest.importorskip("torch", reason="imports weightmap.torch")
    silent = {
        name
        for name in ("SliceRecorder", "load", "load_model", "save")
        if "thread" not in inspect.getdoc(getattr(weightmap.torch, name))
    }
    assert silent == set()


def test_what_chooses_for_open_chooses_for_torch_as_well():
    pytest.importorskip("torch", reason="imports weightmap.torch")
    for function in (weightmap.torch.load, weightmap.torch.load_model):
        shown = inspect.signature(function).parameters
        for name in ("variant", "dtypes", "access"):
            assert shown[name].annotation == inspect.signature(weightmap.open).parameters[name].annotation
