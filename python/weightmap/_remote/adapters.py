"""Sources over the clients of other packages, which have credentials of every kind.

Each finds out size and tag when it is made, and a read of another version fails: obstore asks for
the version (If-Match), with the others the tag is asked for again after the last byte.
"""

from __future__ import annotations

from weightmap._errors import FileError
from weightmap._urls import without_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from weightmap._typing import RangeSource


def _beside(path: str, relative: str) -> str:
    return path.rpartition("/")[0] + "/" + relative if "/" in path else relative


def _changed(name: str) -> FileError:
    return FileError("changed: the store has another version than when it was opened", file=name)


class _Source:
    """What the sources here have in common; `of` makes another like it."""

    def __init__(self, of: Any, client: Any, path: str, name: str) -> None:
        self._of, self._client, self._path, self.name = of, client, path, name
        self.size, self.tag = self._version()

    def _version(self) -> tuple[int, str]:
        raise NotImplementedError

    def check(self) -> None:
        if self._version() != (self.size, self.tag):
            raise _changed(self.name)

    def sibling(self, relative: str) -> Any:
        return self._of(self._client, _beside(self._path, relative))

    def __repr__(self) -> str:
        return f"<weightmap.remote source {self.name}>"


class _OfObstore(_Source):
    def _version(self) -> tuple[int, str]:
        import obstore

        head = obstore.head(self._client, self._path)
        return head["size"], head["e_tag"] or ""

    def read_into(self, offset: int, buffer: memoryview) -> None:
        import obstore
        from obstore.exceptions import PreconditionError

        options: Any = {"range": (offset, offset + len(buffer))}
        if self.tag:
            options["if_match"] = self.tag
        try:
            buffer[:] = memoryview(obstore.get(self._client, self._path, options=options).bytes())
        except PreconditionError:
            raise _changed(self.name) from None


def from_obstore(store: Any, path: str) -> RangeSource:
    """A source over a store of the package obstore: S3, Google, Azure, with their credentials.

    store: obstore.store.S3Store(...) and the like. path: of the object in it. Any thread may use
    what it returns; a forked child may not, as obstore's own threads are not there.
    """
    return _OfObstore(from_obstore, store, path, f"{type(store).__name__}/{path}")


class _OfFsspec(_Source):
    # What file systems call the version of a file, the surest first.
    _TAGS = (
        "ETag", "etag", "generation", "mtime", "LastModified", "Last-Modified", "last_modified",
        "created",
    )

    def _version(self) -> tuple[int, str]:
        self._client.invalidate_cache(self._path)
        info = self._client.info(self._path)
        tag = next((info[name] for name in self._TAGS if info.get(name)), "")
        return info["size"], str(tag)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self._client.cat_file(self._path, start=offset, end=offset + len(buffer))


def from_fsspec(fs: Any, path: str) -> RangeSource:
    """A source over a file system of the package fsspec: s3fs, gcsfs, http and others.

    fs: fsspec.filesystem(...). path: of the file in it. Any thread may use what it returns, and a
    forked child only where the file system allows it.
    """
    return _OfFsspec(from_fsspec, fs, path, without_secrets(fs.unstrip_protocol(path)))


class _OfPyarrow(_Source):
    def _version(self) -> tuple[int, str]:
        info = self._client.get_file_info(self._path)
        if not info.is_file:
            raise FileNotFoundError(2, "no such file", self.name)
        return info.size, str(info.mtime_ns or "")

    def read_into(self, offset: int, buffer: memoryview) -> None:
        with self._client.open_input_file(self._path) as file:
            file.seek(offset)
            if (came := file.readinto(buffer)) != len(buffer):
                raise EOFError(f"{came} of {len(buffer)} bytes from {offset} on")


def from_pyarrow(filesystem: Any, path: str) -> RangeSource:
    """A source over a file system of pyarrow.fs: S3, Google, Azure, HDFS.

    filesystem: pyarrow.fs.S3FileSystem(...) and the like. path: of the file in it. Any thread may
    use what it returns; a forked child may not, as pyarrow's own threads are not there.
    """
    return _OfPyarrow(from_pyarrow, filesystem, path, f"{filesystem.type_name}://{path}")
