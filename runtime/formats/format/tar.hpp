// Tar archives, as tar and Python's tarfile write them: which bytes of a file are which member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/base/bytes/byte_source.hpp"
#include "weightmap/result.hpp"

namespace weightmap::format {

inline constexpr std::size_t tar_block = 512;

// True if the bytes begin with the header of a member, whose checksum is right.
bool begins_tar(std::span<const std::byte> head) noexcept;

struct TarMember {
  std::string name;  // text from the file
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  bool is_sparse = false;  // its zeros are left out
  bool is_link = false;    // to another member, without content of its own
};

// Reads one header after another, as Python's tarfile follows them: names of any length and sizes
// in pax headers and in GNU's, directories without content.
class TarReader {
 public:
  // `source` must outlive the reader.
  explicit TarReader(const bytes::ByteSource& source) noexcept : source_(source) {}

  // The next member with content, or link; nullopt behind the last one. Fails with corrupt at a
  // header that is none, and at a member that goes on behind the end.
  Result<std::optional<TarMember>> next();

 private:
  struct Stated {  // by a header that only describes the member behind it
    std::optional<std::string> name;
    std::optional<std::uint64_t> size;
    bool is_sparse = false;
  };
  Result<void> read_description(char type, std::uint64_t size);
  Result<void> read_pax(std::string_view text, std::uint64_t at, Stated& into);
  Result<void> skip_sparse_map();

  const bytes::ByteSource& source_;
  std::uint64_t at_ = 0;
  Stated for_all_;
  Stated for_next_;
};

}  // namespace weightmap::format
