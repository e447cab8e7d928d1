#include "runtime/formats/sets/model_files.hpp"

#include <algorithm>
#include <array>

namespace weightmap::sets {
namespace {

constexpr std::string_view index_end = ".index.json";
constexpr std::uint64_t most_bytes = 64u << 20;

constexpr std::array<std::string_view, 8> ends_beside = {".json", ".txt",      ".model", ".jinja",
                                                         ".py",   ".tiktoken", ".yaml",  ".spm"};

constexpr std::array<std::string_view, 16> names_beside = {sums_name,
                                                           signature_name,
                                                           "config.json",
                                                           "generation_config.json",
                                                           "tokenizer.json",
                                                           "tokenizer_config.json",
                                                           "tokenizer.model",
                                                           "special_tokens_map.json",
                                                           "added_tokens.json",
                                                           "vocab.json",
                                                           "vocab.txt",
                                                           "merges.txt",
                                                           "chat_template.json",
                                                           "chat_template.jinja",
                                                           "preprocessor_config.json",
                                                           "processor_config.json"};

}  // namespace

bool leads_to_model(std::string_view name) noexcept {
  return name.ends_with(index_end) || name == "model.safetensors";
}

bool lies_beside_weights(std::string_view name, std::uint64_t size) noexcept {
  return size <= most_bytes && !name.starts_with('.') && name.find('/') == name.npos &&
         !name.ends_with(index_end) && name.find(".index.") == name.npos &&
         (name == sums_name || name == signature_name ||
          std::ranges::any_of(ends_beside, [&](auto end) { return name.ends_with(end); }));
}

std::span<const std::string_view> well_known_names() noexcept { return names_beside; }

bool is_well_known(std::string_view name) noexcept {
  return std::ranges::find(names_beside, name) != names_beside.end();
}

}  // namespace weightmap::sets
