#!/usr/bin/env python3
"""The pods of examples/fleet as a node would run them: each container's own command, with its user,
its mounts, its read-only root, no capability and its limit of memory, in namespaces of its own.

    pods_test.py FOLDER WEIGHTMAP MAKE_CHECKPOINT

What is other than in a cluster: the network and the root are those of this machine, the limits are
as much smaller as the model is, `hold` looks at the store often, and a stand-in is the server.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
FLEET = HERE.parents[1] / "examples" / "fleet"
sys.path[:0] = [str(HERE.parent / "remote"), str(HERE.parent / "support")]

from range_server import RangeServer  # noqa: E402
from remote_case import MAKER, TOOL, digest, make, run  # noqa: E402

try:
    import yaml
except ImportError:
    yaml = None

NAMESPACES = ("--mount", "--pid", "--ipc", "--uts")
USER = ("setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", "--no-new-privs",
        "--inh-caps=-all", "--bounding-set=-all")
INDEX = "model.safetensors.index.json"
LARGE, MODEL = 280, 132  # of the manifests: GiB of the limit, and of the model
OWN = 128 << 20  # that the program itself takes, whatever the model: 1 GiB in the manifests
SERVER = """
import hashlib, json, mmap, os, signal, sys
assert sys.argv[1] == "--model"
folder = os.path.realpath(sys.argv[2])
maps, sums = [], {}
for name in sorted(os.listdir(folder)):
    with open(os.path.join(folder, name), "rb") as file:
        maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    sums[name] = hashlib.sha256(maps[-1]).hexdigest()
written = [place for place in (folder + "/new", "/dev/shm/new", "/tmp/new", "/new")
           if os.access(os.path.dirname(place), os.W_OK)]
print(json.dumps({"folder": folder, "sums": sums, "uid": os.getuid(), "written": written}), flush=True)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.pause()
print(json.dumps({name: hashlib.sha256(each).hexdigest() for name, each in zip(sums, maps)}), flush=True)
signal.pause()
"""


def wait_until(what, condition):
    """Names what does not come."""
    end = time.monotonic() + 120
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} has not come within 120 s")
        time.sleep(0.02)
    return found


class Group:
    """A control group with a limit of memory, of either version."""

    def __init__(self, name, limit):
        v1 = pathlib.Path("/sys/fs/cgroup/memory")
        self.folder = (v1 if v1.is_dir() else pathlib.Path("/sys/fs/cgroup")) / name
        self.folder.mkdir()
        (self.folder / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")).write_text(str(limit))

    def add(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def most(self):
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if (self.folder / name).exists():
                return int((self.folder / name).read_text())
        return 0

    def remove(self):
        self.folder.rmdir()


class Container:
    def __init__(self, pod, spec, command):
        self._environment = {"PATH": f"{pod.node.image}:/usr/bin:/bin",
                             **{each["name"]: pod.node.value_of(each) for each in spec.get("env", ())}}
        for name, value in self._environment.items():
            command = [word.replace(f"$({name})", value) for word in command]
        mounts = "".join(f"mkdir -p {each['mountPath']}\nmount --bind {pod.volumes[each['name']]} {each['mountPath']}\n"
                         + (f"mount -o remount,bind,ro {each['mountPath']}\n" if each.get("readOnly") else "")
                         for each in spec["volumeMounts"])
        prepare = ("set -e\nmount --make-rprivate /\nmount -t proc proc /proc\n"
                   f"mount -t tmpfs tmpfs /run\n{mounts}"
                   "mount -o remount,bind,ro /\nexec \"$@\"\n")
        self.group = Group(f"weightmap-{os.getpid()}-{pod.name}-{spec['name']}", pod.node.limit_of(spec))
        self.process = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "sh", "-c", prepare, "sh", *USER, *command],
            env=self._environment, stdout=subprocess.PIPE, stderr=pod.node.log, text=True,
            preexec_fn=self.group.add)

    def first(self):
        """The first process of the container, once it is there."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")

        def child():
            assert self.process.poll() is None, f"the container has ended with {self.process.returncode}"
            return children.read_text().split()
        return int(wait_until("the container's process", child)[0])

    def probe(self, probe):
        """As exec probes run: inside, as its user. True if it ended with 0."""
        inside = ["nsenter", f"--target={self.first()}", *NAMESPACES, *USER, *probe["exec"]["command"]]
        done = subprocess.run(inside, env=self._environment, check=False, capture_output=True, text=True)
        return done.returncode == 0

    def end(self):
        with contextlib.suppress(ProcessLookupError, AssertionError):
            os.kill(self.first(), signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)  # the first process of a container ignores what it does not handle
        self.process.kill()  # which ends all that is in it
        self.process.wait()
        self.process.stdout.close()
        wait_until("the end of the group", self._is_removed)

    def _is_removed(self):
        try:
            self.group.remove()
            return True
        except OSError:
            return False


class Pod:
    """Starts what is before its containers, then these; a sidecar stays."""

    def __init__(self, node, name, spec):
        self.node, self.name, self.volumes, self.containers = node, name, {}, {}
        node.case.addCleanup(self.end)
        for volume in spec["volumes"]:
            self.volumes[volume["name"]] = (node.shm if "hostPath" in volume else node.memory())
        for each in (*spec.get("initContainers", ()), *spec["containers"]):
            self.start(each, each in spec["containers"] or each.get("restartPolicy") == "Always")

    def start(self, spec, stays):
        command = [*spec.get("command", self.node.server), *spec.get("args", ())]
        container = self.containers[spec["name"]] = Container(self, spec, command)
        container.probes = {name: spec[name] for name in spec if name.endswith("Probe")}
        if "startupProbe" in spec:
            wait_until(f"{self.name}: {spec['name']}", lambda: container.probe(spec["startupProbe"]))
        elif not stays:
            assert container.process.wait(120) == 0, f"{self.name}: {spec['name']}"

    def said(self):
        return json.loads(self.containers["server"].process.stdout.readline())

    def ask_server(self):
        os.kill(self.containers["server"].first(), signal.SIGUSR1)
        return self.said()

    def end(self):
        for container in reversed(self.containers.values()):
            container.end()
        self.containers = {}


class Node:
    """Its memory is a tmpfs of its own. The folder is where others may read."""

    def __init__(self, case, folder, url, model_bytes):
        self.case, self.folder, self.url, self.model_bytes = case, folder, url, model_bytes
        self.image, self.shm = folder / "image", self.memory("mode=1777")
        self.image.mkdir()
        (self.image / "weightmap").write_bytes(TOOL.read_bytes())
        (self.image / "server.py").write_text(SERVER)
        (self.image / "weightmap").chmod(0o755)
        self.server = ["/usr/bin/python3", str(self.image / "server.py")]
        self.log = open(folder / "log", "w", encoding="utf-8")

    def memory(self, options="mode=0777"):
        place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
        return place

    def value_of(self, variable):
        return self.url if variable["name"] == "MODEL_URL" else variable["value"]

    def limit_of(self, container):
        """As much of the model as in the manifest; what is not of the model stays as it is."""
        amount = container["resources"]["limits"]["memory"]
        gib = int(amount[:-2]) * {"Mi": 2**-10, "Gi": 1}[amount[-2:]]
        return int((gib - 1) / MODEL * self.model_bytes) + OWN if gib == LARGE else int(gib * 2**30)


def specs():
    """The specs of pods, by the names of their files."""
    found = {}
    for name in ("daemonset.yaml", "server.yaml", "pod.yaml"):
        for document in yaml.safe_load_all((FLEET / name).read_text()):
            spec = document["spec"]
            found[name] = spec["template"]["spec"] if "template" in spec else spec
    for name in ("daemonset.yaml", "pod.yaml"):
        [hold] = [each for each in (*found[name].get("initContainers", ()), *found[name]["containers"])
                  if each["name"] == "hold"]
        hold["args"] = [word.replace("--interval=60", "--interval=0.1") for word in hold["args"]]
    return found


@unittest.skipUnless(yaml and os.geteuid() == 0, "needs root, and Python's yaml")
class Pods(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weightmap-pods-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        self.store = self.folder / "llama"
        self.store.mkdir()
        make(self.folder / "model.pt", count=64, shape="2048x1024")
        run("convert", self.folder / "model.pt", self.store, "--to", "safetensors", "--max-shard-size", "160MiB", code=0)
        (self.store / "config.json").write_text('{"model_type": "llama"}')
        self.web = RangeServer(self.folder, listing="nginx")
        self.addCleanup(self.web.close)
        size = sum(path.stat().st_size for path in self.store.iterdir())
        self.node = Node(self, self.folder, self.web.url("llama/"), size)
        self.addCleanup(self.unmount)
        self.specs = specs()

    def unmount(self):
        self.node.log.close()
        for line in pathlib.Path("/proc/mounts").read_text().splitlines():
            if str(self.folder) in line.split()[1]:
                subprocess.run(["umount", line.split()[1]], check=True)

    def pod(self, name, file):
        return Pod(self.node, name, self.specs[file])

    def sums(self):
        return {path.name: digest(path) for path in self.store.iterdir()}

    def change(self):
        """Another version of all shards, which takes the place of the old one as a whole."""
        new = self.folder / "new"
        shutil.copytree(self.store, new)
        for path in new.glob("*.safetensors"):
            with open(path, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"\x55")
        os.rename(self.store, self.folder / "old")
        os.rename(new, self.store)

    def versions(self):
        return sorted(path.name for path in self.node.shm.iterdir() if "@" in path.name)

    def held(self, daemon):
        hold = daemon.containers["hold"]
        wait_until("readiness of hold", lambda: hold.probe(hold.probes["readinessProbe"]))
        self.assertTrue(hold.probe(hold.probes["livenessProbe"]))

    def has_model(self, said, sums):
        self.assertEqual((said["sums"], said["uid"], said["written"]), (sums, 10001, []))

    def test_two_servers_of_one_daemon_and_a_rolling_replacement(self):
        daemon = self.pod("weights", "daemonset.yaml")
        old = [self.pod(f"server-{number}", "server.yaml") for number in range(2)]
        self.held(daemon)
        first = self.sums()
        said = [pod.said() for pod in old]
        for each in said:
            self.has_model(each, first)
        self.assertEqual(said[0]["folder"], said[1]["folder"])
        self.assertEqual(self.versions(), [os.path.basename(said[0]["folder"])])
        self.change()
        wait_until("the new version", lambda: os.path.basename(said[0]["folder"]) not in self.versions())
        for number, pod in enumerate(old):  # one more at a time, as the manifest says
            new = self.pod(f"server-{number + 2}", "server.yaml")
            self.has_model(new.said(), self.sums())
            self.assertEqual(pod.ask_server(), first)  # which it has mapped
            pod.end()
        self.assertEqual(len(self.versions()), 1)
        most = daemon.containers["hold"].group.most()
        print(f"model: {self.node.model_bytes:,} bytes; most memory of hold's container: {most:,}", file=sys.stderr)
        self.assertGreater(most, self.node.model_bytes)

    def test_a_daemon_that_comes_again_finds_what_is_held(self):
        daemon = self.pod("weights", "daemonset.yaml")
        self.held(daemon)
        [version] = self.versions()
        daemon.end()
        self.assertEqual(self.versions(), [version])
        seen = len(self.web.requests)
        again = self.pod("weights-again", "daemonset.yaml")
        self.held(again)
        self.assertEqual(self.versions(), [version])
        asked = sum(request.span[1] - request.span[0] for request in self.web.requests[seen:]
                    if request.span and None not in request.span)
        self.assertLess(asked, self.node.model_bytes // 10)
        self.has_model(self.pod("server", "server.yaml").said(), self.sums())

    def test_a_pod_with_a_copy_of_its_own(self):
        pod = self.pod("own", "pod.yaml")
        self.has_model(pod.said(), self.sums())
        hold = pod.containers["hold"]
        self.assertTrue(all(hold.probe(probe) for probe in hold.probes.values()))
        self.assertEqual(list(self.node.shm.iterdir()), [])

    def test_a_server_waits_for_a_model_that_is_not_there(self):
        init = self.specs["server.yaml"]["initContainers"][0]
        waiting = Container(Pod(self.node, "alone", {"volumes": self.specs["server.yaml"]["volumes"],
                                                     "containers": []}), init, init["command"])
        self.addCleanup(waiting.end)
        waiting.first()
        self.assertIsNone(waiting.process.poll())
        (self.node.shm / "llama").mkdir()
        self.assertEqual(waiting.process.wait(60), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
