// The name of the pickle's globals in messages.
#pragma once

#include <string>

#include "runtime/base/bytes/escape.hpp"
#include "weightmap/value.hpp"

namespace weightmap::torch {

// Returns "torch.nn.Parameter", escaped for a terminal.
[[gnu::cold]] inline std::string qualified_name(const Value& global) {
  return bytes::escape(std::string(global.module()) + "." + std::string(global.name()));
}

}  // namespace weightmap::torch
