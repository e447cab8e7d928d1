// FILE//MEMBER: a file that lies within a tar or a zip archive as it is, byte for byte.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/bytes/byte_range.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/formats/format/format.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

struct MemberPath {
  std::filesystem::path file;  // a regular one
  std::string member;
};

// Splits a path to which no file leads; nullopt if no file lies in front of a double slash either.
std::optional<MemberPath> member_path(const std::filesystem::path& path);

// The bytes of a member, which lie within `file`; the last one of a tar that has several of the
// name, as tar itself has it. Fails with io (ENOENT) if there is none, naming those that there are;
// with unsupported for one that is compressed, encrypted or sparse; with not_a_checkpoint for an
// empty one and for a file that is no archive; with corrupt, also for two of a zip with the name.
Result<ByteRange> find_member(const bytes::ByteSource& file, std::string_view name,
                              const Limits& limits);

// Makes places in the member, of which the file of `parsed` consisted, ones in the file around it.
void place_in_file(Parsed& parsed, const ByteRange& member) noexcept;

}  // namespace weightmap::format
