"""weightmap.open() and the mapping that it returns."""

import collections
import gc
import mmap
import operator
import os
import pickle
import zipfile
from collections.abc import ItemsView, KeysView, Mapping, ValuesView

import pytest
from held_pages import cached

import weightmap
from weightmap import Global, Object
from weightmap._summary import Share

STATE_DICT_NAMES = [
    "embedding.weight", "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.mask",
    "steps", "position_ids",
]


# --- a mapping --------------------------------------------------------------------------------


def test_is_a_mapping_in_the_order_of_the_file(checkpoint):
    opened = checkpoint("state_dict.pt")
    assert isinstance(opened, Mapping)
    assert len(opened) == 7
    assert list(opened) == STATE_DICT_NAMES
    assert list(opened.keys()) == STATE_DICT_NAMES
    assert [tensor.name for tensor in opened.values()] == STATE_DICT_NAMES
    assert [name for name, _ in opened.items()] == STATE_DICT_NAMES
    assert [tensor.name for _, tensor in opened.items()] == STATE_DICT_NAMES
    for view, kind in ((opened.keys(), KeysView), (opened.values(), ValuesView),
                       (opened.items(), ItemsView)):
        assert isinstance(view, kind) and len(view) == 7
    assert opened.keys() & {"steps", "nothing"} == {"steps"}


@pytest.mark.parametrize("name", ["scalar", "scalar_int", "empty", "empty_rows", "empty_columns"])
def test_finds_tensors_that_count_as_false(checkpoint, name):
    opened = checkpoint("scalars_and_empty.pt")
    assert opened[name].name == name
    assert name in opened
    assert opened.get(name).name == name


def test_says_which_names_it_has(checkpoint):
    opened = checkpoint("state_dict.pt")
    assert "layers.0.bias" in opened
    assert opened.get(("steps",)).name == "steps"
    assert opened._ipython_key_completions_() == STATE_DICT_NAMES
    assert "layers.0" not in opened
    assert "" not in opened
    for strange in (0, None, b"steps", ("steps", 0), (), [], 1.5, object()):
        assert strange not in opened


def check_has_no(path, name, message):
    with weightmap.open(path) as checkpoint:
        with pytest.raises(KeyError) as caught:
            checkpoint[name]
        assert type(caught.value) is weightmap.TensorNotFoundError
        assert (caught.value.code, caught.value.message) == ("not_found", message)
        assert str(caught.value) == f"{path}: {message}"
        assert caught.value.__cause__ is None
        assert name not in checkpoint
        assert checkpoint.get(name) is None
        assert checkpoint.get(name, 7) == 7


PATTERN = "but it is a pattern that"


@pytest.mark.parametrize("name, hint", [
    ("no such tensor", ""),
    ("stps", '; did you mean "steps"?'),
    ("embedding.*", f", {PATTERN} 1 name matches; take find('embedding.*')"),
    ("layers.?.*", f", {PATTERN} 4 names match; take find('layers.?.*')"),
    ("nothing.*", ""),
])
def test_a_missing_name_is_a_key_error_with_a_hint(data, name, hint):
    check_has_no(data / "state_dict.pt", name, f'has no tensor "{name}"{hint}')


@pytest.mark.parametrize("key", [0, None, b"base", 1.5, ["base"], ("base", 1.5), ("base", True)])
def test_a_key_of_another_type_is_a_type_error(checkpoint, key):
    opened = checkpoint("views.pt")
    with pytest.raises(TypeError, match="by name or by path"):
        opened[key]
    assert opened.get(key, 7) == 7


def other_attribute(opened):
    opened.other = 1


@pytest.mark.parametrize("use, error", [
    pytest.param(lambda opened: operator.setitem(opened, "base", None), TypeError, id="item"),
    pytest.param(lambda opened: operator.delitem(opened, "base"), TypeError, id="del"),
    pytest.param(other_attribute, AttributeError, id="attribute"),
    pytest.param(lambda opened: weightmap.open(opened.path, "shared"), TypeError, id="position"),
    pytest.param(lambda opened: weightmap.open(opened.path, mode="r"), TypeError, id="mode"),
    *(pytest.param(lambda opened, path=path: weightmap.open(path), TypeError, id=f"open({path})")
      for path in (True, None, 1.5, [], open)),
    pytest.param(lambda opened: weightmap.open("model.pt\0.txt"), ValueError, id="zero byte"),
])
def test_wrong_uses_are_the_errors_of_python(checkpoint, use, error):
    with pytest.raises(error):
        use(checkpoint("views.pt"))


def test_equals_itself_and_can_be_hashed(checkpoint):
    # Tensors have no value to compare, so a checkpoint is the same or it is another.
    opened = checkpoint("views.pt")
    assert opened == opened
    assert opened != checkpoint("views.pt")
    assert {opened: 1}[opened] == 1


def test_names_that_are_not_plain_words(checkpoint):
    opened = checkpoint("names.pt")
    names = ["größe", "权重", "🙂.weight", "n" * 300, "", 'with "quotes" \\ and \n newline', " "]
    assert list(opened) == names
    assert [opened[name].shape for name in names] == [(n,) for n in range(1, 8)]


@pytest.mark.parametrize("name", ["größe\0", "gr", "NICHTS", "a\0b", "\ud800", "x" * 100_000])
def test_a_strange_name_that_is_not_there_is_a_key_error(checkpoint, name):
    opened = checkpoint("names.pt")
    assert name not in opened
    with pytest.raises(weightmap.TensorNotFoundError):
        opened[name]
    with pytest.raises(weightmap.TensorNotFoundError):
        opened[(name,)]


def test_names_with_zero_bytes_and_lone_surrogates(float_archive):
    # Pickle writes a lone surrogate as if it were a character.
    path = float_archive({"a\0b": bytes(4), "\ud800": bytes(8)})
    with weightmap.open(path) as opened:
        assert list(opened) == ["a\0b", "\ud800"]
        assert opened["a\0b"].shape == (1,)
        assert opened["\ud800"].shape == (2,)
        assert opened.paths() == [("a\0b",), ("\ud800",)]
        assert list(opened.root()) == ["a\0b", "\ud800"]


def test_a_name_that_is_not_utf8_is_refused(archive, float_archive):
    path = float_archive({"odd?": bytes(4), "even": bytes(8)})
    with zipfile.ZipFile(path) as source:
        pickled = source.read("archive/data.pkl").replace(b"odd?", b"odd\xff")
    path = archive(pickled, {"0": bytes(4), "1": bytes(8)}, "odd.pt")
    with pytest.raises(weightmap.CorruptError, match="which is not UTF-8 at its byte 3"):
        weightmap.open(path)


def test_two_tensors_of_one_name_are_told_apart_by_path(checkpoint):
    opened = checkpoint("colliding_names.pt")
    assert list(opened) == ["a.b", "a.b", "a.c"]
    assert opened.paths() == [("a.b",), ("a", "b"), ("a", "c")]
    assert opened["a.b",].shape == (1,)
    assert opened["a", "b"].shape == (2,)
    assert opened["a.c"].shape == (3,)
    assert [tensor.shape for tensor in opened.values()] == [(1,), (2,), (3,)]
    with pytest.raises(KeyError, match=r'more than one tensor "a.b".*ask by path'):
        opened["a.b"]


def test_integer_keys_are_not_their_text(checkpoint):
    opened = checkpoint("int_keys.pt")
    assert opened.paths() == [(0,), ("0",), (-5,), (2**40, 7)]
    assert all(type(part) is int for part in opened.paths()[3])
    assert opened[0,].shape == (1,)
    assert opened["0",].shape == (2,)
    assert opened[-5,].shape == (3,)
    assert opened["-5"].shape == (3,)
    assert opened[2**40, 7].shape == (4,)
    assert opened[f"{2**40}.7"].shape == (4,)
    with pytest.raises(KeyError):
        opened["0"]
    with pytest.raises(KeyError):
        opened[2**40, "7"]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 2**200])
def test_an_integer_wider_than_any_key_is_not_there(checkpoint, number):
    opened = checkpoint("int_keys.pt")
    assert (number,) not in opened
    with pytest.raises(weightmap.TensorNotFoundError):
        opened[number,]


def test_paths_of_lists_and_of_single_tensors(checkpoint):
    assert checkpoint("list_root.pt").paths() == [(0,), (1, "x"), (2, 0)]
    single = checkpoint("tensor_root.pt")
    assert single.paths() == [()]
    assert list(single) == [""]
    assert single[()].shape == (2, 3)
    assert single[""].shape == (2, 3)


def test_a_file_without_tensors_is_an_empty_mapping(checkpoint):
    opened = checkpoint("no_tensors.pt")
    assert len(opened) == 0
    assert not opened
    assert list(opened.items()) == []
    assert opened.paths() == []
    assert opened.root() == {"epoch": 3, "loss": [0.5]}


# --- how it is asked for ----------------------------------------------------------------------


class AsText:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


@pytest.mark.parametrize(
    "kind", [str, os.fsencode, lambda path: path, lambda path: AsText(str(path)),
             lambda path: AsText(os.fsencode(path))])
def test_opens_each_kind_of_path(data, kind):
    with weightmap.open(kind(data / "views.pt")) as opened:
        assert len(opened) == 12
        assert opened.path == str(data / "views.pt")


def test_opens_a_file_whose_name_is_not_text(data, tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\xfe \n.pt"
    with open(path, "wb") as target:
        target.write((data / "views.pt").read_bytes())
    with weightmap.open(path) as opened:
        assert len(opened) == 12
        assert os.fsencode(opened.path) == path


def test_holds_one_descriptor_while_open_and_none_after(data):
    before = len(os.listdir("/proc/self/fd"))
    opened = [weightmap.open(data / "views.pt") for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) <= before + 20
    for one in opened:
        one.close()
    assert len(os.listdir("/proc/self/fd")) == before


# --- closing ----------------------------------------------------------------------------------


def test_closes_when_a_with_block_raises(data):
    with pytest.raises(ZeroDivisionError), weightmap.open(data / "views.pt") as opened:
        raise ZeroDivisionError
    assert opened.closed


@pytest.mark.parametrize("use", [
    len,
    list,
    lambda opened: opened["base"],
    lambda opened: opened["base",],
    lambda opened: opened.get("base"),
    lambda opened: "base" in opened,
    lambda opened: list(opened.keys()),
    lambda opened: list(opened.values()),
    lambda opened: list(opened.items()),
    lambda opened: opened.paths(),
    lambda opened: opened.info,
    lambda opened: opened.stats,
    lambda opened: opened.root(),
    lambda opened: opened.verify_headers(),
    lambda opened: opened.verify_crc(),
])
def test_a_closed_checkpoint_says_so(checkpoint, data, use):
    opened = checkpoint("views.pt")
    opened.close()
    with pytest.raises(weightmap.InvalidArgumentError, match="the checkpoint is closed") as caught:
        use(opened)
    assert caught.value.file == str(data / "views.pt")
    assert not isinstance(caught.value, KeyError)


def test_an_iterator_taken_before_closing_never_reads_lost_memory(checkpoint):
    opened = checkpoint("state_dict.pt")
    names = iter(opened)
    tensors = iter(opened.values())
    assert next(names) == "embedding.weight"
    assert next(tensors).name == "embedding.weight"
    opened.close()
    gc.collect()
    # It holds what it goes through, as an iterator of a dict that is deleted does.
    assert next(names) == "layers.0.weight"
    assert next(tensors).tobytes()[:4] == b"\x00\x00\x80\x3f"


def test_a_closed_checkpoint_can_be_shown(checkpoint, data, float_archive):
    one = float_archive({"model.a": bytes(4)})
    assert repr(weightmap.open(one)) == f"<weightmap.Checkpoint {str(one)!r}, 1 tensor>"
    opened = checkpoint("views.pt")
    path = str(data / "views.pt")
    assert repr(opened) == f"<weightmap.Checkpoint {path!r}, 12 tensors>"
    assert repr(opened.values()) == f"ValuesView({opened!r})"
    assert repr(opened.items()) == f"ItemsView({opened!r})"
    opened.close()
    opened.close()
    assert repr(opened) == f"<weightmap.Checkpoint {path!r}, closed>"
    assert opened.closed


# --- info and stats ---------------------------------------------------------------------------


def test_info_of_a_modern_file(checkpoint):
    assert checkpoint("state_dict.pt").info == weightmap.reports.Info(
        format="torch_zip",
        version=3,
        format_version="1",
        byteorder="little",
        byteorder_assumed=False,
        storage_alignment=64,
        tensors=7,
        storages=7,
        tensor_bytes=300,
        file_bytes=3576,
        pickle_bytes=800,
        unread_bytes=0,
        duplicate_keys=0,
        unsupported=(),
        not_opened=(),
        tensors_not_indexed=0,
        sharing="shared",
        sharing_fell_back=False,
        writable=False,
        protection="map",
    )


def test_info_of_older_and_stranger_files(checkpoint):
    old = checkpoint("no_byteorder.pt").info
    assert (old.format_version, old.byteorder, old.byteorder_assumed) == (None, "little", True)
    big = checkpoint("big_endian.pt").info
    assert (big.byteorder, big.byteorder_assumed) == ("big", False)
    assert checkpoint("aligned_4096.pt").info.storage_alignment == 4096


@pytest.mark.parametrize("verify, verified", [("chain", (0, 0, 0)), ("headers", (2, 2, 84))])
def test_stats(checkpoint, verify, verified):
    stats = checkpoint("views.pt", verify=verify).stats
    storages = stats.storages_calculated, stats.storages_by_directory, stats.storages_by_header
    assert (stats.strategy, storages) == ("calculated", (2, 0, 0))
    assert (stats.local_headers_read, stats.cache_hits) == (1, 10)
    assert (stats.reads, stats.bytes_read) == (1, 2517)
    assert (
        stats.local_headers_verified, stats.verify_reads, stats.verify_bytes_read
    ) == verified
    assert 0 < stats.directory_seconds <= stats.seconds < 60


# --- proofs -----------------------------------------------------------------------------------


def test_verifies_headers_and_sums_on_request(checkpoint):
    opened = checkpoint("state_dict.pt", verify="chain")
    assert opened.verify_headers() is None
    assert opened.verify_crc() == weightmap.reports.CrcReport(
        storages_checked=7, storages_without_crc=0, bytes=300
    )


# --- root() -----------------------------------------------------------------------------------


def test_root_of_a_state_dict_keeps_its_metadata(checkpoint):
    root = checkpoint("state_dict.pt").root()
    assert type(root) is collections.OrderedDict
    assert list(root) == STATE_DICT_NAMES
    assert root["steps"].tobytes() == (12345678901).to_bytes(8, "little")
    assert root._metadata == collections.OrderedDict(
        [("", {"version": 1}), ("layers.0", {"version": 2})]
    )
    assert type(root._metadata) is collections.OrderedDict


def test_root_of_a_training_checkpoint(checkpoint):
    root = checkpoint("training.pt").root()
    assert list(root) == [
        *("model", "optimizer", "scheduler", "epoch", "best_loss", "name", "resumed_from"),
        *("finished", "big", "negative", "history", "shape", "dtype", "device", "raw", "tags"),
        "betas",
    ]
    plain = {
        "epoch": 2,
        "best_loss": 0.125,
        "name": "tiny",
        "resumed_from": None,
        "finished": False,
        "big": 2**80,
        "negative": -(2**40),
        "shape": (3, 4),
        "dtype": Global("torch", "bfloat16"),
        "raw": b"\x00\xffbytes",
        "tags": {"a"},
        "betas": (0.9, 0.999),
        "scheduler": {"step_size": 2, "gamma": 0.1, "last_epoch": 2, "base_lrs": [0.01]},
    }
    assert {name: root[name] for name in plain} == plain
    assert {name: type(root[name]) for name in plain} == {
        name: type(value) for name, value in plain.items()
    }


def test_root_has_tensors_where_they_are(checkpoint):
    root = checkpoint("training.pt").root()
    assert type(root["model"]) is collections.OrderedDict
    assert list(root["model"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert root["model"]["0.weight"].shape == (4, 3)
    state = root["optimizer"]["state"]
    assert list(state) == [0, 1, 2, 3]
    assert list(state[0]) == ["step", "exp_avg", "exp_avg_sq"]
    assert state[0]["step"].tobytes() == b"\x00\x00\x00\x40"  # 2.0
    [group] = root["optimizer"]["param_groups"]
    assert group["params"] == [0, 1, 2, 3]
    assert group["betas"] == (0.9, 0.999)
    assert group["foreach"] is None
    first, (quarter, [tensor, word]) = root["history"]
    assert (first, quarter, word) == ([1.0, 0.5], 0.25, "nested")
    assert isinstance(tensor, weightmap.Tensor)
    assert tensor.name == "history.1.1.0"


def test_root_does_not_look_names_up(checkpoint):
    root = checkpoint("training.pt").root()
    assert str(root["dtype"]) == "torch.bfloat16"
    device = root["device"]
    assert type(device) is Object
    assert device.callable == Global("torch", "device")
    assert (device.arguments, device.is_new, device.state) == (("cpu",), False, None)
    assert (device.elements, device.items) == ([], [])


def test_root_leaves_python_attributes_of_a_tensor_aside(checkpoint):
    opened = checkpoint("attributes.pt")
    root = opened.root()
    assert list(root) == ["w"]
    assert root["w"].name == "w"
    assert opened.paths() == [("w",), ("w", 3, "limits", 1)]
    assert opened["w.3.limits.1"].tobytes() == b"\x00\x00\xe0\x40\x00\x00\x00\x41"  # 7, 8


def test_root_of_a_whole_module_is_an_object(checkpoint):
    module = checkpoint("module.pt").root()
    assert type(module) is Object
    assert module.callable == Global("__main__", "Model")
    assert (module.arguments, module.is_new) == ((), True)
    assert module.state["training"] is True
    assert module.state["_non_persistent_buffers_set"] == set()
    assert module.state["_buffers"]["running"].shape == (3,)
    first = module.state["_modules"]["first"]
    assert first.callable == Global("torch.nn.modules.linear", "Linear")
    assert (first.state["in_features"], first.state["out_features"]) == (2, 3)
    assert first.state["_parameters"]["weight"].is_parameter


def test_root_shares_what_the_file_shares(checkpoint):
    root = checkpoint("shared_list.pt").root()
    assert root["a"] is root["b"]
    assert [tensor.shape for tensor in root["a"]] == [(3,), (2,)]
    views = checkpoint("views.pt").root()
    assert views["tied"] is views["base"]


def test_root_is_made_anew_each_time(checkpoint):
    opened = checkpoint("training.pt")
    opened.root()["epoch"] = 99
    assert opened.root()["epoch"] == 2


def test_root_of_values_that_contain_themselves(archive):
    itself = []
    itself.append(itself)
    root = weightmap.open(archive(pickle.dumps(itself, 2))).root()
    assert root[0] is root
    itself = {}
    itself["me"] = itself
    root = weightmap.open(archive(pickle.dumps(itself, 2))).root()
    assert root["me"] is root


def test_root_of_an_unknown_class_carries_elements_items_and_state(archive):
    # An instance of a list subclass with an attribute, and of a dict subclass, as pickle says it.
    made = b"cmylib\nBag\n)\x81(K\x01K\x02e(X\x01\0\0\0kK\x03u}X\x01\0\0\0aK\x04sb"
    bag = weightmap.open(archive(b"\x80\x02" + made + b".")).root()
    assert bag.callable == Global("mylib", "Bag")
    assert bag.is_new
    assert bag.elements == [1, 2]
    assert bag.items == [("k", 3)]
    assert bag.state == {"a": 4}


def test_root_does_not_allocate_what_a_pickle_asks_for(archive):
    # bytearray(10 ** 12)
    number = b"\x8a\x06" + (10**12).to_bytes(6, "little")
    pickled = b"\x80\x02c__builtin__\nbytearray\n" + number + b"\x85R."
    root = weightmap.open(archive(pickled)).root()
    assert type(root) is Object
    assert root.arguments == (10**12,)


def test_root_of_deep_values_does_not_overflow_the_stack(archive):
    root = weightmap.open(archive(b"\x80\x02" + b"]" * 990 + b"a" * 989 + b".")).root()
    depth = 1
    while root:
        [root] = root
        depth += 1
    assert depth == 990


def shared_tuples(levels):
    """The opcodes of a tuple of pairs of the pair before, which a walk sees 2**levels times."""
    pairs = b"".join(b"h" + bytes([i - 1]) + b"\x86q" + bytes([i]) for i in range(1, levels + 1))
    return b"K\x01\x85q\x00" + pairs


# Each of these hashes a tuple that is made of itself.
BOTTOMLESS = {
    "dict": b"}(" + b"%sK\x01u.",
    "set": b"\x8f(" + b"%s\x90.",
    "frozen_set": b"(" + b"%s\x91.",
    "OrderedDict": b"ccollections\nOrderedDict\n)R(" + b"%sK\x01u.",
    "Counter": b"ccollections\nCounter\n)R(" + b"%sK\x01u.",
    "call of set": b"cbuiltins\nset\n](" + b"%se\x85R.",
}


THING, LATE, SET = b"cmy\nThing\n)\x81", "after the call", "state of an object after it was set"
UNSUPPORTED = weightmap.UnsupportedError
ROOT_REFUSED = {
    # A list as a key of a dict or a member of a set: pickle raises TypeError.
    "list in dict": (b"\x80\x02}]K\x01s.", weightmap.Error, ""),
    "list in dict of many": (b"\x80\x02}(]K\x01u.", weightmap.Error, ""),
    "list in set": (b"\x80\x04\x8f(]\x90.", weightmap.Error, ""),
    "list in OrderedDict": (
        b"\x80\x02ccollections\nOrderedDict\n)R]K\x01s.", weightmap.Error, ""),
    # A set is refused when the file is opened: the walk to its tensors counts its elements as well.
    **{f"endless hash, {kind}": (b"\x80\x04" + opcodes % shared_tuples(60),
                                 weightmap.LimitExceededError, "")
       for kind, opcodes in BOTTOMLESS.items()},
    # A list, a dict or an object that was an argument of a call, and is filled afterwards.
    "late list": (b"\x80\x02](]q\x01cmy\nf\nh\x01\x85Rh\x01K\x01aeh\x01\x86.", UNSUPPORTED, LATE),
    "late dict": (b"\x80\x02(}q\x01cmy\nf\nh\x01\x85Rh\x01K\x01K\x02st.", UNSUPPORTED, LATE),
    "late nested": (b"\x80\x02(]q\x01ccollections\nOrderedDict\n]h\x01a\x85Rh\x01K\x01at.",
                    UNSUPPORTED, LATE),
    "late state": (b"\x80\x02(" + THING + b"q\x01cmy\nf\nh\x01\x85Rh\x01K\x01bt.",
                   UNSUPPORTED, LATE),
    "changed state": (b"\x80\x02" + THING + b"}q\x01bh\x01K\x01K\x02s0.", UNSUPPORTED, SET),
    "changed slots": (b"\x80\x02" + THING + b"N}q\x01\x86bh\x01K\x01K\x02s0.", UNSUPPORTED, SET),
}


@pytest.mark.parametrize("kind", ROOT_REFUSED)
def test_root_refuses(archive, kind):
    pickled, error, message = ROOT_REFUSED[kind]
    with pytest.raises(error, match=message):
        weightmap.open(archive(pickled)).root()


def test_root_takes_keys_of_shared_tuples(archive):
    pickled = b"\x80\x04" + BOTTOMLESS["dict"] % shared_tuples(10)
    [(key, value)] = weightmap.open(archive(pickled)).root().items()
    assert value == 1
    assert key[0] is key[1]


@pytest.mark.parametrize("pickled", [
    b"(]q\x01ccollections\nOrderedDict\nh\x01\x85Rh\x01K\x01at.",
    b"(}q\x01ccollections\nOrderedDict\nh\x01\x85Rh\x01K\x01K\x02st.",
])
def test_root_gives_a_dict_the_items_that_it_was_called_with(archive, pickled):
    root = weightmap.open(archive(b"\x80\x02" + pickled)).root()
    assert root[1] == pickle.loads(b"\x80\x02" + pickled)[1] == {}


def test_root_keeps_an_object_that_holds_the_container_it_lies_in(archive):
    # d = {"o": Thing(d)}, which is filled after the call as every cycle is.
    pickled = b"\x80\x02}q\x01X\x01\0\0\0ocmy\nThing\nh\x01\x85Rs."
    root = weightmap.open(archive(pickled)).root()
    assert root["o"].arguments[0] is root


def test_global_and_object_are_plain_values():
    name = Global("torch", "float32")
    assert name == Global("torch", "float32")
    assert hash(name) == hash(Global("torch", "float32"))
    assert str(name) == "torch.float32"
    with pytest.raises(AttributeError):
        name.module = "os"
    made = Object(name, (1,))
    assert made == made
    assert made != Object(name, (1,))
    assert made.elements is not Object(name, (1,)).elements


def test_warms_the_file_or_some_tensors(checkpoint):
    opened = checkpoint("training.pt")
    whole = opened.warm()
    assert whole.bytes == opened.info.file_bytes == 6599
    assert (whole.bytes_left_out, whole.method_reason) == (0, "")
    assert 0 < opened.warm(["model.0.weight", "model.2.bias"]).bytes <= 6599
    assert opened.warm([]).bytes == 0
    assert opened.warm(budget_bytes=1).bytes_left_out == 6599
    assert opened.warm(threads=2).method in ("populate", "copy")


def test_warms_with_one_reader_for_many(checkpoint, monkeypatch, tmp_path):
    monkeypatch.setenv("WEIGHTMAP_RUNTIME_DIR", str(tmp_path / "shared"))
    opened = checkpoint("training.pt")
    report = opened.warm(one_reader=True)
    assert (report.bytes, report.takeovers, report.bytes_waited_for) == (6599, 0, 0)
    assert report.why_alone == ""


def test_remembers_the_order_of_demands(checkpoint):
    opened = checkpoint("training.pt")
    assert opened.demand_order() == []
    opened.demand(opened["model.2.bias"])
    opened.demand(opened["model.0.weight"][3:])
    opened.demand(opened["model.2.bias"])
    assert opened.demand_order() == ["model.2.bias", "model.0.weight"]


def test_saves_the_order_for_the_next_warm_up(copy_of, tmp_path):
    path = copy_of("training.pt")
    with weightmap.open(path) as opened:
        opened.demand(opened["model.2.bias"])
        opened.demand(opened["model.0.bias"])
        opened.save_order()
        opened.save_order(tmp_path / "other.order")
    saved = path.with_name("training.pt.order")
    assert saved.read_text().splitlines()[1:] == ["model.2.bias", "model.0.bias"]
    assert (tmp_path / "other.order").read_text() == saved.read_text()
    with weightmap.open(path) as opened:
        assert 0 < opened.warm(order=saved).bytes <= mmap.PAGESIZE
        assert opened.demand_order() == []


@pytest.mark.parametrize("use, error, message", [
    pytest.param(lambda opened, folder: opened.warm(order=folder / "missing"),
                 FileNotFoundError, "cannot open the file", id="no order"),
    pytest.param(lambda opened, folder: opened.warm(order=folder / "order"),
                 weightmap.InvalidArgumentError, "of another model", id="another order"),
    pytest.param(lambda opened, folder: opened.warm(["model.0.bias"], order=folder / "order"),
                 weightmap.InvalidArgumentError, "not by both", id="names and order"),
    pytest.param(lambda opened, folder: opened.save_order(opened.path),
                 weightmap.InvalidArgumentError, "would replace the checkpoint", id="save_order"),
    pytest.param(lambda opened, folder: opened.warm(["no such tensor"]), KeyError, "", id="name"),
    pytest.param(lambda opened, folder: opened.warm(method="read"),
                 TypeError, "unexpected keyword argument 'method'", id="method"),
    pytest.param(lambda opened, folder: opened.warm(threads=65), weightmap.InvalidArgumentError,
                 "threads must be at most 64, not 65", id="threads"),
    pytest.param(lambda opened, folder: opened.demand(weightmap.open(opened.path)["model.0.bias"]),
                 weightmap.InvalidArgumentError, "not one of this checkpoint", id="demand"),
    pytest.param(lambda opened, folder: opened.demand("model.0.bias"), TypeError, "",
                 id="demand of a name"),
])
def test_what_warm_and_demand_refuse(copy_of, tmp_path, use, error, message):
    (tmp_path / "order").write_text("gone\n")
    opened = weightmap.open(copy_of("training.pt"))
    with pytest.raises(error, match=message):
        use(opened, tmp_path)
    assert opened.demand_order() == []
    assert os.path.getsize(opened.path) == 6599


def test_compares_sums_while_it_warms(copy_of):
    path = copy_of("training.pt")
    with weightmap.open(path) as opened:
        assert opened.warm(crc=True).storages_checked == 17
        offset = opened["model.2.weight"].file_offset
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(b"!")
    with weightmap.open(path) as opened:
        with pytest.raises(weightmap.CorruptError, match="model.2.weight") as caught:
            opened.warm(crc=True)
    assert caught.value.file_offset == offset


def test_says_what_is_in_memory(copy_of):
    path = copy_of("training.pt")
    with cached(path), weightmap.open(path) as opened:
        opened.warm()
        seen = opened.residency()
        assert seen.file_bytes == seen.cached_bytes == 6599
        assert len(seen.tensors) == 17
        first = opened["model.0.weight"]
        assert (seen.tensors[0].file_offset, seen.tensors[0].extent_bytes) == (first.file_offset, 48)
        assert seen.tensors[0].cached_bytes == seen.tensors[0].resident_bytes == 48
        assert seen.tensors[0].anonymous_bytes == 0
        assert seen.tensors[0].huge_mapped_bytes in (0, None)  # None before Linux 6.7
        assert seen.storages[first.storage].cached_bytes == 48
        assert [tensor.name for tensor in seen.tensors] == list(opened)
        assert seen.storages[first.storage].name == first.storage
        assert "tensors=<17>, storages=<" in repr(seen) and len(repr(seen)) < 600
        assert len(seen.storages) == opened.info.storages
        assert seen.resident_bytes >= 6599
        assert seen.anonymous_bytes == 0


def test_tells_of_each_tensor_what_was_copied_by_writing(copy_of):
    pytest.importorskip("numpy", reason="writes through an array")
    with weightmap.open(copy_of("training.pt"), sharing="private", writable=True) as opened:
        before = opened.residency()
        tensor = opened["model.0.weight"]
        tensor.numpy()[0] = 1
        after = opened.residency()
    assert before.tensors[tensor.index].resident_bytes == 0
    assert after.tensors[tensor.index].anonymous_bytes == 48
    assert (before.anonymous_bytes, after.anonymous_bytes) == (0, mmap.PAGESIZE)
    assert (before.pss_anonymous_bytes, after.pss_anonymous_bytes) == (0, mmap.PAGESIZE)
    assert after.minor_faults_since_open > before.minor_faults_since_open


def test_evicts_a_file(copy_of):
    path = copy_of("training.pt")
    evicted = weightmap.evict(path)
    assert evicted.file_bytes == 6599
    assert evicted.cached_after <= evicted.cached_before <= 6599  # tmpfs keeps what it has
    assert (evicted.reason == "") is (evicted.cached_after == 0)
    with pytest.raises(FileNotFoundError):
        weightmap.evict(path.with_name("missing.pt"))


# --- what a name leads to that is no tensor's


@pytest.fixture
def training(archive, float_archive, tmp_path):
    """{"epoch": 3, "best": None, "model": {"a.b": tensor, "c": tensor}}, without torch."""
    from conftest import _tensor, _text

    model = _text("model") + b"}(" + _text("a.b") + _tensor("0", 2)
    model += _text("c") + _tensor("1", 1) + b"u"
    pickled = b"\x80\x02}(" + _text("epoch") + b"K\x03" + _text("best") + b"N" + model + b"u."
    return archive(pickled, {"0": bytes(8), "1": bytes(4)})


@pytest.mark.parametrize("name, hint", [
    ("epoch", ": it is an int; take root()['epoch']"),
    ("best", ": it is None; take root()['best']"),
    ("model", ": it is a dict with 2 tensors; take subtree('model') or root()['model']"),
    ("other", ""),
])
def test_a_name_of_something_else_says_what_it_is(training, name, hint):
    check_has_no(training, name, f'has no tensor "{name}"{hint}')


def test_a_subtree_has_the_tensors_below_it(training):
    with weightmap.open(training) as checkpoint:
        model = checkpoint.subtree("model")
        assert list(model) == ["a.b", "c"]
        assert len(model) == 2
        assert model["a.b"].name == "model.a.b"
        assert "d" not in model
        with pytest.raises(weightmap.TensorNotFoundError, match="has no tensor 'd' below model"):
            model["d"]
        assert model.path == ("model",)
        assert list(model.root()) == ["a.b", "c"]
        assert list(checkpoint.subtree(("model", "a.b"))) == [""]
        assert repr(model) == f"<weightmap.Subtree 'model' of '{training}', 2 tensors>"
    assert model["c"].numel == 1  # it keeps the mapping


@pytest.mark.parametrize("path", ["epoch", "nothing", ("model", "x")])
def test_a_subtree_without_tensors_is_refused(training, path):
    with weightmap.open(training) as checkpoint:
        with pytest.raises(weightmap.TensorNotFoundError) as caught:
            checkpoint.subtree(path)
        assert caught.value.file == str(training)


def test_a_name_that_two_tensors_of_a_subtree_have_is_refused(archive):
    from conftest import _tensor, _text

    inner = _text("a.b") + _tensor("0", 1) + _text("a") + b"}" + _text("b") + _tensor("1", 1) + b"s"
    path = archive(b"\x80\x02}" + _text("m") + b"}(" + inner + b"us.", {"0": bytes(4), "1": bytes(4)})
    with weightmap.open(path) as checkpoint:
        model = checkpoint.subtree("m")
        assert list(model) == ["a.b"]
        with pytest.raises(weightmap.TensorNotFoundError, match="more than one tensor 'a.b'"):
            model["a.b"]


def test_a_class_whose_name_cannot_be_printed_is_an_object(archive):
    from conftest import _text

    path = archive(b"\x80\x04}" + _text("x") + _text("mo\x1bdule") + _text("Name") + b"\x93)Rs.")
    check_has_no(path, "x", "has no tensor \"x\": it is an object; take root()['x']")


def test_what_is_in_use_stays_and_evict_says_so(copy_of):
    path = copy_of("training.pt")
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    with cached(path):
        evicted = weightmap.evict(path)
    if evicted.reason == "memory_file_system":
        pytest.skip("the temporary folder is in memory")
    assert (evicted.cached_after > 0, evicted.reason) == (True, "in_use")


def test_dir_shows_what_is_for_use():
    shown = dir(weightmap)
    assert "torch" in shown and "open" in shown and "stage" in shown
    assert {"TYPE_CHECKING", "Any", "annotations", "importlib"} & set(shown) == set()


def test_a_summary_counts_tied_tensors_once(checkpoint):
    summary = checkpoint("views.pt").summary()
    assert ("base", "tied") in summary.ties
    assert summary.all.tensors == len(checkpoint("views.pt")) - 1
    assert summary.prefixes["base"] == Share(1, 24, 96)
    assert summary.dtypes["int16"] == Share(1, 24, 48)


def test_a_summary_needs_no_proc(python, data):
    """Whose files cannot be opened here, as in a chroot that has none."""
    program = """
import resource, sys, weightmap
opened = weightmap.open(sys.argv[1])
opened.summary()
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
print(opened.summary().own_bytes)
"""
    ran = python(program, data / "views.pt")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "None\n"


def test_a_summary_is_by_prefix(checkpoint):
    opened = checkpoint("state_dict.pt")
    assert set(opened.summary().prefixes) == {"embedding", "layers", "steps", "position_ids"}
    assert "layers.0" in opened.summary(depth=2).prefixes
    assert repr(opened.summary()).splitlines()[1:3] == [
        "by dtype:",
        "  float64: 1 tensor, 16 elements, 128 B",
    ]


def test_what_a_notebook_shows_is_short(float_archive):
    path = float_archive({f"a{i}.<b>{'x' * 200}": bytes(4) for i in range(300)})
    opened = weightmap.open(path)
    assert len(repr(opened.summary(depth=2))) < 3000
    assert "and 289 more" in repr(opened.summary())
    assert opened._repr_html_().startswith("<pre>") and "<b>" not in opened._repr_html_()
    opened.close()
    assert "closed" in opened._repr_html_()
