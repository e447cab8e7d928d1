#include "runtime/formats/dcp/walk_items.hpp"

#include <memory_resource>
#include <string>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/end_record.hpp"

namespace weightmap::dcp {
namespace {

constexpr std::uint64_t walk_tail_bytes = 1024;

// The beginning of a file, of which the last archive is an item.
class Front final : public bytes::ByteSource {
 public:
  Front(const bytes::ByteSource& file, std::uint64_t size) noexcept : file_(file), size_(size) {}
  std::uint64_t size() const noexcept override { return size_; }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (!bytes::contains(size_, offset, out.size()))
      return bytes::leaves_source(*this, offset, out.size());
    return file_.read(offset, out);
  }

 private:
  const bytes::ByteSource& file_;
  std::uint64_t size_;
};

}  // namespace

Result<void> for_each_item(const bytes::ByteSource& file,
                           const std::function<Result<void>(ByteRange item)>& visit) {
  for (std::uint64_t end = file.size(); end > 0;) {
    const Front front(file, end);
    bytes::ReadCache cache(front, *std::pmr::new_delete_resource(), walk_tail_bytes);
    Result<zip::EndOfArchive> archive = zip::find_end_of_archive(cache, true);
    if (!archive) {
      Error error = std::move(archive.error());
      if (error.code == ErrorCode::io) return tl::unexpected<Error>(std::move(error));
      return failure(ErrorCode::corrupt,
                     "the " + std::to_string(end) + " bytes before byte " + std::to_string(end) +
                         " do not end with an item, an archive of torch.save (" + error.message +
                         "); the file is truncated, or damaged there",
                     end);
    }
    TRY(visit({archive->archive_start, end - archive->archive_start}));
    end = archive->archive_start;
  }
  return {};
}

}  // namespace weightmap::dcp
