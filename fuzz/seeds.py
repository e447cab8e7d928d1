"""seeds.py FOLDER: writes what the fuzzing starts with, FOLDER/<target>/*, made of the fixtures in
tests/data and of the files of tests/hostile. Nothing but Python's standard library is needed.
"""

import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONGEST = 32768  # scripts/fuzz has the same

HOLD = [
    '{"op": "status"}\n{"op": "hold", "file": "@"}\n{"op": "status"}\n',
    '{"op": "hold", "file": "@"}\n{"op": "hold", "file": "@"}\n{"op": "release", "file": "@"}\n',
    '{"op": "release", "file": "@"}\n{"op": "hold", "file": "~"}\n',
    '{"op": "hold", "file": "@/../x"}\n{"op": "hold", "file": "relative"}\n{"op": "hold"}\n',
    '{"op": ["hold"], "file": {"a": [1, 2.5e300, -1, null, true]}}\n[]\n"\\ud800"\n\n',
    '{"op": "hold", "op": "status", "file": "\\u0000"}\n{"op": "ho\\u006cd"}\n{',
]

LISTINGS = [
    '[{"name": "model.safetensors.index.json", "type": "file", "size": 9},'
    ' {"name": "config.json", "type": "file", "size": 2}, {"name": "1_Pooling", "type": "directory"}]',
    '[{"path": "", "type": "a"}, {"path": "1_Pooling", "type": "b"}, {"path": "../c", "type": "d"}]',
    "<ListBucketResult><EncodingType>url</EncodingType><Prefix>store/</Prefix>"
    "<Contents><Key>store/a%20b+c.json</Key><ETag>&quot;1&#x22;</ETag><Size>2</Size></Contents>"
    "<Contents><Key>store/model.safetensors</Key><ETag>&#34;2&quot;</ETag><Size>9</Size></Contents>"
    "<IsTruncated>true</IsTruncated><NextContinuationToken>n&amp;m</NextContinuationToken>"
    "</ListBucketResult>",
]


def hostile_files(folder):
    subprocess.run([sys.executable, ROOT / "tests/hostile/generate.py", folder], check=True,
                   stdout=subprocess.DEVNULL)
    return [path for path in sorted(pathlib.Path(folder).rglob("*"))
            if path.is_file() and not path.is_symlink() and path.suffix != ".json"
            and "damage" not in path.parts]


def records_of(path):
    """Maps short names to contents, as far as Python's zipfile can read them."""
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.file_size <= LONGEST:
                    found[info.filename.partition("/")[2]] = archive.read(info)
    except Exception:  # of any kind: these files are made to break readers
        pass
    return found


def sizes_in(folder, records):
    sizes = []
    while (content := records.get(f"{folder}/{len(sizes)}")) is not None and len(sizes) < 255:
        sizes.append(len(content))
    return struct.pack("<B", len(sizes)) + b"".join(struct.pack("<H", size) for size in sizes)


def script_input(records):
    """Makes the input of fuzz/fuzz_script.cpp."""
    text = lambda content: struct.pack("<I", len(content)) + content
    out = sizes_in("data", records) + sizes_in("constants", records)
    out += text(records["data.pkl"]) + text(records.get("constants.pkl", b"\x80\x02)."))
    for name, content in records.items():
        if name.startswith("code/") and name.endswith(".py"):
            key = name[5:-3].encode()[:255]
            out += struct.pack("<B", len(key)) + key + text(content)
    return out


def safetensors_input(path, content):
    """Makes inputs of fuzz_safetensors.cpp: the whole file, its header alone, or an index."""
    if content.lstrip()[:1] == b"{":
        yield b"\2" + content
    elif path.suffix == ".safetensors":
        yield b"\0" + content
        if len(content) > 8:
            length = struct.unpack_from("<Q", content)[0]
            header, data = content[8 : 8 + length], content[8 + length :]
            yield b"\1" + bytes(1) + header
            if data:
                yield b"\1\377" + header


def dcp_inputs(hostile):
    """Makes inputs of fuzz_dcp.cpp from folders of torch.distributed.checkpoint: data as one file."""
    metadata = [path for path in (*(ROOT / "tests/data/dcp").rglob(".metadata"), *hostile)
                if path.name == ".metadata" and path.stat().st_size <= LONGEST]
    for path in metadata:
        content = path.read_bytes()
        for file in sorted(path.parent.glob("*.distcp")):
            if file.is_file() and file.stat().st_size <= LONGEST:
                yield struct.pack("<I", len(content)) + content + file.read_bytes()


def frame(content):
    """A frame of zstd with one block that is not compressed (RFC 8878, 3.1.1)."""
    return struct.pack("<IBB", 0xFD2FB528, 0x20, len(content)) + struct.pack(
        "<I", 1 | len(content) << 3)[:3] + content


def delta_inputs():
    """Makes inputs of fuzz_delta.cpp, whose model has 64 bytes."""
    tensor = bytes(i * 7 % 256 for i in range(32))
    changed = b"0" + tensor[1:31] + b"1"
    difference = bytes(a ^ b for a, b in zip(tensor, changed))
    overwriting = struct.pack("<3I", 2, 0, 31) + b"01"
    yield b"\0\2" + frame(difference)
    yield b"\1\2" + frame(overwriting)
    yield b"\2\2" + overwriting
    for encoding, content in (("xor", difference), ("overwrite", overwriting)):
        index = json.dumps({
            "metadata": {"version": "000001", "base_version": "000000", "delta_encoding": encoding,
                         "compression_format": "zstd", "checksum_format": "adler32"},
            "weight_map": {"a": "s.safetensors"}}).encode()
        whole = frame(content)
        header = json.dumps({
            "__metadata__": {"a": f"{zlib.adler32(changed):08x}"},
            "a": {"dtype": "U8", "shape": [len(whole)], "data_offsets": [0, len(whole)]}}).encode()
        yield (b"\3" + struct.pack("<H", len(index)) + index + struct.pack("<Q", len(header))
               + header + whole)


def seeds(hostile):
    for made in delta_inputs():
        yield "delta", made
    for number in range(64):
        noise = hashlib.shake_128(bytes([number])).digest(16 + 8 * number)
        yield "offsets", noise
        yield "tensor_views", noise
    for lines in HOLD:
        yield "hold", lines.encode()
    for text in LISTINGS:
        yield "listing", text.encode()
    for made in dcp_inputs(hostile):
        yield "dcp", made
    fixtures = sorted(path for path in (ROOT / "tests/data").rglob("*") if path.is_file())
    for path in fixtures + hostile:
        if path.stat().st_size > 1 << 20:
            continue
        content = path.read_bytes()
        yield "zip", content
        yield "checkpoint", content
        if content.startswith(b"GGUF"):
            yield "gguf", content
        for made in safetensors_input(path, content):
            yield "safetensors", made
        records = records_of(path)
        if "data.pkl" in records:
            yield "pickle", records["data.pkl"]
            yield "script", script_input(records)


def main(folder):
    with tempfile.TemporaryDirectory() as temporary:
        for target, content in seeds(hostile_files(temporary)):
            if not 0 < len(content) <= LONGEST:
                continue
            place = pathlib.Path(folder, target)
            place.mkdir(parents=True, exist_ok=True)
            (place / hashlib.sha1(content).hexdigest()).write_bytes(content)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
