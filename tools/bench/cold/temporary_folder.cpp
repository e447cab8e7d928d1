#include "tools/bench/cold/temporary_folder.hpp"

#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include "tools/bench/cold/raw_file.hpp"

namespace weightmap::cli::bench {

Result<TemporaryFolder> TemporaryFolder::create(const std::filesystem::path& parent) {
  std::string name = (parent / ".weightmap-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    return tl::unexpected<Error>(system_error(parent.string(), "cannot make a folder"));
  return TemporaryFolder(name);
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace weightmap::cli::bench
