#include "bench/model_shape.hpp"

namespace weightmap::bench {
namespace {

// Returns 8/3 of the hidden size, rounded up to a multiple of 256: the inner size of a gated
// feed-forward block that has as many weights as an ungated one of four times the hidden size.
std::int64_t feed_forward_size(std::int64_t hidden) { return (hidden * 8 / 3 + 255) / 256 * 256; }

void add_layer(std::vector<TensorShape>& model, std::int64_t layer, std::int64_t hidden) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const std::int64_t inner = feed_forward_size(hidden);
  for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"})
    model.push_back({prefix + "self_attn." + projection + ".weight", {hidden, hidden}});
  model.push_back({prefix + "mlp.gate_proj.weight", {inner, hidden}});
  model.push_back({prefix + "mlp.up_proj.weight", {inner, hidden}});
  model.push_back({prefix + "mlp.down_proj.weight", {hidden, inner}});
  model.push_back({prefix + "input_layernorm.weight", {hidden}});
  model.push_back({prefix + "post_attention_layernorm.weight", {hidden}});
}

}  // namespace

std::vector<TensorShape> language_model(const ModelSize& size) {
  std::vector<TensorShape> model;
  model.push_back({"model.embed_tokens.weight", {size.vocabulary, size.hidden}});
  for (std::int64_t layer = 0; layer < size.layers; ++layer) add_layer(model, layer, size.hidden);
  model.push_back({"model.norm.weight", {size.hidden}});
  model.push_back({"lm_head.weight", {size.vocabulary, size.hidden}});
  return model;
}

std::vector<TensorShape> uniform(std::size_t count, const std::vector<std::int64_t>& shape) {
  std::vector<TensorShape> tensors;
  for (std::size_t i = 0; i < count; ++i) tensors.push_back({"tensor." + std::to_string(i), shape});
  return tensors;
}

std::int64_t numel(const TensorShape& tensor) noexcept {
  std::int64_t product = 1;
  for (std::int64_t size : tensor.shape) product *= size;
  return product;
}

}  // namespace weightmap::bench
