"""What it costs to compare a remote file with its SHA-256 while it arrives: processor time.

    measure_summing.py --tool WEIGHTMAP [--mib 512] [--rate 400] [--rounds 7] [--folder FOLDER]

A server on the loopback sends a file at so many MB a second in all, so that both ways take as long.
`stage` and `fetch` run with `--sha256` and without, in turn. Printed as JSON: the median user and
system seconds of each, and the ratio of the sums of both, with to without.
"""

import argparse
import hashlib
import http.server
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time

STEP = 256 << 10  # bytes between two looks at the rate


class Server(http.server.ThreadingHTTPServer):
    """Of one content."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, content, rate):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.rate = memoryview(content), rate
        self.lock, self.free_at = threading.Lock(), 0.0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def wait_for(self, length):
        """Until so many bytes more may be sent."""
        with self.lock:
            self.free_at = max(self.free_at, time.monotonic()) + length / self.rate
            pause = self.free_at - time.monotonic()
        time.sleep(max(0, pause))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        content = self.server.content
        first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"]).groups()
        if not first:
            first, last = max(0, len(content) - int(last)), ""
        first, last = int(first), min(int(last or len(content)), len(content) - 1)
        self.send_response(206)
        for name, text in (("ETag", '"1"'), ("Content-Length", str(last + 1 - first)),
                           ("Content-Range", f"bytes {first}-{last}/{len(content)}")):
            self.send_header(name, text)
        self.end_headers()
        for at in range(first, last + 1, STEP):
            part = content[at:min(at + STEP, last + 1)]
            self.server.wait_for(len(part))
            self.wfile.write(part)

    def log_message(self, *_arguments):
        pass


def tensors(size):
    """A safetensors file of bytes, of which nothing is summed unless it is asked for."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(range(256)) * (size // 256)


def seconds(command):
    """User and system seconds of the command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{command} ended with status {status}")
    return used.ru_utime, used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rate", type=float, default=400, help="MB a second")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    content = tensors(options.mib << 20)
    server = Server(content, options.rate * 1e6)
    url = f"http://127.0.0.1:{server.server_address[1]}/model.safetensors"
    summed = ["--sha256", hashlib.sha256(content).hexdigest()]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        target = os.path.join(folder, "model.safetensors")
        ways = {"stage": ([], ["--", "true"]), "fetch": ([target, "--force"], [])}
        runs = {name: {False: [], True: []} for name in ways}
        for name, (before, after) in ways.items():
            # What ran before decides which memory is free: here always the same command.
            seconds([options.tool, name, url, *before, *after])
            for _ in range(options.rounds):
                for is_summed, taken in runs[name].items():
                    asked = summed if is_summed else []
                    taken.append(seconds([options.tool, name, url, *before, *asked, *after]))
    report = {"mib": options.mib, "mb_a_second": options.rate, "rounds": options.rounds,
              "load_at_the_end": os.getloadavg()[0]}
    for name, taken in runs.items():
        plain, summed = ([statistics.median(part) for part in zip(*times)] for times in taken.values())
        cost = [statistics.median(map(sum, times)) for times in taken.values()]
        report[name] = {"user_system_seconds": plain, "with_sha256": summed,
                        "ratio": cost[1] / cost[0]}
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
