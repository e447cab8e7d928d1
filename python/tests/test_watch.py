"""weightmap.watch(), of links, folders and files that are replaced."""

import os
import shutil
import threading

import pytest

import weightmap


@pytest.fixture
def versions(tmp_path, data):
    """Two folders of one model."""
    for version, file in (("v1", "views.pt"), ("v2", "dtypes.pt")):
        (tmp_path / version).mkdir()
        shutil.copyfile(data / file, tmp_path / version / "pytorch_model.bin")
        (tmp_path / version / "config.json").write_text(version)
    return tmp_path


def test_a_link_that_leads_elsewhere_is_told_once(versions):
    weightmap.publish(versions / "v1", versions / "now")
    watch = weightmap.watch(versions / "now")
    assert watch.path == str(versions / "v1")
    assert not watch.changed()
    weightmap.publish(versions / "v2", versions / "now")
    assert watch.changed()
    assert watch.path == str(versions / "v2")
    assert not watch.changed()


def test_a_file_that_was_replaced_is_told(versions):
    path = versions / "v1" / "pytorch_model.bin"
    watch = weightmap.watch(path)
    os.replace(versions / "v2" / "pytorch_model.bin", path)
    assert watch.changed()


def test_another_configuration_is_another_version(versions):
    watch = weightmap.watch(versions / "v1")
    (versions / "v1" / "config.json").write_text("another")
    assert watch.changed()


def test_what_cannot_be_opened_is_not_told_yet(versions):
    path = versions / "v1" / "pytorch_model.bin"
    watch = weightmap.watch(versions / "v1")
    path.rename(versions / "aside")
    assert not watch.changed()
    path.write_bytes(b"PK, and no more")
    assert not watch.changed()
    os.replace(versions / "v2" / "pytorch_model.bin", path)
    assert watch.changed()


def test_wait_returns_with_the_next_version_or_after_its_time(versions):
    weightmap.publish(versions / "v1", versions / "now")
    watch = weightmap.watch(versions / "now", interval=0.001)
    assert not watch.wait(0)
    later = threading.Timer(0.01, weightmap.publish, (versions / "v2", versions / "now"))
    later.start()
    assert watch.wait()
    later.join()
    assert watch.path == str(versions / "v2")


def test_an_iteration_gives_each_version(versions):
    weightmap.publish(versions / "v1", versions / "now")
    told = iter(weightmap.watch(versions / "now", interval=0.001))
    for version in ("v2", "v1"):
        weightmap.publish(versions / version, versions / "now")
        assert next(told) == str(versions / version)


def test_no_model_and_no_interval_are_refused(versions):
    with pytest.raises(weightmap.Error):
        weightmap.watch(versions)
    for interval in (0, -1, float("nan")):
        with pytest.raises(weightmap.InvalidArgumentError, match="expected seconds above 0"):
            weightmap.watch(versions / "v1", interval=interval)
