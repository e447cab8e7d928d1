"""Checkpoints in stores: by URL, or over any client that reads ranges.

    weightmap.remote.metadata("s3://bucket/model.safetensors")      # a few requests
    staging = weightmap.remote.stage("https://host/model.pt")       # into shared memory
    weightmap.remote.fetch("https://host/model.safetensors.index.json", "folder/")
    weightmap.remote.fetch_model("https://host/model.safetensors.index.json", "link")

All of them take a URL, a Source of open_url(), a source over the client of another package
(from_obstore(), from_fsspec(), from_pyarrow()), or an object of your own, which has

    name                        a str for messages, without secrets
    size                        in bytes
    tag                         a str that another version of the file would not have; may be empty
    read_into(offset, buffer)   fills a writable memoryview, all of it, with the bytes from `offset`
                                on. It raises where it cannot, and may return how many bytes came.
                                The buffer is not there any more once it has returned

and may have check(), which is called after each range that was read, and raises if that was not
all of the version of `tag`; and sibling(relative), which returns the source of another file of the
same folder, for sets. Several threads of the library call read_into() at once, as many as
`connections` says; they have the GIL only while they run Python. An exception ends the call that
read, as a weightmap.FileError with its text; nothing is tried again. A read that has begun is
waited for when the rest is cancelled.
"""

from __future__ import annotations

from weightmap._remote.adapters import from_fsspec, from_obstore, from_pyarrow
from weightmap._remote.fetching import fetch, fetch_model, metadata, model_files
from weightmap._remote.signature import verify_signature
from weightmap._remote.source import Source, open_url
from weightmap._remote.staging import Staging, stage

__all__ = [
    "Source",
    "Staging",
    "fetch",
    "fetch_model",
    "from_fsspec",
    "from_obstore",
    "from_pyarrow",
    "metadata",
    "model_files",
    "open_url",
    "stage",
    "verify_signature",
]

for _public in (Source, Staging):
    _public.__module__ = __name__  # where people import them from
