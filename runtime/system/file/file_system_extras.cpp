#include "runtime/system/file/file_system_extras.hpp"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

#include "runtime/base/bytes/round_up.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/unique_fd.hpp"
#include "runtime/system/write/write_all.hpp"

namespace weightmap::os {
namespace {

// Recognises the errors of file systems without reflinks, or without unnamed files.
bool is_not_supported(int error_number) noexcept {
  return error_number == EOPNOTSUPP || error_number == ENOTTY || error_number == EINVAL ||
         error_number == EXDEV || error_number == EISDIR;
}

tl::unexpected<Error> reflink_failure(Error error) {
  if (is_not_supported(error.os_error)) error.code = ErrorCode::unsupported;
  error.message +=
      " (this needs a file system with reflinks, such as xfs or btrfs; stage() "
      "and `weightmap stage` make a copy in memory that processes share)";
  return tl::unexpected<Error>(std::move(error));
}

// Creates an unnamed file in the directory where the file lies now, resolving all links.
Result<UniqueFd> unnamed_sibling(const File& source) {
  std::error_code error;
  const std::filesystem::path path =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(source.descriptor()), error);
  if (error.value() == ENOENT)
    return failure(
        ErrorCode::unsupported,
        "cannot find the directory of the file without /proc, which is not mounted (stage() "
        "and `weightmap stage` do without)");
  if (error) return reflink_failure(os_error("find the directory of the file", error.value()));
  UniqueFd file(::open(path.parent_path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.get() < 0)
    return reflink_failure(os_error("make a file in the directory of this one", errno));
  return file;
}

// struct fiemap without its flexible array member, which cannot be initialised.
struct ExtentCount {
  std::uint64_t start;
  std::uint64_t length;
  std::uint32_t flags;
  std::uint32_t extents;  // output
  std::uint32_t room;     // none: extents are only counted
  std::uint32_t reserved;
};
static_assert(sizeof(ExtentCount) == sizeof(fiemap));

}  // namespace

Result<File> make_reflink(const File& source) {
  TRY_ASSIGN(const UniqueFd clone, unnamed_sibling(source));
  if (Result<void> shared = share_blocks(clone.get(), source); !shared)
    return reflink_failure(std::move(shared).error());
  TRY(source.check_unchanged());
  return File::from_descriptor(clone.get());
}

std::optional<std::uint64_t> extents_of(const File& file) noexcept {
  ExtentCount count{0, file.size(), 0, 0, 0, 0};
  if (::ioctl(file.descriptor(), FS_IOC_FIEMAP, &count) != 0) return std::nullopt;
  return count.extents;
}

bool set_attribute(int descriptor, const std::string& name, const std::string& text) noexcept {
  return ::fsetxattr(descriptor, name.c_str(), text.data(), text.size(), 0) == 0;
}

std::optional<std::string> attribute_of(const std::filesystem::path& path,
                                        const std::string& name) {
  std::array<char, 4096> text;  // what an attribute of some file systems may have at most
  const ssize_t size = ::getxattr(path.c_str(), name.c_str(), text.data(), text.size());
  if (size < 0) return std::nullopt;
  return std::string(text.data(), static_cast<std::size_t>(size));
}

Holes find_holes(const File& file, std::uint64_t offset, std::uint64_t length) noexcept {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) return {};
  const auto block = static_cast<std::uint64_t>(status.st_blksize);
  const std::uint64_t first = bytes::round_up(offset, block);
  const std::uint64_t end = (offset + length) / block * block;
  Holes found;
  bool ends_in_hole = false;
  for (std::uint64_t at = first; at < end;) {
    const off_t data = ::lseek(file.descriptor(), static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno != ENXIO) return {};
    const std::uint64_t behind = data < 0 ? end : std::min(end, static_cast<std::uint64_t>(data));
    found.bytes += behind - at;
    ends_in_hole = behind == end && behind > at;
    if (behind == end) break;
    const off_t hole = ::lseek(file.descriptor(), data, SEEK_HOLE);
    if (hole <= data) return {};
    at = static_cast<std::uint64_t>(hole);
  }
  const bool ends_file = end + block >= file.size();
  found.is_unwritten =
      found.bytes > 0 && (found.bytes == end - first || (ends_in_hole && ends_file));
  return found;
}

}  // namespace weightmap::os
