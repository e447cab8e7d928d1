// The keys and values that a GGUF file has before its tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/format/format.hpp"
#include "runtime/gguf/field_reader.hpp"
#include "runtime/value/builder.hpp"
#include "weightmap/options.hpp"

namespace weightmap::gguf {

struct Metadata {
  std::unique_ptr<value::Tree> tree;  // a dict
  std::uint32_t alignment = 32;
  std::optional<format::Split> split;
};

// Reads `count` pairs, for which the file has room. Numbers become integers and reals, arrays
// lists, and strings that are not UTF-8 bytes. False: the reader has the error, which begins with
// the key it is about.
bool read_metadata(FieldReader& reader, std::uint64_t count, const Limits& limits,
                   std::pmr::memory_resource& memory, Metadata& metadata);

}  // namespace weightmap::gguf
