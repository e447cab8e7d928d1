#include "tools/bench/cold/raw_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

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
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  struct stat facts {};
  if (descriptor.get() < 0 || ::fstat(descriptor.get(), &facts) != 0)
    return tl::unexpected<Error>(system_error(path, "cannot be opened"));
  return RawFile(std::move(descriptor), static_cast<std::uint64_t>(facts.st_size));
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
