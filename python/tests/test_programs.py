"""Programs that load models, under weightmap.patch(): the same tensors as without, and each saved
over the file that it has mapped. The models are small, random and made here."""

import pytest

import weightmap

torch = pytest.importorskip("torch", reason="these programs use torch")
pytest.importorskip("weightmap.torch", reason="this torch is too old")


def needs(package):
    return pytest.importorskip(package, reason=f"{package} does not import here")


def bert():
    transformers = needs("transformers")
    torch.manual_seed(1)
    return transformers.BertModel(transformers.BertConfig(
        vocab_size=4096, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=256,
    ))


class Transformers:
    """A folder of one file, or of shards, which several threads load."""

    shard = "50GB"

    def __init__(self, folder):
        bert().save_pretrained(folder, max_shard_size=self.shard)
        self.folder = folder

    def load(self):
        return needs("transformers").BertModel.from_pretrained(self.folder)

    def save(self, model):
        model.save_pretrained(self.folder, max_shard_size=self.shard)


class Shards(Transformers):
    shard = "500KB"


class Bin(Transformers):
    def __init__(self, folder):
        super().__init__(folder)
        (folder / "model.safetensors").unlink()
        self.save(bert())

    def save(self, model):
        torch.save(model.state_dict(), self.folder / "pytorch_model.bin")


class Accelerate:
    def __init__(self, folder):
        self.path = folder / "pytorch_model.bin"
        torch.save(bert().state_dict(), self.path)

    def load(self):
        return needs("accelerate").load_checkpoint_and_dispatch(
            bert(), str(self.path), device_map={"": "cpu"}
        )

    def save(self, model):
        torch.save(model.state_dict(), self.path)


class Peft:
    def __init__(self, folder):
        peft = needs("peft")
        config = peft.LoraConfig(r=8, target_modules=["query", "value"], init_lora_weights=False)
        peft.get_peft_model(bert(), config).save_pretrained(folder)
        self.folder = folder

    def load(self):
        return needs("peft").PeftModel.from_pretrained(bert(), self.folder)

    def save(self, model):
        model.save_pretrained(self.folder)


class SentenceTransformers:
    def __init__(self, folder):
        needs("sentence_transformers")
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

        bert().save_pretrained(folder / "bert")
        (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
        tokenizer = needs("transformers").BertTokenizer(str(folder / "vocab.txt"))
        tokenizer.save_pretrained(folder / "bert")
        words = Transformer(str(folder / "bert"))
        self.folder = str(folder / "saved")
        self.of([words, Pooling(128)]).save(self.folder)

    def of(self, modules):
        return needs("sentence_transformers").SentenceTransformer(modules=modules, device="cpu")

    def load(self):
        return needs("sentence_transformers").SentenceTransformer(self.folder, device="cpu")

    def save(self, model):
        model.save(self.folder)


class Timm:
    def __init__(self, folder):
        timm = needs("timm")
        self.make = lambda: timm.create_model("resnet10t", pretrained=False)
        self.path = folder / "model.safetensors"
        self.save(self.make())

    def load(self):
        model = self.make()
        needs("timm").models.load_checkpoint(model, str(self.path))
        return model

    def save(self, model):
        needs("safetensors.torch").save_model(model, str(self.path))


class OpenClip:
    def __init__(self, folder):
        open_clip = needs("open_clip")
        self.make = lambda: open_clip.create_model("RN50", pretrained=None)
        self.path = folder / "open_clip.pt"
        self.save(self.make())

    def load(self):
        model = self.make()
        needs("open_clip").load_checkpoint(model, str(self.path))
        return model

    def save(self, model):
        torch.save(model.state_dict(), self.path)


class Diffusers:
    def __init__(self, folder):
        diffusers = needs("diffusers")
        torch.manual_seed(1)
        model = diffusers.AutoencoderKL(block_out_channels=(64,), norm_num_groups=8)
        model.save_pretrained(folder / "vae")
        self.folder = folder
        self.path = folder / "vae" / "diffusion_pytorch_model.safetensors"

    def load(self):
        return needs("diffusers").AutoencoderKL.from_single_file(
            str(self.path), config=str(self.folder / "vae")
        )

    def save(self, model):
        model.save_pretrained(self.folder / "vae")


PROGRAMS = [Transformers, Shards, Bin, Accelerate, Peft, SentenceTransformers, Timm, OpenClip,
            Diffusers]


def tensors(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(map(torch.equal, first.values(), second.values()))


@pytest.mark.parametrize("make", PROGRAMS)
def test_a_program_loads_the_same_and_saves_over_what_is_mapped(make, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENABLE_PARALLEL_LOADING", "true")  # of shards
    program = make(tmp_path)
    expected = tensors(program.load())
    with weightmap.patch() as report:
        model = program.load()
        assert same(tensors(model), expected)
        program.save(model)
        assert same(tensors(model), expected)
    assert same(tensors(program.load()), expected)
    print(report)
    assert any(call.function in ("torch.load", "safe_open") for call in report.served)
