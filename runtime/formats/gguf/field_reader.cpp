#include "runtime/formats/gguf/field_reader.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"

namespace weightmap::gguf {

bool FieldReader::fail(ErrorCode code, std::string message, std::uint64_t at) {
  error_ = Error{code, std::move(message), at, {}};
  return false;
}

bool FieldReader::fits(std::uint64_t length) const noexcept {
  return bytes::contains(std::min(cache_->source_size(), most_bytes_), position(), length);
}

bool FieldReader::refuse(const std::string& what, std::uint64_t length) {
  const std::uint64_t size = cache_->source_size();
  if (bytes::contains(size, position(), length))
    return fail(
        ErrorCode::limit_exceeded,
        what + " goes beyond the limit of " + bytes::counted(most_bytes_, "byte") + " of metadata",
        position());
  return fail(ErrorCode::corrupt,
              what + " leaves the file of " + bytes::counted(size, "byte") +
                  "; the download or copy is incomplete, or the file is damaged",
              position());
}

bool FieldReader::read_piece(std::uint64_t length, std::string_view field) {
  constexpr std::uint64_t longest_piece = std::uint64_t{16} << 20;
  if (!fits(length))
    return refuse(std::string(field) + " of " + bytes::counted(length, "byte"), length);
  const std::uint64_t begin = position();
  const std::uint64_t rest = std::min(cache_->source_size(), most_bytes_) - begin;
  const std::uint64_t wanted = std::min(std::max(length, piece_bytes_), rest);
  Result<std::span<const std::byte>> piece = cache_->bytes(begin, wanted);
  if (!piece) {
    error_ = std::move(piece.error());
    return false;
  }
  at_ = piece->data();
  end_ = at_ + piece->size();
  piece_end_ = begin + wanted;
  piece_bytes_ = std::min(2 * piece_bytes_, longest_piece);
  return true;
}

bool FieldReader::text(std::string_view& text, std::string_view field, std::uint64_t most_length) {
  const std::uint64_t begin = position();
  std::uint64_t length = 0;
  if (!number(length, field)) return false;
  if (length > most_length)
    return fail(ErrorCode::corrupt,
                std::string(field) + " of " + bytes::counted(length, "byte") +
                    " is longer than the " + std::to_string(most_length) + " that are read",
                begin);
  if (!ensure(length, field)) return false;
  text = {reinterpret_cast<const char*>(at_), static_cast<std::size_t>(length)};
  at_ += length;
  return true;
}

bool FieldReader::has_room_for(std::uint64_t count, std::uint64_t item_bytes,
                               std::string_view field, std::string_view items) {
  std::uint64_t length = 0;
  if (!bytes::checked_mul(count, item_bytes, &length)) length = ~std::uint64_t{0};
  if (fits(length)) return true;
  return refuse(std::string(field) + " of " + std::to_string(count) + " " + std::string(items),
                length);
}

}  // namespace weightmap::gguf
