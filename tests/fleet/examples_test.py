#!/usr/bin/env python3
"""The examples of examples/fleet and the unit for remote checkpoints, by the programs that take
them: a validator of Kubernetes' schemas, nginx, bash and shellcheck, systemd-analyze.

    examples_test.py ROOT [TESTS]

What is not installed is skipped, with its name. Nothing here starts a cluster.
"""
import http.client
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

try:
    import kubernetes_validate
    import yaml
except ImportError:
    kubernetes_validate = None

ROOT = pathlib.Path(sys.argv[1]).resolve()
FLEET = ROOT / "examples" / "fleet"
UNITS = ROOT / "examples" / "systemd"
TAGGED = "model.safetensors@5d8c72a5edda8-1a2b"


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def temporary_folder(case):
    folder = tempfile.TemporaryDirectory(prefix="weightmap-")
    case.addCleanup(folder.cleanup)
    return pathlib.Path(folder.name)


@unittest.skipUnless(kubernetes_validate, "the Python package kubernetes-validate is not installed")
class Manifests(unittest.TestCase):
    VERSION = "1.37"

    def documents(self):
        for name in ("daemonset.yaml", "pod.yaml"):
            for document in yaml.safe_load_all((FLEET / name).read_text()):
                yield f"{name}: {document['kind']}", document

    def pods(self):
        for name, document in self.documents():
            if document["kind"] in ("DaemonSet", "Pod"):
                yield name, document["spec"].get("template", document)

    def containers(self):
        for name, pod in self.pods():
            for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
                yield f"{name}: {container['name']}", pod["spec"], container

    def test_they_follow_the_schema(self):
        for name, document in self.documents():
            with self.subTest(name):
                kubernetes_validate.validate(document, self.VERSION, strict=True)

    def test_the_validator_bites(self):
        _, document = next(self.documents())
        document["spec"]["updateStratgy"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(document, self.VERSION, strict=True)

    def test_no_container_has_privileges(self):
        for name, spec, container in self.containers():
            with self.subTest(name):
                self.assertEqual(container["securityContext"], {
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]}})
                self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
                self.assertEqual(spec["securityContext"]["seccompProfile"],
                                 {"type": "RuntimeDefault"})
                self.assertIs(spec["automountServiceAccountToken"], False)
                self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & spec.keys())

    def test_every_container_has_limits(self):
        for name, _, container in self.containers():
            with self.subTest(name):
                self.assertIn("memory", container["resources"]["limits"])
                self.assertEqual({"cpu", "memory"}, container["resources"]["requests"].keys())

    def test_only_who_holds_writes_the_copies(self):
        for name, spec, container in self.containers():
            with self.subTest(name):
                volumes = {volume["name"] for volume in spec["volumes"]}
                mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
                self.assertLessEqual(mounts.keys(), volumes)
                self.assertEqual(mounts["shm"].get("readOnly", False), container["name"] != "hold")

    def test_the_service_and_the_policy_name_the_pods(self):
        documents = {document["kind"]: document for _, document in self.documents()}
        labels = documents["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
        service = documents["Service"]["spec"]
        self.assertEqual(service["selector"], labels)
        self.assertEqual(service["clusterIP"], "None")
        wanted = documents["DaemonSet"]["spec"]["selector"]["matchLabels"]
        self.assertLessEqual(wanted.items(), labels.items())
        self.assertEqual(documents["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], wanted)

    def test_the_parts_agree_on_names_and_ports(self):
        daemons = (FLEET / "daemonset.yaml").read_text()
        server = (FLEET / "nginx.conf").read_text()
        pod = next(self.pods())[1]
        url = pod["spec"]["containers"][0]["args"][1]
        version = f"{url.rpartition('/')[2]}@{pod['metadata']['labels']['weights-version']}"
        self.assertIn(f"if (!-f /dev/shm/{version}) {{", server)
        self.assertIn("listen 8077;", server)
        self.assertIn("--peer=http://weights-peers.models.svc:8077/", daemons)
        kustomization = yaml.safe_load((FLEET / "kustomization.yaml").read_text())
        files = kustomization["resources"] + kustomization["configMapGenerator"][0]["files"]
        self.assertEqual(files, ["daemonset.yaml", "nginx.conf"])
        self.assertIn(f"configMap: {{name: {kustomization['configMapGenerator'][0]['name']}}}",
                      daemons)


class LocalConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


@needs("nginx")
class Nginx(unittest.TestCase):
    """Its configuration, but for a folder of the test and a socket in it."""

    def setUp(self):
        self.folder = temporary_folder(self)
        self.shm = self.folder / "shm"
        self.shm.mkdir()
        configuration = self.folder / "nginx.conf"
        text = (FLEET / "nginx.conf").read_text()
        for old, new in (("listen 8077;", f"listen unix:{self.folder}/socket;"),
                         ("/dev/shm", str(self.shm)), ("/tmp/nginx", f"{self.folder}/nginx")):
            self.assertIn(old, text)
            text = text.replace(old, new)
        configuration.write_text(text)
        user = "user root; " if os.geteuid() == 0 else ""
        self.nginx = ("nginx", "-p", str(self.folder), "-c", str(configuration), "-g", user)

    def ask(self, method, path, **headers):
        connection = LocalConnection(self.folder / "socket")
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def test_takes_it_as_it_is(self):
        done = run("nginx", "-t", "-c", str(FLEET / "nginx.conf"))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_serves_complete_versions_and_nothing_else(self):
        other = "model.safetensors@5d8c-1"
        (self.shm / other).write_bytes(b"0123456789")
        for hidden in ("model.safetensors", ".hidden@1", "sem.other"):
            (self.shm / hidden).write_bytes(b"secret")
        (self.folder / "outside@1").write_bytes(b"secret")
        # Returns once it listens. The server keeps the descriptors.
        self.assertEqual(subprocess.call(self.nginx, stderr=subprocess.DEVNULL), 0)
        self.addCleanup(subprocess.call, (*self.nginx, "-s", "stop"), stderr=subprocess.DEVNULL)
        self.assertEqual(self.ask("GET", f"/{other}", Range="bytes=2-4"), (206, b"234"))
        self.assertEqual(self.ask("GET", f"/{other}", Range="bytes=-3"), (206, b"789"))
        for path in ("/", "/model.safetensors", "/sem.other", "/../outside@1", "/%2e%2e/outside@1",
                     f"/{TAGGED}"):
            self.assertNotIn(self.ask("GET", path)[0], (200, 206), path)
        for method in ("PUT", "POST", "DELETE"):
            self.assertIn(self.ask(method, f"/{other}")[0], (403, 405), method)
        self.assertEqual(self.ask("GET", "/alive"), (204, b""))
        self.assertEqual(self.ask("GET", "/ready")[0], 503)
        (self.shm / TAGGED).write_bytes(b"")
        self.assertEqual(self.ask("GET", "/ready")[0], 204)


# Steps of a job whose nodes are n0 to n9: what would run is written down. A node holds its file as
# soon as it is asked to, but for the one that fails.
SCONTROL = "#!/bin/bash\nprintf 'n%s\\n' {0..9}\n"
SRUN = """#!/bin/bash
node=all
while [[ $1 == --* ]]; do
  if [[ $1 == --nodelist=* ]]; then node=${1#*=}; fi
  shift
done
case $1 in
  test) [[ -e $PLAN.$node ]]; exit ;;
  find) exit ;;
esac
echo "$node: $*" >>"$PLAN"
case $1 in
  weightmap) [[ $node != "$FAILS" ]] || exit 1; touch "$PLAN.$node"; exec sleep 1000 ;;
  nginx) exec sleep 1000 ;;
esac
"""


class Slurm(unittest.TestCase):
    SCRIPT = str(FLEET / "weights.sbatch")

    def plan(self, store_nodes, fails=""):
        folder = temporary_folder(self)
        for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        done = run("bash", self.SCRIPT, "https://host/a/m.pt", "serve", "it", env={
            **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PLAN": str(folder / "plan"),
            "FAILS": fails, "SLURM_JOB_NODELIST": "n[0-9]", "STORE_NODES": str(store_nodes),
            "SLURM_SUBMIT_DIR": "/jobs"})
        return done, (folder / "plan").read_text().splitlines()

    def test_bash_takes_it(self):
        done = run("bash", "-n", self.SCRIPT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @needs("shellcheck")
    def test_shellcheck_finds_nothing(self):
        done = run("shellcheck", self.SCRIPT)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_each_wave_doubles_the_nodes_that_have_it(self):
        done, lines = self.plan(store_nodes=2)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        hold = "weightmap hold https://host/a/m.pt --name m.pt"
        wanted = {f"n{node}: {hold}" for node in (0, 1, 4, 5)}
        wanted |= {f"n{node}: {hold} --peer http://n{peer}:8077/"
                   for node, peer in ((2, 0), (3, 1), (6, 0), (7, 1), (8, 2), (9, 3))}
        self.assertEqual({line for line in lines if "hold" in line}, wanted)
        self.assertEqual({line for line in lines if "nginx" in line},
                         {f"n{node}: nginx -c /jobs/nginx.conf -g daemon off;"
                          for node in range(10)})
        self.assertEqual(lines[-1], "all: serve it")

    def test_a_node_that_cannot_get_it_ends_the_job(self):
        done, lines = self.plan(store_nodes=2, fails="n4")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("all: serve it", lines)
        self.assertFalse([line for line in lines if line.startswith("n9:")])


@needs("systemd-analyze")
class Units(unittest.TestCase):
    def test_systemd_takes_them(self):
        folder = temporary_folder(self)
        for unit in ("weightmap-hold.service", "weightmap-hold-url.service"):
            with self.subTest(unit):
                text = (UNITS / unit).read_text()
                self.assertIn("ExecStart=weightmap hold ", text)
                # Programs have to exist, and so have users.
                text = text.replace("ExecStart=weightmap ", f"ExecStart={sys.executable} ")
                (folder / unit).write_text(text.replace("User=models", "User=root"))
                done = run("systemd-analyze", "verify", "--man=no", str(folder / unit))
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_remote_one_differs_where_it_has_to(self):
        def settings(unit):
            lines = (UNITS / unit).read_text().split("[Service]\n")[1].splitlines()
            return {line for line in lines if "=" in line and not line.startswith("#")}
        local, remote = map(settings, ("weightmap-hold.service", "weightmap-hold-url.service"))
        self.assertEqual({"PrivateNetwork=yes", "RestrictAddressFamilies=AF_UNIX"}
                         - (local - remote), set())
        self.assertIn("RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6", remote)
        [filters] = [line for line in local if line.startswith("SystemCallFilter=")]
        self.assertIn(filters, remote)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
