// Which files of a folder belong to a model. Decides by names and sizes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::sets {

// True for the index of a set, and for the single files of weights that transformers, peft and
// diffusers look for in a folder: model.safetensors, adapter_model.bin and so on.
bool leads_to_model(std::string_view name) noexcept;

// What says which SHA-256s the files of a model have: a list, and OpenSSF's signature.
inline constexpr std::string_view sums_name = "SHA256SUMS";
inline constexpr std::string_view signature_name = "model.sig";

// True for these, and for a file that servers read beside the weights: its name ends with .json,
// .txt, .model, .jinja, .py, .tiktoken, .yaml or .spm, does not begin with a dot, and is no index
// of weights; it has at most 64 MiB. So no weights are among them, of whichever format, but for
// those of an adapter, which adapter_config.json makes transformers look for.
bool lies_beside_weights(std::string_view name, std::uint64_t size) noexcept;

// More than any model has: with so many, the folder is not one model's alone.
inline constexpr std::size_t most_beside_weights = 256;

// What a store without a listing is asked for, file by file: no code.
std::span<const std::string_view> well_known_names() noexcept;
bool is_well_known(std::string_view name) noexcept;

// sentence-transformers' list of the modules of a model, of which some have folders of their own:
//
// [{"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
inline constexpr std::string_view modules_name = "modules.json";
inline constexpr std::uint64_t most_bytes_of_modules = 1u << 20;
// More than any model has: with so many, it is no list of modules.
inline constexpr std::size_t most_modules = 64;
// Its folders, in their order. None for another text. Fails with corrupt for one that is not below
// the model's; with limit_exceeded for more than 64.
Result<std::vector<std::string>> module_folders(std::string_view json);
// What is asked for in each, where the store lists none.
std::span<const std::string_view> module_names() noexcept;

}  // namespace weightmap::sets
