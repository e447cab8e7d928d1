#include "runtime/services/delta/encoding.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "runtime/base/bytes/little_endian.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/words.hpp"
#include "runtime/services/delta/frame.hpp"
#include "runtime/services/delta/sums.hpp"

namespace weightmap {
namespace {

constexpr std::string_view encoding_words[] = {"xor", "overwrite"};

}  // namespace

std::string_view to_string(DeltaEncoding encoding) noexcept {
  return word_of(encoding, encoding_words);
}

}  // namespace weightmap

namespace weightmap::delta {
namespace {

constexpr std::size_t number_bytes = 4;  // of a count or a position

void combine(std::byte* bytes, const std::byte* with, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) bytes[i] ^= with[i];
}

std::uint64_t count_differences(const std::byte* a, const std::byte* b,
                                std::size_t count) noexcept {
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < count; ++i) found += a[i] != b[i] ? 1 : 0;
  return found;
}

// A frame of `overwrite` holds the count, the positions, and the new bytes.
std::uint64_t overwrite_bytes(std::uint64_t changed) noexcept {
  return number_bytes + (number_bytes + 1) * changed;
}

bool is_size_of_change(bool is_xor, std::uint64_t bytes, std::uint64_t tensor_bytes) noexcept {
  if (is_xor) return bytes == tensor_bytes;
  if (bytes < number_bytes) return false;
  const std::uint64_t changes = bytes - number_bytes;
  return changes % (number_bytes + 1) == 0 && changes / (number_bytes + 1) <= tensor_bytes;
}

class Combination final : public Change {
 public:
  Combination(FrameReader frame, std::uint64_t tensor_bytes)
      : frame_(std::move(frame)), part_(std::min<std::uint64_t>(window_bytes, tensor_bytes)) {}

  Result<void> apply(std::span<std::byte> window) override {
    TRY(frame_.read(std::span(part_).first(window.size())));
    combine(window.data(), part_.data(), window.size());
    return {};
  }
  Result<void> finish() override { return frame_.finish(); }

 private:
  FrameReader frame_;
  std::vector<std::byte> part_;
};

// Positions and new bytes lie apart in the frame, so it is read twice, each in order.
class Overwriting final : public Change {
 public:
  Overwriting(FrameReader positions, FrameReader values, ByteRange frame,
              std::uint64_t tensor_bytes)
      : positions_(std::move(positions)),
        values_(std::move(values)),
        frame_(frame),
        tensor_bytes_(tensor_bytes) {}

  Result<void> begin() {
    std::array<std::byte, number_bytes> count;
    TRY(positions_.read(count));
    left_ = bytes::load_le<std::uint32_t>(count.data());
    if (left_ > tensor_bytes_)
      return corrupt("changes " + std::to_string(left_) + " bytes of a tensor that has " +
                     std::to_string(tensor_bytes_));
    TRY(values_.skip(number_bytes * (std::uint64_t{left_} + 1)));
    return {};
  }

  Result<void> apply(std::span<std::byte> window) override {
    const std::uint64_t end = done_ + window.size();
    for (;;) {
      if (next_ == known_) TRY(read_more());
      if (next_ == known_ || at(next_) >= end) break;
      window[at(next_) - done_] = values_part_[next_];
      ++next_;
    }
    done_ = end;
    return {};
  }

  Result<void> finish() override { return values_.finish(); }

 private:
  static constexpr std::size_t most = 16384;  // positions at a time

  tl::unexpected<Error> corrupt(const std::string& why) const {
    return failure(ErrorCode::corrupt, "the frame " + why, frame_.offset);
  }
  std::uint64_t at(std::size_t index) const noexcept {
    return bytes::load_le<std::uint32_t>(positions_part_.data() + index * number_bytes);
  }

  Result<void> read_more() {
    known_ = std::min<std::uint64_t>(most, left_);
    next_ = 0;
    left_ -= static_cast<std::uint32_t>(known_);
    positions_part_.resize(known_ * number_bytes);
    values_part_.resize(known_);
    TRY(positions_.read(positions_part_));
    TRY(values_.read(values_part_));
    for (std::size_t i = 0; i < known_; ++i) {
      if (has_last_ && at(i) <= last_)
        return corrupt("changes byte " + std::to_string(at(i)) + " after byte " +
                       std::to_string(last_) + "; positions have to ascend");
      if (at(i) >= tensor_bytes_)
        return corrupt("changes byte " + std::to_string(at(i)) + " of a tensor that has " +
                       std::to_string(tensor_bytes_));
      last_ = at(i);
      has_last_ = true;
    }
    return {};
  }

  FrameReader positions_;
  FrameReader values_;
  ByteRange frame_;
  std::uint64_t tensor_bytes_;
  std::uint64_t done_ = 0;  // bytes of the tensor
  std::uint32_t left_ = 0;  // positions to be read
  std::uint64_t last_ = 0;
  bool has_last_ = false;
  std::vector<std::byte> positions_part_;
  std::vector<std::byte> values_part_;
  std::size_t next_ = 0;
  std::size_t known_ = 0;
};

using Bytes = std::span<const std::byte>;

// Calls visit(begin, from, to) for each window of two tensors; their bytes stay until the next.
template <class Visit>
Result<void> each_window(const bytes::ByteSource& from, const bytes::ByteSource& to,
                         const Visit& visit) {
  const std::size_t most = std::min<std::uint64_t>(window_bytes, to.size());
  std::vector<std::byte> old_memory(most), new_memory(most);
  for (std::uint64_t begin = 0; begin < to.size(); begin += most) {
    const std::size_t count = std::min<std::uint64_t>(most, to.size() - begin);
    const std::span old_part = std::span(old_memory).first(count);
    const std::span new_part = std::span(new_memory).first(count);
    TRY(from.read(begin, old_part));
    TRY(to.read(begin, new_part));
    TRY(visit(begin, old_part, new_part));
  }
  return {};
}

Result<void> combine(const bytes::ByteSource& from, const bytes::ByteSource& to,
                     FrameWriter& frame) {
  return each_window(from, to, [&](std::uint64_t, std::span<std::byte> old, Bytes now) {
    combine(old.data(), now.data(), now.size());
    return frame.add(old);
  });
}

// Calls visit(position, byte) for each byte that differs.
template <class Visit>
Result<void> each_difference(const bytes::ByteSource& from, const bytes::ByteSource& to,
                             const Visit& visit) {
  constexpr std::size_t block = 64;
  return each_window(from, to, [&](std::uint64_t begin, Bytes old, Bytes now) -> Result<void> {
    for (std::size_t at = 0; at < now.size(); at += block) {
      const std::size_t end = std::min(at + block, now.size());
      if (std::memcmp(old.data() + at, now.data() + at, end - at) == 0) continue;
      for (std::size_t i = at; i < end; ++i)
        if (old[i] != now[i]) TRY(visit(begin + i, now[i]));
    }
    return {};
  });
}

// Collects small parts of a frame.
class GatheredParts {
 public:
  explicit GatheredParts(FrameWriter& frame) : frame_(frame) {}

  Result<void> add(Bytes part) {
    if (parts_.size() + part.size() > window_bytes) TRY(flush());
    parts_.insert(parts_.end(), part.begin(), part.end());
    return {};
  }
  Result<void> flush() {
    TRY(frame_.add(parts_));
    parts_.clear();
    return {};
  }

 private:
  FrameWriter& frame_;
  std::vector<std::byte> parts_;
};

Result<void> overwrite(const bytes::ByteSource& from, const bytes::ByteSource& to,
                       std::uint64_t changed, FrameWriter& frame) {
  GatheredParts parts(frame);
  std::array<std::byte, number_bytes> number;
  const auto add_number = [&](std::uint64_t value) {
    bytes::store_le(number.data(), static_cast<std::uint32_t>(value));
    return parts.add(number);
  };
  TRY(add_number(changed));
  TRY(each_difference(from, to, [&](std::uint64_t at, std::byte) { return add_number(at); }));
  TRY(each_difference(from, to, [&](std::uint64_t, std::byte byte) {
    return parts.add({&byte, 1});
  }));
  return parts.flush();
}

}  // namespace

std::optional<DeltaEncoding> encoding_named(std::string_view word) noexcept {
  const auto* const found = std::ranges::find(encoding_words, word);
  if (found == std::end(encoding_words)) return std::nullopt;
  return static_cast<DeltaEncoding>(found - encoding_words);
}

Result<std::uint64_t> check_frame(DeltaEncoding encoding, const bytes::ByteSource& source,
                                  ByteRange frame, std::uint64_t tensor_bytes) {
  TRY_ASSIGN(const FrameReader::Head head, FrameReader(source, frame).head());
  const bool is_xor = encoding == DeltaEncoding::xor_bytes;
  if (head.stated_bytes && !is_size_of_change(is_xor, *head.stated_bytes, tensor_bytes))
    return failure(ErrorCode::corrupt,
                   "the frame states " + std::to_string(*head.stated_bytes) +
                       " bytes, and a tensor of " + std::to_string(tensor_bytes) +
                       " bytes cannot have such a change",
                   frame.offset);
  const std::uint64_t readers = is_xor ? 1 : 2;
  return readers * (head.window_bytes + FrameReader::own_bytes);
}

Result<std::unique_ptr<Change>> Change::open(DeltaEncoding encoding,
                                             const bytes::ByteSource& source, ByteRange frame,
                                             std::uint64_t tensor_bytes) {
  FrameReader reader(source, frame);
  if (encoding == DeltaEncoding::xor_bytes)
    return std::make_unique<Combination>(std::move(reader), tensor_bytes);
  auto change = std::make_unique<Overwriting>(std::move(reader), FrameReader(source, frame), frame,
                                              tensor_bytes);
  TRY(change->begin());
  return change;
}

Result<EncodedTensor> encode(const DeltaOptions& options, const bytes::ByteSource& from,
                             const bytes::ByteSource& to) {
  EncodedTensor made;
  RunningSum sum(options.sum);
  TRY(each_window(from, to, [&](std::uint64_t, Bytes old, Bytes now) -> Result<void> {
    made.changed_bytes += count_differences(old.data(), now.data(), now.size());
    sum.add(now);
    return {};
  }));
  if (made.changed_bytes == 0) return made;
  const bool is_xor = options.encoding == DeltaEncoding::xor_bytes;
  FrameWriter frame(options.level, is_xor ? to.size() : overwrite_bytes(made.changed_bytes));
  TRY(is_xor ? combine(from, to, frame) : overwrite(from, to, made.changed_bytes, frame));
  TRY_ASSIGN(made.frame, frame.finish());
  made.sum = sum.text();
  return made;
}

}  // namespace weightmap::delta
