// The keys and values before the tensors of a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>

#include "runtime/base/value/builder.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/formats/gguf/field_reader.hpp"
#include "weightmap/options.hpp"

namespace weightmap::gguf {

struct Metadata {
  std::unique_ptr<value::Tree> tree;  // a dict
  std::uint32_t alignment = 32;
  std::optional<format::Split> split;
};

// Reads `count` pairs, for which the file is large enough. Numbers become integers and reals,
// arrays become lists, and strings that are not UTF-8 become bytes. Returns false with an error in
// the reader that begins with the key.
bool read_metadata(FieldReader& reader, std::uint64_t count, const Limits& limits,
                   std::pmr::memory_resource& memory, Metadata& metadata);

}  // namespace weightmap::gguf
