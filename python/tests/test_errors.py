"""Every exception, met by a real file or call."""

import copy
import errno
import os
import pickle
import sys
import traceback

import pytest

import weightmap

FAMILY = [
    weightmap.Error, weightmap.FileError, weightmap.MissingFileError, weightmap.FilePermissionError,
    weightmap.NotACheckpointError, weightmap.CorruptError, weightmap.UnsupportedError,
    weightmap.UnsafePickleError, weightmap.LimitExceededError, weightmap.InvalidArgumentError,
    weightmap.TensorNotFoundError, weightmap.CancelledError, weightmap.MissingPackageError,
]


def refusal(path, **options):
    with pytest.raises(weightmap.Error) as caught:
        weightmap.open(path, **options)
    return caught.value


# --- files that are something else ------------------------------------------------------------

STRANGERS = [
    (
        "page.pt",
        weightmap.NotACheckpointError,
        None,
        "is a web page (HTML), probably an error or login page that was saved in place of the "
        "checkpoint",
    ),
    (
        "truncated.pt",
        weightmap.CorruptError,
        3959,
        "is truncated: it begins as a zip archive, but its 3959 bytes end before the central "
        "directory does; the download or copy is incomplete",
    ),
]


@pytest.mark.parametrize(("name", "kind", "offset", "message"), STRANGERS)
def test_a_stranger_is_called_by_its_name(data, name, kind, offset, message):
    path = data / "strangers" / name
    error = refusal(path)
    assert type(error) is kind
    assert error.message == message
    assert error.file == str(path)
    assert error.file_offset == offset
    assert error.errno is None
    at = f" (at byte {offset})" if offset is not None else ""
    assert str(error) == f"{path}: {message}{at}"


def test_a_compressed_storage_is_not_zero_copy_and_has_a_place(data):
    with pytest.raises(weightmap.Error) as caught:
        weightmap.open(data / "rezipped_deflated.pt", zero_copy_only=True)
    error = caught.value
    assert (type(error), error.file_offset) == (weightmap.UnsupportedError, 758)
    assert '"state_dict/data/0" is compressed' in error.message


# --- parents, codes and attributes ------------------------------------------------------------


@pytest.mark.parametrize("kind, code, parents", [
    (weightmap.FileError, "io", [OSError]),
    (weightmap.MissingFileError, "io", [weightmap.FileError, FileNotFoundError, OSError]),
    (weightmap.FilePermissionError, "io", [weightmap.FileError, PermissionError, OSError]),
    (weightmap.NotACheckpointError, "not_a_checkpoint", [ValueError]),
    (weightmap.CorruptError, "corrupt", [ValueError]),
    (weightmap.UnsupportedError, "unsupported", [ValueError]),
    (weightmap.UnsafePickleError, "unsafe_pickle", [pickle.UnpicklingError]),
    (weightmap.LimitExceededError, "limit_exceeded", [ValueError]),
    (weightmap.InvalidArgumentError, "invalid_argument", [ValueError]),
    (
        weightmap.TensorNotFoundError,
        "not_found",
        [weightmap.InvalidArgumentError, KeyError, LookupError],
    ),
    (weightmap.CancelledError, "cancelled", []),
    (weightmap.MissingPackageError, "unsupported", [weightmap.UnsupportedError, ImportError]),
])
def test_has_a_code_and_the_parents_that_people_catch(kind, code, parents):
    assert kind.code == code
    for parent in [weightmap.Error, *parents]:
        assert issubclass(kind, parent)
    assert not issubclass(weightmap.Error, (OSError, ValueError, KeyError))


def test_every_exception_is_exported():
    exported = {
        value
        for name in weightmap.__all__
        if isinstance(value := vars(weightmap).get(name), type) and issubclass(value, Exception)
    }
    assert exported == set(FAMILY)


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    path = tmp_path / "missing.pt"
    with pytest.raises(FileNotFoundError) as caught:
        weightmap.open(path)
    error = caught.value
    assert type(error) is weightmap.MissingFileError
    assert (error.code, error.errno, error.file) == ("io", errno.ENOENT, str(path))
    assert (error.filename, error.strerror) == (str(path), "No such file or directory")
    assert str(error) == f"{path}: cannot open the file: No such file or directory"


def test_a_path_through_a_file_is_a_file_error(data):
    error = refusal(data / "views.pt" / "inside")
    assert (type(error), error.code, error.errno) == (weightmap.FileError, "io", errno.ENOTDIR)


def test_a_file_that_may_not_be_read_is_a_permission_error(copy_of, python):
    path = copy_of("views.pt")
    path.chmod(0)
    program = """
import os, sys, weightmap
if os.getuid() == 0:
    os.setuid(65534)  # the superuser may read anything
try:
    weightmap.open(sys.argv[1])
except PermissionError as error:
    print(type(error).__name__, error.code, error.errno, error.file == sys.argv[1])
"""
    ran = python(program, path)
    assert ran.stdout == f"FilePermissionError io {errno.EACCES} True\n", ran.stderr


def test_a_file_that_may_not_be_written_to_opens_for_reading_only(data, tmp_path, python):
    # In a folder that another user can reach.
    program = """
import os, shutil, sys, tempfile, weightmap
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "views.pt")
    shutil.copyfile(sys.argv[1], path)
    os.chmod(folder, 0o755)
    os.chmod(path, 0o444)
    if (child := os.fork()) == 0:
        if os.getuid() == 0:
            os.setuid(65534)
        private = weightmap.open(path, sharing="private", writable=True)
        print(len(weightmap.open(path)), len(private))
        try:
            weightmap.open(path, sharing="shared", writable=True)
        except PermissionError as error:
            print(type(error).__name__, error.errno)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""
    ran = python(program, data / "views.pt")
    assert ran.stdout == f"12 12\nFilePermissionError {errno.EACCES}\n", ran.stderr


@pytest.mark.parametrize(
    ("make", "word"),
    [(lambda path: path.mkdir(), "folder in which there is no checkpoint"), (os.mkfifo, "FIFO")],
)
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path, make, word):
    path = tmp_path / "thing"
    make(path)
    error = refusal(path)
    assert type(error) is weightmap.NotACheckpointError
    assert word in error.message


def test_a_path_in_a_message_cannot_write_to_a_terminal(tmp_path):
    error = refusal(tmp_path / "a\x1b[31m\nb")
    assert str(error).isprintable()


# --- each cut and each flip of a real file ----------------------------------------------------


def test_a_flipped_byte_gives_a_checkpoint_or_an_error_of_the_family(data, tmp_path):
    content = (data / "training.pt").read_bytes()
    path = tmp_path / "flipped.pt"
    refused = 0
    for at in range(0, len(content), 11):
        changed = bytearray(content)
        changed[at] ^= 0x41
        path.write_bytes(changed)
        try:
            with weightmap.open(path) as opened:
                opened.root()
                for tensor in opened.values():
                    tensor.tobytes()
        except weightmap.Error:
            refused += 1
    assert refused > 50


# --- hostile pickles --------------------------------------------------------------------------


class Runs:
    def __init__(self, callable_, *arguments):
        self.call = callable_, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_code_in_a_pickle_is_refused_and_not_run(archive, tmp_path, protocol):
    marker = tmp_path / "was_run"
    path = archive(pickle.dumps({"a": Runs(os.system, f"touch {marker}")}, protocol))
    with pytest.raises(pickle.UnpicklingError) as caught:
        weightmap.open(path)
    error = caught.value
    assert type(error) is weightmap.UnsafePickleError
    assert error.code == "unsafe_pickle"
    assert error.file == str(path)
    assert "posix.system" in error.message and "nothing was run" in error.message
    # The place is that of the name in the pickle.
    assert b"posix" in path.read_bytes()[error.file_offset - 20 :][:60]
    assert not marker.exists()


def test_unknown_classes_are_described_and_nothing_is_imported(archive, tmp_path, monkeypatch):
    module = tmp_path / "module_that_marks.py"
    module.write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    path = archive(b"\x80\x02cmodule_that_marks\nThing\nK\x07\x85R.")
    root = weightmap.open(path).root()
    assert root.callable == weightmap.Global("module_that_marks", "Thing")
    assert root.arguments == (7,)


# --- calls that are wrong ---------------------------------------------------------------------


# --- as exceptions ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FAMILY)
def test_shows_file_message_and_place(kind):
    assert str(kind("says no")) == "says no"
    assert str(kind("says no", file="model.pt")) == "model.pt: says no"
    assert str(kind("says no", file="model.pt", file_offset=0)) == "model.pt: says no (at byte 0)"
    assert str(kind("says no", file_offset=4096)) == "says no (at byte 4096)"
    assert kind("says no").args == ("says no",)


@pytest.mark.parametrize("duplicate", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
@pytest.mark.parametrize("kind", FAMILY)
def test_survives_pickling(kind, duplicate):
    error = kind("says no", file="model.pt", file_offset=12, errno=5)
    made = duplicate(error)
    assert type(made) is kind
    assert (made.message, made.file, made.file_offset, made.errno, made.code, str(made)) == (
        "says no", "model.pt", 12, 5, kind.code, "model.pt: says no (at byte 12)",
    )
    assert made.args == error.args


def test_survives_pickling_when_it_was_raised(data, tmp_path):
    for path in (data / "strangers" / "truncated.pt", tmp_path / "missing.pt"):
        error = refusal(path)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            made = pickle.loads(pickle.dumps(error, protocol))
            assert type(made) is type(error)
            assert str(made) == str(error)
            assert (made.errno, made.file_offset) == (error.errno, error.file_offset)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no notes")
def test_takes_notes_and_is_printed_like_any_exception(data):
    error = refusal(data / "strangers" / "page.pt")
    error.add_note("while loading the draft model")
    made = pickle.loads(pickle.dumps(error))
    printed = "".join(traceback.format_exception(made))
    assert "weightmap" in printed and "NotACheckpointError" in printed and "web page" in printed


def test_is_named_as_people_import_it():
    # Tracebacks and pickles show this name.
    assert {kind.__module__ for kind in FAMILY} == {"weightmap"}


@pytest.mark.parametrize("use", [
    lambda path: weightmap.save({}, path),
    lambda path: weightmap.save_safetensors({}, path),
    weightmap.open,
    weightmap.open_for_filling,
    weightmap.stage,
], ids=["save", "save_safetensors", "open", "open_for_filling", "stage"])
def test_a_nul_in_a_path_is_refused_and_escaped(use):
    with pytest.raises(weightmap.InvalidArgumentError) as error:
        use("/tmp/a\0b\x1b")
    assert str(error.value).startswith("/tmp/a\\x00b\\x1B: ")
    assert error.value.file == "/tmp/a\\x00b\\x1B"
