#include "weightmap/runtime_directory.hpp"

#include "mmap/process/runtime_directory.hpp"

namespace weightmap {

Result<std::filesystem::path> runtime_directory() {
  const Result<os::RuntimeDirectory> directory = os::RuntimeDirectory::open();
  if (!directory) return tl::unexpected<Error>(directory.error());
  return directory->path();
}

}  // namespace weightmap
