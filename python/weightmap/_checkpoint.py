"""weightmap.open() and what it returns."""

from __future__ import annotations

import os
from collections.abc import ItemsView, KeysView, Mapping, ValuesView

from weightmap import _core, config
from weightmap._core import Tensor
from weightmap._errors import (
    Error,
    FileError,
    InvalidArgumentError,
    TensorNotFoundError,
    about_file,
)
from weightmap._record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from inspect import Signature
    from typing import Any, Literal, Protocol, TypeAlias, Unpack

    import torch as torch_module

    from weightmap._options import OpenOptions
    from weightmap._subtree import Subtree
    from weightmap._summary import Summary

    State: TypeAlias = Literal["current", "replaced", "modified", "lost"]

    class HasDescriptor(Protocol):
        """A file, a socket, a StagedFile."""

        def fileno(self) -> int: ...


PathLike: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
# What a long call tells: the bytes done, the bytes in all. What it raises ends the call; the last
# time, when the two are equal, the work is done already.
Progress: TypeAlias = "Callable[[int, int], object]"


class Info(Record):
    """What kind of file a checkpoint is."""

    format: str  # "torch_zip"
    version: int  # of the record `version`
    format_version: str | None  # of `.format_version`; None before torch 2.7
    byteorder: str  # "little" or "big"
    byteorder_assumed: bool  # the file does not say; the option decided
    storage_alignment: int  # bytes
    tensors: int
    storages: int
    tensor_bytes: int  # of all tensors; views of one storage count each
    file_bytes: int
    pickle_bytes: int
    sharing: str  # as mapped, after any fallback
    sharing_fell_back: bool  # the file system refused a shared mapping
    writable: bool
    protection: str  # "map", "guard" or "snapshot"
    protection_means: str  # "reflink" for a snapshot; "" if the file itself is mapped
    catalog: str  # "parsed", "published" for other processes, or "attached" to another's
    catalog_reason: str  # why a shared catalog was not used or not published; "" if it was


class Generation(Record):
    """The identity of a file's content: what tells one version of a checkpoint from another."""

    device: int
    inode: int
    size: int  # bytes
    mtime_ns: int  # since 1970
    ctime_ns: int


class PublishReport(Record):
    """What publish() did."""

    generation: Generation  # of what the target names now
    replaced: bool  # there was a file of this name before
    copied: bool  # the new file is still where it was, too
    bytes: int


class Stats(Record):
    """What an open did, counted."""

    strategy: str  # the weakest that a storage needed: calculated, directory, headers; or none
    storages_calculated: int
    storages_by_directory: int
    storages_by_header: int
    local_headers_read: int
    local_headers_verified: int
    cache_hits: int  # references to a storage whose offset was known: tied weights, views
    reads: int  # pread calls for metadata
    bytes_read: int
    verify_reads: int  # made only to verify
    verify_bytes_read: int
    catalog_damaged: bool  # another process's catalog was, and one of its own took its place
    seconds: float  # the whole open, and its stages
    directory_seconds: float
    pickle_seconds: float
    catalog_seconds: float
    mapping_seconds: float


class CrcReport(Record):
    """What verify_crc() read."""

    storages_checked: int
    storages_without_crc: int  # the writer did not compute their sums
    bytes: int


class WarmReport(Record):
    """What warm() did."""

    bytes: int  # brought into memory
    bytes_left_out: int  # by the budget
    budget_reason: str  # what set it: "MemAvailable", "memory.max of /pod"; "" if it was given
    method: str  # that was used
    method_reason: str  # why it is not the default; "" if it is
    storages_checked: int  # against their CRC-32
    seconds: float
    was_reader: bool = False  # with one_reader: this process was elected
    takeovers: int = 0  # 1 if it was elected after it had waited for another
    bytes_waited_for: int = 0  # that another process read meanwhile
    why_alone: str = ""  # why it read for itself; "" if it did not have to


class RangeResidency(Record):
    """What of a tensor or a storage is in memory. In bytes; None: the system does not tell."""

    file_offset: int
    extent_bytes: int  # from the first to the last that strides reach
    cached_bytes: int  # of these, in the page cache, whoever brought them there
    resident_bytes: int | None  # mapped into this process, too; what is mapped twice counts twice
    anonymous_bytes: int | None  # of those, copied by writing to private memory
    huge_mapped_bytes: int | None  # of those that are mapped, in huge pages
    name: str  # of the tensor; key of the storage


class Residency(Record):
    """What of a checkpoint is in memory, at one moment. In bytes."""

    file_bytes: int
    cached_bytes: int  # in the page cache, whoever brought it there
    resident_bytes: int  # mapped into this process, too (RSS)
    anonymous_bytes: int  # of those, copied by writing to private memory; the rest is the file's
    huge_mapped_bytes: int  # of those that are mapped, in huge pages
    pss_bytes: int  # each page divided by the number of processes that have it mapped (PSS)
    pss_anonymous_bytes: int | None  # of those, anonymous; None: forked processes share copies
    minor_faults_since_open: int  # page faults of the whole process that found it in memory
    major_faults_since_open: int  # that waited for the disk
    is_fragmented: bool | None  # cached in 4 KiB pieces, slow to map; None: cannot be known
    tensors: tuple[RangeResidency, ...]  # in the order of the file
    storages: dict[str, RangeResidency]  # by key

    def __repr__(self) -> str:
        short = {"tensors": f"<{len(self.tensors)}>", "storages": f"<{len(self.storages)}>"}
        fields = [f"{field}={short.get(field) or repr(getattr(self, field))}"
                  for field in type(self).__match_args__]
        return f"Residency({', '.join(fields)})"


class EvictReport(Record):
    """What evict() did, in bytes."""

    file_bytes: int
    cached_before: int
    cached_after: int  # what stays
    # Why: "in_use" by a process that has it mapped or locked, this one perhaps; "unwritten", not on
    # the disk yet; "memory_file_system", the file has no other place. "" if nothing stays.
    reason: str = ""


class LoadReport(Record):
    """What load_into() found different."""

    missing: list[str]  # names of the model that the checkpoint has not
    unexpected: list[str]  # names of the checkpoint that the model has not


class Checkpoint(Mapping[str, Tensor]):
    """An opened checkpoint: a mapping from the names of its tensors to the tensors.

    Names are the keys on the way to a tensor, joined by dots; a tuple asks by path, which tells
    {"a.b": t} from {"a": {"b": u}}: checkpoint["optimizer", "state", 0, "exp_avg"]. Order is that
    of the file.

    Safe to use from any thread, and after a fork. Leaving a `with` block, or close(), gives up
    the checkpoint, never a tensor or an array that was taken from it: those keep the mapping.
    """

    __slots__ = ("_is_path", "_opened", "_options", "path", "__weakref__")

    path: str
    """The file as it was given to open(); "descriptor 5" if that was a descriptor."""

    def __init__(
        self,
        opened: _core.Checkpoint,
        path: str,
        *,
        options: dict[str, Any],
        is_path: bool = True,
    ) -> None:
        self._opened: _core.Checkpoint | None = opened
        self.path = path
        self._options = options
        self._is_path = is_path

    def __reduce__(self) -> Any:
        """Its path, options and generation: who unpickles it opens the file anew."""
        if not self._is_path:
            raise InvalidArgumentError(
                "cannot be pickled, since only this process knows what it is", file=self.path
            )
        path = os.path.abspath(self.path)
        return _open_again, (path, self._options, self._core.generation())

    @property
    def _core(self) -> _core.Checkpoint:
        if self._opened is None:
            raise InvalidArgumentError("the checkpoint is closed", file=self.path)
        return self._opened

    def __getitem__(self, name: str | tuple[str | int, ...]) -> Tensor:
        try:
            return self._find(name)
        except TensorNotFoundError as error:
            message = error.message
            if what := _what_it_is(self._core, name):  # rather than names that are like it
                message = message.partition("; did you mean ")[0] + what
            raise TensorNotFoundError(message, file=error.file) from None

    def _find(self, name: str | tuple[str | int, ...]) -> Tensor:
        core = self._core
        try:
            if isinstance(name, str):
                tensor = core.find(name)
                return core.get(name) if tensor is None else tensor
            if isinstance(name, tuple) and all(type(part) in (str, int) for part in name):
                return core.get_path(name)
        except InvalidArgumentError as error:
            raise TensorNotFoundError(error.message, file=error.file) from None
        raise TypeError(f"a tensor is asked for by name or by path, not by {name!r}")

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            return self._core.find(name) is not None
        try:
            self._find(name)  # type: ignore[arg-type]
        except (TensorNotFoundError, TypeError):
            return False
        return True

    def get(self, name: object, default: Any = None) -> Any:
        """The tensor of this name or path; `default` for whatever is not in the checkpoint."""
        if isinstance(name, str):
            tensor = self._core.find(name)
            return default if tensor is None else tensor
        try:
            return self._find(name)  # type: ignore[arg-type]
        except (TensorNotFoundError, TypeError):
            return default

    # Two checkpoints are not compared tensor by tensor; one is equal to itself.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __len__(self) -> int:
        return len(self._core)

    def __iter__(self) -> Iterator[str]:
        core = self._core
        return (core.name(index) for index in range(len(core)))

    def values(self) -> ValuesView[Tensor]:
        """The tensors, in the order of the file."""
        return _Values(self)

    def items(self) -> ItemsView[str, Tensor]:
        """Names and tensors, in the order of the file."""
        return _Items(self)

    def keys(self) -> KeysView[str]:
        """The names, in the order of the file."""
        return KeysView(self)

    def paths(self) -> list[tuple[str | int, ...]]:
        """The keys on the way to each tensor, in the order of the file; integers stay integers."""
        core = self._core
        return [core.path(index) for index in range(len(core))]

    @property
    def info(self) -> Info:
        """What kind of file this is."""
        return Info(**self._core.info())

    @property
    def stats(self) -> Stats:
        """What the open did, counted."""
        return Stats(**self._core.stats())

    def summary(self, depth: int = 1) -> Summary:
        """Tensors, elements and bytes, by dtype and by the first `depth` parts of names; ties.

        Its repr is a few lines, whatever the size of the checkpoint.
        """
        from weightmap._summary import summarize

        return summarize(self.path, self.values(), depth)

    def _repr_html_(self) -> str:
        import html

        shown = repr(self) if self.closed else repr(self.summary())
        return f"<pre>{html.escape(shown)}</pre>"

    def root(self) -> Any:
        """Everything in the checkpoint as plain Python objects: epochs, optimizer state, lists.

        Tensors are weightmap.Tensor, shared as the file shares them. Numbers, arrays and dtypes of
        numpy, namespaces, paths, dates and the like are made anew, without calling what the file
        names. What would need other code is a weightmap.Object or weightmap.Global that only says
        what the file says.
        """
        return _root(self._core, (), self.path)

    def subtree(self, path: str | tuple[str | int, ...]) -> Subtree:
        """The tensors below these keys, by the rest of their names, and root() from there.

        path: the keys joined by dots, or a tuple: "model", ("optimizer", "state", 0).
            TensorNotFoundError if there is no tensor.
        """
        from weightmap._subtree import Subtree

        core = self._core
        return Subtree(core, self.path, _path_to(core, path, self.path))

    def find(self, pattern: str) -> list[str]:
        """The names that match a shell pattern, in the order of the file; as `weightmap ls`.

        "blocks.0.*": * is any text, ? any byte, [abc] one of these; \\* is an asterisk. A name of
        the file matches itself, whatever it has in it. Of tensors that share a name each counts.
        """
        core = self._core
        return [core.name(index) for index in core.match(pattern)]

    def _matching(self, pattern: str) -> list[int]:
        if not isinstance(pattern, str):
            return [self[pattern].index]
        return self._core.match(pattern) or [self[pattern].index]

    def torch(
        self, prefix: str = "", device: Any = None, dtype: Any = None
    ) -> dict[str, torch_module.Tensor]:
        """A state dict: torch tensors over the mapped file, by name.

        Tensors that share a storage in the file have one storage object, so torch.save() keeps them
        tied. A write stays in this process, as with Tensor.torch().

        prefix: only the names below it, without it: "model" or "model.", which are the same.
        device, dtype: as of torch.Tensor.to(). What is converted is copied; what was one tensor
            under two names still is, but no longer shares with tensors that overlapped it.
        """
        from weightmap import _tensors

        if prefix and not prefix.endswith("."):
            prefix += "."
        named = [
            (name[len(prefix) :], tensor)
            for name, tensor in self.items()
            if name.startswith(prefix)
        ]
        return _tensors.state_dict(self._core, named, device, dtype)

    def load_into(
        self, model: torch_module.nn.Module, prefix: str = "", *, strict: bool = True
    ) -> LoadReport:
        """Makes the tensors of the file the model's: load_state_dict(assign=True). Nothing is copied.

        The model is best made under torch.device("meta"), so that it has no memory of its own.
        Parameters that it has tied stay one object, if the file has them tied, too.

        prefix: as in torch().
        strict: RuntimeError, as torch's own, if names differ. With False the report names them.
        """
        from weightmap import _tensors

        return LoadReport(*_tensors.load_into(model, self.torch(prefix), strict))

    def warm(
        self,
        names: Iterable[str] | None = None,
        *,
        order: PathLike | None = None,
        threads: int = 2,
        budget: int | None = None,
        crc: bool = False,
        one_reader: bool = False,
        progress: Progress | None = None,
    ) -> WarmReport:
        """Brings the file, or the tensors of these names in this order, into memory and waits.

        names: or patterns, as find() takes them. TensorNotFoundError if one matches none.
        order: instead of names, a file with a name or pattern on each line, as save_order()
            writes it. Lines that name no tensor are skipped;
            InvalidArgumentError if none does.
        budget: stop after this many bytes; None for what fits into free memory.
        crc: compare the CRC-32 of each storage that is brought in as a whole, from memory;
            CorruptError names the tensor that differs.
        one_reader: of all processes of this user that warm this file at the same time with this,
            one reads from the disk, the others wait for what it brings; when it ends, or is killed,
            another reads on.
        progress: is called with the bytes done and the bytes in all, some twenty times a second,
            in this thread. What it raises, and Ctrl-C, ends the warm-up; what came stays.
        """
        if isinstance(names, (str, bytes)):
            raise TypeError(f"names are a list: [{names!r}]")
        if names is not None and order is not None:
            raise InvalidArgumentError("tensors are named by names or by order, not by both")
        indices: list[int] = []
        if names is not None:
            indices = [index for name in names for index in self._matching(name)]
        if order is not None:
            indices = self._core.load_order(os.fsencode(order))
        if not indices and (names is not None or order is not None):
            return WarmReport(0, 0, "", "populate", "", 0, 0.0)
        warmed = self._core.warm(indices, threads, budget or 0, crc, one_reader, progress)
        return WarmReport(**warmed)

    def demand(self, tensor: Tensor) -> None:
        """Brings a tensor of this checkpoint, or a part of one, into memory now.

        Returns when it is there; a warm() that another thread is in gives way. Touching a tensor's
        bytes does the same more slowly, and is not remembered by demand_order().
        """
        self._core.demand(tensor)

    def demand_order(self) -> list[str]:
        """The names of the tensors that were demanded, in the order of the first demand for each.

        Of tensors that share memory only the first in the file's order is named.
        """
        core = self._core
        return [core.name(index) for index in core.demand_order()]

    def save_order(self, path: PathLike | None = None) -> None:
        """Writes demand_order() to a text file, for the next warm(order=path).

        path: None for the checkpoint's own with ".order" after it, which the command
            `weightmap warm` looks for. The file appears as a whole or not at all.
        """
        if path is None:
            if not self._is_path:
                raise InvalidArgumentError("has no path to add .order to", file=self.path)
            path = self.path + ".order"
        self._core.save_order(os.fsencode(path))

    @property
    def generation(self) -> Generation:
        """The file's identity at the moment of opening."""
        return Generation(*self._core.generation())

    def state(self) -> State:
        """Whether what is mapped is still what was opened.

        "current": the path names this very file, and nobody has written to it. "replaced": it
        names another file, or none; what is mapped is whole. "modified": the file was written to
        or cut, so tensors may show other bytes. "lost": the guard (protection="guard") has put
        zeros in the place of what could not be read; whatever was computed since the last call is
        to be thrown away.
        """
        return self._core.state()  # type: ignore[return-value]

    def is_current(self) -> bool:
        """state() == "current", by one system call."""
        return self._core.is_current()

    def reopen(self) -> Checkpoint:
        """Opens the path again with the same options. This one and its tensors stay as they are."""
        return Checkpoint(
            self._core.reopen(), self.path, options=self._options, is_path=self._is_path
        )

    def copy_to(self, tensor: Tensor, buffer: Any) -> None:
        """Copies a tensor of this checkpoint, as its bytes lie, into a writable buffer of its size.

        FileError, and never a signal, if the file was truncated or written to since it was opened.
        """
        self._core.copy_to(tensor, buffer)

    def residency(self) -> Residency:
        """What of the file is in memory. Reads nothing and brings nothing in.

        FileError with errno EPERM for a file that this user may not write to: the system does not
        tell then.
        """
        fields = self._core.residency()
        fields["tensors"] = tuple(
            RangeResidency(*tensor, name) for name, tensor in zip(self, fields["tensors"])
        )
        fields["storages"] = {key: RangeResidency(*range, key) for key, range in fields["storages"]}
        return Residency(**fields)

    def verify_headers(self) -> None:
        """Compares every calculated offset with the record's local header; CorruptError if wrong."""
        self._core.verify_headers()

    def verify_crc(self, *, progress: Progress | None = None) -> CrcReport:
        """Reads every byte and compares its CRC-32; CorruptError names the storage that differs.

        progress: as in warm().
        """
        return CrcReport(*self._core.verify_crc(progress))

    @property
    def closed(self) -> bool:
        return self._opened is None

    def close(self) -> None:
        """Gives up the checkpoint. Tensors and arrays that were taken from it stay valid."""
        self._opened = None

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._opened is None:
            return f"<weightmap.Checkpoint {self.path!r}, closed>"
        return f"<weightmap.Checkpoint {self.path!r}, {len(self)} tensors>"


class _Values(ValuesView[Tensor]):
    _mapping: Checkpoint

    def __iter__(self) -> Iterator[Tensor]:
        core = self._mapping._core
        return (core.at(index) for index in range(len(core)))

    def __contains__(self, value: object) -> bool:
        return any(value is tensor for tensor in self)


class _Items(ItemsView[str, Tensor]):
    _mapping: Checkpoint

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        core = self._mapping._core
        return ((core.name(index), core.at(index)) for index in range(len(core)))


def _root(core: _core.Checkpoint, path: tuple[str | int, ...], file: str) -> Any:
    from weightmap._values import PlainMachine

    try:
        return core.evaluate(PlainMachine(), path)
    except Error as error:
        raise about_file(error, file)


def _path_to(
    core: _core.Checkpoint, way: str | tuple[str | int, ...], file: str
) -> tuple[str | int, ...]:
    """The path that keys joined by dots stand for; a path itself is checked when it is used."""
    if isinstance(way, tuple) and all(type(part) in (str, int) for part in way):
        return way
    if not isinstance(way, str):
        raise TypeError(f"a place in a checkpoint is a str or a tuple of keys, not {way!r}")
    found = core.look(way)
    if found is None:
        raise TensorNotFoundError(f"has nothing called {way!r}", file=file)
    return found[0]


def _tensors_below(core: _core.Checkpoint, path: tuple[str | int, ...]) -> list[int]:
    return [i for i in range(len(core)) if core.path(i)[: len(path)] == path]


def _what_it_is(core: _core.Checkpoint, name: str | tuple[str | int, ...]) -> str:
    """For an error about a name that leads to something else than a tensor."""
    try:
        found = core.look(name) if isinstance(name, str) else None
    except Error:
        return ""
    if found is None:
        return ""
    path, kind = found
    kind = kind if kind.isprintable() and len(kind) <= 200 else "object"
    tensors = len(_tensors_below(core, path))
    article = "" if kind == "None" else "an " if kind[0] in "aeiou" else "a "
    where = f"root(){''.join(f'[{part!r}]' for part in path)}"
    if tensors == 0:
        return f": it is {article}{kind}; take {where}"
    of = f"{tensors} tensor{'' if tensors == 1 else 's'}"
    return f": it is {article}{kind} with {of}; take subtree({name!r}) or {where}"


def _descriptor_of(source: Any) -> int | None:
    """None for a path, and for what is neither."""
    if isinstance(source, (str, bytes, bool, os.PathLike)):
        return None
    try:
        descriptor = source if isinstance(source, int) else source.fileno()
    except (AttributeError, OSError):  # io.BytesIO has the method, and no descriptor
        return None
    return descriptor if isinstance(descriptor, int) else None


def open(
    path: PathLike | HasDescriptor | int,
    *,
    progress: Progress | None = None,
    **options: Unpack[OpenOptions],
) -> Checkpoint:
    """Maps a checkpoint. Nothing is loaded and nothing in the file is run.

    path: str, bytes or os.PathLike; or a descriptor that is open for reading, or what has one
        (fileno()), which stays open and may be closed afterwards.
    sharing: "shared" (default) or "private". Read-only, both share pages between processes. With
        writable=True, writes reach the file ("shared") or stay in this process ("private").
    writable: whether numpy arrays may be written to. Default False: writing to them raises.
    verify: "chain" (default) proves offsets from the archive's directory, "headers" also compares
        each with its local header, "crc" also reads every byte and compares the sums.
    endianness: byte order assumed for files that do not say; default "little".
    populate: fault every page in before open() returns.
    no_reserve: no swap accounting for a private writable mapping (MAP_NORESERVE).
    locked: mlock the mapping; needs RLIMIT_MEMLOCK.
    huge_pages: ask for huge pages where the file system has them; default True.
    protection: what becomes of the mapping when the file is truncated under it. "map" (default):
        the process ends with SIGBUS. "guard": zeros take its place and state() says "lost".
        "snapshot": a reflink is opened, which nobody else can change; an error where the file
        system has none.
    shared_catalog: take over the table of tensors that another process of this user has published
        for this very file, or publish the one that is made; default False. root() and
        weightmap.torch.load() need the tree of values, too, and parse the file for that.
    progress: is called with the bytes done and the bytes in all while verify="crc", populate or
        locked reads the file. What it raises, and Ctrl-C, ends the open.

    What is left None comes from weightmap.config, then the environment (WEIGHTMAP_SHARING, ...),
    then the default. Raises weightmap.Error; a missing file is also a FileNotFoundError. The GIL is
    released meanwhile.
    """
    completed = config._with_defaults(options)
    descriptor = _descriptor_of(path)
    if descriptor is None:
        file = os.fsencode(path)  # type: ignore[arg-type]
        opened = _core.open(file, completed, False, progress)
        return Checkpoint(opened, os.fsdecode(file), options=completed)
    opened = _core.open_descriptor(descriptor, completed, False, progress)
    return Checkpoint(opened, f"descriptor {descriptor}", options=completed, is_path=False)


def _open_again(
    path: str, options: dict[str, Any], generation: tuple[int, int, int, int, int]
) -> Checkpoint:
    """What a pickled Checkpoint becomes. The time of a change of its inode does not count: a rename
    or another mode changes it."""
    opened = _core.open(os.fsencode(path), options)
    if opened.generation()[:4] != generation[:4]:
        raise FileError(
            "is not the file that was pickled: it was replaced or written to since", file=path
        )
    return Checkpoint(opened, path, options=options)


class _Shown:
    """open() as help() and editors see it, who alone need what it takes to tell."""

    __call__ = staticmethod(open)

    @property
    def __signature__(self) -> Signature:
        from weightmap._options import signature_with_options

        return signature_with_options(open)


open.__wrapped__ = _Shown()  # type: ignore[attr-defined]


def evict(path: PathLike, *, progress: Progress | None = None) -> EvictReport:
    """Asks the system to drop a file from the page cache, so that the next read is a cold one.

    progress: is called with how far into the file the request has come, and its size. What it
        raises, and Ctrl-C, ends the call; what is dropped is dropped.
    """
    file_bytes, before, after, unwritten, lives_in_memory = _core.evict(
        os.fsencode(path), progress
    )
    reason = ""
    if after > 0:
        reason = "memory_file_system" if lives_in_memory else "unwritten" if unwritten else "in_use"
    return EvictReport(file_bytes, before, after, reason)


def publish(
    new: PathLike,
    target: PathLike,
    *,
    copy: bool = False,
    crc: bool = False,
    progress: Progress | None = None,
) -> PublishReport:
    """Makes `target` name the checkpoint `new`, at once and durably.

    Whoever opens `target` finds the old file or the new one, whole; who has the old one open keeps
    it. Within a file system the file is renamed, else it is copied beside `target` first.

    copy: leave `new` where it is.
    crc: compare every byte with its CRC-32 first.
    progress: is called with the bytes done and the bytes in all while sums are compared, then while
        the file is copied. What it raises before the end, and Ctrl-C, leaves `target` as it was.
    """
    generation, replaced, copied, size = _core.publish(
        os.fsencode(new), os.fsencode(target), copy, crc, progress
    )
    return PublishReport(Generation(*generation), replaced, copied, size)
