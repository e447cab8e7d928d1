// What is known of the classes and functions (globals) that pickles name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "weightmap/version.hpp"

namespace weightmap {

enum class GlobalVerdict : std::uint8_t {
  torch_safe,   // in torch's own list: torch.load(weights_only=True) needs no permission for it
  allowed,      // in OpenOptions::safe_globals
  torchscript,  // in a TorchScript archive: a type of its own code, or a helper of torch.jit.load()
  // What numpy's arrays, numbers and dtypes are made of, collections.defaultdict and the builtin
  // types that it makes values of: torch.load() refuses it by default, weightmap.torch.load() reads
  // it, and no call of it runs code.
  plain_data,
  unknown,  // anything else
  harmful,  // in docs/refused-names.md, or a name that the pickle computes while it runs
};

// True if torch.load(weights_only=True), with the allowed names, would refuse it; also of
// plain_data.
constexpr bool is_unsafe(GlobalVerdict verdict) noexcept {
  return verdict >= GlobalVerdict::plain_data;
}

// "torch_safe", "allowed", "torchscript", "plain_data", "unknown", "harmful"
WEIGHTMAP_API std::string_view to_string(GlobalVerdict verdict) noexcept;

// Returns torch 2.13's default allow-list ("collections.OrderedDict"), sorted.
WEIGHTMAP_API std::span<const std::string_view> torch_safe_globals() noexcept;

}  // namespace weightmap
