"""What the tests of the tool share: its environment, how it is run, and a folder for each test.

Their arguments are FOLDER WEIGHTMAP [MAKE_CHECKPOINT]: where files are made (some: the root of the
sources), the tool, and the program that makes checkpoints.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
FOLDER, TOOL, MAKER = (pathlib.Path(argument).resolve() for argument in [*sys.argv[1:4], *3 * [""]][:3])
# In which nothing is set that weightmap asks for.
ENVIRONMENT = {key: text for key, text in os.environ.items() if not key.startswith("WEIGHTMAP_")}

sys.path.insert(0, str(ROOT / "tests" / "support"))


def stop(child):
    """Stops a child, and returns once all its threads stand still."""
    child.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), status


def end(child):
    child.kill()
    child.wait()
    for pipe in filter(None, (child.stdin, child.stdout, child.stderr)):
        pipe.close()


class FolderCase(unittest.TestCase):
    maxDiff = None
    # Where the folder is made; the system's place for temporary files if it is None.
    place = None
    # What `weightmap run` leaves beside a command may write to the folder while it is removed.
    outlived = False

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=self.place, ignore_cleanup_errors=self.outlived)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class ToolCase(FolderCase):
    """Runs the tool in its folder, so that messages hold no machine's paths, or where this runs."""

    is_inside = True
    words = ()  # with which each command begins
    environment = ENVIRONMENT

    def process_options(self, environment):
        return {"cwd": self.folder if self.is_inside else None, "text": True,
                "env": self.environment | (environment or {}),
                "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    def run_tool(self, *arguments, environment=None, **options):
        options = self.process_options(environment) | options
        return subprocess.run([TOOL, *self.words, *map(str, arguments)], check=False, **options)

    def ends(self, code, *arguments, **options):
        """What it has said once it has ended so."""
        done = self.run_tool(*arguments, **options)
        self.assertEqual(done.returncode, code, (done.stdout, done.stderr))
        return done

    def text(self, *arguments, code=0, stderr="", **options):
        """What it prints, if it says nothing else."""
        done = self.run_tool(*arguments, **options)
        self.assertEqual((done.stderr, done.returncode), (stderr, code), done.stdout)
        return done.stdout

    def prints(self, text, *arguments, **options):
        self.assertEqual(self.text(*arguments, **options), text)

    def fails(self, message, *arguments, code=1, **options):
        self.prints("", *arguments, code=code, stderr=f"weightmap: {message}\n", **options)

    def document(self, *arguments, code=0, **options):
        """That it prints; what succeeds says nothing beside it."""
        done = self.ends(code, *arguments, **options)
        if code == 0:
            self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def start(self, *arguments, environment=None, **options):
        """A process that is gone at the end of the test."""
        options = self.process_options(environment) | options
        process = subprocess.Popen([TOOL, *self.words, *map(str, arguments)], **options)
        self.addCleanup(end, process)
        return process

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, (bytes, bytearray)) else content.encode())
        return path

    def make(self, name="model.pt", count=4, shape="1024x1024", dtype="float32"):
        """A checkpoint of so many tensors, "tensor.0" and so on."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([MAKER, path, "--count", str(count), "--shape", shape, "--dtype", dtype],
                       check=True)
        return path
