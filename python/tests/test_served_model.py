"""weightmap.torch.load_model() and weightmap.transformers.load(): models over mapped tensors."""

import concurrent.futures
import os
import subprocess
import sys

import pytest

import weightmap

torch = pytest.importorskip("torch", reason="these tests make models")
pytest.importorskip("weightmap.torch", reason="this torch is too old")

KIB = 1024


def permissions(tensor):
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= tensor.data_ptr() < end:
                return line.split()[1], os.path.basename(line.split()[-1])


class Rotary(torch.nn.Module):
    """With what no file has: a buffer that is not persistent, and a plain attribute."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", torch.arange(4.0) / 2, persistent=False)
        self.scale = torch.full((4,), 3.0)

    def forward(self, x):
        return x * self.frequencies + self.scale


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.rotary = Rotary()
        self.norm = torch.nn.BatchNorm1d(4)
        self.last = torch.nn.Linear(4, 4)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.norm(self.rotary(self.first(x))))


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(1)
    model = Model().eval()
    path = tmp_path / "model.pt"
    torch.save(model.state_dict(), path)
    return model, path


def test_a_model_lies_in_the_read_only_mapping(saved):
    original, path = saved
    model = weightmap.torch.load_model(Model, path).eval()
    kinds = {permissions(tensor) for tensor in model.state_dict().values()}
    assert kinds == {("r--s", "model.pt")}
    entry = torch.arange(8.0).reshape(2, 4)
    assert torch.equal(model(entry), original(entry))
    assert model.last.weight is model.first.weight


def test_a_parameter_in_the_read_only_mapping_takes_no_gradient(saved):
    model = weightmap.torch.load_model(Model, saved[1]).eval()
    model.first.weight.requires_grad_(False)  # as an adapter does with what it does not train
    with pytest.raises(weightmap.UnsupportedError, match="load the model with copy_on_write=True"):
        model(torch.ones(2, 4)).sum().backward()
    assert model.first.weight.grad is None


def test_a_parameter_that_was_moved_takes_its_gradient(saved):
    model = weightmap.torch.load_model(Model, saved[1]).eval().double()
    model(torch.ones(2, 4, dtype=torch.double)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert model.last.bias.grad.tolist() == [2.0] * 4


def test_half_precision_is_multiplied_in_place(tmp_path):
    path = tmp_path / "half.pt"
    torch.save(torch.nn.Linear(256, 8192, bias=False).bfloat16().state_dict(), path)
    model = weightmap.torch.load_model(lambda: torch.nn.Linear(256, 8192, bias=False), path)
    entry = torch.ones(1, 4, 256, dtype=torch.bfloat16)[:, -1:]
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        model(entry)
    taken = sum(max(0, event.self_cpu_memory_usage) for event in profile.key_averages())
    assert taken < path.stat().st_size / 4


def test_what_no_file_has_comes_from_the_factory(saved):
    model = weightmap.torch.load_model(Model, saved[1])
    assert model.rotary.frequencies.tolist() == [0, 0.5, 1, 1.5]
    assert model.rotary.scale.tolist() == [3.0] * 4


def test_the_factory_is_called_once_where_the_file_has_all(tmp_path):
    path = tmp_path / "linear.pt"
    torch.save(torch.nn.Linear(3, 3).state_dict(), path)
    calls = []

    def factory():
        calls.append(torch.empty(1).device.type)
        return torch.nn.Linear(3, 3)

    weightmap.torch.load_model(factory, path)
    assert calls == ["meta"]


def test_the_second_call_keeps_no_parameter(saved):
    made = []

    def factory():
        made.append(Model())
        return made[-1]

    weightmap.torch.load_model(factory, saved[1])
    assert all(parameter.is_meta for parameter in made[1].parameters())
    assert not made[1].rotary.frequencies.is_meta


def test_parameters_that_may_be_written_to_may_be_trained(saved):
    model = weightmap.torch.load_model(Model, saved[1], copy_on_write=True)
    model(torch.ones(2, 4)).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    assert permissions(model.first.weight)[0] == "rw-p"


def test_the_dtype_that_the_file_has_is_taken(saved):
    model = weightmap.torch.load_model(Model, saved[1], torch.float32)
    assert model.first.weight.dtype == torch.float32


def test_another_dtype_is_refused_with_what_it_would_cost(saved):
    # 4 * 4 + 4 twice, but for one weight that is tied, and four of four in the norm.
    with pytest.raises(weightmap.UnsupportedError) as error:
        weightmap.torch.load_model(Model, saved[1], torch.bfloat16)
    assert str(error.value) == (
        f"{saved[1]}: has 8 of 9 tensors in another dtype than bfloat16, such as 'first.weight' in "
        "float32: converting them would take 0 MiB of anonymous memory in every worker. Convert the "
        "file once, by a load, .to() and a save, or leave dtype= out"
    )


def test_names_that_differ_are_refused_as_torch_does(saved):
    with pytest.raises(RuntimeError, match="Unexpected key"):
        weightmap.torch.load_model(lambda: torch.nn.Linear(4, 3), saved[1])


def test_what_the_file_lacks_stays_on_meta_if_that_is_allowed(tmp_path):
    path = tmp_path / "half.pt"
    torch.save({"weight": torch.ones(3, 3)}, path)
    model = weightmap.torch.load_model(lambda: torch.nn.Linear(3, 3), path, strict=False)
    assert model.bias.is_meta and not model.weight.is_meta


WORKER = """
import sys
import torch
import weightmap
def pss():
    with open("/proc/self/smaps_rollup") as rollup:
        return sum(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) * 1024
factory = lambda: torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8)))
torch.set_num_threads(1)
small = torch.nn.Linear(2048, 2048)
with torch.no_grad():
    small(torch.ones(1, 2048))
    del small
    weightmap.torch
    print("ready", flush=True)
    sys.stdin.readline()
    before = pss()
    model = weightmap.torch.load_model(factory, sys.argv[1])
    out = model(torch.ones(1, 2048))
    print("served", flush=True)
    sys.stdin.readline()
    print(pss() - before, flush=True)
    sys.stdin.readline()
"""


def test_four_workers_of_a_model_have_one_copy_of_it(tmp_path):
    path = tmp_path / "served.pt"
    layers = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8)))
    torch.save(layers.state_dict(), path)
    del layers
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, path], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        for _ in range(4)
    ]

    def ask(expected):
        answers = []
        for worker in workers:
            answers.append(worker.stdout.readline().strip())
            assert expected in ("", answers[-1])
        for worker in workers:
            worker.stdin.write("\n")
            worker.stdin.flush()
        return answers

    ask("ready")
    ask("served")
    grown = sum(int(answer) for answer in ask(""))
    assert [worker.wait() for worker in workers] == [0] * 4
    assert grown <= 1.1 * path.stat().st_size


# --- transformers ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="these tests make its models")


@pytest.fixture(scope="module")
def folder(transformers, tmp_path_factory):
    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, head_dim=64,
    )
    torch.manual_seed(2)
    path = tmp_path_factory.mktemp("llama")
    transformers.LlamaForCausalLM(config).eval().save_pretrained(path, max_shard_size="500KB")
    assert len(list(path.glob("*.safetensors"))) > 1
    return path


def test_a_model_of_transformers_lies_in_the_read_only_mapping(transformers, folder):
    stock = transformers.LlamaForCausalLM.from_pretrained(folder, dtype="auto")
    model = weightmap.transformers.load(folder)
    assert type(model) is type(stock)
    assert {permissions(parameter)[0] for parameter in model.parameters()} == {"r--s"}
    assert {permissions(parameter)[0] for parameter in stock.parameters()} == {"rw-p"}
    tokens = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, stock(tokens).logits)
    answer = {"max_new_tokens": 5, "do_sample": False}
    assert torch.equal(model.generate(tokens, **answer), stock.generate(tokens, **answer))
    import safetensors

    assert safetensors.safe_open.__module__ == "builtins"


def test_a_class_of_ones_own(transformers, folder):
    model = weightmap.transformers.load(folder, cls=transformers.AutoModel, copy_on_write=True)
    assert type(model).__name__ == "LlamaModel"
    assert {permissions(parameter)[0] for parameter in model.parameters()} == {"rw-p"}


class LoadsInThreads:
    """Loads as transformers does with HF_ENABLE_PARALLEL_LOADING."""

    @staticmethod
    def from_pretrained(path, dtype):
        import safetensors

        def shard(file):
            with safetensors.safe_open(file, framework="pt") as opened:
                return {name: opened.get_tensor(name) for name in opened.keys()}

        model = torch.nn.Module()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for part in pool.map(shard, sorted(path.glob("*.safetensors"))):
                for name, tensor in part.items():
                    model.register_parameter(name.replace(".", "_"), torch.nn.Parameter(tensor))
        return model


@pytest.mark.parametrize("copy_on_write, mode", [(False, "r--s"), (True, "rw-p")])
def test_threads_of_a_loader_get_the_same_parameters(transformers, folder, copy_on_write, mode):
    model = weightmap.transformers.load(folder, cls=LoadsInThreads, copy_on_write=copy_on_write)
    assert {permissions(parameter)[0] for parameter in model.parameters()} == {mode}


@pytest.mark.parametrize("options", [{"dtype": torch.float16}, {"torch_dtype": "float16"}])
def test_a_dtype_is_refused(transformers, folder, options):
    with pytest.raises(weightmap.InvalidArgumentError, match="into anonymous memory of every process"):
        weightmap.transformers.load(folder, **options)


def test_a_model_without_a_known_class_is_refused(transformers, folder, tmp_path):
    import json
    import shutil

    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["architectures"] = ["NobodysModel"]
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(weightmap.InvalidArgumentError, match="names NobodysModel, which"):
        weightmap.transformers.load(copy)


def test_weightmap_transformers_says_what_is_missing(python):
    program = "import sys; sys.modules['transformers'] = None\nimport weightmap.transformers"
    ended = python(program)
    assert ended.returncode == 1
    assert "needs the package transformers: pip install transformers" in ended.stderr
