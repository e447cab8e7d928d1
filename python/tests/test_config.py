"""weightmap.config: which setting wins, and for whom."""

import asyncio
import ctypes
import inspect
import mmap
import pathlib
import sys
import threading
import typing

import pytest
from held_pages import cached
from memory_maps import mapping_at, mappings_of

import weightmap
from weightmap import _core, config
from weightmap._options import OpenOptions

@pytest.fixture(autouse=True)
def nothing_set(monkeypatch, tmp_path_factory):
    """Each test begins with the built-in defaults and leaves no setting behind."""
    for _, _, variable, *_ in CASES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("WEIGHTMAP_RUNTIME_DIR", str(tmp_path_factory.mktemp("shared", True) / "d"))
    yield
    for setting in CASES:
        setattr(config.load, setting, None)


# What can be seen of an open for each setting.


def sharing_of(path, **options):
    return weightmap.open(path, **options).info.sharing


def protection_of(path, **options):
    return weightmap.open(path, **options).info.protection


def writable_of(path, **options):
    # Private, so that nothing needs to be written to the fixture.
    return weightmap.open(path, sharing="private", **options).info.writable


def verify_of(path, **options):
    stats = weightmap.open(path, **options).stats
    return "headers" if stats.local_headers_verified else "chain"


def byteorder_of(path, **options):
    return weightmap.open(path.with_name("no_byteorder.pt"), **options).info.byteorder


def flag_of(flag):
    def ask(path, **options):
        opened = weightmap.open(path, **options)
        [mapping] = mappings_of(path)
        assert not opened.closed
        return flag in mapping["flags"]

    return ask


locked_of = flag_of("lo")


def host_takes_back_free_memory():
    order = pathlib.Path("/sys/module/page_reporting/parameters/page_reporting_order")
    return order.exists() and int(order.read_text()) > 0


def huge_pages_of(path, **options):
    # Not asked for in a file that one read takes; a zip archive may have something before it.
    large = path.with_name("large.pt")
    large.write_bytes(bytes(65536) + path.read_bytes())
    assert not flag_of("hg")(path, **options)
    return flag_of("hg")(large, **options)


def no_reserve_of(path, **options):
    # Only a private writable mapping is charged for, so only there does it show.
    opened = weightmap.open(path, sharing="private", writable=True, **options)
    [mapping] = mappings_of(path)
    assert not opened.closed
    return "nr" in mapping["flags"]


def populate_of(path, **options):
    with cached(path):
        opened = weightmap.open(path, **options)
        [resident] = [each["Rss"] for each in mappings_of(path) if "lo" not in each["flags"]]
    assert not opened.closed
    return resident > 0


def zero_copy_only_of(path, **options):
    data = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"
    try:
        weightmap.open(data / "rezipped_deflated.pt", **options)
    except weightmap.UnsupportedError:
        return True
    return False


def copy_on_write_of(path, **options):
    opened = weightmap.open(path, **options)
    lent = ctypes.addressof(ctypes.c_char.from_buffer(opened._core.lend(1)))
    return {"r--s": False, "rw-p": True}[mapping_at(lent)["permissions"]]


def globals_of(path, **options):
    # A whole pickled module, whose class torch does not allow by default.
    try:
        weightmap.open(path.with_name("module.pt"), **options)
    except weightmap.UnsafePickleError:
        return "torch_safe"
    return "opaque"


def repeats_of(path, **options):
    opened = weightmap.open(path.with_name("cube.pt"), **options)
    try:
        weightmap.save_safetensors(opened, path.with_name("cube.safetensors"))
    except weightmap.LimitExceededError as error:
        assert 'the tensor "w": the tensor has 33554432 elements in a storage of 26' in str(error)
        return "bounded"
    return "any"


# setting: what shows it, argument, variable, and two values as (argument, setting, variable).
# The first is the built-in default.
CASES = {
    "mmap_flags": (
        sharing_of,
        "sharing",
        "WEIGHTMAP_SHARING",
        ("shared", mmap.MAP_SHARED, "shared"),
        ("private", mmap.MAP_PRIVATE, "private"),
    ),
    "writable": (
        writable_of, "writable", "WEIGHTMAP_WRITABLE", (False, False, "0"), (True, True, "1"),
    ),
    "verify": (
        verify_of, "verify", "WEIGHTMAP_VERIFY", ("chain", "chain", "chain"),
        ("headers", "headers", "headers"),
    ),
    "endianness": (
        byteorder_of, "endianness", "WEIGHTMAP_BYTEORDER", ("little", "little", "little"),
        ("big", "big", "big"),
    ),
    "protection": (
        protection_of, "protection", "WEIGHTMAP_PROTECTION", ("map", "map", "map"),
        ("guard", "guard", "guard"),
    ),
    "populate": (
        populate_of, "populate", "WEIGHTMAP_POPULATE", (False, False, "0"), (True, True, "1"),
    ),
    "no_reserve": (
        no_reserve_of, "no_reserve", "WEIGHTMAP_NORESERVE", (False, False, "0"), (True, True, "1"),
    ),
    "locked": (locked_of, "locked", "WEIGHTMAP_LOCKED", (False, False, "0"), (True, True, "1")),
    "huge_pages": (
        huge_pages_of, "huge_pages", "WEIGHTMAP_HUGEPAGES",
        *sorted([(True, True, "1"), (False, False, "0")], reverse=not host_takes_back_free_memory()),
    ),
    "zero_copy_only": (
        zero_copy_only_of, "zero_copy_only", "WEIGHTMAP_ZERO_COPY_ONLY", (False, False, "0"),
        (True, True, "1"),
    ),
    "copy_on_write": (
        copy_on_write_of, "copy_on_write", "WEIGHTMAP_COPY_ON_WRITE", (True, True, "1"),
        (False, False, "0"),
    ),
    "globals": (
        globals_of,
        "globals",
        "WEIGHTMAP_GLOBALS",
        ("opaque", "opaque", "opaque"),
        ("torch_safe", "torch_safe", "torch_safe"),
    ),
    "repeats": (
        repeats_of, "repeats", "WEIGHTMAP_REPEATS", ("bounded", "bounded", "bounded"),
        ("any", "any", "any"),
    ),
}


@pytest.fixture(params=list(CASES))
def case(request, copy_of, cube):
    cube(25)
    copy_of("no_byteorder.pt")
    copy_of("module.pt")
    return (request.param, copy_of("state_dict.pt"), *CASES[request.param])


def test_every_setting_has_a_case():
    assert sorted(CASES) == sorted(dir(config.load))


def test_the_types_of_the_arguments_are_those_that_the_library_takes():
    types = typing.get_type_hints(OpenOptions)
    words = {}
    for name, of_option in types.items():
        words[name] = ()
        for member in typing.get_args(of_option):
            words[name] += (False, True) if member is bool else typing.get_args(member)
    assert words == _core.option_values()
    assert list(words) == list(_core.option_values())


def test_help_shows_each_option_of_open():
    parameters = inspect.signature(weightmap.open).parameters
    assert list(parameters) == ["path", "trust", "progress", "safe_globals", "variant", "dtypes",
                                "access", *_core.option_values()]
    assert parameters["sharing"].annotation == typing.Optional[typing.Literal["shared", "private"]]
    assert parameters["sharing"].default is None
    assert parameters["sharing"].kind is inspect.Parameter.KEYWORD_ONLY


def test_there_is_no_other_argument(copy_of):
    path = copy_of("state_dict.pt")
    with pytest.raises(TypeError, match="there is no option 'speed'"):
        weightmap.open(path, speed=1)
    with config.override("load.verify", "crc"), pytest.raises(TypeError, match="'mmap_flags'"):
        weightmap.open(path, mmap_flags=mmap.MAP_SHARED)


def test_the_environment_goes_before_the_built_in_default(case, monkeypatch):
    _, path, ask, _, variable, first, other = case
    assert ask(path) == first[0]
    monkeypatch.setenv(variable, other[2])
    assert ask(path) == other[0]
    monkeypatch.setenv(variable, "")  # counts as unset
    assert ask(path) == first[0]
    monkeypatch.setenv(variable, "perhaps")
    with pytest.raises(weightmap.InvalidArgumentError, match=variable):
        ask(path)


def test_the_attribute_goes_before_the_environment(case, monkeypatch):
    setting, path, ask, _, variable, first, other = case
    monkeypatch.setenv(variable, first[2])
    setattr(config.load, setting, other[1])
    assert ask(path) == other[0]
    monkeypatch.setenv(variable, other[2])
    setattr(config.load, setting, first[1])
    assert ask(path) == first[0]


def test_patch_goes_before_the_attribute(case):
    setting, path, ask, _, _, first, other = case
    setattr(config.load, setting, first[1])
    with config.override(f"load.{setting}", other[1]):
        assert ask(path) == other[0]
    setattr(config.load, setting, other[1])
    with config.override(f"load.{setting}", first[1]):
        assert ask(path) == first[0]
    assert ask(path) == other[0]


def test_the_argument_goes_before_all(case, monkeypatch):
    setting, path, ask, argument, variable, first, other = case
    for given, against in ((first, other), (other, first)):
        monkeypatch.setenv(variable, against[2])
        setattr(config.load, setting, against[1])
        with config.override(f"load.{setting}", against[1]):
            assert ask(path, **{argument: given[0]}) == given[0]


def test_an_argument_of_none_asks_the_settings(case):
    setting, path, ask, argument, _, _, other = case
    with config.override(f"load.{setting}", other[1]):
        assert ask(path, **{argument: None}) == other[0]


def test_none_gives_a_setting_back(case, monkeypatch):
    setting, path, ask, _, variable, first, other = case
    monkeypatch.setenv(variable, other[2])
    setattr(config.load, setting, first[1])
    setattr(config.load, setting, None)
    assert ask(path) == other[0]
    setattr(config.load, setting, first[1])
    with config.override(f"load.{setting}", None):
        # None leaves the choice to the environment, whatever the attribute says.
        assert ask(path) == other[0]


# --- words and values -------------------------------------------------------------------------


BOOL = "expected True or False"


@pytest.mark.parametrize("setting, value, words", [
    *(("mmap_flags", value, "expected") for value in (
        0, 3, "shared", True, 1.0, mmap.MAP_SHARED | mmap.MAP_POPULATE)),  # True equals MAP_SHARED
    ("sharing", "both", "'both', expected one of \"shared\", \"private\""),
    ("sharing", 1, "1, expected"),
    ("sharing", b"shared", "b'shared', expected"),
    ("sharing", "\ud800", "expected one of"),
    ("sharing", "shared\0", "expected one of"),
    ("verify", "all", "'all', expected one of \"chain\", \"headers\", \"crc\""),
    ("verify", True, "True, expected"),
    ("verify", "CRC", "'CRC', expected"),
    ("verify", "", "'', expected"),
    ("endianness", "middle", "'middle', expected one of \"little\", \"big\", \"native\""),
    ("protection", "none", "'none', expected one of"),
    ("writable", 1, f"1, {BOOL}"),
    ("writable", "1", f"'1', {BOOL}"),
    ("populate", 0, f"0, {BOOL}"),
    ("no_reserve", "yes", f"'yes', {BOOL}"),
    ("locked", [], f"[], {BOOL}"),
    ("huge_pages", 1.0, f"1.0, {BOOL}"),
])
def test_a_wrong_value_is_refused_wherever_it_is_given(tmp_path, setting, value, words):
    if setting != "mmap_flags":  # told before the file is looked at
        with pytest.raises(weightmap.InvalidArgumentError) as refused:
            weightmap.open(tmp_path / "missing", **{setting: value})
        assert refused.value.message.startswith(setting) and words in refused.value.message
    if setting != "sharing":
        message = f"load.{setting} is .*expected"
        with pytest.raises(weightmap.InvalidArgumentError, match=message):
            setattr(config.load, setting, value)
        with pytest.raises(weightmap.InvalidArgumentError, match=message):
            with config.override(f"load.{setting}", value):
                pytest.fail("the block must not be entered")
        assert getattr(config.load, setting) is None


def test_settings_that_are_not_there():
    with pytest.raises(AttributeError):
        config.load.speed
    assert getattr(config.load, "speed", 3) == 3
    with pytest.raises((AttributeError, weightmap.InvalidArgumentError)):
        config.load.speed = 1


@pytest.mark.parametrize("name", ["load.speed", "load.", "save.verify", "load.load.verify", "speed",
                                  "verify", "load", ""])
def test_a_block_of_what_is_no_setting_is_refused(name):
    with pytest.raises(weightmap.InvalidArgumentError, match="no setting"):
        with config.override(name, None):
            pytest.fail("the block must not be entered")


def test_shows_its_settings():
    config.load.verify = "headers"
    with config.override("load.writable", True):
        assert repr(config.load) == (
            "load(mmap_flags=None, verify='headers', endianness=None, protection=None, writable=True, "
            "populate=None, no_reserve=None, locked=None, huge_pages=None, "
            "zero_copy_only=None, copy_on_write=None, globals=None, repeats=None)"
        )


# --- patch ------------------------------------------------------------------------------------


def test_patches_nest_and_unwind():
    with config.override("load.verify", "headers"):
        with config.override({"load.verify": "crc", "load.writable": True}):
            assert (config.load.verify, config.load.writable) == ("crc", True)
        assert (config.load.verify, config.load.writable) == ("headers", None)
        with config.override("load.verify", None):
            assert config.load.verify is None
        assert config.load.verify == "headers"
    assert config.load.verify is None


def test_patch_unwinds_when_its_block_raises():
    with pytest.raises(ZeroDivisionError):
        with config.override("load.verify", "crc"):
            raise ZeroDivisionError
    assert config.load.verify is None


def test_a_patch_that_is_refused_changes_nothing():
    with pytest.raises(weightmap.InvalidArgumentError):
        with config.override({"load.verify": "crc", "load.writable": "yes"}):
            pytest.fail("the block must not be entered")
    assert config.load.verify is None


def test_patch_decorates_a_function(data):
    @config.override("load.verify", "headers")
    def verified():
        return weightmap.open(data / "views.pt").stats.local_headers_verified

    assert (verified(), verified()) == (2, 2)
    assert weightmap.open(data / "views.pt").stats.local_headers_verified == 0


def test_the_attribute_is_for_every_thread(data):
    config.load.verify = "headers"
    seen = []
    thread = threading.Thread(target=lambda: seen.append(verify_of(data / "views.pt")))
    thread.start()
    thread.join()
    assert seen == ["headers"]


def test_a_patch_is_for_its_own_thread(data):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(verify_of(data / "views.pt")))
    with config.override("load.verify", "headers"):
        thread.start()
        thread.join()
        assert verify_of(data / "views.pt") == "headers"
    # Without the GIL, Python's threads begin with the context of the one that starts them.
    inherits = getattr(sys.flags, "thread_inherit_context", 0)
    assert seen == ["headers" if inherits else "chain"]


def test_threads_patch_without_seeing_one_another(data):
    barrier = threading.Barrier(2)
    seen = {}

    def work(level):
        with config.override("load.verify", level):
            barrier.wait()
            seen[level] = (config.load.verify, verify_of(data / "views.pt"))
            barrier.wait()

    threads = [threading.Thread(target=work, args=(level,)) for level in ("chain", "headers")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"chain": ("chain", "chain"), "headers": ("headers", "headers")}


def test_tasks_patch_without_seeing_one_another():
    async def work(level, entered, other):
        with config.override("load.verify", level):
            entered.set()
            await other.wait()
            return config.load.verify

    async def both():
        first, second = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(work("crc", first, second), work("headers", second, first))

    assert asyncio.run(both()) == ["crc", "headers"]
    assert config.load.verify is None


def test_writing_an_attribute_inside_a_patch_shows_after_it():
    with config.override("load.verify", "crc"):
        config.load.verify = "headers"
        assert config.load.verify == "crc"
    assert config.load.verify == "headers"
