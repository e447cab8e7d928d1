"""Records which experts the router of a random model of OLMoE's architecture chooses.

    record_routes.py TRACE [--layers 8] [--experts 64] [--chosen 4] [--tokens 300] [--seed 1]

The model is small, its weights are random, and so is the text that it writes: the routes are those
of a real router, but of one that was not trained. Needs torch and transformers.

A trace is lines of text: comments that begin with "#", then "layers L experts E", then a line for
each token, with a word for each layer: the numbers of the experts, "3,17,40,8".
"""
import argparse


def model_of(arguments):
    from transformers import OlmoeConfig, OlmoeForCausalLM, set_seed

    set_seed(arguments.seed)
    config = OlmoeConfig(
        vocab_size=1024, hidden_size=64, intermediate_size=32, num_attention_heads=4,
        num_key_value_heads=4, num_hidden_layers=arguments.layers, num_experts=arguments.experts,
        num_experts_per_tok=arguments.chosen, initializer_range=0.2, pad_token_id=0,
        bos_token_id=1, eos_token_id=None, max_position_embeddings=arguments.tokens + 1)
    return OlmoeForCausalLM(config).eval()


def routes_of(model, tokens, chosen):
    """The experts by token and layer. A token's routes do not depend on those that follow it, so
    one pass over the whole text gives those of its generation."""
    import torch

    with torch.inference_mode():
        text = model.generate(torch.tensor([[1]]), do_sample=True, min_new_tokens=tokens - 1,
                              max_new_tokens=tokens - 1)
        logits = model(text, output_router_logits=True).router_logits
    layers = [each.topk(chosen, dim=-1).indices.tolist() for each in logits]
    return list(zip(*layers))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--chosen", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    routes = routes_of(model_of(arguments), arguments.tokens, arguments.chosen)
    with open(arguments.trace, "w", encoding="ascii") as file:
        file.write(f"# OLMoE with random weights, seed {arguments.seed}\n"
                   f"layers {arguments.layers} experts {arguments.experts}\n")
        for layers in routes:
            file.write(" ".join(",".join(map(str, experts)) for experts in layers) + "\n")


if __name__ == "__main__":
    main()
