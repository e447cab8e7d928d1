#include "runtime/services/write/stored_content.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/checkpoint/state.hpp"

namespace weightmap {
namespace {

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

RecordContent stored_content(const Checkpoint& checkpoint, const NamedStorage& storage,
                             std::uint64_t first, std::uint64_t count) {
  return RecordContent::produced(count, StoredBytes(checkpoint, storage, first, count));
}

}  // namespace weightmap
