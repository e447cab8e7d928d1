#include <string>
#include <utility>

#include "runtime/archive/open_archive.hpp"
#include "runtime/checkpoint/opener.hpp"
#include "runtime/checkpoint/state.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

Result<Checkpoint> Checkpoint::open_descriptor(int descriptor, const OpenOptions& options) {
  const Result<OpenOptions> filled = with_defaults(options);
  if (!filled) return tl::unexpected<Error>(filled.error());
  const std::string name = "descriptor " + std::to_string(descriptor);
  Result<os::File> file = os::File::from_descriptor(descriptor);
  if (!file) return about_file(file.error(), name);
  Result<std::unique_ptr<State>> state = Access::begin_open(std::move(*file), name, *filled);
  if (!state) return tl::unexpected<Error>(state.error());
  const Result<void> opened = Opener(**state, *filled, (*state)->stats).run();
  if (!opened) return about_file(opened.error(), name);
  if (*filled->shared_catalog)
    (*state)->info.catalog_reason = "a file without a path takes no shared catalog";
  return Access::finish_open(std::move(*state));
}

}  // namespace weightmap
