"""Programs that load models, under WEIGHTMAP_PATCH: the same tensors as without, and each saved over
the file that it has mapped. The models are small, random and made here; each program is a process of
its own, which this file is the main module of.
"""

import importlib.util
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="these programs use torch")
if __name__ != "__main__":
    pytest.importorskip("weightmap.torch", reason="this torch is too old")


def needs(package):
    return pytest.importorskip(package, reason=f"{package} does not import here")


def import_torchvision():
    """A torchvision that is built for CUDA, as PyPI's is, has no operators beside a torch without;
    what torch would need to trace them cannot be registered, and is left out."""
    register = torch.library.register_fake

    def register_others(name, *arguments, **options):
        if str(name).startswith("torchvision::"):
            return lambda function: function
        return register(name, *arguments, **options)

    torch.library.register_fake = register_others
    try:
        needs("torchvision")
    finally:
        torch.library.register_fake = register


if importlib.util.find_spec("torchvision"):
    import_torchvision()


class Program:
    """Writes a checkpoint into a folder, loads a model from it, saves the model over it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)


def bert():
    transformers = needs("transformers")
    torch.manual_seed(1)
    return transformers.BertModel(transformers.BertConfig(
        vocab_size=4096, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=256,
    ))


class Transformers(Program):
    """A folder of one file, or of shards, which several threads load."""

    shard = "50GB"

    def write(self):
        bert().save_pretrained(self.folder, max_shard_size=self.shard)

    def load(self):
        return needs("transformers").BertModel.from_pretrained(self.folder)

    def save(self, model):
        model.save_pretrained(self.folder, max_shard_size=self.shard)


class Shards(Transformers):
    shard = "500KB"


class Bin(Transformers):
    def write(self):
        super().write()
        (self.folder / "model.safetensors").unlink()
        self.save(bert())

    def save(self, model):
        torch.save(model.state_dict(), self.folder / "pytorch_model.bin")


class Accelerate(Bin):
    def load(self):
        return needs("accelerate").load_checkpoint_and_dispatch(
            bert(), str(self.folder / "pytorch_model.bin"), device_map={"": "cpu"}
        )


class Peft(Program):
    def write(self):
        peft = needs("peft")
        config = peft.LoraConfig(r=8, target_modules=["query", "value"], init_lora_weights=False)
        peft.get_peft_model(bert(), config).save_pretrained(self.folder)

    def load(self):
        return needs("peft").PeftModel.from_pretrained(bert(), self.folder)

    def save(self, model):
        model.save_pretrained(self.folder)


class SentenceTransformers(Program):
    def write(self):
        needs("sentence_transformers")
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

        bert().save_pretrained(self.folder / "bert")
        vocabulary = self.folder / "vocab.txt"
        vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
        tokenizer = needs("transformers").BertTokenizer(str(vocabulary))
        tokenizer.save_pretrained(self.folder / "bert")
        words = Transformer(str(self.folder / "bert"))
        self.save(self.of(modules=[words, Pooling(128)]))

    def of(self, *path, **modules):
        made = needs("sentence_transformers").SentenceTransformer
        return made(*path, **modules, device="cpu")

    def load(self):
        return self.of(str(self.folder / "saved"))

    def save(self, model):
        model.save(str(self.folder / "saved"))


class Timm(Program):
    def make(self):
        return needs("timm").create_model("resnet10t", pretrained=False)

    def write(self):
        self.save(self.make())

    def load(self):
        model = self.make()
        needs("timm").models.load_checkpoint(model, str(self.folder / "model.safetensors"))
        return model

    def save(self, model):
        needs("safetensors.torch").save_model(model, str(self.folder / "model.safetensors"))


class OpenClip(Program):
    def make(self):
        return needs("open_clip").create_model("RN50", pretrained=None)

    def write(self):
        self.save(self.make())

    def load(self):
        model = self.make()
        needs("open_clip").load_checkpoint(model, str(self.folder / "open_clip.pt"))
        return model

    def save(self, model):
        torch.save(model.state_dict(), self.folder / "open_clip.pt")


class Diffusers(Program):
    def write(self):
        diffusers = needs("diffusers")
        torch.manual_seed(1)
        model = diffusers.AutoencoderKL(block_out_channels=(64,), norm_num_groups=8)
        self.save(model)

    def load(self):
        return needs("diffusers").AutoencoderKL.from_single_file(
            str(self.folder / "vae" / "diffusion_pytorch_model.safetensors"),
            config=str(self.folder / "vae"),
        )

    def save(self, model):
        model.save_pretrained(self.folder / "vae")


PROGRAMS = [Transformers, Shards, Bin, Accelerate, Peft, SentenceTransformers, Timm, OpenClip,
            Diffusers]


def tensors(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(first, second):
    return first.keys() == second.keys() and all(map(torch.equal, first.values(), second.values()))


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_loads_the_same_and_saves_over_what_is_mapped(kind, tmp_path, monkeypatch, run):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_ENABLE_PARALLEL_LOADING", "true")  # of shards
    folder = tmp_path / "folder"
    folder.mkdir()
    program = kind(folder)
    program.write()
    expected = tensors(program.load())
    torch.save(expected, tmp_path / "expected.pt")
    ran = run(__file__, kind.__name__, folder, tmp_path / "expected.pt", value="report")
    assert ran.returncode == 0, ran.stderr
    assert same(tensors(program.load()), expected)
    served = [line for line in ran.stderr.splitlines()
              if str(folder) in line and line.endswith(": weightmap")]
    print(ran.stderr)
    assert any(line.startswith(("torch.load(", "safe_open(")) for line in served), ran.stderr


def main(kind, folder, expected):
    """The program, which knows nothing of weightmap."""
    program = globals()[kind](folder)
    expected = torch.load(expected, mmap=False)
    model = program.load()
    assert same(tensors(model), expected)
    program.save(model)
    assert same(tensors(model), expected)


if __name__ == "__main__":
    main(*sys.argv[1:])
