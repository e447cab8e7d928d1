"""What the tests of the tool with remote files share: a server, a checkpoint on it, the tool."""

import hashlib
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))

from range_server import RangeServer  # noqa: E402
from tool_case import ENVIRONMENT, FolderCase  # noqa: E402

FOLDER, TOOL, MAKER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
MIB = 1 << 20
# Nothing that libcurl or the signatures of S3 ask for.
CLEAN = {key: text for key, text in ENVIRONMENT.items()
         if not key.startswith(("AWS_", "SSL_CERT_", "CURL_"))
         and not key.lower().endswith("_proxy")}
SMALL = ("--connections", "1", "--chunk", "2MiB")


def run(*arguments, environment=None, code=None, **options):
    """Runs the tool; with `code` it must end so."""
    options = {"env": CLEAN | (environment or {}), "capture_output": True, "text": True, **options}
    done = subprocess.run([TOOL, *map(str, arguments)], check=False, **options)
    if code is not None:
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def document(*arguments, code=0, **options):
    return json.loads(run(*arguments, "--json", code=code, **options).stdout)


def make(path, count=6, shape="512x1024"):
    """`count` tensors, of 2 MiB each unless told otherwise."""
    subprocess.run([MAKER, path, "--count", str(count), "--shape", shape, "--dtype", "float32"],
                   check=True)


def skip(reason):
    print(f"SKIPPED: {reason}", file=sys.stderr)
    raise unittest.SkipTest(reason)


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class RemoteCase(FolderCase):
    place = FOLDER

    def setUp(self):
        super().setUp()
        self.store = self.folder / "store"
        self.store.mkdir()
        self.file = self.store / "model.pt"
        self.server = self.serve()
        self.target = self.folder / "here.pt"
        self.shared = set(pathlib.Path("/dev/shm").iterdir())
        self.addCleanup(self.nothing_is_left_in_shared_memory)

    def nothing_is_left_in_shared_memory(self):
        mine = {path for path in set(pathlib.Path("/dev/shm").iterdir()) - self.shared
                if f"-{self.name_mark()}" in path.name}
        self.assertEqual(mine, set())

    def name_mark(self):
        """In the names that this test gives to what it stages."""
        return self.folder.name

    def serve(self, folder=None, **options):
        server = RangeServer(folder or self.store, **options)
        self.addCleanup(server.close)
        return server

    def make_set(self, shard_bytes):
        """Of the tensors of the file, beside it."""
        run("convert", self.file, self.store, "--to", "safetensors",
            "--max-shard-size", shard_bytes, code=0)

    def certificate(self):
        """One for 127.0.0.1 that nothing vouches for, and its key."""
        if shutil.which("openssl") is None:
            skip("no openssl to make a certificate")
        certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", key, "-out", certificate], check=True, capture_output=True)
        return certificate, key

    def start(self, *arguments, **options):
        options = {"env": CLEAN, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                   **options}
        process = subprocess.Popen([TOOL, *map(str, arguments)], **options)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def fetch(self, *arguments, code=0, **options):
        """To the target, with requests one by one."""
        return run("fetch", self.server.url("model.pt"), self.target, *SMALL, *arguments,
                   code=code, **options)

    def is_fetched(self):
        self.assertEqual(digest(self.target), digest(self.file))

    def is_not_fetched(self):
        self.assertFalse(self.target.exists())

    def end(self, process, how=signal.SIGKILL):
        process.send_signal(how)
        return process.wait()


class ModelCase(RemoteCase):
    """With a checkpoint of six tensors on the server."""

    def setUp(self):
        super().setUp()
        make(self.file)
        self.url = self.server.url("model.pt")


class KeeperCase:
    """With a daemon of `weightmap hold`, `self.daemon`, that is asked at `self.socket`."""

    def meet(self):
        # A socket's path is short, so not below the build folder.
        folder = tempfile.TemporaryDirectory(prefix="weightmap-")
        self.addCleanup(folder.cleanup)
        self.socket = pathlib.Path(folder.name) / "hold.sock"
        self.environment = {**CLEAN, "WEIGHTMAP_RUNTIME_DIR": folder.name}

    def status(self):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.socket))
            client.sendall(b'{"op":"status"}\n')
            with client.makefile() as answer:
                return json.loads(answer.readline())

    def held_when(self, condition):
        """The first description of the only file of which it is true."""
        while True:
            files = self.files()
            if len(files) == 1 and condition(files[0]):
                return files[0]

    def files(self):
        """What the daemon holds, once it answers."""
        while True:
            try:
                return self.status()["files"]
            except (OSError, ValueError):
                self.assertIsNone(self.daemon.poll(), "the daemon has ended")
