"""Fetches a remote file into memory once, for bench/compare_remote.py.

    remote_once.py CLIENT URL SIZE [WORDS]

Prints {"wall_us", "cpu_us", "bytes"}. CLIENT is program (WORDS are a command, measured as a whole),
fetch (likewise, with a new name on a tmpfs as its last argument), obstore, fsspec, s3fs or runai.
Imports are not counted, and what was fetched is removed afterwards.
"""
import atexit
import concurrent.futures
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

CHUNK, CONNECTIONS = 16 << 20, 16


def ranges(size):
    return [(at, min(at + CHUNK, size)) for at in range(0, size, CHUNK)]


def program(_url, size, words):
    def run():
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        return size
    return run


def fetch(url, size, words):
    folder = tempfile.mkdtemp(dir="/dev/shm", prefix="weightmap-bench-")
    atexit.register(shutil.rmtree, folder)
    return program(url, size, [*words, os.path.join(folder, "model")])


def obstore(url, size, _words):
    from obstore.store import HTTPStore
    base, _, name = url.rpartition("/")
    store = HTTPStore.from_url(base, client_options={"allow_http": True})

    def one(span):
        return len(store.get_range(name, start=span[0], end=span[1]))

    def run():
        with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
            return sum(pool.map(one, ranges(size)))
    return run


def fsspec(url, size, _words):
    import aiohttp  # noqa: F401: imported late by fsspec
    import fsspec as library
    return cat_ranges(library.filesystem("http"), url, size)


def s3fs(url, size, _words):
    import s3fs as library
    parts = urllib.parse.urlsplit(url)
    system = library.S3FileSystem(anon=True, client_kwargs={
        "endpoint_url": f"{parts.scheme}://{parts.netloc}", "region_name": "none"},
        config_kwargs={"s3": {"addressing_style": "path"}})
    return cat_ranges(system, parts.path.lstrip("/"), size)


def cat_ranges(system, name, size):
    def run():
        spans = ranges(size)
        parts = system.cat_ranges([name] * len(spans), *zip(*spans), batch_size=CONNECTIONS)
        return sum(map(len, parts))
    return run


def runai(url, size, _words):
    parts = urllib.parse.urlsplit(url)
    os.environ.update({"AWS_ENDPOINT_URL": f"{parts.scheme}://{parts.netloc}",
                       "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none",
                       "AWS_REGION": "none", "AWS_EC2_METADATA_DISABLED": "true",
                       "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
                       "RUNAI_STREAMER_CONCURRENCY": str(CONNECTIONS)})
    from runai_model_streamer import SafetensorsStreamer

    def run():
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(f"s3:/{parts.path}")
            read = sum(tensor.nbytes for _, tensor in streamer.get_tensors())
        if not 0.99 * size < read <= size:
            raise SystemExit(f"{read} bytes of tensors in a file of {size}")
        return size
    return run


CLIENTS = {"program": program, "fetch": fetch, "obstore": obstore, "fsspec": fsspec, "s3fs": s3fs,
           "runai": runai}


def cpu_seconds():
    return sum(usage.ru_utime + usage.ru_stime for usage in
               map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def main():
    client, url, size, *words = sys.argv[1:]
    run = CLIENTS[client](url, int(size), words)
    cpu, wall = cpu_seconds(), time.perf_counter()
    read = run()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    if read != int(size):
        raise SystemExit(f"{read} bytes of {size}")
    print(json.dumps({"wall_us": wall * 1e6, "cpu_us": cpu * 1e6, "bytes": read}))


if __name__ == "__main__":
    main()
