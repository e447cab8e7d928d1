#include "runtime/services/write/contents.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "mmap/guard.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap {
namespace {

Result<void> take_elements(const TensorView& view, const RecordContent::Take& take) {
  Result<void> taken;
  TRY(for_each_piece(view, [&](std::span<const std::byte> piece) {
    taken = take(piece);
    return taken.has_value();
  }));
  TRY(taken);
  return mmap::Guard::check_read(view.stored_bytes());
}

constexpr std::uint64_t read_bytes = std::uint64_t{1} << 20;

class StoredBytes {
 public:
  StoredBytes(const Checkpoint& checkpoint, const NamedStorage& storage, std::uint64_t first,
              std::uint64_t count)
      : sources_(&Checkpoint::Access::state(checkpoint).sources),
        storage_(storage),
        first_(first),
        end_(first + count) {}

  Result<void> operator()(const RecordContent::Take& take) const {
    const std::uint64_t base = (*sources_)[storage_.source].base() + storage_.payload_offset;
    const bool is_summed = storage_.crc32 != 0;
    const std::uint64_t end = is_summed ? storage_.nbytes : end_;
    std::vector<std::byte> chunk;
    std::uint32_t sum = 0;
    for (std::uint64_t at = is_summed ? 0 : first_; at < end; at += chunk.size()) {
      chunk.resize(std::min(read_bytes, end - at));
      TRY(sources_->read(base + at, chunk));
      if (is_summed) sum = zip::crc32(chunk, sum);
      const std::uint64_t from = std::clamp(first_, at, at + chunk.size());
      const std::uint64_t to = std::clamp(end_, at, at + chunk.size());
      if (from < to) TRY(take(std::span(chunk).subspan(from - at, to - from)));
    }
    if (sum == storage_.crc32) return {};
    const SourceFile& file = (*sources_)[storage_.source];
    return tl::unexpected<Error>(file.about(
        {ErrorCode::corrupt,
         "record " + bytes::quote(storage_.record()) + zip::crc_mismatch(sum, storage_.crc32),
         storage_.payload_offset,
         {}}));
  }

 private:
  const Sources* sources_;
  NamedStorage storage_;
  std::uint64_t first_;
  std::uint64_t end_;
};

}  // namespace

RecordContent content_of(const TensorView& view) {
  const bool is_lazy = view.is_conjugate() || view.is_negative();
  if (view.is_contiguous() && !view.is_foreign_byte_order() && !is_lazy)
    return RecordContent::bytes(view.bytes());
  return RecordContent::produced(
      view.nbytes(), [view](const RecordContent::Take& take) { return take_elements(view, take); });
}

RecordContent stored_content(const Checkpoint& checkpoint, const NamedStorage& storage,
                             std::uint64_t first, std::uint64_t count) {
  return RecordContent::produced(count, StoredBytes(checkpoint, storage, first, count));
}

}  // namespace weightmap
