#include "runtime/formats/format/tar.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/number.hpp"
#include "runtime/base/try.hpp"

namespace weightmap::format {
namespace {

using Header = std::span<const std::byte, tar_block>;

// Places of the fields in a header.
constexpr std::size_t name_bytes = 100;
constexpr std::size_t size_at = 124;
constexpr std::size_t number_bytes = 12;
constexpr std::size_t checksum_at = 148;
constexpr std::size_t checksum_bytes = 8;
constexpr std::size_t type_at = 156;
constexpr std::size_t magic_at = 257;
constexpr std::size_t prefix_at = 345;
constexpr std::size_t prefix_bytes = 155;
constexpr std::size_t has_map_at = 482;       // of a sparse member: a block of its map follows
constexpr std::size_t map_goes_on_at = 504;   // likewise in that block
constexpr std::uint64_t most_text = 1 << 20;  // of a header that describes the next member

std::string_view field(Header header, std::size_t at, std::size_t length) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + at, length);
  return text.substr(0, text.find('\0'));
}

// Octal digits, or a binary number if the first bit is set.
std::optional<std::uint64_t> number(Header header, std::size_t at, std::size_t length) noexcept {
  const auto first = static_cast<std::uint8_t>(header[at]);
  std::uint64_t value = 0;
  if (first == 0x80) {
    for (std::size_t i = 1; i < length; ++i) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | static_cast<std::uint8_t>(header[at + i]);
    }
    return value;
  }
  std::string_view text = field(header, at, length);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, text.find(' '));
  return text.empty() ? std::optional<std::uint64_t>(0) : bytes::number(text, 8);
}

bool is_header(Header header) noexcept {
  const std::optional<std::uint64_t> stated = number(header, checksum_at, checksum_bytes);
  std::uint64_t as_unsigned = 0;
  std::int64_t as_signed = 0;  // as some old programs sum
  for (std::size_t i = 0; i < tar_block; ++i) {
    const bool is_sum = i >= checksum_at && i < checksum_at + checksum_bytes;
    as_unsigned += is_sum ? ' ' : static_cast<std::uint8_t>(header[i]);
    as_signed += is_sum ? ' ' : static_cast<std::int8_t>(header[i]);
  }
  return stated && (*stated == as_unsigned || static_cast<std::int64_t>(*stated) == as_signed) &&
         number(header, size_at, number_bytes).has_value();
}

std::string name_of(Header header) {
  const std::string_view name = field(header, 0, name_bytes);
  const bool is_posix = field(header, magic_at, 8) == "ustar";
  const std::string_view prefix =
      is_posix ? field(header, prefix_at, prefix_bytes) : std::string_view();
  return prefix.empty() ? std::string(name) : std::string(prefix) + "/" + std::string(name);
}

bool is_description(char type) noexcept {
  return std::string_view("LKxgX").find(type) != std::string_view::npos;
}

bool has_content(char type, std::string_view name) noexcept {
  if (type == '\0' && name.ends_with('/')) return false;  // a folder, to the oldest programs
  return type < '1' || type > '6';
}

}  // namespace

bool begins_tar(std::span<const std::byte> head) noexcept {
  return head.size() >= tar_block && is_header(head.first<tar_block>());
}

Result<std::optional<TarMember>> TarReader::next() {
  for (;;) {
    if (at_ == source_.size()) return std::nullopt;
    const std::uint64_t header_at = at_;
    std::array<std::byte, tar_block> header{};
    const std::uint64_t present = std::min<std::uint64_t>(tar_block, source_.size() - at_);
    TRY(source_.read(at_, std::span(header).first(present)));
    if (std::ranges::all_of(header, [](std::byte b) { return b == std::byte{0}; }))
      return std::nullopt;
    if (present < tar_block || !is_header(header))
      return failure(ErrorCode::corrupt,
                     "the tar archive is damaged: the header of a member should be here, and it is "
                     "cut off or its checksum is wrong",
                     header_at);
    at_ += tar_block;
    const auto type = static_cast<char>(header[type_at]);
    std::uint64_t size = *number(header, size_at, number_bytes);
    if (type == 'S' && header[has_map_at] != std::byte{0}) TRY(skip_sparse_map());
    std::string name = name_of(header);
    bool is_sparse = type == 'S';
    if (!is_description(type)) {
      const Stated stated = std::exchange(for_next_, {});
      is_sparse |= stated.is_sparse;
      name = stated.name.value_or(for_all_.name.value_or(name));
      size = stated.size.value_or(for_all_.size.value_or(size));
      if (type == '1' || type == '2') return TarMember{std::move(name), at_, 0, false, true};
      if (!has_content(type, name)) continue;
    }
    if (!bytes::contains(source_.size(), at_, size))
      return failure(ErrorCode::corrupt,
                     "the tar archive is truncated: a member states " + std::to_string(size) +
                         " bytes, and only " + std::to_string(source_.size() - at_) + " follow",
                     header_at);
    const std::uint64_t content_at = at_;
    if (is_description(type)) TRY(read_description(type, size));
    // The last member may end without the rest of its block.
    const std::uint64_t rest = source_.size() - at_ - size;
    at_ += size + std::min(rest, (tar_block - size % tar_block) % tar_block);
    if (!is_description(type))
      return TarMember{std::move(name), content_at, size, is_sparse, false};
  }
}

// Reads the content of a header that says something of the next member, or of all behind it.
Result<void> TarReader::read_description(char type, std::uint64_t size) {
  if (type == 'K') return {};  // where a link leads
  if (size > most_text)
    return failure(ErrorCode::limit_exceeded,
                   "a header of the tar archive has " + std::to_string(size) +
                       " bytes of text, the limit is " + std::to_string(most_text),
                   at_);
  std::string text(size, '\0');
  TRY(source_.read(at_, std::as_writable_bytes(std::span(text))));
  if (type == 'L') {
    for_next_.name = text.substr(0, text.find('\0'));
    return {};
  }
  return read_pax(text, at_, type == 'g' ? for_all_ : for_next_);
}

// Lines such as "30 path=weights/model.ckpt", whose number is the length of the line.
Result<void> TarReader::read_pax(std::string_view text, std::uint64_t at, Stated& into) {
  while (!text.empty() && text.front() != '\0') {
    std::string_view behind = text;
    const std::uint64_t length = bytes::take_number(behind).value_or(0);
    const std::size_t digits = text.size() - behind.size();
    if (length > text.size() || length < digits + 2)
      return failure(ErrorCode::corrupt,
                     "a pax header of the tar archive has a line without its "
                     "length",
                     at);
    const std::string_view line = text.substr(digits + 1, length - digits - 2);
    text.remove_prefix(length);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = line.substr(0, equals);
    const std::string_view value = line.substr(equals + 1);
    if (key == "path") into.name = value;
    if (key.starts_with("GNU.sparse.")) into.is_sparse = true;
    if (key != "size") continue;
    into.size = bytes::number(value);
    if (!into.size)
      return failure(ErrorCode::corrupt,
                     "a pax header of the tar archive states a size that is no number", at);
  }
  return {};
}

Result<void> TarReader::skip_sparse_map() {
  std::array<std::byte, tar_block> map{};
  do {
    TRY(source_.read(at_, map));
    at_ += tar_block;
  } while (map[map_goes_on_at] != std::byte{0});
  return {};
}

}  // namespace weightmap::format
