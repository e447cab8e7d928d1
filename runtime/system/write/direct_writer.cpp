#include "runtime/system/write/direct_writer.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "runtime/base/try.hpp"
#include "runtime/system/page_size.hpp"
#include "runtime/system/write/write_all.hpp"

namespace weightmap::os {
namespace {

// Opens the same file whatever its name is now. Without /proc there is none.
UniqueFd open_direct(int descriptor) {
  const std::string self = "/proc/self/fd/" + std::to_string(descriptor);
  return UniqueFd(::open(self.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
}

}  // namespace

DirectWriter::DirectWriter(int descriptor)
    : descriptor_(descriptor), direct_(open_direct(descriptor)), is_direct_(direct_.get() >= 0) {}

Result<void> DirectWriter::write(std::uint64_t offset, std::span<const std::byte> content) {
  const std::uint64_t page = page_bytes();
  const std::uint64_t before =
      std::min<std::uint64_t>(content.size(), (page - offset % page) % page);
  const std::uint64_t whole = (content.size() - before) / page * page;
  if (is_direct_ && whole != 0) {
    const Result<void> written =
        write_at(direct_.get(), offset + before, content.subspan(before, whole));
    if (written) {
      TRY(write_through_cache(offset, content.first(before)));
      return write_through_cache(offset + before + whole, content.subspan(before + whole));
    }
    // Larger blocks than pages, other memory, or a file system that refuses only now.
    if (written.error().os_error != EINVAL) return written;
    is_direct_ = false;
  }
  return write_through_cache(offset, content);
}

Result<void> DirectWriter::write_through_cache(std::uint64_t offset,
                                               std::span<const std::byte> content) const {
  if (content.empty()) return {};
  TRY(write_at(descriptor_, offset, content));
  ::sync_file_range(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(content.size()),
                    SYNC_FILE_RANGE_WRITE);
  return {};
}

}  // namespace weightmap::os
