#include "runtime/formats/sets/model_files.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/json/document.hpp"
#include "runtime/formats/sets/file_names.hpp"

namespace weightmap::sets {
namespace {

constexpr std::string_view index_end = ".index.json";
constexpr std::uint64_t most_bytes = 64u << 20;

constexpr std::array<std::string_view, 8> ends_beside = {".json", ".txt",      ".model", ".jinja",
                                                         ".py",   ".tiktoken", ".yaml",  ".spm"};

constexpr std::array<std::string_view, 6> names_of_weights = {"model.safetensors",
                                                              "pytorch_model.bin",
                                                              "adapter_model.safetensors",
                                                              "adapter_model.bin",
                                                              "diffusion_pytorch_model.safetensors",
                                                              "diffusion_pytorch_model.bin"};

constexpr std::array<std::string_view, 3> names_of_modules = {"config.json", "model.safetensors",
                                                              "pytorch_model.bin"};

constexpr std::array<std::string_view, 20> names_beside = {sums_name,
                                                           signature_name,
                                                           modules_name,
                                                           "config.json",
                                                           "adapter_config.json",
                                                           "sentence_bert_config.json",
                                                           "config_sentence_transformers.json",
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
  return name.ends_with(index_end) ||
         std::ranges::find(names_of_weights, name) != names_of_weights.end();
}

bool lies_beside_weights(std::string_view name, std::uint64_t size) noexcept {
  if (name.starts_with("adapter_model.")) return leads_to_model(name);
  return size <= most_bytes && !name.starts_with('.') && name.find('/') == name.npos &&
         !name.ends_with(index_end) && name.find(".index.") == name.npos &&
         (name == sums_name || name == signature_name ||
          std::ranges::any_of(ends_beside, [&](auto end) { return name.ends_with(end); }));
}

std::span<const std::string_view> well_known_names() noexcept { return names_beside; }

bool is_well_known(std::string_view name) noexcept {
  return std::ranges::find(names_beside, name) != names_beside.end();
}

Result<std::vector<std::string>> module_folders(std::string_view json) {
  std::vector<std::string> folders;
  const Result<std::unique_ptr<json::Document>> document = json::Document::parse(json);
  if (!document || (*document)->root().kind() != Value::Kind::list) return folders;
  for (const Value& module : (*document)->root().elements()) {
    const std::optional<Value> found = module.find("path");
    const std::optional<std::string_view> path = found ? found->string() : std::nullopt;
    if (!path || path->empty() || !module.find("type")) continue;  // the model's own folder
    if (!stays_below(*path))
      return failure(ErrorCode::corrupt, std::string(modules_name) + " has a module in " +
                                             bytes::quote(*path) + ", which is not below it");
    if (std::ranges::find(folders, *path) != folders.end()) continue;
    if (folders.size() == most_modules)
      return failure(ErrorCode::limit_exceeded, std::string(modules_name) + " has more than " +
                                                    std::to_string(most_modules) + " folders");
    folders.emplace_back(*path);
  }
  return folders;
}

std::span<const std::string_view> module_names() noexcept { return names_of_modules; }

}  // namespace weightmap::sets
