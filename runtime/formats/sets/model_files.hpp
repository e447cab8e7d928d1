// Which files of a folder belong to a model. Decides by names and sizes alone.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace weightmap::sets {

// True for the index of a set, and for model.safetensors: what transformers looks for in a folder.
bool leads_to_model(std::string_view name) noexcept;

// What says which SHA-256s the files of a model have: a list, and OpenSSF's signature.
inline constexpr std::string_view sums_name = "SHA256SUMS";
inline constexpr std::string_view signature_name = "model.sig";

// True for these, and for a file that servers read beside the weights: its name ends with .json,
// .txt, .model, .jinja, .py, .tiktoken, .yaml or .spm, does not begin with a dot, and is no index
// of weights; it has at most 64 MiB. So no weights are among them, of whichever format.
bool lies_beside_weights(std::string_view name, std::uint64_t size) noexcept;

// More than any model has: with so many, the folder is not one model's alone.
inline constexpr std::size_t most_beside_weights = 256;

// What a store without a listing is asked for, file by file: no code.
std::span<const std::string_view> well_known_names() noexcept;
bool is_well_known(std::string_view name) noexcept;

}  // namespace weightmap::sets
