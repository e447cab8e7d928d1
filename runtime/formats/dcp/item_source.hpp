// Items of a .distcp file, read in few reads, and one of them as a file of its own.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/dcp/item_pattern.hpp"
#include "runtime/formats/dcp/metadata.hpp"
#include "weightmap/checkpoint_info.hpp"
#include "weightmap/result.hpp"

namespace weightmap::dcp {

// The size of the reads at both ends of an item: torch's tail has 873 bytes; of its head a parser
// reads 1124.
inline constexpr std::uint64_t head_bytes = 1536;
inline constexpr std::uint64_t tail_bytes = 1024;
// Reading a gap of this size costs less than another read.
inline constexpr std::uint64_t close_bytes = 32768;
// A longer read leaves the processor's caches before it is looked at.
inline constexpr std::uint64_t most_read = std::uint64_t{128} << 10;

// Fails with corrupt unless the item lies in its file.
inline Result<void> check_place(const Item& item, const bytes::ByteSource& file) {
  if (item.length == 0) return failure(ErrorCode::corrupt, "it has no bytes");
  if (bytes::contains(file.size(), item.offset, item.length)) return {};
  return failure(ErrorCode::corrupt, "its " + std::to_string(item.length) +
                                         " bytes leave the file of " + std::to_string(file.size()) +
                                         "; it is truncated, or from another save");
}

// Parts of a file that are read ahead, one after another; the file serves the rest. The memory is
// that of two parts: the head of an item and its tail, and a small one is used again while it is in
// the processor's caches.
class PartsOfFile {
 public:
  PartsOfFile(const bytes::ByteSource& file, OpenStats& stats) : file_(file), stats_(stats) {}

  // Ranges come in file order.
  void want(std::uint64_t begin, std::uint64_t end) {
    if (!wanted_.empty() && begin <= wanted_.back().end + close_bytes &&
        std::max(end, wanted_.back().end) - wanted_.back().begin <= most_read)
      wanted_.back().end = std::max(end, wanted_.back().end);
    else
      wanted_.push_back({begin, end, {}});
  }
  // What a parser reads of an item; a short one whole.
  void want_ends(const Item& item, std::uint64_t most_whole = head_bytes + tail_bytes) {
    const std::uint64_t end = item.offset + item.length;
    if (item.length <= most_whole) return want(item.offset, end);
    want(item.offset, item.offset + head_bytes);
    want(end - tail_bytes, end);
  }
  // Says what will be read, once all of it is wanted.
  Result<void> announce() const {
    std::vector<ByteRange> ranges;
    ranges.reserve(wanted_.size());
    for (const Part& part : wanted_) ranges.push_back({part.begin, part.end - part.begin});
    return file_.will_read(ranges);
  }
  // Reads what is wanted of this item, and forgets items before it; they come in file order.
  Result<void> read_ends(const Item& item) {
    for (; next_ < wanted_.size() && wanted_[next_].begin < item.offset + item.length; ++next_) {
      Memory& memory = memory_[next_ % memory_.size()];
      if (next_ >= memory_.size()) wanted_[next_ - memory_.size()].bytes = {};
      Part& part = wanted_[next_];
      part.bytes = memory.of(part.end - part.begin);
      TRY(count_read(part.begin, part.bytes));
    }
    return {};
  }
  // Returns what was read ahead of this range; nothing unless that is all of it.
  std::span<const std::byte> find(std::uint64_t offset, std::uint64_t length) const noexcept {
    const auto behind = std::ranges::upper_bound(wanted_, offset, {}, &Part::begin);
    if (behind == wanted_.begin()) return {};
    const Part& part = *std::prev(behind);
    if (!bytes::contains(part.bytes.size(), offset - part.begin, length)) return {};
    return part.bytes.subspan(offset - part.begin, length);
  }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const {
    const std::span<const std::byte> known = find(offset, out.size());
    if (known.empty()) return count_read(offset, out);
    std::ranges::copy(known, out.begin());
    return {};
  }

 private:
  struct Part {
    std::uint64_t begin;
    std::uint64_t end;
    std::span<std::byte> bytes;  // none before it is read, and when it is forgotten
  };
  struct Memory {
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t size = 0;

    std::span<std::byte> of(std::uint64_t wanted) {
      if (wanted > size) {
        bytes = std::make_unique_for_overwrite<std::byte[]>(wanted);
        size = wanted;
      }
      return {bytes.get(), wanted};
    }
  };

  Result<void> count_read(std::uint64_t offset, std::span<std::byte> out) const {
    ++stats_.reads;
    stats_.bytes_read += out.size();
    return file_.read(offset, out);
  }

  const bytes::ByteSource& file_;
  OpenStats& stats_;
  std::vector<Part> wanted_;
  std::size_t next_ = 0;  // the first of them that was not read
  std::array<Memory, 2> memory_;
};

// An item as a file of its own, with its own offsets in errors.
class ItemSource final : public bytes::ByteSource {
 public:
  ItemSource(const PartsOfFile& file, const Item& item) noexcept : file_(file), item_(item) {}
  std::uint64_t size() const noexcept override { return item_.length; }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (!bytes::contains(item_.length, offset, out.size()))
      return bytes::leaves_source(*this, offset, out.size());
    if (ends().bytes(offset, out.size()).size() != out.size()) was_read_between_ends_ = true;
    return file_.read(item_.offset + offset, out);
  }
  // Those of items that overlap may be missing.
  ItemEnds ends() const noexcept {
    const std::uint64_t head = std::min(head_bytes, item_.length);
    const std::uint64_t tail = std::min(tail_bytes, item_.length);
    return {item_.length, file_.find(item_.offset, head),
            file_.find(item_.offset + item_.length - tail, tail)};
  }
  bool was_read_between_ends() const noexcept { return was_read_between_ends_; }

 private:
  const PartsOfFile& file_;
  const Item& item_;
  mutable bool was_read_between_ends_ = false;
};

}  // namespace weightmap::dcp
