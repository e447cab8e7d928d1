#include <string>
#include <utility>

#include "runtime/checkpoint/open_archive.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

Result<Checkpoint> Checkpoint::open_descriptor(int descriptor, const OpenOptions& options) {
  const Result<OpenOptions> filled = with_defaults(options);
  if (!filled) return tl::unexpected<Error>(filled.error());
  const std::string name = "descriptor " + std::to_string(descriptor);
  Result<os::File> file = os::File::from_descriptor(descriptor);
  if (!file) return about_file(file.error(), name);
  return Access::open(std::move(*file), name, *filled);
}

}  // namespace weightmap
