"""weightmap.transformers.load(experts=...): models that take their experts from leases."""

import copy
import gc
import json
import os
import pickle
import shutil
import threading
import weakref
from types import SimpleNamespace

import pytest

import weightmap
from memory_maps import permissions

torch = pytest.importorskip("torch", reason="this test runs models")
transformers = pytest.importorskip("transformers", "5", reason="these tests make its models")

from weightmap._transformers.expert_module import ExpertLayer  # noqa: E402

# Of the text that must be the same. scripts/test --engines asks for 200.
TOKENS = int(os.environ.get("WEIGHTMAP_EXPERT_TOKENS", "12"))
COMMON = dict(
    vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, pad_token_id=None,
    num_key_value_heads=2, max_position_embeddings=512, bos_token_id=None, eos_token_id=None,
)
DEEPSEEK = dict(
    COMMON, intermediate_size=64, moe_intermediate_size=24, n_routed_experts=8, n_shared_experts=1,
    num_experts_per_tok=2, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=16, v_head_dim=16,
    qk_rope_head_dim=8, qk_nope_head_dim=8, n_group=2, topk_group=1,
)
CONFIGS = {
    "Mixtral": dict(COMMON, intermediate_size=48, num_local_experts=8, num_experts_per_tok=2),
    "Qwen2Moe": dict(COMMON, intermediate_size=64, moe_intermediate_size=24, num_experts=8,
                     num_experts_per_tok=2, shared_expert_intermediate_size=48),
    "Qwen3Moe": dict(COMMON, intermediate_size=64, moe_intermediate_size=24, num_experts=8,
                     num_experts_per_tok=2, head_dim=16),
    "Olmoe": dict(COMMON, intermediate_size=24, num_experts=8, num_experts_per_tok=2),
    "DeepseekV2": dict(DEEPSEEK, q_lora_rank=None, n_group=1),
    "DeepseekV3": DEEPSEEK,
    "GptOss": dict(COMMON, intermediate_size=24, num_local_experts=8, num_experts_per_tok=2,
                   head_dim=16, sliding_window=8),
}
# As they are published; blocks are smaller, as everything is.
QUANTIZED = {
    "GptOss mxfp4": dict(CONFIGS["GptOss"], intermediate_size=64),
    "Qwen3Moe fp8": dict(CONFIGS["Qwen3Moe"], moe_intermediate_size=32),
    "DeepseekV3 fp8": dict(DEEPSEEK, moe_intermediate_size=32),
}
QUANTIZATIONS = {
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
            "weight_block_size": [16, 16]},
}
# Of two experts, and of some more: a slot is of whole pages.
BUDGETS = [24 << 10, "64KiB"]
OF_QUANTIZED = ["64KiB", "128KiB"]
PROMPT = [[3, 17, 90, 5, 64, 33, 101, 8, 77, 45, 12, 126, 54, 88, 21, 9, 111, 70, 39, 2]]


def saved(name, path):
    torch.manual_seed(5)
    kind, _, form = name.partition(" ")
    config = getattr(transformers, f"{kind}Config")(**{**CONFIGS, **QUANTIZED}[name])
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:  # so that each token has other experts, and the text is no loop
                parameter.normal_(std=0.25)
    model.save_pretrained(path)
    if form:
        rewrite(path, lambda fields: fields.update(quantization_config=QUANTIZATIONS[form]),
                {"mxfp4": to_mxfp4, "fp8": to_fp8}[form])
    return path


def rewrite(folder, config, tensors):
    """With other fields and tensors, which these functions make in place."""
    fields = json.loads((folder / "config.json").read_text())
    config(fields)
    (folder / "config.json").write_text(json.dumps(fields))
    with weightmap.open(folder) as opened:
        state = {name: each.clone() for name, each in opened.torch().items()}
    tensors(state)
    weightmap.save_safetensors(state, folder / "model.safetensors", metadata={"format": "pt"})


def to_mxfp4(state):
    """Random bytes, each of two numbers, and an exponent for 32 of them."""
    for name in [name for name in state if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, columns, rows = state.pop(name).shape
        shape = experts, rows, columns // 32
        state[f"{name}_blocks"] = torch.randint(256, (*shape, 16), dtype=torch.uint8)
        state[f"{name}_scales"] = torch.randint(121, 127, shape, dtype=torch.uint8)


def to_fp8(state):
    from transformers.integrations.finegrained_fp8 import Fp8Quantize

    config = transformers.FineGrainedFP8Config(weight_block_size=(16, 16))
    quantize = Fp8Quantize(SimpleNamespace(quantization_config=config))
    for name in [name for name in state if "_proj" in name]:
        state.update(quantize.convert({name: state[name]}))


def text_of(model):
    return model.generate(
        torch.tensor(PROMPT), do_sample=False, min_new_tokens=TOKENS, max_new_tokens=TOKENS
    )[0].tolist()


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor(PROMPT)).logits


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """More of them take turns in waiting where the matrices are so small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}

    def folder(name):
        if name not in made:
            made[name] = saved(name, tmp_path_factory.mktemp(name))
        return made[name]

    return folder


@pytest.fixture(scope="module")
def wholes(folders):
    """Models with all in memory, as transformers has them."""
    made = {}

    def whole(name):
        if name not in made:
            made[name] = transformers.AutoModelForCausalLM.from_pretrained(
                folders(name), dtype="auto", experts_implementation="eager"
            )
        return made[name]

    return whole


@pytest.fixture
def load(folders):
    def load(name="Mixtral", experts=BUDGETS[0], **options):
        experts = OF_QUANTIZED[0] if name in QUANTIZED else experts
        return weightmap.transformers.load(folders(name), experts=experts, **options)

    return load


def apart(folder, to):
    """The same model with the tensors in such an order that no two of an expert are neighbours."""
    shutil.copytree(folder, to)
    with weightmap.open(folder) as opened:
        order = sorted(opened, key=lambda name: (name.split(".")[-2], name))
        weightmap.save_safetensors({name: opened[name].torch() for name in order},
                                   to / "model.safetensors", metadata={"format": "pt"})
    return to


EXPERTS = "experts.safetensors"


def experts_apart(folder, to):
    """The same model with the experts in a file of their own, of which nothing is mapped."""
    shutil.copytree(folder, to)
    with weightmap.open(folder) as opened:
        places = {name: EXPERTS if ".experts." in name else "rest.safetensors" for name in opened}
        for file in set(places.values()):
            tensors = {name: opened[name].torch() for name in opened if places[name] == file}
            weightmap.save_safetensors(tensors, to / file, metadata={"format": "pt"})
    (to / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": places}
    (to / "model.safetensors.index.json").write_text(json.dumps(index))
    return to


@pytest.mark.parametrize("name", [*CONFIGS, *QUANTIZED])
def test_answers_are_those_of_the_whole_model(name, folders, wholes, tmp_path):
    whole = wholes(name)
    folder = folders(name)
    is_of_slices = "GptOss" in name or name in QUANTIZED  # which are used where they are cached
    if is_of_slices:
        folder = experts_apart(folder, tmp_path / "apart")
    elif name != "Mixtral":  # whose files are so anyway
        folder = apart(folder, tmp_path / "apart")
    logits, text = logits_of(whole), text_of(whole)
    assert len(set(text[-TOKENS:])) > min(TOKENS, 32) // 4  # it is no loop of a few tokens
    for budget in OF_QUANTIZED if name in QUANTIZED else BUDGETS:
        model = weightmap.transformers.load(folder, experts=budget)
        is_cold = not is_of_slices or weightmap.evict(folder / EXPERTS).cached_after == 0
        assert type(model).__name__ == type(whole).__name__ and isinstance(model, type(whole))
        assert torch.equal(logits_of(model), logits)
        assert text_of(model) == text
        stats = weightmap.transformers.resident_set(model).stats()
        assert stats.leased_units == 0
        if is_cold:  # tmpfs keeps what it has
            assert stats.misses > 0 and stats.evicted_units > 0


@pytest.mark.parametrize("name", ["GptOss", "GptOss mxfp4", "Qwen3Moe fp8"])
def test_experts_that_are_in_the_page_cache_are_used_there(load, wholes, name):
    model = load(name)
    assert torch.equal(logits_of(model), logits_of(wholes(name)))
    stats = weightmap.transformers.resident_set(model).stats()
    assert stats.mapped_units > 0 and stats.slot_bytes == 0


def test_each_expert_is_visited_once_a_call(load):
    model = load(experts=BUDGETS[0])
    logits_of(model)
    resident = weightmap.transformers.resident_set(model)
    assert len(resident) == 16 and resident.stats().budget_bytes < 3 * resident.unit_bytes[0]
    uses = [each.uses for each in resident.history()]
    assert set(uses) == {0, 1} and sum(uses) > 12


@pytest.fixture
def waves(monkeypatch):
    """How many experts each wave takes, or is refused."""
    seen, acquire = [], ExpertLayer._acquire
    monkeypatch.setattr(
        ExpertLayer, "_acquire",
        lambda self, experts: seen.append(len(experts)) or acquire(self, experts),
    )
    return seen


def test_a_layer_takes_all_that_fits_at_once(load, waves):
    logits_of(load(experts="320KiB"))
    assert len(waves) == COMMON["num_hidden_layers"] and min(waves) > 4


def test_a_layer_that_does_not_fit_takes_half_of_the_budget_at_a_time(load, waves):
    logits_of(load(experts="160KiB"))
    assert max(waves) == 2 and len(waves) > 6


def test_a_layer_takes_less_where_others_leave_no_room(load, wholes, waves, monkeypatch):
    acquire = ExpertLayer._acquire

    def refuse_many(self, experts):
        if len(experts) > 4:
            raise weightmap.LimitExceededError("leases of others")
        return acquire(self, experts)

    monkeypatch.setattr(ExpertLayer, "_acquire", refuse_many)
    assert torch.equal(logits_of(load(experts="320KiB")), logits_of(wholes("Mixtral")))
    assert max(waves) == 4 and len(waves) == 4


def test_everything_but_the_experts_is_mapped(load):
    model = load()
    names = [name for name, _ in model.named_parameters()]
    assert "model.layers.1.mlp.gate.weight" in names and not any("experts" in each for each in names)
    assert {permissions(each) for each in model.parameters()} == {"rw-p"}
    resident = weightmap.transformers.resident_set(model)
    assert [unit.name for unit in resident.units[7:9]] == [
        "model.layers.0.mlp.experts.7", "model.layers.1.mlp.experts.0"
    ]
    assert [(part.tensor.rpartition("experts.")[2], part.joined)
            for part in resident.units[7].parts] == [
        ("7.w1.weight", False), ("7.w3.weight", True), ("7.w2.weight", False)
    ]
    assert repr(model.model.layers[0].mlp.experts.down_proj) == (
        "<model.layers.0.mlp.experts.down_proj of 8 experts, read when they are needed>"
    )


def test_nothing_is_told_to_be_missing(load, caplog):
    transformers.utils.logging.enable_propagation()
    try:
        load()
    finally:
        transformers.utils.logging.disable_propagation()
    assert not [each.getMessage() for each in caplog.records if "experts" in each.getMessage()]


def test_files_in_shards_and_pickles_are_read_likewise(folders, wholes, tmp_path):
    whole = wholes("Mixtral")
    whole.save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    (tmp_path / "pickled").mkdir()
    shutil.copy(folders("Mixtral") / "config.json", tmp_path / "pickled")
    with weightmap.open(folders("Mixtral")) as opened:
        torch.save({name: each.torch() for name, each in opened.items()},
                   tmp_path / "pickled" / "pytorch_model.bin")
    for folder in ("shards", "pickled"):
        model = weightmap.transformers.load(tmp_path / folder, experts="24KiB")
        assert torch.equal(logits_of(model), logits_of(whole))


def test_files_of_the_model_below_the_head_are_found(folders, wholes, tmp_path):
    """Their names lack a prefix that those of the model have."""
    wholes("Mixtral").model.save_pretrained(tmp_path)
    model = weightmap.transformers.load(
        tmp_path, experts="24KiB", cls=transformers.MixtralForCausalLM
    )
    tokens = torch.tensor(PROMPT)
    with torch.no_grad():
        assert torch.equal(model.model(tokens)[0], wholes("Mixtral").model(tokens)[0])


def test_threads_have_leases_of_their_own(load, wholes):
    model, expected = load(experts="64KiB"), text_of(wholes("Mixtral"))
    texts = []
    threads = [threading.Thread(target=lambda: texts.append(text_of(model))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [expected] * 3


def test_models_of_one_name_share_their_experts(load):
    models = [load(experts="1MiB", share=f"models-{os.getpid()}") for _ in range(2)]
    for model in models:
        logits_of(model)
    stats = weightmap.transformers.resident_set(models[1]).stats()
    assert stats.misses == stats.hits > 8


def test_the_set_is_gone_with_the_model(load):
    model = load()
    logits_of(model)
    resident = weakref.ref(weightmap.transformers.resident_set(model))
    del model
    gc.collect()
    assert resident() is None


# --- what such a model does not do


def test_a_gradient_is_refused_and_a_forward_without_no_grad_is_not(load, wholes):
    model = load()
    answer = model(torch.tensor(PROMPT), labels=torch.tensor(PROMPT))
    assert torch.equal(answer.logits, logits_of(wholes("Mixtral")))
    assert weightmap.transformers.resident_set(model).stats().leased_units == 0
    with pytest.raises(weightmap.UnsupportedError, match="no backward.*without experts= to train"):
        answer.loss.backward()


@pytest.mark.parametrize("use, message", [
    (lambda model, path: model.save_pretrained(path), "no save_pretrained.*or copy its files"),
    (lambda model, path: model.state_dict(), "no state_dict.*weightmap.open"),
    (lambda model, path: model.model.layers[0].state_dict(), "no state_dict"),
    (lambda model, path: model.load_state_dict({}, strict=False), "no load_state_dict.*other files"),
    (lambda model, path: model.to(torch.float16), "no conversion to float16.*convert the files"),
    (lambda model, path: model.float(), "no conversion to float32.*convert the files"),
    (lambda model, path: model.model.layers.half(), "no conversion to float16"),
    (lambda model, path: model.to("meta"), "no move to meta.*without experts="),
    (lambda model, path: model.train(), "no training.*without experts= to train it"),
    (lambda model, path: copy.deepcopy(model), "no copy and no pickle.*load it again"),
    (lambda model, path: pickle.dumps(model), "no copy and no pickle"),
    (lambda model, path: torch.save(model, path / "model.pt"), "no copy and no pickle"),
], ids=["save_pretrained", "state_dict", "state_dict of a layer", "load_state_dict", "to", "float",
        "half of layers", "device", "train", "deepcopy", "pickle", "torch.save"])
def test_a_model_refuses_what_needs_its_experts(load, tmp_path, use, message):
    model = load()
    before = {name: each.dtype for name, each in model.named_parameters()}
    with pytest.raises(weightmap.UnsupportedError, match=message):
        use(model, tmp_path)
    assert {name: each.dtype for name, each in model.named_parameters()} == before


def test_what_changes_nothing_is_not_refused(load, wholes):
    model = load().to("cpu").eval()
    assert torch.equal(logits_of(model), logits_of(wholes("Mixtral")))
    model.to(torch.bfloat16)  # of buffers alone, such as the frequencies of rotary embeddings


@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm"])
def test_other_implementations_are_refused(load, implementation):
    model = load()
    model.set_experts_implementation(implementation)
    with pytest.raises(weightmap.UnsupportedError, match='for experts_implementation="eager"'):
        logits_of(model)


@pytest.mark.parametrize("use, message", [
    (lambda weights: weights[0], "expert 0 is read when its module is called"),
    (lambda weights: weights[8], r"\[8\] is not there"),
    (lambda weights: weights[torch.tensor([1])], r"\[tensor.*is not there"),
    (lambda weights: weights[0:2], r"\[slice.*is not there"),
    (lambda weights: weights.data, r"\.data is not there"),
    (lambda weights: torch.bmm(weights, weights), r"bmm\(\) takes the weights of all experts"),
], ids=["outside of a call", "number", "numbers", "slice", "attribute", "function of torch"])
def test_weights_of_experts_are_taken_one_by_one(load, use, message):
    weights = load().model.layers[0].mlp.experts.gate_up_proj
    assert weights.shape == (8, 96, 32) and len(weights) == 8 and not hasattr(weights, "grad")
    with pytest.raises(weightmap.UnsupportedError, match=message):
        use(weights)


@pytest.mark.parametrize("options, error, message", [
    ({"device_map": "auto"}, weightmap.UnsupportedError, "goes without device_map="),
    ({"tp_plan": "auto"}, weightmap.UnsupportedError, "goes without tp_plan="),
    ({"quantization_config": {"load_in_8bit": True}}, weightmap.UnsupportedError,
     "goes without quantization_config="),
    ({"experts_implementation": "grouped_mm"}, weightmap.UnsupportedError, "not with 'grouped_mm'"),
    ({"cls": transformers.AutoModelForCausalLM}, weightmap.InvalidArgumentError,
     "class of a model, not AutoModelForCausalLM"),
    ({"experts": "all"}, weightmap.InvalidArgumentError, "the budget is 'all', expected"),
    ({"experts": 4096}, weightmap.LimitExceededError, "model.layers.0.mlp.experts.0"),
    ({"experts": None, "share": "a"}, weightmap.InvalidArgumentError, "share= is about experts="),
], ids=str)
def test_a_load_is_refused(load, options, error, message):
    with pytest.raises(error, match=message):
        load(**options)


def test_a_model_without_experts_is_refused(tmp_path):
    config = transformers.LlamaConfig(**COMMON, intermediate_size=64)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(weightmap.UnsupportedError, match="LlamaForCausalLM has no modules of experts"):
        weightmap.transformers.load(tmp_path, experts="1GiB")
    with pytest.raises(weightmap.InvalidArgumentError, match="was loaded without experts="):
        weightmap.transformers.resident_set(weightmap.transformers.load(tmp_path))


def test_an_adapter_is_refused(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "org/name"}')
    with pytest.raises(weightmap.UnsupportedError, match="is an adapter, and experts= takes none"):
        weightmap.transformers.load(tmp_path, experts="1GiB")


@pytest.fixture
def changed(folders, tmp_path):
    """Makes a copy of a model with another config and other tensors."""

    def change(name, config=lambda fields: None, tensors=lambda tensors: None):
        folder = shutil.copytree(folders(name), tmp_path / "changed")
        rewrite(folder, config, tensors)
        return folder

    return change


@pytest.mark.parametrize("name, parts", [
    ("GptOss mxfp4", ["gate_up_proj_blocks", "gate_up_proj_scales", "gate_up_proj_bias",
                      "down_proj_blocks", "down_proj_scales", "down_proj_bias"]),
    ("Qwen3Moe fp8", ["3.gate_proj.weight", "3.gate_proj.weight_scale_inv", "3.up_proj.weight",
                      "3.up_proj.weight_scale_inv", "3.down_proj.weight",
                      "3.down_proj.weight_scale_inv"]),
])
def test_what_is_quantized_is_read_so(load, name, parts):
    model = load(name)
    resident = weightmap.transformers.resident_set(model)
    assert [part.tensor.rpartition("experts.")[2] for part in resident.units[3].parts] == parts
    assert model.dtype == model.model.layers[0].mlp.experts.down_proj.dtype == torch.bfloat16
    assert not any("experts" in each for each, _ in model.named_parameters())


def test_what_is_not_quantized_in_a_quantized_model_is_taken_so(changed):
    """The first layer is not; of the second there are also scales of inputs."""

    def change(state):
        for name in [name for name in state if ".experts." in name]:
            if "layers.1" in name:
                if name.endswith("weight"):
                    state[name.replace("weight", "activation_scale")] = torch.tensor(0.5)
            elif name.endswith("scale_inv"):
                del state[name]
            else:
                state[name] = state[name].bfloat16() / 128

    folder = changed("Qwen3Moe fp8", tensors=change)
    whole = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto", experts_implementation="eager"
    )
    model = weightmap.transformers.load(folder, experts="64KiB")
    assert torch.equal(logits_of(model), logits_of(whole))
    units = weightmap.transformers.resident_set(model).units
    assert [len(units[each].parts) for each in (7, 8)] == [3, 6]


def dequantization(form, change=lambda made: made, dtype=torch.bfloat16):
    """Of random parts, by an operation whose result is changed; with what it makes itself."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    from transformers.integrations.mxfp4 import Mxfp4Dequantize

    from weightmap._transformers.dequantization import Fp8Dequantization, Mxfp4Dequantization

    random = torch.randint(256, (150, 4, 16), dtype=torch.uint8)
    if form == "mxfp4":
        kind, real, key, patterns = Mxfp4Dequantization, Mxfp4Dequantize, "down_proj", [
            "down_proj_blocks", "down_proj_scales"]
        parts = [random, random[:, :, 0]]
    else:
        kind, real, key, patterns = Fp8Dequantization, Fp8Dequantize, "gate_up_proj", [
            "gate.weight", "gate.weight_scale_inv", "up.weight", "up.weight_scale_inv"]
        weight = random.view(150, 64).view(torch.float8_e4m3fn)
        parts = [weight[:30], torch.rand(3, 4), weight[30:], torch.rand(5, 2)]

    class Operation(real):
        def convert(self, given, **kwargs):
            made = super().convert(given, **kwargs)
            return {name: [change(each[0])] for name, each in made.items()}

    operation = Operation(None)
    model = SimpleNamespace(**{key: SimpleNamespace(dtype=dtype)})
    given = {pattern: [part[None] if form == "mxfp4" else part]
             for pattern, part in zip(patterns, parts)}
    expected = torch.cat([each[0] for each in operation.convert(
        given, model=model, full_layer_name=key).values()])
    return kind(operation, key, dtype, patterns), parts, expected


def bits(tensor):
    return tensor.nan_to_num(12345).view(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("form", ["mxfp4", "fp8"])
def test_what_is_dequantized_is_what_transformers_makes(form, dtype):
    dequantize, parts, expected = dequantization(form, dtype=dtype)
    assert dequantize._can_look_up is (form == "fp8" or dtype.itemsize == 2)
    made = dequantize(parts)
    assert made.dtype == dtype and made.is_contiguous() and not made.requires_grad
    assert torch.equal(bits(made), bits(expected))


@pytest.mark.parametrize("form", ["mxfp4", "fp8"])
def test_an_operation_that_is_not_of_bytes_alone_is_used_itself(form):
    dequantize, parts, expected = dequantization(form, lambda made: made.flip(0))
    assert torch.equal(bits(dequantize(parts)), bits(expected))


def test_another_quantization_is_refused(changed):
    folder = changed("Mixtral", lambda fields: fields.update(
        quantization_config={"quant_method": "metal"}
    ))
    with pytest.raises(weightmap.UnsupportedError,
                       match="mxfp4 or fp8, and this is one of metal; .*save it dequantized once"):
        weightmap.transformers.load(folder, experts="1GiB")


def test_a_model_that_stays_quantized_is_refused(load, wholes, monkeypatch):
    """As transformers has it where there is a GPU."""
    from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

    expected = logits_of(wholes("Qwen3Moe fp8"))
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)
    with pytest.raises(weightmap.UnsupportedError,
                       match=r"compute with fp8 .*FineGrainedFP8Config\(dequantize=True\)"):
        load("Qwen3Moe fp8")
    config = transformers.FineGrainedFP8Config(dequantize=True)
    assert torch.equal(logits_of(load("Qwen3Moe fp8", quantization_config=config)), expected)


def convert(state):
    for name in state:
        if "experts" in name:
            state[name] = state[name].float()


def leave_out(name):
    def change(state):
        del state[name]

    return change


def narrow(name):
    def change(state):
        state[name] = state[name][:-1].clone()

    return change


def fuse(state):
    parts = [state.pop(FP8.format(each)) for each in range(8)]
    state["model.layers.1.mlp.experts.down_proj"] = torch.stack(parts)


def change(name, how):
    def change(state):
        state[name] = how(state[name])

    return change


EXPERT = "model.layers.1.block_sparse_moe.experts.6.w3.weight"
FP8 = "model.layers.1.mlp.experts.{}.down_proj.weight"
MXFP4 = "model.layers.1.mlp.experts.down_proj_blocks"


@pytest.mark.parametrize("name, change, error, message", [
    ("Mixtral", convert, weightmap.UnsupportedError,
     "is float32 and the model computes in bfloat16; convert the files once"),
    ("Mixtral", leave_out(EXPERT), weightmap.UnsupportedError, "the files have 7 of 8 experts"),
    ("Mixtral", narrow(EXPERT), weightmap.UnsupportedError, r"does not fit \[96, 32\]"),
    ("GptOss", leave_out("model.layers.1.mlp.experts.down_proj"), weightmap.InvalidArgumentError,
     "the files have nothing for model.layers.1.mlp.experts.down_proj"),
    ("GptOss", narrow("model.layers.1.mlp.experts.down_proj"), weightmap.UnsupportedError,
     r"of shape \[7, 24, 32\] is not \[8, 24, 32\]"),
    ("Qwen3Moe fp8", leave_out(FP8.format(6) + "_scale_inv"), weightmap.UnsupportedError,
     "the files have 7 of 8 experts"),
    ("Qwen3Moe fp8", narrow(FP8.format(6)), weightmap.UnsupportedError,
     r"6.down_proj.weight' is float8_e4m3fn of \[31, 32\], and .* float8_e4m3fn of \[32, 32\]"),
    ("Qwen3Moe fp8", lambda state: [narrow(FP8.format(each))(state) for each in range(8)],
     weightmap.UnsupportedError, r"cannot be dequantized: .*31, 32\) not divisible by scale grid"),
    ("Qwen3Moe fp8", lambda state: [leave_out(FP8.format(each) + "_scale_inv")(state)
                                    for each in range(8)],
     weightmap.UnsupportedError, r"is float8_e4m3fn of \[32, 32\] when it is dequantized, "
     r"expected bfloat16 of \[32, 32\]"),
    ("Qwen3Moe fp8", fuse, weightmap.UnsupportedError,
     "'model.layers.1.mlp.experts.down_proj' is float8_e4m3fn and the model computes in bfloat16"),
    ("GptOss mxfp4", narrow(MXFP4), weightmap.UnsupportedError,
     r"down_proj_blocks' is not of 8 experts"),
    ("GptOss mxfp4", leave_out(MXFP4), weightmap.UnsupportedError, "cannot be dequantized"),
    ("GptOss mxfp4", change(MXFP4, lambda each: each[:, :, :1].clone()), weightmap.UnsupportedError,
     r"cannot be dequantized: .* does not match"),
    ("GptOss mxfp4", lambda state: [
        change(name, lambda each: each[:, 1:].clone())(state)
        for name in (MXFP4, MXFP4.replace("blocks", "scales"))
    ], weightmap.UnsupportedError, r"is bfloat16 of \[64, 31\] when it is dequantized, "
     r"expected bfloat16 of \[64, 32\]"),
], ids=["dtype", "an expert is missing", "shape", "a parameter is missing", "shape of fused",
        "a scale is missing", "shapes differ", "blocks", "scales are missing", "fused fp8",
        "stacked", "no weights", "groups", "rows"])
def test_files_that_do_not_fit_are_refused(changed, name, change, error, message):
    with pytest.raises(error, match=message) as refused:
        weightmap.transformers.load(changed(name, tensors=change), experts="1GiB")
    assert refused.value.file.endswith("model.safetensors")


def test_a_conversion_that_is_more_than_slices_is_refused(folders):
    from transformers.core_model_loading import MergeModulelist, Transpose, WeightConverter

    from weightmap._transformers.expert_files import ExpertFiles

    parameter = torch.empty(8, 48, 32, dtype=torch.bfloat16, device="meta")
    name = "model.layers.0.mlp.experts.down_proj"
    model = SimpleNamespace(base_model_prefix="model", state_dict=lambda: {name: parameter})
    mapping = WeightConverter(
        "block_sparse_moe.experts.*.w2.weight", "mlp.experts.down_proj",
        [MergeModulelist(0), Transpose(1, 2)],
    )
    config = SimpleNamespace(weight_mapping=[mapping], dtype_plan={})
    with weightmap.open(folders("Mixtral")) as opened:
        files = ExpertFiles(opened, model, {name: parameter}, config)
        with pytest.raises(weightmap.UnsupportedError, match="go through MergeModulelist, Transpose"):
            files.parts_of(name, parameter)
