#include "runtime/checkpoint/protection.hpp"

#include <utility>

#include "mmap/memory/snapshot.hpp"
#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

Result<void> check_not_written_through(const OpenOptions& options) {
  if (!*options.writable || *options.sharing != Sharing::shared) return {};
  return failure(ErrorCode::invalid_argument,
                 "writes to a snapshot would not reach the file: it is opened writable with "
                 "sharing=private, or with protection=map or guard");
}

}  // namespace

Result<void> take_protection(Checkpoint::Access::State& state) {
  const OpenOptions& options = state.options;
  state.info.protection = *options.protection;
  if (*options.protection != Protection::snapshot) return {};
  TRY(check_not_written_through(options));
  Result<os::File> snapshot = os::take_snapshot(state.file);
  if (!snapshot) {
    snapshot.error().message.insert(0, "protection=snapshot: ");
    return tl::unexpected<Error>(std::move(snapshot.error()));
  }
  state.file = std::move(*snapshot);
  state.info.protection_means = "reflink";
  return {};
}

}  // namespace weightmap
