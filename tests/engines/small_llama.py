"""A Llama of random weights, as engines find it in a folder: in each layout that they load."""

import json

import tokenizers
import torch
from safetensors.torch import save_file

VOCABULARY, HIDDEN, INTERMEDIATE, LAYERS, HEADS = 8192, 1024, 2816, 2, 16  # 177 MB of float32
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HIDDEN // HEADS,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def weights(seed):
    generator = torch.Generator().manual_seed(seed)

    def matrix(*shape):
        return torch.randn(*shape, generator=generator) * 0.05

    made = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name in "qkvo":
            made[f"{at}self_attn.{name}_proj.weight"] = matrix(HIDDEN, HIDDEN)
        for name in ("gate", "up"):
            made[f"{at}mlp.{name}_proj.weight"] = matrix(INTERMEDIATE, HIDDEN)
        made[f"{at}mlp.down_proj.weight"] = matrix(HIDDEN, INTERMEDIATE)
        made[f"{at}input_layernorm.weight"] = 1 + matrix(HIDDEN)
        made[f"{at}post_attention_layernorm.weight"] = 1 + matrix(HIDDEN)
    made["model.norm.weight"] = 1 + matrix(HIDDEN)
    made["lm_head.weight"] = matrix(VOCABULARY, HIDDEN)
    return made


def _folder(path):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


def write_bin(path, tensors):
    torch.save(tensors, _folder(path) / "pytorch_model.bin")


def write_single(path, tensors):
    save_file(tensors, _folder(path) / "model.safetensors", metadata={"format": "pt"})


def write_sharded(path, tensors, shards=3):
    _folder(path)
    names = list(tensors)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        save_file(part, path / file, metadata={"format": "pt"})
        weight_map.update({name: file for name in part})
    index = {"metadata": {}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def write_tokenizer(path):
    """Into a model's folder: one of words, of which each is the name of a token."""
    words = {f"w{token}": token for token in range(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "w1", "eos_token": "w2"}
    (path / "tokenizer_config.json").write_text(json.dumps(about))
