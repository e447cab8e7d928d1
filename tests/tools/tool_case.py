"""What the tests of the tool share: its environment, and a folder for each test."""

import os
import pathlib
import signal
import tempfile
import unittest

# In which nothing is set that weightmap asks for.
ENVIRONMENT = {key: text for key, text in os.environ.items() if not key.startswith("WEIGHTMAP_")}


def stop(child):
    """Stops a child, and returns once all its threads stand still."""
    child.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), status


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
