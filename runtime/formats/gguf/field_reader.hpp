// Reads consecutive fields at the beginning of a GGUF file, in either byte order. All access to the
// bytes of the metadata goes through it.
//
// The file does not state the length of its metadata, so they are read in pieces, each twice as
// long as the one before.
//
// Each call returns false if its field leaves the file or exceeds the limit; then error() has the
// field, its length and place, and no further calls are allowed. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/read_cache.hpp"
#include "weightmap/result.hpp"

namespace weightmap::gguf {

class FieldReader {
 public:
  // Reads at most `most_bytes`. `windows` must outlive this object and the returned texts.
  FieldReader(bytes::ReadCache& cache, std::uint64_t most_bytes) noexcept
      : cache_(&cache), most_bytes_(most_bytes) {}

  // Applies to later fields; the order is little-endian before.
  void set_big_endian(bool is_big) noexcept { is_big_ = is_big; }

  // The offset of the next field in the file.
  std::uint64_t position() const noexcept {
    return piece_end_ - static_cast<std::uint64_t>(end_ - at_);
  }

  // Reads a number in the file's byte order. `field` is its name in errors.
  template <class T>
  requires std::integral<T> || std::floating_point<T>
  bool number(T& value, std::string_view field) {
    if (!ensure(sizeof(T), field)) return false;
    value = load<T>(at_);
    at_ += sizeof(T);
    return true;
  }
  // Reads a length of 64 bits and as many bytes, at most `most_length`.
  bool text(std::string_view& text, std::string_view field,
            std::uint64_t most_length = ~std::uint64_t{0});
  // Returns true if the file has room for `count` items of at least `item_bytes` each, before any
  // work is done for them. Errors read "array" of "elements".
  bool has_room_for(std::uint64_t count, std::uint64_t item_bytes, std::string_view field,
                    std::string_view items);

  // Sets the error; returns false.
  [[gnu::cold]] bool fail(ErrorCode code, std::string message, std::uint64_t at);
  Error& error() noexcept { return error_; }

 private:
  template <class T>
  T load(const std::byte* from) const noexcept {
    std::array<std::byte, sizeof(T)> bytes;
    std::copy_n(from, sizeof(T), bytes.begin());
    if (is_big_ != (std::endian::native == std::endian::big)) std::ranges::reverse(bytes);
    return std::bit_cast<T>(bytes);
  }

  bool ensure(std::uint64_t length, std::string_view field) {
    return length <= static_cast<std::uint64_t>(end_ - at_) || read_piece(length, field);
  }
  bool read_piece(std::uint64_t length, std::string_view field);
  bool fits(std::uint64_t length) const noexcept;
  // Sets the error for a field that does not fit.
  [[gnu::cold]] bool refuse(const std::string& what, std::uint64_t length);

  bytes::ReadCache* cache_;
  std::uint64_t most_bytes_;
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;                 // of the piece
  std::uint64_t piece_end_ = 0;                    // in the file
  std::uint64_t piece_bytes_ = bytes::first_read;  // of the next piece
  bool is_big_ = false;
  Error error_;
};

}  // namespace weightmap::gguf
