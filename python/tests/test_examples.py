"""Runs the programs of examples/python and examples/serving as their users do."""

import contextlib
import ctypes
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import weightmap

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
SERVER = ROOT / "examples" / "serving" / "server.py"
STATE_DICT = ROOT / "tests" / "data" / "state_dict.pt"

sys.path.insert(0, str(ROOT / "tests" / "serving"))
import serving_test  # noqa: E402  the same tests that the server in C++ passes


def run(example, *arguments):
    command = [sys.executable, EXAMPLES / example, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


class TestServer(serving_test.ServerTests):
    command = [sys.executable, SERVER]

    def setUp(self):
        pytest.importorskip("numpy", reason="server.py takes arrays")
        super().setUp()


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    pytest.importorskip("torch", reason="the model is one of torch")
    transformers = pytest.importorskip("transformers", reason="the model is one of transformers")
    folder = tmp_path_factory.mktemp("llama")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=64, num_hidden_layers=1, **sizes)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


GUNICORN = ["-m", "gunicorn", "--preload", "--workers", "1", "--no-control-socket"]
WORKERS = {
    "gunicorn": lambda port: [*GUNICORN, "--bind", f"127.0.0.1:{port}", "gunicorn_app:app"],
    "uvicorn": lambda port: ["uvicorn_workers.py", "1", port],
    "forkserver": lambda port: ["forkserver.py", "1", port],
}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def ask(port, ids):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/?ids={ids}", timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize("name", WORKERS)
def test_one_more_worker_answers_and_the_end_leaves_none(name, llama):
    if name != "forkserver":
        pytest.importorskip(name, reason=f"the example is about {name}, which is not installed")
    port = free_port()
    served = subprocess.Popen(
        [sys.executable, *map(str, WORKERS[name](port))], cwd=SERVER.parent, text=True,
        env={**os.environ, "MODEL": str(llama)}, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        serving_test.wait_until(lambda: served.poll() is not None or is_open(port), "it listened")
        first = ask(port, "1,2,3")
        os.kill(first["pid"], signal.SIGSTOP)  # so that only another one can answer
        served.send_signal(signal.SIGTTIN)
        second = ask(port, "1,2,3")
        assert second["pid"] != first["pid"]
        assert second["token"] == first["token"]
        assert bytes_read_by(second["pid"]) < 1 << 20, "imports read more than that"
        os.kill(first["pid"], signal.SIGCONT)
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask(port, "64")
        served.terminate()
        errors = served.communicate(timeout=serving_test.SECONDS_OF_PATIENCE)[1]
        assert served.returncode == 0, errors
        for worker in (first, second):
            serving_test.wait_until(lambda: serving_test.is_gone(worker["pid"]), "it had ended")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(served.pid, signal.SIGKILL)
        served.communicate()


def test_a_server_that_may_be_restored_is_a_plain_one_without_a_snapshot(llama):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "snapshot_server.py"], cwd=SERVER.parent, text=True,
        env={**os.environ, "MODEL": str(llama), "PORT": str(port)}, stderr=subprocess.PIPE,
    ) as served:  # fmt: skip
        try:
            serving_test.wait_until(lambda: served.poll() or is_open(port), "it listened")
            assert ask(port, "1,2,3")["pid"] == served.pid
            with pytest.raises(urllib.error.HTTPError, match="400"):
                ask(port, "64")
        finally:
            served.terminate()
        assert served.wait(serving_test.SECONDS_OF_PATIENCE) == 0, served.stderr.read()


def bytes_read_by(pid):
    """Since it was forked, by calls of the system; not what it has mapped."""
    return int(re.search(r"rchar: (\d+)", Path(f"/proc/{pid}/io").read_text())[1])


def is_open(port):
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_quickstart_lists_and_shows():
    pytest.importorskip("numpy", reason="quickstart.py takes an array")
    done = run("quickstart.py", STATE_DICT, "embedding.weight")
    assert done.stderr == ""
    assert done.stdout == (
        "embedding.weight float32 [6, 4]\n"
        "layers.0.weight bfloat16 [4, 4]\n"
        "layers.0.bias float16 [4]\n"
        "layers.1.weight float64 [4, 4]\n"
        "layers.1.mask bool [2, 2]\n"
        "steps int64 []\n"
        "position_ids int32 [1, 6]\n"
        "the first rows of embedding.weight, writable: False\n"
        "[[0. 1. 2. 3.]\n"
        " [4. 5. 6. 7.]]\n"
    )
    assert done.returncode == 0


def test_torch_state_gives_a_model_its_weights():
    pytest.importorskip("torch", reason="torch_state.py is about a torch model")
    done = run("torch_state.py")
    assert done.stderr == ""
    assert done.stdout == (
        "without memory at first: True\n"
        "loaded: 0.weight, 1.weight, 1.bias, 3.weight, 3.bias\n"
        "the model's weights are the mapped tensors: True\n"
        "the same answers: True\n"
    )
    assert done.returncode == 0


def test_a_server_changes_to_the_next_version_of_its_model(llama, tmp_path):
    for version in ("v1", "v2"):
        shutil.copytree(llama, tmp_path / version)
    link = tmp_path / "now"
    weightmap.publish(tmp_path / "v1", link)
    port = free_port()
    served = subprocess.Popen(
        [sys.executable, SERVER.parent / "following.py"], text=True, stdout=subprocess.PIPE,
        env={**os.environ, "MODEL": str(link), "PORT": str(port)},
    )  # fmt: skip
    try:
        assert served.stdout.readline() == f"http://127.0.0.1:{port}\n"
        first = ask(port, "1,2,3")
        assert first["version"] == "v1"
        weightmap.publish(tmp_path / "v2", link)
        while (answer := ask(port, "1,2,3"))["version"] != "v2":
            assert answer["token"] == first["token"]
        assert answer["token"] == first["token"]
    finally:
        served.terminate()
        served.communicate()


def test_servers_follow_a_trainer_and_say_by_which_version_they_answer(llama, tmp_path):
    shutil.copytree(llama, tmp_path / "model")
    ports = [free_port() for _ in range(2)]
    (tmp_path / "deltas").mkdir()
    servers = [subprocess.Popen(
        [sys.executable, SERVER.parent / "following.py"], text=True, stdout=subprocess.PIPE,
        env={**os.environ, "MODEL": str(tmp_path / "model"), "PORT": str(port),
             "DELTAS": str(tmp_path / "deltas"), "PLACE": str(tmp_path / "place")},
    ) for port in ports]  # fmt: skip
    try:
        for server, port in zip(servers, ports):
            assert server.stdout.readline() == f"http://127.0.0.1:{port}\n"
        before = [ask(port, "1,2,3") for port in ports]
        assert {answer["version"] for answer in before} == {"model"}
        trainer = [sys.executable, SERVER.parent / "trainer.py", tmp_path / "model",
                   tmp_path / "deltas", "3"]
        trained = subprocess.run(trainer, check=True, text=True, stdout=subprocess.PIPE)
        assert len(trained.stdout.splitlines()) == 3
        tokens = {"model": before[0]["token"]}
        for port in ports:
            while (answer := ask(port, "1,2,3"))["version"] != "model@000003":
                assert tokens.setdefault(answer["version"], answer["token"]) == answer["token"]
            assert tokens.setdefault(answer["version"], answer["token"]) == answer["token"]
        assert len(list((tmp_path / "place").glob("model.followed-*/*/*"))) <= 2
    finally:
        for server in servers:
            server.terminate()
            server.communicate()


def test_a_server_follows_an_adapter_without_a_restart(llama, tmp_path, torch):
    peft = pytest.importorskip("peft", reason="adapters are its")
    transformers = pytest.importorskip("transformers", reason="peft adapts its models")

    def trained(seed, folder):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_pretrained(llama)
        adapted = peft.get_peft_model(
            model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=2.0)
        adapted.save_pretrained(folder)
        with torch.inference_mode():
            return int(adapted(torch.tensor([[1, 2, 3]])).logits[0, -1].argmax())

    expected = [trained(seed, tmp_path / f"adapter-{seed}") for seed in range(2)]
    port = free_port()
    (tmp_path / "deltas").mkdir()
    served = subprocess.Popen(
        [sys.executable, SERVER.parent / "following.py"], text=True, stdout=subprocess.PIPE,
        env={**os.environ, "MODEL": str(llama), "PORT": str(port), "PLACE": str(tmp_path / "place"),
             "ADAPTER": str(tmp_path / "adapter-0"), "ADAPTER_DELTAS": str(tmp_path / "deltas")},
    )  # fmt: skip
    try:
        assert served.stdout.readline() == f"http://127.0.0.1:{port}\n"
        before = ask(port, "1,2,3")
        assert (before["adapter"], before["token"]) == ("adapter-0", expected[0])
        weightmap.write_delta(tmp_path / "adapter-0", tmp_path / "adapter-1",
                              tmp_path / "deltas" / "weight_v000001")
        while (after := ask(port, "1,2,3"))["adapter"] == "adapter-0":
            assert after["token"] == expected[0]
        assert (after["adapter"], after["token"]) == ("adapter-0@000001", expected[1])
        assert after["pid"] == before["pid"]
    finally:
        served.terminate()
        served.communicate()


# What rolling.py starts in the place of an engine: it answers with the name of its version, and to
# /slow only once the file `end` is there; to a POST, with the length of its body. A version may be
# broken, or never be ready, or have a process that ends after it, as multiprocessing starts one.
ENGINE = """
import http.server, os, signal, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, text):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"1\\r\\n[\\r\\n")
        while self.path == "/slow" and not os.path.exists(sys.argv[3]):
            time.sleep(0.01)
        self.wfile.write(b"%x\\r\\n%s\\r\\n0\\r\\n\\r\\n" % (len(text), text.encode()))
    def do_GET(self):
        self.answer(os.path.basename(sys.argv[1]))
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(str(len(body)))
    def log_message(self, *words):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
if os.path.exists(os.path.join(sys.argv[1], "broken")):
    sys.exit("cannot load it")
while os.path.exists(os.path.join(sys.argv[1], "never")):
    time.sleep(0.01)
engine = os.getpid()
if os.path.exists(os.path.join(sys.argv[1], "helped")) and os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while os.getppid() == engine:
        time.sleep(0.01)
    os._exit(0)
Server(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


def adopt_orphans():
    """As the first process of a container does."""
    assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER


@pytest.fixture
def rolling(tmp_path, request):
    """rolling.py before such engines of the versions v1 to v4, with what a test has for its
    environment."""
    for version in ("v1", "v2", "v3", "v4"):
        (tmp_path / version).mkdir()
        shutil.copy(STATE_DICT, tmp_path / version / "pytorch_model.bin")
    link = tmp_path / "now"
    weightmap.publish(tmp_path / "v1", link, any_format=True)
    (tmp_path / "python").symlink_to(sys.executable)
    command = [tmp_path / "python", "-c", ENGINE, "{model}", "{port}", tmp_path / "end"]
    front = subprocess.Popen(
        [sys.executable, SERVER.parent / "rolling.py", *command], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=adopt_orphans,
        env={**os.environ, "MODEL": str(link), "PORT": "0", **getattr(request, "param", {})},
    )  # fmt: skip
    front.url = front.stdout.readline().strip()
    yield front
    front.terminate()
    front.communicate()


def engines_below(folder):
    """The processes of engines of versions in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[2:3] == [ENGINE.encode()] and words[3].startswith(os.fsencode(folder)):
                found.append(int(process.name))
    return found


def version_by(url, path="/"):
    with urllib.request.urlopen(url + path) as answer:
        return answer.read().decode().lstrip("[")


def test_an_engine_is_changed_under_load_for_one_of_the_next_version(rolling, tmp_path):
    seen, failed, done = set(), [], threading.Event()

    def ask_on():
        while not done.is_set():
            try:
                seen.add(version_by(rolling.url))
            except OSError as error:
                failed.append(error)

    clients = [threading.Thread(target=ask_on) for _ in range(3)]
    for client in clients:
        client.start()
    with urllib.request.urlopen(rolling.url + "/slow") as slow:
        assert slow.read(1) == b"["
        for version in ("v3", "v4"):
            weightmap.publish(tmp_path / version, tmp_path / "now", any_format=True)
            assert f"{version}: answers from now on" in rolling.stderr.readline()
            assert version_by(rolling.url) == version
            with urllib.request.urlopen(rolling.url, data=bytes(200_000)) as answer:
                assert answer.read() == b"[200000"
            if version == "v3":  # the old one ends with its last answer
                assert len(engines_below(tmp_path)) == 2
                (tmp_path / "end").touch()
                assert slow.read() == b"v1"
    while len(engines_below(tmp_path)) != 1:
        time.sleep(0.01)
    done.set()
    for client in clients:
        client.join()
    assert not failed and seen == {"v1", "v3", "v4"}


def test_an_engine_that_does_not_start_changes_nothing(rolling, tmp_path):
    (tmp_path / "v2" / "broken").touch()
    weightmap.publish(tmp_path / "v2", tmp_path / "now", any_format=True)
    assert rolling.stderr.readline() == "cannot load it\n"
    assert f"before it was ready; {tmp_path}/v1 goes on" in rolling.stderr.readline()
    assert version_by(rolling.url) == "v1"
    (tmp_path / "python").rename(tmp_path / "gone")
    weightmap.publish(tmp_path / "v3", tmp_path / "now", any_format=True)
    assert f"No such file or directory: '{tmp_path}/python'" in rolling.stderr.readline()
    assert version_by(rolling.url) == "v1"
    (tmp_path / "gone").rename(tmp_path / "python")
    weightmap.publish(tmp_path / "v4", tmp_path / "now", any_format=True)
    assert "v4: answers from now on" in rolling.stderr.readline()
    assert version_by(rolling.url) == "v4"


def test_a_newer_version_goes_before_one_that_is_not_ready(rolling, tmp_path):
    (tmp_path / "v2" / "never").touch()
    weightmap.publish(tmp_path / "v2", tmp_path / "now", any_format=True)
    while len(engines_below(tmp_path)) != 2:
        time.sleep(0.01)
    weightmap.publish(tmp_path / "v3", tmp_path / "now", any_format=True)
    assert "v3: answers from now on" in rolling.stderr.readline()
    assert len(engines_below(tmp_path)) <= 2
    assert version_by(rolling.url) == "v3"


@pytest.mark.parametrize("rolling", [{"LONGEST_ANSWER": "0"}], indirect=True)
def test_an_old_engine_ends_in_time(rolling, tmp_path):
    with urllib.request.urlopen(rolling.url + "/slow") as slow:
        weightmap.publish(tmp_path / "v2", tmp_path / "now", any_format=True)
        with pytest.raises(http.client.IncompleteRead):
            slow.read()
    assert version_by(rolling.url) == "v2"


def test_processes_that_an_engine_leaves_are_reaped(rolling, tmp_path):
    children = Path(f"/proc/{rolling.pid}/task/{rolling.pid}/children")
    (tmp_path / "v2" / "helped").touch()
    for version in ("v2", "v3"):
        weightmap.publish(tmp_path / version, tmp_path / "now", any_format=True)
        assert f"{version}: answers from now on" in rolling.stderr.readline()
    while len(children.read_text().split()) != 1:
        time.sleep(0.01)
    assert version_by(rolling.url) == "v3"


def test_no_connection_gets_the_port_of_an_engine_by_itself(rolling, tmp_path):
    [engine] = engines_below(tmp_path)
    port = Path(f"/proc/{engine}/cmdline").read_bytes().split(b"\0")[4]
    assert int(port) < 32768


def test_the_front_ends_with_its_engine(rolling, tmp_path):
    [engine] = engines_below(tmp_path)
    os.kill(engine, signal.SIGKILL)
    assert rolling.wait() == 1
    assert rolling.stderr.read().endswith(f"the engine of {tmp_path}/v1 has ended\n")


def test_engines_end_with_the_front(rolling, tmp_path):
    assert engines_below(tmp_path)
    rolling.terminate()
    assert rolling.wait() == 0 and engines_below(tmp_path) == []
