"""A model of several files is replaced under load: what fails, how long, and what memory it takes.

    measure_replacing.py --tool WEIGHTMAP [--workers 4] [--rate 200] [--rounds 7] [--folder FOLDER]

The workers are processes of examples/serving/following.py on one port, over a link that `weightmap
publish` leads from one version of a small model of transformers to the other. Meanwhile requests
come at the rate. Printed as JSON: requests that failed or were answered by no version, the seconds
from the change of the link until the last worker answers with the new version, the largest memory
that all workers had of both versions at a time (PSS of the files) over the size of both, and the
seconds until no process has the old one mapped.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
SERVER = ROOT / "examples" / "serving" / "following.py"
# Large files, and little to compute.
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}


def make_models(folder):
    import torch
    import transformers

    for version in ("v1", "v2"):
        torch.manual_seed(len(version))
        config = transformers.LlamaConfig(vocab_size=1 << 17, num_hidden_layers=1, **SIZES)
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
        model.save_pretrained(folder / version, max_shard_size="8MB")


class Load(threading.Thread):
    """Requests at a rate, each by a thread of a pool and on a connection of its own."""

    def __init__(self, port, rate):
        super().__init__(daemon=True)
        self.url = f"http://127.0.0.1:{port}/?ids=1,2,3"
        self.pause = 1 / rate
        self.answers, self.failed, self.ends = [], [], threading.Event()
        self.under_way = []

    def run(self):
        begin, asked = time.monotonic(), 0
        while not self.ends.is_set():
            time.sleep(max(0, begin + asked * self.pause - time.monotonic()))
            self.under_way = [each for each in self.under_way if each.is_alive()]
            self.under_way.append(threading.Thread(target=self.ask))
            self.under_way[-1].start()
            asked += 1
        for each in self.under_way:
            each.join()

    def rate(self):
        times = sorted(at for at, _, _ in self.answers)
        return (len(times) - 1) / (times[-1] - times[0])

    def ask(self):
        try:
            with urllib.request.urlopen(self.url, timeout=60) as answer:
                said = json.load(answer)
            self.answers.append((time.monotonic(), said["pid"], said["version"]))
        except Exception as error:
            self.failed.append(repr(error))


class Replacing:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.link = folder / "now"

    def publish(self, version):
        subprocess.run([self.arguments.tool, "publish", self.folder / version, self.link],
                       check=True, capture_output=True)

    def pss(self):
        """Of all versions, and whether an old one is mapped."""
        done = subprocess.run([self.arguments.tool, "ps", "--json", self.link], check=True,
                              capture_output=True, text=True)
        rows = json.loads(done.stdout)["processes"]
        return (sum(row["pss_bytes"] for row in rows),
                any(row["version"] != "current" for row in rows))

    def start(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        environment = {**os.environ, "MODEL": str(self.link), "PORT": str(self.port),
                       "OMP_NUM_THREADS": "1"}
        self.workers = [subprocess.Popen([sys.executable, SERVER], env=environment, text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                        for _ in range(self.arguments.workers)]
        for worker in self.workers:
            worker.stdout.readline()

    def stop(self):
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait()

    def replace(self, load, version):
        both = 2 * sum(path.stat().st_size for path in self.link.glob("*.safetensors"))
        begin, most, gone = time.monotonic(), 0, None
        self.publish(version)
        pids = {worker.pid for worker in self.workers}
        while gone is None:
            now, has_old = self.pss()
            most = max(most, now)
            new = {pid for at, pid, told in list(load.answers) if at > begin and told == version}
            if new == pids and not has_old:
                gone = time.monotonic()
        first_new = {pid: next(at for at, each, told in load.answers
                               if at > begin and each == pid and told == version) for pid in pids}
        return {"seconds_to_new": max(first_new.values()) - begin, "seconds_to_gone": gone - begin,
                "memory": most / both}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = pathlib.Path(name).resolve()
        make_models(folder)
        replacing = Replacing(arguments, folder)
        replacing.publish("v1")
        replacing.start()
        load = Load(replacing.port, arguments.rate)
        load.start()
        try:
            time.sleep(2)
            rounds = [replacing.replace(load, ("v2", "v1")[number % 2])
                      for number in range(arguments.rounds)]
        finally:
            load.ends.set()
            load.join()
            replacing.stop()
    print(json.dumps({
        "answered": len(load.answers), "a_second": round(load.rate(), 1), "failed": len(load.failed), "failures": load.failed[:3],
        **{key: [round(form([each[key] for each in rounds]), 2)
                 for form in (statistics.median, min, max)] for key in rounds[0]}}))


if __name__ == "__main__":
    main()
