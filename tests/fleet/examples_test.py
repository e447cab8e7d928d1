#!/usr/bin/env python3
"""The examples of examples/fleet and the unit for remote checkpoints, by the programs that take
them: a validator of Kubernetes' schemas, bash and shellcheck, systemd-analyze.

    examples_test.py ROOT [TESTS]

What is not installed is skipped, with its name. Nothing here starts a cluster.
"""
import os
import pathlib
import shutil
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
        for name in ("daemonset.yaml", "server.yaml", "pod.yaml"):
            for document in yaml.safe_load_all((FLEET / name).read_text()):
                yield f"{name}: {document['kind']}", document

    def pods(self):
        for name, document in self.documents():
            if document["kind"] in ("DaemonSet", "Deployment", "Pod"):
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

    def test_what_is_not_held_yet_ends_no_pod(self):
        for name, _, container in self.containers():
            if container["name"] != "hold":
                continue
            with self.subTest(name):
                probes = {kind: container[kind]["exec"]["command"]
                          for kind in ("livenessProbe", "readinessProbe")}
                self.assertEqual(probes, {
                    "livenessProbe": ["test", "-S", "/run/weightmap/own/hold.sock"],
                    "readinessProbe": ["weightmap", "hold", "--status"]})

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

    def test_kustomize_takes_the_manifest(self):
        kustomization = yaml.safe_load((FLEET / "kustomization.yaml").read_text())
        self.assertEqual(kustomization["resources"], ["daemonset.yaml", "server.yaml"])
        [model] = kustomization["configMapGenerator"]
        [url] = model["literals"]
        [hold] = [container for name, _, container in self.containers()
                  if name == "daemonset.yaml: DaemonSet: hold"]
        [wanted] = [each["valueFrom"]["configMapKeyRef"] for each in hold["env"]
                    if each["name"] == "MODEL_URL"]
        self.assertEqual((model["name"], url.split("=")[0]), (wanted["name"], wanted["key"]))


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
esac
"""


class Slurm(unittest.TestCase):
    SCRIPT = str(FLEET / "weights.sbatch")

    def plan(self, fails=""):
        folder = temporary_folder(self)
        for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        done = run("bash", self.SCRIPT, "https://host/a/m.pt", "serve", "it", env={
            **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PLAN": str(folder / "plan"),
            "FAILS": fails, "SLURM_JOB_NODELIST": "n[0-9]"})
        return done, (folder / "plan").read_text().splitlines()

    def test_bash_takes_it(self):
        done = run("bash", "-n", self.SCRIPT)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    @needs("shellcheck")
    def test_shellcheck_finds_nothing(self):
        done = run("shellcheck", self.SCRIPT)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_all_nodes_hold_it_before_the_command_starts(self):
        done, lines = self.plan()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(set(lines[:-1]), {
            f"n{node}: weightmap hold https://host/a/m.pt --name m.pt" for node in range(10)})
        self.assertEqual(lines[-1], "all: serve it")

    def test_a_node_that_cannot_get_it_ends_the_job(self):
        done, lines = self.plan(fails="n4")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("all: serve it", lines)


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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
