#include "runtime/checkpoint/sources.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {

std::uint64_t Sources::next_base() const noexcept {
  if (files_.empty()) return 0;
  const auto [last, length] = files_.back().range();
  return (last + length + os::large_page - 1) / os::large_page * os::large_page;
}

Result<void> Sources::add(SourceFile file) {
  const std::uint64_t base = next_base();
  std::uint64_t end = 0;
  // Later additions to an end are less than 2^63, too.
  if (!bytes::checked_add(base, file.file.size(), &end) ||
      end > std::numeric_limits<std::int64_t>::max())
    return failure(ErrorCode::limit_exceeded,
                   "the files have together more bytes than an address space holds");
  file.info.mapping_offset = base;
  files_.push_back(std::move(file));
  return {};
}

std::uint64_t Sources::bytes() const noexcept {
  std::uint64_t all = 0;
  for (const SourceFile& source : files_)
    if (!source.is_copy()) all += source.file.size();
  return all;
}

std::vector<ByteRange> Sources::ranges() const {
  std::vector<ByteRange> ranges;
  for (const SourceFile& source : files_) ranges.push_back(source.range());
  return ranges;
}

std::vector<mmap::PlacedFile> Sources::placed() const {
  std::vector<mmap::PlacedFile> placed;
  for (const SourceFile& source : files_) placed.push_back({&source.file, source.base()});
  return placed;
}

const SourceFile& Sources::at(std::uint64_t position) const noexcept {
  const auto after = std::upper_bound(
      files_.begin() + 1, files_.end(), position,
      [](std::uint64_t wanted, const SourceFile& source) { return wanted < source.base(); });
  return *(after - 1);
}

bool Sources::contain(std::uint64_t position, std::uint64_t length) const noexcept {
  const SourceFile& source = at(position);
  return bytes::contains(source.file.size(), position - source.base(), length);
}

Result<void> Sources::read(std::uint64_t position, std::span<std::byte> out) const {
  const SourceFile& source = at(position);
  Result<void> read = source.file.read(position - source.base(), out);
  if (!read) return tl::unexpected<Error>(source.about(std::move(read.error())));
  return read;
}

Error Sources::about_position(Error error) const {
  const SourceFile& source =
      error.file_offset == Error::no_offset ? front() : at(error.file_offset);
  if (error.file_offset != Error::no_offset) error.file_offset -= source.base();
  return source.about(std::move(error));
}

}  // namespace weightmap
