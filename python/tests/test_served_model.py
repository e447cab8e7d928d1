"""weightmap.torch.load_model() and weightmap.transformers.load(): models over mapped tensors."""

import concurrent.futures
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from memory_maps import mapping_of, mappings_of

import weightmap

torch = pytest.importorskip("torch", reason="these tests make models")
pytest.importorskip("weightmap.torch", reason="this torch is too old")

KIB = 1024


def permissions(tensor):
    """Of the mapping, and the name of its file."""
    mapping = mapping_of(tensor)
    return mapping["permissions"], os.path.basename(mapping["file"])


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


@pytest.mark.parametrize("options, mode", [({}, "rw-p"), ({"copy_on_write": False}, "r--s")])
def test_a_model_lies_in_the_file(saved, options, mode):
    original, path = saved
    model = weightmap.torch.load_model(Model, path, **options).eval()
    kinds = {permissions(tensor) for tensor in model.state_dict().values()}
    assert kinds == {(mode, "model.pt")}
    entry = torch.arange(8.0).reshape(2, 4)
    assert torch.equal(model(entry), original(entry))
    assert model.last.weight is model.first.weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_parameter_in_the_read_only_mapping_takes_no_gradient(tmp_path, dtype):
    path = tmp_path / "model.pt"
    torch.save(Model().to(dtype).state_dict(), path)
    model = weightmap.torch.load_model(Model, path, copy_on_write=False).eval()
    model.rotary.to(dtype).scale = model.rotary.scale.to(dtype)
    model.first.weight.requires_grad_(False)  # as an adapter does with what it does not train
    with pytest.raises(weightmap.UnsupportedError, match="without copy_on_write=False"):
        model(torch.ones(2, 4, dtype=dtype)).sum().backward()
    assert model.first.weight.grad is None


def test_a_parameter_that_was_moved_takes_its_gradient(saved):
    model = weightmap.torch.load_model(Model, saved[1], copy_on_write=False).eval().double()
    model(torch.ones(2, 4, dtype=torch.double)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert model.last.bias.grad.tolist() == [2.0] * 4


def test_large_parameters_alone_take_no_gradient_where_small_ones_may_be_written_to(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(torch.nn.Linear(512, 512).state_dict(), path)
    model = weightmap.torch.load_model(lambda: torch.nn.Linear(512, 512), path, copy_on_write="small")
    model.weight.requires_grad_(False)
    model(torch.ones(1, 512)).sum().backward()
    assert model.bias.grad.tolist() == [1.0] * 512
    model.weight.requires_grad_(True)
    with pytest.raises(weightmap.UnsupportedError, match="read-only mapping"):
        model(torch.ones(1, 512)).sum().backward()


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


# --- writing -----------------------------------------------------------------------------------

PAGE = 4096
WIDTH = 512  # two rows of a weight are a page


@pytest.fixture
def linear(tmp_path):
    """A file of 1 MiB and a bias, of which a model was made."""
    path = tmp_path / "linear.pt"
    torch.save({"weight": torch.arange(WIDTH * WIDTH / 1.0).reshape(WIDTH, WIDTH) / 2**20,
                "bias": torch.zeros(WIDTH)}, path)
    return weightmap.torch.load_model(lambda: torch.nn.Linear(WIDTH, WIDTH), path), path


def train(model):
    model(torch.ones(2, WIDTH)).sum().backward()
    torch.optim.SGD(model.parameters(), 0.5).step()


def compiled(model):
    entry = torch.ones(1, WIDTH)
    assert torch.allclose(torch.compile(model, backend="aot_eager")(entry), model(entry))


def quantized(model):
    made = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(model), {torch.nn.Linear})
    assert type(made[0]).__module__ == "torch.ao.nn.quantized.dynamic.modules.linear"
    return made


def shared(model):
    model.share_memory()


# What is done to a model, and how much the process has then: the weight ends in the page of the
# bias, and the last two make parameters of their own.
@pytest.mark.parametrize("write, own_bytes", [
    (lambda model: model.weight.data[3, 4].fill_(1), PAGE),
    (lambda model: model.weight[:2].add_(1), 2 * PAGE),
    (lambda model: model.weight.data.fill_(0), 257 * PAGE),
    (lambda model: model.weight.copy_(torch.ones(WIDTH, WIDTH)), 257 * PAGE),
    (torch.enable_grad()(train), 257 * PAGE),
    (compiled, 0),
    (quantized, WIDTH * WIDTH + WIDTH * 4),  # one byte for each weight, and the bias
    (shared, (WIDTH + 1) * WIDTH * 4),
    (lambda model: model.half(), (WIDTH + 1) * WIDTH * 2),
    (lambda model: model.double(), (WIDTH + 1) * WIDTH * 8),
], ids=["one element", "two rows", "data.fill_", "copy_", "training", "compile", "quantize", "shared",
        "half", "double"])
def test_a_write_costs_what_was_written_and_stays_in_the_process(linear, write, own_bytes):
    model, path = linear
    before = path.read_bytes()
    model.weight.sum()
    assert weightmap.torch.summary(model).own_bytes == 0
    with torch.no_grad():
        model = write(model) if write is quantized else (write(model), model)[1]
    assert weightmap.torch.summary(model).own_bytes == own_bytes
    assert path.read_bytes() == before


def test_a_summary_of_a_model_says_what_there_is_and_what_is_its_own(linear):
    model = torch.nn.Sequential(linear[0], torch.nn.ReLU())
    model[1].weight = linear[0].weight
    model.register_buffer("scale", torch.ones(3))
    summary = weightmap.torch.summary(model)
    assert repr(summary).splitlines()[:4] == [
        "Sequential: 3 tensors, 262,659 elements, 1.0 MiB; 12 B in this process alone",
        "by dtype:",
        "  float32: 3 tensors, 262,659 elements, 1.0 MiB",
        "by prefix:",
    ]
    assert summary.ties == (("0.weight", "1.weight"),)
    assert set(weightmap.torch.summary(model, depth=2).prefixes) == {"0.weight", "0.bias", "scale"}
    assert weightmap.torch.summary(torch.nn.Linear(3, 3, device="meta")).own_bytes == 0


def test_a_summary_of_a_checkpoint_says_what_was_written(linear):
    with weightmap.open(linear[1]) as opened:
        assert opened.summary().own_bytes == 0
        opened["weight"].torch()[5, 5] = 1
        assert opened.summary().own_bytes == PAGE
        assert repr(opened.summary()).splitlines()[0].endswith("; 4.0 KiB in this process alone")


def test_a_load_says_in_the_log_how_much_is_its_own(linear, caplog):
    with caplog.at_level("INFO", logger="weightmap"):
        weightmap.torch.load_model(lambda: torch.nn.Linear(WIDTH, WIDTH), linear[1])
    assert [record.getMessage() for record in caplog.records] == [
        "Linear: 2 tensors, 262,656 elements, 1.0 MiB; 0 B in this process alone"
    ]


REFUSED = """
import faulthandler, resource, sys
import torch, weightmap
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if sys.argv[2] == "faulthandler before":
    faulthandler.enable()
factory = lambda: torch.nn.Linear(512, 512)
model = weightmap.torch.load_model(factory, sys.argv[1], copy_on_write=False)
if sys.argv[2] == "faulthandler after":
    faulthandler.enable()
if sys.argv[2] == "a worker of torch's":
    torch._C._set_worker_signal_handlers()
with torch.no_grad():
    model.weight[0, 0] = 1
"""
LINE = ('weightmap: a write to tensor "weight" of {path}, at byte {at}, which is mapped to be read '
        "only: copy_on_write=True lets it be written to\n")
TRACEBACK = "Fatal Python error: Segmentation fault\n"


# Who comes later speaks first, and both of these end the process without a word to who was before.
@pytest.mark.parametrize("who, said", [
    ("nobody", [LINE]), ("faulthandler before", [LINE, TRACEBACK]),
    ("faulthandler after", [TRACEBACK]),
    ("a worker of torch's", ["ERROR: Unexpected segmentation fault encountered in worker.\n"]),
])
def test_a_write_to_what_is_only_read_is_told_before_it_ends_the_process(linear, python, who, said):
    path = linear[1]
    at = weightmap.open(path)["weight"].file_offset
    ended = python(REFUSED, path, who, PYTHONFAULTHANDLER="")
    assert ended.returncode == -11
    expected = "".join(said).format(path=path, at=at)
    assert ended.stderr[:len(expected)] == expected
    assert ("weightmap" in ended.stderr) is (LINE in said)


def test_what_may_be_written_to_has_no_handler(linear, python):
    program = REFUSED.replace(", copy_on_write=False", "") + "print(weightmap.guard_is_active())"
    ended = python(program, linear[1], "nobody")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("False\n", "", 0)


# --- dtypes and names --------------------------------------------------------------------------


def test_another_dtype_is_refused_with_what_it_would_cost(saved):
    # 4 * 4 + 4 twice, but for one weight that is tied, and four of four in the norm.
    own = weightmap.torch.load_model(Model, saved[1], torch.float32)
    assert own.first.weight.dtype == torch.float32
    with pytest.raises(weightmap.UnsupportedError) as error:
        weightmap.torch.load_model(Model, saved[1], torch.bfloat16)
    assert str(error.value) == (
        f"{saved[1]}: has 8 of 9 tensors in another dtype than bfloat16, such as 'first.weight' in "
        "float32: converting them would take 0 MiB of anonymous memory in every worker. Convert the "
        "file once, by a load, .to() and a save, or leave dtype= out"
    )


def test_a_model_that_is_a_part_of_the_file_is_found(tmp_path):
    path = tmp_path / "train.pt"
    torch.save({"net": torch.nn.Linear(3, 3).state_dict()}, path)
    with pytest.raises(RuntimeError) as refused:
        weightmap.torch.load_model(lambda: torch.nn.Linear(3, 3), path)
    assert f'take weightmap.open({str(path)!r}).load_into(model, "net")' in str(refused.value)


def test_names_that_differ_are_refused_with_the_part_that_fits_most(saved):
    with pytest.raises(RuntimeError, match="most tensors of the model are below .first."):
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
    with torch.device("meta"):
        torch.nn.Linear(1, 1)  # older torches import much at the first
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


def test_four_workers_of_a_model_have_one_copy_of_it(tmp_path, start_python):
    path = tmp_path / "served.pt"
    layers = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8)))
    torch.save(layers.state_dict(), path)
    del layers
    workers = [start_python(WORKER, path) for _ in range(4)]

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


def test_a_variant_and_dtypes_choose_as_they_do_for_open(tmp_path):
    numpy = pytest.importorskip("numpy", reason="the file is made by it")
    for variant, value in (("", 1.0), (".fp16", 2.0)):
        weightmap.save_safetensors({"weight": torch.full((1, 2), value)}, tmp_path / f"m{variant}.safetensors")
    for options, value in (({}, 1.0), ({"variant": "fp16"}, 2.0)):
        assert weightmap.torch.load(tmp_path, **options)["weight"].tolist() == [[value, value]]
        model = weightmap.torch.load_model(lambda: torch.nn.Linear(2, 1, bias=False), tmp_path, **options)
        assert model.weight.tolist() == [[value, value]]
    with pytest.raises(weightmap.InvalidArgumentError, match="is open already, so variant cannot"):
        weightmap.torch.load(weightmap.open(tmp_path), variant="fp16")
    numpy.savez(tmp_path / "a.npz", weight=numpy.array([[0x3F80, 0x4000]], "<u2").view("V2"))
    options = {"dtypes": {"weight": "bfloat16"}}
    assert weightmap.torch.load(tmp_path / "a.npz", **options)["weight"].tolist() == [[1.0, 2.0]]
    model = weightmap.torch.load_model(lambda: torch.nn.Linear(2, 1, bias=False), tmp_path / "a.npz", **options)
    assert model.weight.dtype is torch.bfloat16


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


@pytest.mark.parametrize("options, mode", [({}, "rw-p"), ({"copy_on_write": False}, "r--s")])
def test_a_model_of_transformers_lies_in_the_files(transformers, folder, options, mode):
    stock = transformers.LlamaForCausalLM.from_pretrained(folder, dtype="auto")
    model = weightmap.transformers.load(folder, **options)
    assert type(model) is type(stock)
    assert {permissions(parameter)[0] for parameter in model.parameters()} == {mode}
    assert weightmap.torch.summary(model).own_bytes < 4096  # buffers that no file has
    assert {permissions(parameter)[0] for parameter in stock.parameters()} == {"rw-p"}
    tokens = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, stock(tokens).logits)
    answer = {"max_new_tokens": 5, "do_sample": False}
    assert torch.equal(model.generate(tokens, **answer), stock.generate(tokens, **answer))
    import safetensors

    assert safetensors.safe_open.__module__ == "builtins"


def adapter_of(folder, **fields):
    """Of q_proj, as PEFT saves it, without PEFT."""
    config = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    place = folder.parent / f"adapter_of_{folder.name}"
    place.mkdir(exist_ok=True)
    (place / "adapter_config.json").write_text(json.dumps({**config, **fields}))
    weightmap.save_safetensors(
        {
            f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{half}.weight":
                torch.full(shape, 0.25)
            for layer in range(2) for half, shape in (("A", (2, 128)), ("B", (128, 2)))
        },
        place / "adapter_model.safetensors",
    )
    return place


def test_an_adapter_of_peft_comes_with_the_model_that_it_is_for(transformers, folder, caplog):
    pytest.importorskip("peft", reason="this test loads an adapter of it")
    adapter = adapter_of(folder, base_model_name_or_path=str(folder))
    stock = transformers.AutoModelForCausalLM.from_pretrained(adapter)
    model = weightmap.transformers.load(adapter)
    assert type(model).__name__ == type(stock).__name__ == "LlamaForCausalLM"
    tokens = torch.tensor([[1, 5, 9, 2]])
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, stock(tokens).logits)
    weights = {name: each for name, each in model.named_parameters() if "lora" not in name}
    assert {permissions(each)[0] for each in weights.values()} == {"rw-p"}
    assert not caplog.records  # that anything was converted
    assert list(weightmap.transformers.load(adapter, adapter_name="own").peft_config) == ["own"]


def test_a_class_of_ones_own(transformers, folder):
    model = weightmap.transformers.load(folder, cls=transformers.AutoModel)
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
            for part in pool.map(shard, sorted(Path(path).glob("*.safetensors"))):
                for name, tensor in part.items():
                    model.register_parameter(name.replace(".", "_"), torch.nn.Parameter(tensor))
        return model


@pytest.mark.parametrize("copy_on_write, mode", [(False, "r--s"), (True, "rw-p")])
def test_threads_of_a_loader_get_the_same_parameters(transformers, folder, copy_on_write, mode):
    model = weightmap.transformers.load(folder, cls=LoadsInThreads, copy_on_write=copy_on_write)
    assert {permissions(parameter)[0] for parameter in model.parameters()} == {mode}


@pytest.mark.parametrize("options", [{}, {"copy_on_write": True}])
def test_loads_at_once_get_what_each_has_asked_for(transformers, folder, options):
    import safetensors

    class Waits:
        """A load that lasts until another one is done."""

        @staticmethod
        def from_pretrained(path, **options):
            begun.set()
            done.wait()
            return LoadsInThreads.from_pretrained(path, **options)

    def unrelated():
        with safetensors.safe_open(file, framework="pt") as opened:
            return permissions(opened.get_tensor(next(iter(opened.keys()))))[0]

    begun, done = threading.Event(), threading.Event()
    file = next(Path(folder).glob("*.safetensors"))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        first = pool.submit(weightmap.transformers.load, folder, cls=Waits, copy_on_write=False)
        first.add_done_callback(lambda _: begun.set())  # also after an error before that
        begun.wait()
        try:
            second = weightmap.transformers.load(folder, **options)
            modes = unrelated(), pool.submit(unrelated).result()
        finally:
            done.set()
        assert {permissions(each)[0] for each in first.result().parameters()} == {"r--s"}
    assert {permissions(each)[0] for each in second.parameters()} == {"rw-p"}
    assert modes[0] not in ("r--s", "r--p")


@pytest.mark.parametrize("options", [
    {"dtype": torch.float32}, {"dtype": "float32"}, {"torch_dtype": "torch.float32"},
    {"dtype": "auto"}, {"dtype": None},
])
def test_the_dtype_of_the_files_is_taken(transformers, folder, options):
    model = weightmap.transformers.load(folder, **options)
    assert {permissions(parameter)[0] for parameter in model.parameters()} == {"rw-p"}
    assert model.dtype == torch.float32


@pytest.fixture
def changed(folder, tmp_path):
    """Makes a copy of the model whose config.json and tensors are changed by these functions."""
    from safetensors.torch import load_file, save_file

    def change(config=lambda fields: None, tensor=lambda name, tensor: tensor):
        copy = Path(shutil.copytree(folder, tmp_path / "changed"))
        fields = json.loads((copy / "config.json").read_text())
        config(fields)
        (copy / "config.json").write_text(json.dumps(fields))
        for shard in copy.glob("*.safetensors"):
            tensors = {name: tensor(name, value.clone()) for name, value in load_file(shard).items()}
            save_file(tensors, shard, {"format": "pt"})
        return copy

    return change


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", None])
def test_the_dtype_of_the_files_goes_before_that_of_the_config(transformers, changed, dtype, caplog):
    model = weightmap.transformers.load(changed(lambda fields: fields.update(dtype=dtype)))
    assert model.dtype == torch.float32
    assert {permissions(each)[1].split("-")[0] for each in model.parameters()} == {"model"}
    assert not caplog.records


def test_files_that_mix_dtypes_are_converted_with_a_warning(transformers, changed, caplog):
    def mixed(name, tensor):
        return tensor if "norm" in name else tensor.bfloat16()

    model = weightmap.transformers.load(changed(lambda fields: fields.update(dtype="bfloat16"), mixed))
    norms = [each for name, each in model.named_parameters() if "norm" in name]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"LlamaForCausalLM: {sum(each.nbytes for each in norms):,} bytes of parameters are in memory "
        "of this process alone, since they were converted or made anew; the files have bfloat16 and "
        "float32, the model takes bfloat16"
    ]


def test_a_folder_with_both_kinds_of_files_is_that_of_safetensors(transformers, folder, changed):
    copy = changed()
    torch.save({"w": torch.ones(4, dtype=torch.float16)}, copy / "pytorch_model.bin")
    for options in ({}, {"dtype": "float32"}):
        assert weightmap.transformers.load(copy, **options).dtype == torch.float32


def test_a_variant_is_that_of_from_pretrained(transformers, folder, tmp_path):
    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype="float16")
    model.save_pretrained(tmp_path, variant="fp16")
    loaded = weightmap.transformers.load(tmp_path, variant="fp16")
    assert loaded.dtype == torch.float16
    assert permissions(loaded.lm_head.weight) == ("rw-p", "model.fp16.safetensors")


def test_a_name_is_printed_in_print(transformers):
    with pytest.raises(weightmap.Error) as refused:
        weightmap.transformers.load("a\0b\x1b[31m.pt")
    assert str(refused.value).isprintable()


NO_NETWORK = """
import socket, sys
import torch, weightmap, weightmap.transformers
def refuse(*arguments, **options):
    raise SystemExit("the network was asked")
socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse
"""
MISSING = NO_NETWORK + """
loads = (weightmap.transformers.load, weightmap.open,
         lambda name: weightmap.torch.load_model(lambda: torch.nn.Linear(2, 2), name))
for name in sys.argv[1:]:
    for load in loads:
        try:
            load(name)
        except weightmap.MissingFileError as error:
            print(error)
"""


def test_what_is_not_here_is_refused_without_the_network(transformers, python, tmp_path):
    names = ["./nope", "nope", "org/nope"]
    ended = python(MISSING, *names, HF_HOME=tmp_path)
    assert ended.stderr == "" and ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [name for name in names for _ in range(3)]
    assert lines[::3] == [
        f"{name}: there is no such folder, and no such model in the local cache of huggingface_hub; "
        "nothing is fetched from the network (`hf download` does, and local_files_only=False)"
        for name in names
    ]


def test_a_model_of_the_hub_is_found_in_the_local_cache(transformers, python, folder, tmp_path):
    cached = tmp_path / "hub" / "models--org--name"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("0" * 40)
    (cached / "snapshots").mkdir()
    (cached / "snapshots" / ("0" * 40)).symlink_to(folder)
    program = NO_NETWORK + """
for options in ({}, {"revision": "main", "dtype": "float32"}):
    model = weightmap.transformers.load("org/name", **options)
    print(type(model).__name__, model.name_or_path, model.config.name_or_path)
"""
    ended = python(program, HF_HOME=tmp_path)
    said = "LlamaForCausalLM org/name org/name\n" * 2
    assert (ended.stdout, ended.returncode) == (said, 0), ended.stderr


def a_file_of(folder):
    return next(folder.glob("*.safetensors"))


def of_no_class(folder):
    copy = folder.parent / "of_no_class"
    copy.mkdir(exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "architectures": ["NobodysModel"]}))
    return copy


FOR_WHICH = "which model the adapter is for"


@pytest.mark.parametrize("make, options, error, message, file", [
    pytest.param(adapter_of, {}, weightmap.InvalidArgumentError, FOR_WHICH,
                 "adapter_config.json", id="adapter of no model"),
    pytest.param(lambda folder: adapter_of(folder, base_model_name_or_path=None), {},
                 weightmap.InvalidArgumentError, FOR_WHICH, "adapter_config.json", id="of null"),
    pytest.param(lambda folder: adapter_of(folder, revision=3), {},
                 weightmap.InvalidArgumentError, FOR_WHICH, "adapter_config.json", id="revision"),
    pytest.param(lambda folder: adapter_of(folder, base_model_name_or_path="none/such"), {},
                 weightmap.MissingFileError, "no such model in the local cache", "none/such",
                 id="adapter of a model that is not here"),
    pytest.param(Path, {"dtype": torch.float16}, weightmap.UnsupportedError,
                 "another dtype than float16, such as 'mod", "", id="dtype"),
    pytest.param(Path, {"torch_dtype": "float16"}, weightmap.UnsupportedError,
                 "another dtype than float16, such as 'mod", "", id="torch_dtype"),
    pytest.param(Path, {"dtype": "float17"}, weightmap.InvalidArgumentError,
                 "dtype is 'float17', expected 'auto'", "", id="no dtype"),
    pytest.param(a_file_of, {}, weightmap.InvalidArgumentError, "is a file; .* takes the folder", "",
                 id="a file"),
    pytest.param(of_no_class, {}, weightmap.InvalidArgumentError, "names NobodysModel, which", "",
                 id="an unknown class"),
])
def test_transformers_load_refuses(transformers, folder, make, options, error, message, file):
    with pytest.raises(error, match=message) as refused:
        weightmap.transformers.load(make(folder), **options)
    assert not file or refused.value.file.endswith(file)


# --- adapters ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def half_folder(transformers, tmp_path_factory):
    """A model of 27 MiB in bfloat16."""
    config = transformers.LlamaConfig(
        vocab_size=4096, hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=4, head_dim=128,
    )
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("half")
    transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(path)
    return path


def with_adapter(model, **options):
    peft = pytest.importorskip("peft", reason="this test makes an adapter")
    chosen = {"r": 4, "target_modules": ["q_proj"], "init_lora_weights": False, **options}
    torch.manual_seed(4)
    return peft.get_peft_model(model, peft.LoraConfig(**chosen))


def test_an_adapter_is_merged_into_the_model(transformers, half_folder):
    tokens = torch.tensor([[1, 5, 9, 2]])
    models = [with_adapter(load(half_folder)).merge_and_unload()
              for load in (weightmap.transformers.load,
                           transformers.LlamaForCausalLM.from_pretrained)]
    with torch.no_grad():
        assert torch.equal(models[0](tokens).logits, models[1](tokens).logits)
    merged = 4 * 512 * 512 * 2  # q_proj of four layers; each may begin and end within a page
    assert merged <= weightmap.torch.summary(models[0]).own_bytes <= merged + 5 * PAGE


def test_an_adapter_is_trained_and_the_model_stays_what_it_was(transformers, half_folder):
    model = weightmap.transformers.load(half_folder)
    own_bytes = weightmap.torch.summary(model).own_bytes
    adapted = with_adapter(model, init_lora_weights=True)
    optimizer = torch.optim.SGD([each for each in adapted.parameters() if each.requires_grad], 1)
    tokens = torch.tensor([[1, 5, 9, 2]])
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        losses.append(adapted(tokens, labels=tokens).loss)
        losses[-1].backward()
        optimizer.step()
    assert losses[2] < losses[0]
    of_adapter = sum(each.nbytes for each in adapted.parameters() if each.requires_grad)
    assert weightmap.torch.summary(adapted).own_bytes == own_bytes + of_adapter


ADAPTED = """
import sys
import peft, torch, weightmap, weightmap.transformers
model = weightmap.transformers.load(sys.argv[1])
def logits():
    for parameter in model.parameters():
        parameter.sum()
    return model(torch.tensor([[1, 5, 9, 2]])).logits.float().sum().item()
with torch.no_grad():
    while True:
        print(logits(), weightmap.torch.summary(model).own_bytes, flush=True)
        if sys.stdin.readline() == "merge\\n":
            torch.manual_seed(4)
            chosen = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
            model = peft.get_peft_model(model, chosen).merge_and_unload()
"""


def test_of_four_workers_one_merges_an_adapter_and_has_what_it_wrote(
    half_folder, record_property, start_python
):
    pytest.importorskip("peft", reason="this test makes an adapter")
    file = half_folder / "model.safetensors"
    workers = [start_python(ADAPTED, half_folder, OMP_NUM_THREADS="1") for _ in range(4)]

    def answers():
        said = [worker.stdout.readline().split() for worker in workers]
        pss = KIB * sum(
            mapping["Pss"] for worker in workers for mapping in mappings_of(file, worker.pid)
        )
        return [float(each[0]) for each in said], [int(each[1]) for each in said], pss

    before, own_before, pss_before = answers()
    for word, worker in zip(["merge", "", "", ""], workers):
        worker.stdin.write(f"{word}\n")
        worker.stdin.flush()
    after, own_after, pss_after = answers()
    record_property("pss_before", pss_before / file.stat().st_size)
    record_property("pss_after", pss_after / file.stat().st_size)
    assert len(set(before)) == 1 and after[0] != before[0] and after[1:] == before[1:]
    merged = 4 * 512 * 512 * 2
    assert merged <= own_after[0] - own_before[0] <= merged + 5 * PAGE
    assert own_after[1:] == own_before[1:]
    assert pss_before <= 1.01 * file.stat().st_size
    assert pss_after <= 1.01 * file.stat().st_size + merged + 5 * PAGE


def test_weightmap_transformers_says_what_is_missing(python):
    program = "import sys; sys.modules['transformers'] = None\nimport weightmap.transformers"
    ended = python(program)
    assert ended.returncode == 1
    assert "needs the package transformers: pip install transformers" in ended.stderr
