"""weightmap.follow(): versions that are made once for all who follow a model."""

import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from safetensors_files import file_of

import weightmap

SIZE = 1 << 16


def save(folder, value):
    folder.mkdir()
    tensors = {"weight": ("U8", [SIZE], bytes([value]) * SIZE), "bias": ("U8", [4], b"bias")}
    (folder / "model.safetensors").write_bytes(file_of(tensors))
    return folder


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path)


class Trainer:
    def __init__(self, folder):
        self.folder = folder
        self.deltas = folder / "deltas"
        self.place = folder / "place"
        self.deltas.mkdir()
        self.step = 0
        self.model = save(folder / "model", 0)

    def trained(self, step):
        """The model after this step."""
        path = self.folder / f"trained {step}"
        return path if path.exists() else save(path, step)

    def publish(self):
        """The delta of one more step."""
        self.step += 1
        before = self.model if self.step == 1 else self.trained(self.step - 1)
        weightmap.write_delta(before, self.trained(self.step),
                              self.deltas / f"weight_v{self.step:06}",
                              base_version=f"{self.step - 1:06}")

    def follow(self, **options):
        return weightmap.follow(self.model, self.deltas, **({"place": self.place} | options))

    @property
    def own(self):
        """The folder of the versions."""
        (folder,) = self.place.glob("model.followed-*/*")
        return folder

    def versions(self):
        return sorted(path.name for path in self.place.glob("model.followed-*/*/*"))


def value_of(version):
    with weightmap.open(version.folder) as checkpoint:
        return checkpoint["weight"].tobytes()[0]


def test_each_version_comes_and_an_old_one_goes(trainer):
    follow = trainer.follow()
    assert (follow.last.version, value_of(follow.last)) == ("000000", 0)
    assert not follow.changed()
    for step in (1, 2, 3):
        trainer.publish()
        assert follow.changed()
        assert (follow.last.version, value_of(follow.last)) == (f"{step:06}", step)
        assert os.path.basename(follow.last.folder) == f"model@{step:06}"
        assert not follow.changed()
        assert len(trainer.versions()) <= 2
    assert value_of(weightmap.Version("0", str(trainer.model))) == 0


def test_versions_in_between_are_passed_over(trainer):
    follow = trainer.follow()
    for _ in range(3):
        trainer.publish()
    assert next(iter(follow)).version == "000003"
    assert trainer.versions() == ["model@000003"]


def test_who_begins_later_begins_with_the_newest(trainer):
    first = trainer.follow()
    trainer.publish()
    assert first.wait(timeout=10)
    shutil.rmtree(trainer.deltas / "weight_v000001")
    second = trainer.follow()
    assert second.last.folder == first.last.folder
    assert not second.wait(timeout=0.01)


def test_a_version_that_is_served_stays_while_another_follower_goes_on(trainer):
    slow, quick = trainer.follow(patience=0.1), trainer.follow(patience=0.1)
    trainer.publish()
    assert slow.changed() and quick.changed()
    with weightmap.open(slow.last.folder) as served:
        for _ in range(2):
            trainer.publish()
            assert quick.changed()
        assert "model@000001" in trainer.versions()
        assert served["weight"].tobytes()[0] == 1
    assert slow.changed() and not quick.changed()
    assert not slow.changed()  # from here on it does not serve the first one any more
    trainer.publish()
    assert quick.changed()
    assert trainer.versions() == ["model@000003", "model@000004"]


def test_a_whole_version_is_taken_as_it_is(trainer):
    follow = trainer.follow()
    shutil.copytree(trainer.trained(7), trainer.deltas / "weight_v000007")
    assert not follow.changed()  # without an index it is not published
    index = '{"metadata": {}, "weight_map": {"weight": "model.safetensors", "bias": "model.safetensors"}}'
    (trainer.deltas / "weight_v000007" / "model.safetensors.index.json").write_text(index)
    assert follow.changed()
    assert (follow.last.version, value_of(follow.last)) == ("000007", 7)
    weightmap.write_delta(trainer.deltas / "weight_v000007", trainer.trained(8),
                          trainer.deltas / "weight_v000008")
    assert follow.changed()
    assert (follow.last.version, value_of(follow.last)) == ("000008", 8)


def test_a_damaged_delta_is_raised_and_the_version_stays(trainer):
    follow = trainer.follow()
    trainer.publish()
    shard = next((trainer.deltas / "weight_v000001").glob("*.safetensors"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    for _ in range(2):
        with pytest.raises(weightmap.CorruptError):
            follow.changed()
    assert follow.last.version == "000000"
    assert trainer.versions() == []
    shard.write_bytes(content)
    assert follow.changed()


def test_a_delta_that_is_not_published_yet_waits_and_others_are_passed_by(trainer):
    follow = trainer.follow()
    trainer.publish()
    index = trainer.deltas / "weight_v000001" / "model.safetensors.index.json"
    index.rename(index.with_name("hidden"))
    (trainer.deltas / "other").mkdir()
    (trainer.deltas / "other" / "model.safetensors.index.json").write_text("no JSON")
    (trainer.deltas / "file").write_text("")
    assert not follow.changed()
    index.with_name("hidden").rename(index)
    assert follow.changed()


def test_versions_that_lead_in_a_circle_end(trainer):
    follow = trainer.follow()
    trainer.publish()
    for base, version in (("a", "b"), ("b", "a")):
        weightmap.write_delta(trainer.model, trainer.trained(1), trainer.deltas / base,
                              base_version=base, version=version)
    assert follow.changed()
    assert not follow.changed()


def test_a_version_does_not_come_again(trainer):
    follow = trainer.follow()
    for step, (base, version) in enumerate((("000000", "a"), ("a", "b"), ("b", "a"))):
        before = trainer.trained(step) if step else trainer.model
        weightmap.write_delta(before, trainer.trained(step + 1), trainer.deltas / f"to {step}",
                              base_version=base, version=version)
        assert follow.changed() == (step < 2)
    assert (follow.last.version, value_of(follow.last)) == ("b", 2)


@pytest.mark.parametrize("version", ["00000000000000000000000000000001", str(2**64)])
def test_versions_are_numbers_as_the_library_has_them(trainer, version):
    follow = trainer.follow()
    weightmap.write_delta(trainer.model, trainer.trained(1), trainer.deltas / "first",
                          version=version, base_version="0")
    assert follow.changed()
    weightmap.write_delta(trainer.trained(1), trainer.trained(2), trainer.deltas / "second",
                          version="2", base_version=version.lstrip("0"))
    assert follow.changed()
    assert value_of(follow.last) == 2


def test_what_others_have_made_stays(trainer):
    mine = trainer.folder / "model@mine"
    trainer.publish()
    weightmap.apply_delta(trainer.model, trainer.deltas / "weight_v000001", mine)
    link = trainer.folder / "now"
    weightmap.publish(mine, link)
    follow = weightmap.follow(link, trainer.deltas)
    for _ in range(3):
        trainer.publish()
        assert follow.changed()
    assert value_of(weightmap.Version("1", str(mine))) == 1
    assert weightmap.follow(link, trainer.deltas).last.version == "000004"


def test_another_model_of_the_same_name_is_another_one(trainer, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    save(other / "model", 99)
    trainer.publish()
    assert trainer.follow().changed()
    follow = weightmap.follow(other / "model", other, place=trainer.place)
    assert (follow.last.version, value_of(follow.last)) == ("000000", 99)


def test_a_version_that_is_no_name_stays_in_its_folder(trainer):
    follow = trainer.follow()
    weightmap.write_delta(trainer.model, trainer.trained(1), trainer.deltas / "d",
                          base_version="000000", version="x/../../../escaped")
    assert follow.changed()
    assert os.path.dirname(follow.last.folder) == str(trainer.own)
    assert value_of(follow.last) == 1


def test_indexes_that_say_nothing_are_passed_by(trainer):
    follow = trainer.follow()
    for number, text in enumerate((
        '{"metadata": [1]}', '{"metadata": "x"}', "[]", "[" * 100_000, "{}",
        '{"metadata": {"version": 7, "base_version": null, "delta_encoding": "xor"}}',
        '{"metadata": {"version": "%s", "base_version": "0", "delta_encoding": "xor"}}' % ("9" * 5000),
    )):
        folder = trainer.deltas / f"a{number}"
        folder.mkdir()
        (folder / "model.safetensors.index.json").write_text(text)
    (trainer.deltas / "fifo").mkdir()
    os.mkfifo(trainer.deltas / "fifo" / "model.safetensors.index.json")
    (trainer.deltas / "a6").rename(trainer.folder / "long")  # which is a delta, and refused by name
    trainer.publish()
    assert follow.changed()
    assert follow.last.version == "000001"


def test_who_is_behind_goes_on_from_what_others_have_made(trainer):
    behind, quick = trainer.follow(), trainer.follow()
    for _ in range(2):
        trainer.publish()
        assert quick.changed()
    for delta in trainer.deltas.iterdir():
        shutil.rmtree(delta)
    del quick  # as if it had been killed
    trainer.publish()
    assert behind.changed() and value_of(behind.last) == 2
    assert behind.changed() and value_of(behind.last) == 3
    assert not behind.changed()
    assert trainer.versions() == ["model@000002", "model@000003"]


def test_versions_of_an_earlier_model_by_the_same_path_are_not_used_and_go(trainer):
    follow = trainer.follow()
    trainer.publish()
    assert follow.changed()
    shutil.rmtree(trainer.model)
    shutil.rmtree(trainer.deltas / "weight_v000001")
    save(trainer.model, 100)
    other = trainer.follow()
    assert (other.last.version, value_of(other.last)) == ("000000", 100)
    weightmap.write_delta(trainer.model, trainer.trained(1), trainer.deltas / "weight_v000001")
    for step in (1, 2):  # the earlier one is held, and not waited for
        assert other.changed()
        assert value_of(other.last) == step
        trainer.step = step
        trainer.publish()
    assert len(trainer.versions()) == 3
    del follow
    assert other.changed()
    assert trainer.versions() == ["model@000002", "model@000003"]


def test_files_in_folders_below_tell_models_apart_too(trainer):
    index = '{"metadata": {}, "weight_map": {"weight": "w/model.safetensors", "bias": "w/model.safetensors"}}'

    def model(value):
        shutil.rmtree(trainer.model)
        trainer.model.mkdir()
        save(trainer.model / "w", value)
        (trainer.model / "model.safetensors.index.json").write_text(index)

    model(0)
    trainer.publish()
    follow = trainer.follow()
    assert follow.changed() and value_of(follow.last) == 1
    model(100)
    assert value_of(trainer.follow().last) == 100


def test_a_chain_that_needs_too_much_memory_is_made_in_parts(trainer, monkeypatch):
    def limited(base, deltas, *rest, **options):
        if len(deltas) > 2:
            raise weightmap.LimitExceededError("too much memory")
        return weightmap.apply_delta(base, deltas, *rest, **options)

    monkeypatch.setattr("weightmap._follow.apply_delta", limited)
    follow = trainer.follow()
    for _ in range(5):
        trainer.publish()
    came = []
    while follow.changed():
        came.append(value_of(follow.last))
    assert came == [2, 3, 5]


def test_followers_of_two_versions_do_not_wait_for_each_other(trainer):
    behind, before = trainer.follow(patience=20), trainer.follow(patience=20)
    trainer.publish()
    assert behind.changed() and before.changed()
    trainer.publish()
    assert before.changed()
    trainer.publish()

    def go_on(follow):
        while follow.last.version != "000003":
            follow.changed()

    threads = [threading.Thread(target=go_on, args=(follow,)) for follow in (behind, before)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Else one would have been made beside two others.
    assert trainer.versions() == ["model@000002", "model@000003"]


def test_versions_of_a_model_that_is_read_only_go_too(trainer):
    trainer.model.chmod(0o555)
    follow = trainer.follow()
    for _ in range(4):
        trainer.publish()
        assert follow.changed()
    assert trainer.versions() == ["model@000003", "model@000004"]
    trainer.model.chmod(0o755)


def test_a_version_that_is_half_there_is_made_anew(trainer):
    follow = trainer.follow()
    trainer.publish()
    assert follow.changed()
    folder = follow.last.folder
    for missing in ("weightmap_version.json", "model.safetensors"):
        os.remove(os.path.join(folder, missing))
        follow = trainer.follow()
        assert follow.last.version == "000000"
        assert follow.changed()
        assert (follow.last.folder, value_of(follow.last)) == (folder, 1)


MAKER = """
import fcntl, sys
lock = open(sys.argv[1], "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("locked", flush=True)
input()
"""


def test_what_killed_processes_have_left_is_removed_and_what_others_make_is_not(trainer):
    follow = trainer.follow()
    for name in (".model@000007.removed-1", ".model@000008.weightmap-new",
                 ".model@000009.weightmap-new"):
        (trainer.own / name).mkdir()
    for name in (".model@000008.weightmap-lock", ".model@000009.weightmap-lock"):
        (trainer.own / name).touch()
    lock = trainer.own / ".model@000009.weightmap-lock"
    with subprocess.Popen([sys.executable, "-c", MAKER, lock], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        trainer.publish()
        assert follow.changed()
        process.kill()
    hidden = sorted(path.name for path in trainer.own.iterdir() if path.name.startswith("."))
    assert hidden == [".model@000009.weightmap-lock", ".model@000009.weightmap-new"]


def test_links_in_the_place_lead_to_nothing_that_is_removed(trainer):
    prod = save(trainer.folder / "prod", 7)
    (prod / "weightmap_version.json").write_text('{"version": "000007"}')
    follow = trainer.follow()
    (trainer.own / "model@000007-link").symlink_to(prod)
    trainer.publish()
    assert follow.changed()
    assert follow.last.version == "000001"
    assert len(list(prod.iterdir())) == 2
    for own in (trainer.own, trainer.own.parent):
        shutil.rmtree(own)
        own.symlink_to(trainer.folder)
        with pytest.raises(weightmap.FileError, match="is a symbolic link"):
            trainer.follow()
        own.unlink()
        trainer.follow()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder needs root")
def test_another_users_versions_are_not_taken_where_all_may_write(trainer):
    trainer.follow()
    trainer.place.chmod(0o1777)
    trainer.follow()
    os.chown(trainer.own.parent, 65534, 65534)
    with pytest.raises(weightmap.FileError, match="is another user's"):
        trainer.follow()


def test_a_delta_that_leads_back_is_passed_by(trainer):
    follow = trainer.follow()
    trainer.publish()
    weightmap.write_delta(trainer.trained(1), trainer.trained(2), trainer.deltas / "back",
                          base_version="000001", version="000002")
    index = trainer.deltas / "back" / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"000002"', '"000000"'))
    assert follow.changed()
    assert follow.last.version == "000001"
    assert not follow.changed()


def test_a_place_that_was_removed_is_made_again(trainer):
    follow = trainer.follow()
    shutil.rmtree(trainer.place)
    trainer.publish()
    assert follow.changed()
    assert value_of(follow.last) == 1


def test_a_place_that_cannot_be_is_told(trainer):
    trainer.place.write_text("")
    with pytest.raises(weightmap.FileError, match="cannot use it for versions: Not a directory"):
        trainer.follow()


def test_an_index_that_is_replaced_is_read_again_whatever_its_time(trainer):
    follow = trainer.follow()
    trainer.publish()
    index = trainer.deltas / "weight_v000001" / "model.safetensors.index.json"
    text, time_of = index.read_text(), os.stat(index).st_mtime_ns
    index.write_text("{" + " " * (len(text) - 1))
    os.utime(index, ns=(time_of, time_of))
    assert not follow.changed()
    whole = index.with_name("new")
    whole.write_text(text)
    os.utime(whole, ns=(time_of, time_of))
    whole.rename(index)
    assert follow.changed()


def test_a_whole_version_may_come_after_its_index(trainer):
    follow = trainer.follow()
    folder = trainer.deltas / "weight_v000007"
    folder.mkdir()
    index = '{"metadata": {}, "weight_map": {"weight": "model.safetensors", "bias": "model.safetensors"}}'
    (folder / "model.safetensors.index.json").write_text(index)
    assert not follow.changed()
    shutil.copy(trainer.trained(7) / "model.safetensors", folder)
    assert follow.changed()
    assert value_of(follow.last) == 7


def test_paths_are_those_of_the_time_of_the_call(trainer, monkeypatch):
    monkeypatch.chdir(trainer.folder)
    follow = weightmap.follow("model", "deltas", place="place")
    trainer.publish()
    monkeypatch.chdir("/")
    assert follow.changed()
    assert value_of(follow.last) == 1


def test_there_is_no_model(tmp_path):
    with pytest.raises(weightmap.MissingFileError):
        weightmap.follow(tmp_path / "none", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_there_is_no_folder_of_deltas(trainer):
    trainer.deltas.rmdir()
    with pytest.raises(weightmap.MissingFileError, match="cannot list the deltas: No such file"):
        trainer.follow()
    trainer.deltas.write_text("")
    with pytest.raises(weightmap.FileError, match="deltas: cannot list the deltas: Not a directory"):
        trainer.follow()
    assert not trainer.place.exists()


FOLLOWER = """
import sys, weightmap
follow = weightmap.follow(*sys.argv[1:3], place=sys.argv[3], interval=0.01)
print("ready", flush=True)
for version in follow:
    with weightmap.open(version.folder) as checkpoint:
        content = checkpoint["weight"].tobytes()
    assert content == content[:1] * len(content), "mixed"
    print(version.version, content[0], flush=True)
    if version.version == sys.argv[4]:
        break
"""


def followers(trainer, count, last):
    command = [sys.executable, "-c", FOLLOWER, trainer.model, trainer.deltas, trainer.place, last]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    return started


def test_many_processes_follow_and_no_version_is_mixed(trainer):
    started = followers(trainer, 4, "000004")
    for _ in range(4):
        trainer.publish()
        time.sleep(0.05)
    for process in started:
        told = process.communicate(timeout=60)[0].splitlines()
        assert process.returncode == 0
        assert told[-1] == "000004 4"
        assert all(int(version) == int(value) for version, value in map(str.split, told))


def test_followers_that_are_killed_leave_the_others_going(trainer):
    started = followers(trainer, 3, "000003")
    trainer.publish()
    started[0].send_signal(signal.SIGKILL)
    trainer.publish()
    started[1].send_signal(signal.SIGKILL)
    trainer.publish()
    assert started[2].communicate(timeout=60)[0].splitlines()[-1] == "000003 3"
    for process in started[:2]:
        process.wait()
        process.stdout.close()
    assert trainer.versions()


def test_copy_into_a_module(trainer):
    torch = pytest.importorskip("torch", reason="modules are torch's")

    class Model(torch.nn.Module):
        def __init__(self, size=4):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(size))
            self.tied = self.weight

    folder = trainer.folder / "floats"
    folder.mkdir()
    weightmap.save_safetensors({"weight": torch.arange(4.0)}, folder / "model.safetensors")
    model = Model()
    version = weightmap.Version("1", str(folder))
    version.copy_into(model)
    assert model.tied.tolist() == [0, 1, 2, 3]
    with pytest.raises(weightmap.InvalidArgumentError, match="has the shape"):
        version.copy_into(Model(5))
    with pytest.raises(weightmap.InvalidArgumentError, match="has no tensor 'bias'"):
        version.copy_into(torch.nn.Linear(2, 2))


def test_vllm_is_given_a_version_by_its_path(trainer):
    import weightmap.vllm

    said = []

    class Llm:
        def collective_rpc(self, name, kwargs):
            said.append((name, kwargs))

        def reset_prefix_cache(self):
            said.append("reset")

    weightmap.vllm.reload_weights(Llm(), weightmap.Version("1", str(trainer.model)))
    assert said == [("reload_weights", {"weights_path": str(trainer.model)}), "reset"]


@pytest.mark.parametrize("takes", [True, False])
def test_sglang_is_given_a_version_by_its_path(trainer, takes):
    import weightmap.sglang

    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            content = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, self.headers["Content-Type"], json.loads(content)))
            answer = json.dumps({"success": takes, "message": "no such file"}).encode()
            self.send_response(200 if takes else 400)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        version = weightmap.Version("000004", str(trainer.model))
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        if takes:
            weightmap.sglang.update_weights(url, version)
        else:
            with pytest.raises(weightmap.Error, match="did not take .*: no such file"):
                weightmap.sglang.update_weights(url, version)
    expected = {"model_path": str(trainer.model), "weight_version": "000004"}
    assert asked == [("/update_weights_from_disk", "application/json", expected)]
