"""What the loaders of engines share, in processes that load the same files. Needs no engine."""

import hashlib
import json
import logging
import os
import signal

import pytest
from stopped_reader import Attempts, make_cold, stop_reader

import weightmap

RANK = """
import hashlib, json, logging, sys
from weightmap._engines.load import EngineLoad
from weightmap._engines.options import parse_engine_options

class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())

lines, sums = [], {}
logger = logging.getLogger("rank")
logger.addHandler(Lines())
logger.setLevel(logging.INFO)
load = EngineLoad(parse_engine_options({"strict": True}), "the engine", logger)
weights = load.weights(
    sys.argv[1:],
    stock_weights=None,
    progress=lambda files, desc: files,
    is_wanted=lambda name: True,
    copies_uploads=False,
)
for name, tensor in load.reporting(weights):
    sums[name] = hashlib.sha256(tensor.numpy()).hexdigest()
print(json.dumps({
    "sums": sums, "report": lines, "read": load._warming.bytes_read,
    "waited_for": load._warming.bytes_waited_for,
}))
"""


class Ranks:
    """Processes that load the same files, which were cold before the first of them."""

    def __init__(self, torch, folder, start_python):
        self.start_python = start_python
        self.directory = folder / "shared"
        self.files = [folder / f"model-{shard}.safetensors" for shard in range(3)]
        self.sums = {}
        for shard, file in enumerate(self.files):
            tensors = {f"{shard}.{i}": torch.randn(1024, 2048) for i in range(4)}  # 8 MiB each
            weightmap.save_safetensors(tensors, file)
            for name, tensor in tensors.items():
                self.sums[name] = hashlib.sha256(tensor.numpy()).hexdigest()
        self.size = sum(file.stat().st_size for file in self.files)

    def make_cold(self):
        if not make_cold(self.files):
            pytest.skip("the file system of the temporary folder keeps files in the page cache")

    def start(self):
        return self.start_python(RANK, *self.files, WEIGHTMAP_RUNTIME_DIR=str(self.directory))

    def start_waiting(self):
        """One that has been seen to wait for a reader."""
        with Attempts(self.directory) as attempts:
            rank = self.start()
            attempts.wait(20)
        assert rank.poll() is None
        return rank

    def answer(self, rank):
        output, _ = rank.communicate()
        assert rank.returncode == 0
        answer = json.loads(output)
        assert answer["sums"] == self.sums
        assert len(answer["report"]) == 1
        return answer


@pytest.fixture
def ranks(torch, tmp_path, start_python):
    return Ranks(torch, tmp_path, start_python)


def test_tensors_in_pieces_are_for_the_engines_own_loader(torch, tmp_path):
    from weightmap._engines.load import EngineLoad
    from weightmap._engines.options import parse_engine_options

    for number in (1, 2):
        info = json.dumps({"w": {"saved_offsets": [2 * number - 2, 0]}})
        weightmap.save_safetensors(
            {"w": torch.ones(2, 3)},
            tmp_path / f"shard-0000{number}-model-00001-of-00001.safetensors",
            metadata={"DCP_SHARDING_INFO": info, "DCP_VERSION": "1.0"},
        )
    load = EngineLoad(parse_engine_options({}), "the engine", logging.getLogger("rank"))
    weights = load.weights(
        [str(tmp_path)],
        stock_weights=lambda file: iter([("stock", file)]),
        progress=lambda files, desc: files,
        is_wanted=lambda name: True,
        copies_uploads=False,
    )
    assert list(weights) == [("stock", str(tmp_path))]
    assert "has tensors in several pieces" in load._summary()


def stopped_reader(ranks):
    for _ in range(20):
        ranks.make_cold()
        reader = ranks.start()
        if stop_reader(ranks.directory, ranks.files, lambda: reader.poll() is not None):
            return reader
        ranks.answer(reader)
    pytest.fail("no reader could be stopped half way")


def test_ranks_read_the_files_once_together(ranks):
    reader = stopped_reader(ranks)
    other = ranks.start_waiting()
    reader.send_signal(signal.SIGCONT)
    answers = [ranks.answer(reader), ranks.answer(other)]
    assert 0.5 * ranks.size < sum(answer["read"] for answer in answers) <= 1.1 * ranks.size
    assert answers[1]["waited_for"] > 0
    for answer in answers:
        counts = f"; {answer['read']} read by this rank, {answer['waited_for']} by another; "
        assert counts in answer["report"][0]
    assert os.listdir(ranks.directory) == []


def test_another_rank_reads_on_when_the_reader_is_killed(ranks):
    reader = stopped_reader(ranks)
    other = ranks.start_waiting()
    reader.kill()
    answer = ranks.answer(other)
    assert reader.wait() == -signal.SIGKILL
    assert "; took the reading over from another rank" in answer["report"][0]
    assert 0 < answer["read"] < ranks.size
    assert os.listdir(ranks.directory) == []


def test_a_rank_that_starts_after_the_reader_was_killed_reads_what_is_left(ranks):
    reader = stopped_reader(ranks)
    reader.kill()
    reader.wait()
    left = sorted(name.partition("-")[0] for name in os.listdir(ranks.directory))
    assert left == ["load", "warm"]  # its position and its lock, which stop nobody
    answer = ranks.answer(ranks.start())
    assert "took the reading over" not in answer["report"][0]
    assert 0 < answer["read"] < ranks.size
    assert os.listdir(ranks.directory) == []
