#include "bench/cold/raw_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::bench {

Error system_error(const std::string& path, const char* what) {
  const int error = errno;
  return {ErrorCode::io, std::string(what) + ": " + std::generic_category().message(error),
          Error::no_offset, printable(path), error};
}

Result<RawFile> RawFile::open(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (descriptor < 0) return tl::unexpected<Error>(system_error(path, "cannot be opened"));
  RawFile file(descriptor, 0);
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0)
    return tl::unexpected<Error>(system_error(path, "cannot be opened"));
  file.bytes_ = static_cast<std::uint64_t>(facts.st_size);
  return file;
}

RawFile::RawFile(RawFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}

RawFile::~RawFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::vector<RawFile>> open_sources(const Checkpoint& checkpoint, int flags) {
  std::vector<RawFile> files;
  for (std::size_t i = 0; i < checkpoint.source_count(); ++i) {
    if (checkpoint.source(i).is_copy) break;  // memory, behind all files
    TRY_ASSIGN(RawFile file, RawFile::open(checkpoint.source(i).path.string(), flags));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace weightmap::cli::bench
