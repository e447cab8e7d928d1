#include "runtime/system/file/reflink.hpp"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

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

}  // namespace

Result<File> make_reflink(const File& source) {
  TRY_ASSIGN(const UniqueFd clone, unnamed_sibling(source));
  if (Result<void> shared = share_blocks(clone.get(), source); !shared)
    return reflink_failure(std::move(shared).error());
  TRY(source.check_unchanged());
  return File::from_descriptor(clone.get());
}

}  // namespace weightmap::os
