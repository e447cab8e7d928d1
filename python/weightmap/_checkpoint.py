"""Checkpoint: the tensors of an opened file by name."""

from __future__ import annotations

import os
from collections.abc import ItemsView, KeysView, Mapping, ValuesView

from weightmap import _core
from weightmap._core import Tensor
from weightmap._errors import Error, InvalidArgumentError, TensorNotFoundError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Literal, TypeAlias

    import torch as torch_module

    from weightmap._chunked import ChunkedTensor
    from weightmap._rows import Rows
    from weightmap._subtree import Subtree
    from weightmap._typing import CheckpointTensor, PathLike, Progress
    from weightmap.reports import (
        ComposedTensor,
        CrcReport,
        Generation,
        Info,
        LoadReport,
        Residency,
        Stats,
        Summary,
        WarmReport,
    )

    State: TypeAlias = Literal["current", "replaced", "modified", "lost"]


class Checkpoint(Mapping[str, "CheckpointTensor"]):
    """An opened checkpoint: a mapping from the names of its tensors to the tensors.

    Names are the keys on the way to a tensor, joined by dots; a tuple asks by path, which tells
    {"a.b": t} from {"a": {"b": u}}: checkpoint["optimizer", "state", 0, "exp_avg"]. Order is that
    of the file. A tensor that torch.distributed.checkpoint saved in several pieces is a
    ChunkedTensor; the others are Tensor, and a CheckpointTensor is either.

    Safe to use from any thread, and after a fork. Leaving a `with` block, or close(), gives up
    the checkpoint, never a tensor or an array that was taken from it: those keep the mapping.
    """

    __slots__ = ("_opened", "_pieced", "path", "__weakref__")

    path: str
    """The file as it was given to open(); "descriptor 5" if that was a descriptor, "memory"."""

    def __init__(self, opened: _core.Checkpoint, path: str) -> None:
        self._opened: _core.Checkpoint | None = opened
        self._pieced: dict[str, ChunkedTensor] | None = None
        self.path = path

    def __reduce__(self) -> Any:
        """Its path, options and generation: who unpickles it opens the file anew."""
        from weightmap._pickling import one_of

        return Checkpoint._of, (one_of(self._core),)

    @classmethod
    def _of(cls, core: _core.Checkpoint) -> Checkpoint:
        """What was pickled, once its file is open again."""
        return cls(core, os.fsdecode(core.file()))

    @property
    def _core(self) -> _core.Checkpoint:
        opened = self._opened  # which another thread may close at any moment
        if opened is None:
            raise InvalidArgumentError("the checkpoint is closed", file=self.path)
        return opened

    @property
    def _chunked(self) -> dict[str, ChunkedTensor]:
        """Those of its tensors that lie in several pieces."""
        core = self._core
        if not core.has_chunks():
            return {}
        if self._pieced is None:
            from weightmap._chunked import chunked_tensors

            self._pieced = chunked_tensors(core)
        return self._pieced

    def __getitem__(self, name: str | tuple[str | int, ...]) -> CheckpointTensor:
        return self._get(name)

    def _get(self, name: str | tuple[str | int, ...]) -> Tensor | ChunkedTensor:
        try:
            return self._find(name)
        except TensorNotFoundError as error:
            message = error.message
            from weightmap._place import what_it_is

            if what := what_it_is(self._core, name):  # rather than names that are like it
                message = message.partition("; did you mean ")[0] + what
            raise TensorNotFoundError(message, file=error.file) from None

    def _find(self, name: object) -> Tensor | ChunkedTensor:
        core = self._core
        try:
            if isinstance(name, str):
                tensor = core.find(name)
                if tensor is None and core.has_chunks() and name in self._chunked:
                    return self._chunked[name]
                return core.get(name) if tensor is None else tensor
            if isinstance(name, tuple) and all(type(part) in (str, int) for part in name):
                if len(name) == 1 and core.has_chunks() and name[0] in self._chunked:
                    return self._chunked[name[0]]
                return core.get_path(name)
        except InvalidArgumentError as error:
            raise TensorNotFoundError(error.message, file=error.file) from None
        raise TypeError(f"a tensor is asked for by name or by path, not by {name!r}")

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            return self._core.contains(name) or name in self._chunked
        try:
            self._find(name)
        except (TensorNotFoundError, TypeError):
            return False
        return True

    def get(self, name: object, default: Any = None) -> Any:
        """The tensor of this name or path; `default` for whatever is not in the checkpoint."""
        if isinstance(name, str):
            tensor = self._core.find(name)
            return self._chunked.get(name, default) if tensor is None else tensor
        try:
            return self._find(name)
        except (TensorNotFoundError, TypeError):
            return default

    # Two checkpoints are not compared tensor by tensor; one is equal to itself.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __len__(self) -> int:
        return self._core.key_count()

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.keys())

    def values(self) -> ValuesView[CheckpointTensor]:
        """The tensors, in the order of the file."""
        return _Values(self)

    def items(self) -> ItemsView[str, CheckpointTensor]:
        """Names and tensors, in the order of the file."""
        return _Items(self)

    def keys(self) -> KeysView[str]:
        """The names, in the order of the file."""
        return KeysView(self)

    def paths(self) -> list[tuple[str | int, ...]]:
        """The keys on the way to each tensor, in the order of the file; integers stay integers.

        Of a tensor in pieces the name is the only key.
        """
        core = self._core
        return [
            core.path(tensor.index) if isinstance(tensor, Tensor) else (tensor.name,)
            for tensor in self.values()
        ]

    @property
    def info(self) -> Info:
        """What kind of file this is."""
        from weightmap.reports import Info

        return Info(**self._core.info())

    @property
    def stats(self) -> Stats:
        """What the open did, counted."""
        from weightmap.reports import Stats

        return Stats(**self._core.stats())

    def summary(self, depth: int = 1) -> Summary:
        """Tensors, elements and bytes, by dtype and by the first `depth` parts of names; ties; and
        what this process has copied by writing to tensors (own_bytes).

        Its repr is a few lines, whatever the size of the checkpoint. weightmap.torch.summary() is
        about a model.
        """
        from weightmap._summary import summarize

        try:
            own_bytes = self._core.anonymous_bytes()
        except Error:  # no /proc
            own_bytes = None
        return summarize(self.path, self.values(), depth, own_bytes)

    def _repr_html_(self) -> str:
        import html

        shown = repr(self) if self.closed else repr(self.summary())
        return f"<pre>{html.escape(shown)}</pre>"

    @property
    def files(self) -> list[str]:
        """The paths of the files that it was opened from: of a set the index first, if it has one.
        An empty path is a file that was opened by descriptor, or memory."""
        return [os.fsdecode(path) for path, _ in self._core.files()]

    def root(self) -> Any:
        """Everything in the checkpoint as plain Python objects: epochs, optimizer state, lists.

        Tensors are weightmap.Tensor, shared as the file shares them. Numbers, arrays and dtypes of
        numpy, namespaces, paths, dates and the like are made anew, without calling what the file
        names. What would need other code is a weightmap.Object or weightmap.Global that only says
        what the file says.

        Of a folder of torch.distributed.checkpoint: the nested dict that dcp_to_torch_save() makes
        of it, whose plain values are read now. An object with a tensor in it is left out.
        """
        from weightmap._place import root_at

        return root_at(self._core, (), self.path)

    def subtree(self, path: str | tuple[str | int, ...]) -> Subtree:
        """The tensors below these keys, by the rest of their names, and root() from there.

        path: the keys joined by dots, or a tuple: "model", ("optimizer", "state", 0).
            TensorNotFoundError if there is no tensor.
        """
        from weightmap._place import path_to
        from weightmap._subtree import Subtree

        return Subtree(self._core, self.path, path_to(self._core, path, self.path))

    def find(self, pattern: str) -> list[str]:
        """The names that match a shell pattern, in the order of the file; as `weightmap ls`.

        "blocks.0.*": * is any text, ? any byte, [abc] one of these; \\* is an asterisk. A name of
        the file matches itself, whatever it has in it. Of tensors that share a name each counts.
        """
        core = self._core
        if self._chunked:
            from weightmap._chunked import names_of

            return names_of(core, self._chunked, pattern)
        return [core.name(index) for index in core.match(pattern)]

    def _indices(self, name: str | tuple[str | int, ...]) -> list[int]:
        """Of the tensor, or of all its pieces."""
        tensor = self._get(name)
        return [tensor.index] if isinstance(tensor, Tensor) else list(tensor.indices)

    def _matching(self, pattern: str) -> list[int]:
        if not isinstance(pattern, str) or pattern in self._chunked:
            return self._indices(pattern)
        return self._core.match(pattern) or self._indices(pattern)

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
        from weightmap._torch import tensors

        return tensors.state_dict(self._core, self._below(prefix), device, dtype)

    def numpy(self, prefix: str = "") -> dict[str, Any]:
        """Arrays over the mapped file, by name: read-only, and without a copy.

        prefix: only the names below it, without it, as of torch(). bfloat16 and the like need the
            package ml_dtypes.
        """
        return {name: tensor.numpy() for name, tensor in self._below(prefix)}

    def _below(self, prefix: str) -> Iterator[tuple[str, CheckpointTensor]]:
        """By the rest of their names."""
        if prefix and not prefix.endswith("."):
            prefix += "."
        for name, tensor in self.items():
            if name.startswith(prefix):
                yield name[len(prefix) :], tensor

    def load_into(
        self, model: torch_module.nn.Module, prefix: str = "", *, strict: bool = True
    ) -> LoadReport:
        """Makes the tensors of the file the model's: load_state_dict(assign=True). Nothing is copied.

        The model is best made under torch.device("meta"), so that it has no memory of its own.
        Parameters that it has tied stay one object, if the file has them tied, too.

        prefix: as in torch().
        strict: RuntimeError, as torch's own, if names differ; it names the prefix below which all of
            them are. With False the report names them. Plain attributes of a pickled module, which
            its state_dict() has not either, do not count.
        """
        from weightmap._place import root_at
        from weightmap._torch import tensors
        from weightmap.reports import LoadReport

        state = self.torch(prefix)
        base = f"{prefix.removesuffix('.')}." if prefix else ""
        if base and strict and not state:
            from weightmap._place import like

            near = like(base[:-1], {name[:end] for name in self for end in _dots_of(name)})
            raise TensorNotFoundError(f"has no tensors below {base[:-1]!r}{near}", file=self.path)
        found = self._core.look(base[:-1]) if base else ((), "")
        if found is not None:
            path = found[0]
            state = tensors.state_for(
                model, state, self._below(prefix),
                lambda below: root_at(self._core, (*path, *below), self.path),
            )
        return LoadReport(*tensors.load_into(model, state, strict, self.path, base))

    def warm(
        self,
        names: Iterable[str] | Mapping[str, Any] | None = None,
        *,
        order: PathLike | None = None,
        threads: int | None = None,
        budget_bytes: int | None = None,
        crc: bool = False,
        one_reader: bool = False,
        progress: Progress | None = None,
    ) -> WarmReport:
        """Brings the file, or the tensors of these names in this order, into memory and waits. Of
        the file what advise() has not made "random".

        names: or patterns, as find() takes them. TensorNotFoundError if one matches none. Or a dict
            of names and of what is needed of each tensor: None for all of it, else what it takes in
            brackets, such as (slice(None), slice(0, 512)); or a SlicePlan. Then the pages that these
            parts touch are read and none around them.
        order: instead of names, a file with a name or pattern on each line, as save_order()
            writes it. Lines that name no tensor are skipped;
            InvalidArgumentError if none does.
        threads: 1 to 64; None or 0 for two, which keep a disk busy, or 32 where the file lies on a network
            or FUSE, whose server answers many reads at once.
        budget_bytes: stop after this many bytes; None for what fits into free memory.
        crc: compare the CRC-32 of each storage that is brought in as a whole, from memory;
            CorruptError names the tensor that differs.
        one_reader: of all processes of this user that warm this file at the same time with this,
            one reads from the disk, the others wait for what it brings; when it ends, or is killed,
            another reads on.
        progress: is called with the bytes done and the bytes in all, some twenty times a second,
            in this thread. What it raises, and Ctrl-C, ends the warm-up; what came stays.
        """
        from weightmap._staging import bytes_allowed
        from weightmap.reports import WarmReport

        allowed = bytes_allowed("budget_bytes", budget_bytes)
        if isinstance(names, (str, bytes)):
            raise TypeError(f"names are a list: [{names!r}]")
        if names is not None and order is not None:
            raise InvalidArgumentError("tensors are named by names or by order, not by both")
        indices: list[int] = []
        parts: list[Tensor] = []
        if isinstance(names, Mapping):
            from weightmap._slice_plan import slices

            parts = slices(self, names)
        elif names is not None:
            indices = [index for name in names for index in self._matching(name)]
        if order is not None:
            indices = self._core.load_order(os.fsencode(order))
        if not indices and not parts and (names is not None or order is not None):
            return WarmReport(0, 0, "", "populate", "", 0, 0.0)
        warmed = self._core.warm(indices, parts, threads or 0, allowed, crc, one_reader, progress)
        return WarmReport(**warmed)

    def rows(self, names: str | list[str], *, budget_bytes: int = 64 << 20) -> Rows:
        """Tables of which scattered rows are read by their numbers, such as embeddings of n-grams
        that are larger than memory.

        names: of one table, or of several of the same number of rows, such as its scales.
        budget_bytes: of the tables' pages that stay mapped into this process. Rows beyond it are
            read from the page cache, which all processes share.

        UnsupportedError for a table whose rows do not lie one after the other; InvalidArgumentError
        for a checkpoint that is writable.
        """
        from weightmap._rows import Rows

        tables = [names] if isinstance(names, str) else list(names)
        return Rows(self._core.rows(tables, budget_bytes), [self._find(name) for name in tables])

    def advise(self, pattern: str, access: Literal["normal", "random"]) -> list[str]:
        """Sets how pages of the tensors whose names match are read when they are touched first, and
        returns the names.

        "random": each page alone, for tables of which scattered rows are read other than by rows();
        "normal", as everything is opened: with the system's read-ahead. warm() of all leaves out what
        is "random". Counts for what is mapped already, too.
        """
        from weightmap._chunked import parts_of

        if access not in ("normal", "random"):
            raise InvalidArgumentError(f"access is 'normal' or 'random', not {access!r}")
        names = self.find(pattern)
        for name in names:
            for part in parts_of(self[name]):
                self._core.advise(part, access == "random")
        return names

    def demand(self, tensor: CheckpointTensor) -> None:
        """Brings a tensor of this checkpoint, or a part of one, into memory now.

        Returns when it is there; a warm() that another thread is in gives way. Touching a tensor's
        bytes does the same more slowly, and is not remembered by demand_order().
        """
        from weightmap._chunked import parts_of

        for part in parts_of(tensor):
            self._core.demand(part)

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
            if not self._core.origin()[0]:
                raise InvalidArgumentError("has no path to add .order to", file=self.path)
            path = self.path + ".order"
        self._core.save_order(os.fsencode(path))

    @property
    def generation(self) -> Generation:
        """The file's identity at the moment of opening."""
        from weightmap.reports import Generation

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
        return Checkpoint(self._core.reopen(), self.path)

    def copy_to(self, tensor: CheckpointTensor, buffer: Any) -> None:
        """Copies a tensor of this checkpoint, as its bytes lie, into a writable buffer of its size.

        FileError, and never a signal, if the file was truncated or written to since it was opened.
        """
        from weightmap._chunked import ChunkedTensor

        if isinstance(tensor, Tensor):
            self._core.copy_to(tensor, buffer)
        elif isinstance(tensor, ChunkedTensor):
            tensor.gather(buffer)
        else:
            raise TypeError(f"a tensor of a Checkpoint is copied, not {tensor!r}")

    def residency(self) -> Residency:
        """What of the file is in memory. Reads nothing and brings nothing in.

        FileError with errno EPERM for a file that this user may not write to: the system does not
        tell then.
        """
        from weightmap.reports import RangeResidency, Residency

        fields = self._core.residency()
        fields["tensors"] = tuple(
            RangeResidency(*(*tensor, name))
            for name, tensor in zip(self._core.names(), fields["tensors"])
        )
        files = [os.path.basename(file) for file in self.files]
        storages = {}
        for key, source, range in fields["storages"]:
            name = key if len(files) == 1 else f"{files[source]}/{key}"
            storages[name] = RangeResidency(*(*range, name))
        fields["storages"] = storages
        return Residency(**fields)

    def composed_tensors(self) -> list[ComposedTensor]:
        """What the file says of quantized, sparse, nested, meta and chunked tensors, and of
        subclasses."""
        from weightmap.reports import ComposedTensor

        return [ComposedTensor(**fields) for fields in self._core.composed()]

    def verify_headers(self) -> None:
        """Compares every calculated offset with the record's local header; CorruptError if wrong."""
        self._core.verify_headers()

    def verify_crc(self, *, progress: Progress | None = None) -> CrcReport:
        """Reads every byte and compares its CRC-32; CorruptError names the storage that differs.

        progress: as in warm().
        """
        from weightmap.reports import CrcReport

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
        plural = "" if len(self) == 1 else "s"
        return f"<weightmap.Checkpoint {self.path!r}, {len(self)} tensor{plural}>"


def _dots_of(name: str) -> Iterator[int]:
    """Where the parts of a name end."""
    end = name.find(".")
    while end != -1:
        yield end
        end = name.find(".", end + 1)


class _Values(ValuesView["CheckpointTensor"]):
    _mapping: Checkpoint

    def __iter__(self) -> Iterator[CheckpointTensor]:
        return (tensor for _, tensor in self._mapping.items())

    def __contains__(self, value: object) -> bool:
        return any(value is tensor for tensor in self)

    def __repr__(self) -> str:
        return f"ValuesView({self._mapping!r})"


class _Items(ItemsView[str, "CheckpointTensor"]):
    _mapping: Checkpoint

    def __iter__(self) -> Iterator[tuple[str, CheckpointTensor]]:
        from weightmap._chunked import named_tensors

        return named_tensors(self._mapping._core, self._mapping._chunked)

    def __repr__(self) -> str:
        return f"ItemsView({self._mapping!r})"
