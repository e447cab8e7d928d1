"""Records which experts the routers of a mixture-of-experts model choose while it writes text.

    record_routes.py OUT [--shape olmoe|mixtral] [--layers N] [--model FOLDER] [--tokens 200]
                     [--seed 1]

Needs torch and transformers. Without --model the model is a small one of random weights, with the
shape of a real one: as many layers, experts and chosen ones as OLMoE 1B-7B (16, 64 and 8) or Mixtral
8x7B (32, 8 and 2), but narrow. --model takes one with weights from a folder. The text begins
with a random token; each next one is drawn from what the model predicts, so that it does not repeat
itself.

OUT is text. Lines at the beginning that start with "#" say where it is from. Then "layers L experts
E"; then a line for each token, with a word for each layer, separated by blanks: the chosen experts of
that layer, numbers from 0, separated by commas, those of the greatest weight first:

    # OlmoeForCausalLM, random weights, seed 1
    layers 2 experts 64
    3,17,40 5,9,22
    17,3,8 22,5,60
"""
import argparse

import torch
import transformers

SHAPES = {
    "olmoe": (transformers.OlmoeConfig,
              {"num_hidden_layers": 16, "num_experts": 64, "num_experts_per_tok": 8}),
    "mixtral": (transformers.MixtralConfig,
                {"num_hidden_layers": 32, "num_local_experts": 8, "num_experts_per_tok": 2}),
}
NARROW = {"hidden_size": 256, "intermediate_size": 64, "num_attention_heads": 4,
          "num_key_value_heads": 4, "vocab_size": 8192, "max_position_embeddings": 4096,
          "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


def random_model(shape, layers):
    config_class, options = SHAPES[shape]
    if layers:
        options = {**options, "num_hidden_layers": layers}
    return transformers.AutoModelForCausalLM.from_config(config_class(**NARROW, **options))


class Recorder:
    """Notes what each router returns for the last token."""

    def __init__(self, model):
        self.routers = [module for module in model.modules()
                        if type(module).__name__.endswith("TopKRouter")]
        if not self.routers:
            raise SystemExit("the model has no routers that are known")
        self.chosen = {}
        for layer, router in enumerate(self.routers):
            router.register_forward_hook(
                lambda module, inputs, outputs, layer=layer: self.note(layer, outputs[2]))

    def note(self, layer, indices):
        self.chosen[layer] = indices[-1].tolist()

    def line(self):
        return " ".join(",".join(map(str, self.chosen[layer]))
                        for layer in range(len(self.routers)))


def written(model, recorder, tokens):
    """Lines for tokens that the model writes."""
    token, cache = torch.randint(model.config.vocab_size, (1, 1)), None
    for _ in range(tokens):
        outputs = model(token, past_key_values=cache, use_cache=True)
        yield recorder.line()
        cache = outputs.past_key_values
        token = torch.multinomial(outputs.logits[:, -1].float().softmax(-1), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--shape", choices=SHAPES, default="olmoe")
    parser.add_argument("--layers", type=int, help="default: those of the shape")
    parser.add_argument("--model", help="folder of one with weights")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    if arguments.model:
        model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model)
        weights = "weights of its own"
    else:
        model = random_model(arguments.shape, arguments.layers)
        weights = f"random weights, seed {arguments.seed}"
    recorder = Recorder(model.eval())
    with torch.inference_mode(), open(arguments.out, "w", encoding="ascii") as file:
        print(f"# {type(model).__name__}, {weights}", file=file)
        print(f"layers {len(recorder.routers)} experts {recorder.routers[0].weight.shape[0]}",
              file=file)
        for line in written(model, recorder, arguments.tokens):
            print(line, file=file)


if __name__ == "__main__":
    main()
