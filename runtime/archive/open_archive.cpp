#include "runtime/archive/open_archive.hpp"

#include <algorithm>
#include <array>

#include "runtime/bytes/escape.hpp"
#include "runtime/format/strangers.hpp"

namespace weightmap {

Result<zip::Directory> read_directory(const bytes::Source& file, bytes::Windows& windows,
                                      const Limits& limits) {
  Result<zip::Directory> directory = zip::Directory::read(windows, limits.directory_bytes);
  if (directory || directory.error().code != ErrorCode::not_a_checkpoint) return directory;
  std::array<std::byte, stranger_head_bytes> head;
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(head.size(), file.size()));
  if (Result<void> read = file.read(0, {head.data(), length}); !read)
    return tl::unexpected<Error>(read.error());
  return tl::unexpected<Error>(describe_stranger({head.data(), length}, file.size()));
}

tl::unexpected<Error> about_file(Error error, const std::filesystem::path& path) {
  if (error.file.empty()) error.file = bytes::escape(path.native(), 4096);
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace weightmap
