"""Compares fetching a remote file into memory: weightmap, libcurl alone, and Python's clients.

    compare_remote.py --build build/release --file model.safetensors [--rounds 7]
                      [--latency MS] [--errors N] [--rate BYTES] [--loss PERCENT]
                      [--only NAME ...] [--json]

Serves FILE, which should lie on a tmpfs, by nginx on the loopback. Of the index of a set all files of
its folder are fetched, to a tmpfs, by weightmap, without and with their SHA-256s, and by libcurl. --latency delays the first byte
of every answer, and --errors answers every N-th request of clients that retry with 503 (both need
nginx's Lua module). --rate limits the server's bytes a second, and --loss drops that part of its
packets, in a network namespace of its own (needs root, and nftables for --loss). Every round runs
each contender once, in a fresh process. Clients that are not installed are left out, and named.
nginx counts the requests, and the bytes that were sent more than once.
"""
import argparse
import collections
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from samples import HERE, interleave, machine, ratio_text, table

# What throws the bodies away: alone, and beside a thread that touches memory for the file.
FLOORS = ("libcurl", "libcurl-prefault")
MODULES = "/usr/lib/nginx/modules"
LUA = [f"{MODULES}/{name}_module.so" for name in ("ndk_http", "ngx_http_lua")]
CONFIGURATION = """{modules}
pid {folder}/pid;
error_log {folder}/error.log;
{user}
worker_processes 2;
events {{ worker_connections 2048; }}
http {{
  log_format seen '$uri $body_bytes_sent';
  access_log {folder}/seen.log seen;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {counters}
  sendfile on; tcp_nopush on; keepalive_requests 1000000;
  server {{
    listen {address}:{port};
    location ~ "^/[^/]+/(.+)$" {{ {lua} alias {folder_of_files}/$1; }}
  }}
}}
"""


def lua(latency, errors):
    """What nginx does before it answers. libcurl alone retries nothing, so it gets no errors."""
    steps = []
    if errors:
        steps.append("if not ngx.var.uri:find('^/libcurl') and ngx.shared.asked:incr(ngx.var.uri, "
                     f"1, 0) % {errors} == 0 then return ngx.exit(503) end")
    if latency:
        steps.append(f"ngx.sleep({latency / 1000})")
    return f"rewrite_by_lua_block {{ {' '.join(steps)} }}" if steps else ""


class BadNetwork:
    """A network namespace for the clients, reached through a pair of interfaces: the server's has a
    limited rate, and packets are lost on their way to the clients."""
    NAME, OURS, THEIRS = "weightmap-bench", "10.213.77.1", "10.213.77.2"

    def __init__(self, rate, loss):
        self._rate, self._loss = rate, loss
        self.enter = ["ip", "netns", "exec", self.NAME]

    def __enter__(self):
        inside = ["-n", self.NAME]
        for words in (["ip", "netns", "add", self.NAME],
                      ["ip", "link", "add", "wm-bench0", "type", "veth", "peer", "name",
                       "wm-bench1", "netns", self.NAME],
                      ["ip", "addr", "add", f"{self.OURS}/30", "dev", "wm-bench0"],
                      ["ip", "link", "set", "wm-bench0", "up"],
                      ["ip", *inside, "addr", "add", f"{self.THEIRS}/30", "dev", "wm-bench1"],
                      ["ip", *inside, "link", "set", "wm-bench1", "up"],
                      ["ip", *inside, "link", "set", "lo", "up"],
                      *self._limit(), *self._drop()):
            try:
                subprocess.run(words, check=True)
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", self.NAME], check=False)

    def _limit(self):
        if not self._rate:
            return []
        burst = max(1 << 20, int(self._rate / 100))
        return [["tc", "qdisc", "add", "dev", "wm-bench0", "root", "tbf", "rate",
                 f"{int(8 * self._rate)}bit", "burst", str(burst), "latency", "50ms"]]

    def _drop(self):
        if not self._loss:
            return []
        # One packet of the network at a time: else many of them would be lost as one.
        return [["ip", "link", "set", "wm-bench0", "gso_max_segs", "1"],
                [*self.enter, "nft", "add table ip lossy; add chain ip lossy arriving "
                 "{ type filter hook input priority 0; }; add rule ip lossy arriving "
                 f"numgen random mod 100000 < {round(1000 * self._loss)} drop"]]


def free_port(address):
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def served(file, address, latency=0, errors=0):
    """Yields the base of URLs, and the log of what was asked for."""
    with tempfile.TemporaryDirectory(prefix="weightmap-") as folder:
        port = free_port(address)
        os.chmod(folder, 0o755)
        configuration = os.path.join(folder, "nginx.conf")
        with open(configuration, "w", encoding="utf-8") as out:
            out.write(CONFIGURATION.format(
                folder=folder, address=address, port=port, folder_of_files=os.path.dirname(file),
                user="user root;" if os.geteuid() == 0 else "",
                modules="".join(f"load_module {module};\n" for module in LUA if latency or errors),
                counters="lua_shared_dict asked 64k;" if errors else "",
                lua=lua(latency, errors)))
        server = subprocess.Popen(["nginx", "-c", configuration, "-g", "daemon off;"])
        try:
            wait_for(server, address, port)
            yield f"http://{address}:{port}", os.path.join(folder, "seen.log")
        finally:
            server.terminate()
            server.wait()


def wait_for(server, address, port):
    while server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((address, port)):
            return
        time.sleep(0.05)
    raise SystemExit("nginx did not start")


def files_of(file):
    """The file, or all of the folder of an index, which comes first."""
    if not file.endswith(".index.json"):
        return [file]
    beside = (entry.path for entry in os.scandir(os.path.dirname(file)) if entry.is_file())
    return [file, *sorted(path for path in beside if path != file)]


def total_size(file):
    return sum(map(os.path.getsize, files_of(file)))


class Contenders:
    """Their commands, by name. A contender's name is the first folder of its URLs."""

    def __init__(self, arguments, base, sums=None):
        self._arguments, self._base = arguments, base
        self._size = total_size(arguments.file)
        files = files_of(arguments.file)
        tool = os.path.join(arguments.build, "tools", "weightmap")
        floor = [os.path.join(arguments.build, "bench", "curl_floor"),
                 *("{folder}/" + os.path.basename(file) for file in files),
                 "--size", *(str(os.path.getsize(file)) for file in files)]
        fetch = [tool, "fetch", "{url}"]
        of_a_set = {"weightmap": ("fetch", fetch), "weightmap-sha256": ("fetch", [*fetch, "--sums", sums])}
        self._all = {
            "weightmap": ("program", [tool, "stage", "{url}", "--", "true"]),
            "libcurl": ("program", floor),
            "libcurl-prefault": ("program", [*floor, "--prefault"]),
            "libcurl-kept": ("program", [*floor, "--keep"]),
            **(of_a_set if len(files) > 1 else
               {client: (client, []) for client in ("obstore", "fsspec", "s3fs", "runai")})}

    def commands(self, enter):
        return {name: [*enter, *self._command(name)] for name in self._all if self._is_there(name)}

    def _command(self, name):
        client, words = self._all[name]
        folder = f"{self._base}/{name}"
        url = f"{folder}/{os.path.basename(self._arguments.file)}"
        return [sys.executable, os.path.join(HERE, "remote_once.py"), client, url, str(self._size),
                *(word.format(url=url, folder=folder) for word in words)]

    def _is_there(self, name):
        client, words = self._all[name]
        if self._arguments.only and name not in self._arguments.only:
            return False
        why = None
        if client in ("program", "fetch"):
            why = None if os.access(words[0], os.X_OK) else f"{words[0]} is not built"
        elif client == "runai" and not self._arguments.file.endswith(".safetensors"):
            why = "it reads safetensors only"
        elif client == "fsspec" and self._arguments.errors:
            why = "it retries nothing"
        else:
            needed = {"runai": ("runai_model_streamer", "runai_model_streamer_s3",
                                "boto3"),
                      "fsspec": ("fsspec", "aiohttp")}.get(client, (client,))
            why = next((f"{module} is not installed" for module in needed
                        if importlib.util.find_spec(module) is None), None)
        if why:
            print(f"{name} is left out: {why}", file=sys.stderr)
        return why is None


def asked(log):
    """Requests and bytes of bodies, by contender."""
    counts = collections.defaultdict(lambda: [0, 0])
    with open(log, encoding="utf-8") as lines:
        for line in lines:
            uri, sent = line.rsplit(maxsplit=1)
            count = counts[uri.split("/")[1]]
            count[0] += 1
            count[1] += int(sent)
    return counts


def summary(samples, counts, size, rounds):
    rows = []
    for name, taken in samples.items():
        requests, sent = (count / rounds for count in counts[name])
        rows.append({
            "name": name, "wall_us": taken.median("wall_us"), "cpu_us": taken.median("cpu_us"),
            "mib_per_second": size / 2**20 / (taken.median("wall_us") / 1e6),
            "cpu_seconds_per_gib": taken.median("cpu_us") / 1e6 / (size / 2**30),
            "ratios": {floor: {field: taken.ratio_to(floor, field) for field in ("wall_us", "cpu_us")}
                       for floor in FLOORS if floor != name and floor in samples},
            "requests": requests, "bytes_twice": max(0, sent - size)})
    return rows


def as_table(rows):
    def ratios(row, field):
        return [ratio_text(row["ratios"].get(floor, {}).get(field)) for floor in FLOORS]

    cells = [[row["name"], f"{row['mib_per_second']:,.0f}", *ratios(row, "wall_us"),
              f"{row['cpu_seconds_per_gib']:.2f}", *ratios(row, "cpu_us"),
              f"{row['requests']:,.0f}", f"{row['bytes_twice']:,.0f}"] for row in rows]
    return table(["", "MiB/s", *(f"time, to {floor}" for floor in FLOORS), "CPU-s/GiB",
                  *(f"CPU, to {floor}" for floor in FLOORS), "requests", "bytes asked twice"], cells)


def measure(arguments, network):
    enter = network.enter if network else []
    address = network.OURS if network else "127.0.0.1"
    files = files_of(arguments.file)
    with (served(arguments.file, address, arguments.latency, arguments.errors) as (base, log),
          tempfile.NamedTemporaryFile("w") as sums):
        if len(files) > 1:
            subprocess.run(["sha256sum", *map(os.path.basename, files)], check=True, stdout=sums,
                           cwd=os.path.dirname(arguments.file))
        commands = Contenders(arguments, base, sums.name).commands(enter)
        samples = interleave(arguments.build, commands, arguments.rounds)
        return summary(samples, asked(log), total_size(arguments.file), arguments.rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--file", required=True, type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--latency", type=float, default=0, metavar="MS")
    parser.add_argument("--errors", type=int, default=0, metavar="N")
    parser.add_argument("--rate", type=float, metavar="BYTES")
    parser.add_argument("--loss", type=float, metavar="PERCENT")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not shutil.which("nginx"):
        raise SystemExit("nginx is not installed")
    if (arguments.latency or arguments.errors) and not all(map(os.path.exists, LUA)):
        raise SystemExit("--latency and --errors need nginx's Lua module: libnginx-mod-http-lua")
    is_bad = arguments.rate or arguments.loss
    if is_bad and (os.geteuid() != 0 or not shutil.which("tc")):
        raise SystemExit("--rate and --loss need root, ip and tc (iproute2)")
    if arguments.loss and not shutil.which("nft"):
        raise SystemExit("--loss needs nftables")
    with (BadNetwork(arguments.rate, arguments.loss) if is_bad
          else contextlib.nullcontext()) as network:
        rows = measure(arguments, network)
    if arguments.json:
        print(json.dumps({"latency_ms": arguments.latency, "errors": arguments.errors,
                          "rate": arguments.rate, "loss_percent": arguments.loss,
                          "rounds": arguments.rounds, "contenders": rows}))
    else:
        limits = (f", {arguments.latency:g} ms to the first byte" if arguments.latency else "") + (
            f", 503 for one of {arguments.errors} requests" if arguments.errors else "") + (
            f", at most {arguments.rate / 1e6:,.0f} MB/s" if arguments.rate else "") + (
            f", {arguments.loss:g} % of the packets lost" if arguments.loss else "")
        print(f"{machine()}{limits}. {arguments.rounds} rounds.", "", *as_table(rows), sep="\n")


if __name__ == "__main__":
    main()
