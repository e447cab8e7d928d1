#include "runtime/formats/dcp/walk_items.hpp"

#include <memory_resource>
#include <string>
#include <utility>

#include "runtime/base/bytes/part.hpp"
#include "runtime/base/bytes/read_cache.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/end_record.hpp"

namespace weightmap::dcp {
namespace {

constexpr std::uint64_t walk_tail_bytes = 1024;

}  // namespace

Result<void> for_each_item(const bytes::ByteSource& file,
                           const std::function<Result<void>(ByteRange item)>& visit) {
  for (std::uint64_t end = file.size(); end > 0;) {
    const bytes::Part front(file, 0, end);  // the last archive in it is an item
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
