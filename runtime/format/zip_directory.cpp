#include "runtime/format/zip_directory.hpp"

#include <algorithm>
#include <array>

#include "runtime/base/try.hpp"
#include "runtime/format/identify.hpp"

namespace weightmap::format {

Result<zip::Directory> read_directory(const bytes::Source& file, bytes::Windows& windows,
                                      const Limits& limits) {
  Result<zip::Directory> directory = zip::Directory::read(windows, limits.directory_bytes);
  if (directory || directory.error().code != ErrorCode::not_a_checkpoint) return directory;
  TRY_ASSIGN(Error foreign, describe_foreign_file(file));
  return tl::unexpected<Error>(std::move(foreign));
}

Result<Error> describe_foreign_file(const bytes::Source& file) {
  std::array<std::byte, head_bytes> head;
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(head.size(), file.size()));
  TRY(file.read(0, {head.data(), length}));
  return describe_foreign({head.data(), length}, file.size());
}

}  // namespace weightmap::format
