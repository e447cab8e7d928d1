#include "runtime/checkpoint/protection.hpp"

#include <string>
#include <utility>

#include "mmap/memory/snapshot.hpp"

namespace weightmap {
namespace {

Result<void> check_not_written_through(const OpenOptions& options) {
  if (!*options.writable || *options.sharing != Sharing::shared) return {};
  return failure(ErrorCode::invalid_argument,
                 "writes to a " + std::string(to_string(*options.protection)) +
                     " would not reach the file: it is opened writable with sharing=private, or "
                     "with protection=map or guard");
}

}  // namespace

Result<void> take_protection(Checkpoint::Access::State& state) {
  const OpenOptions& options = state.options;
  state.info.protection = *options.protection;
  if (*options.protection <= Protection::guard) return {};
  if (Result<void> ok = check_not_written_through(options); !ok) return ok;
  if (*options.protection == Protection::copy) {
    state.info.protection_means = "memory";
    return {};
  }
  Result<os::Snapshot> snapshot = os::take_snapshot(state.file);
  if (!snapshot) {
    snapshot.error().message.insert(0, "protection=snapshot: ");
    return tl::unexpected<Error>(std::move(snapshot.error()));
  }
  state.file = std::move(snapshot->file);
  state.info.protection_means = snapshot->means;
  return {};
}

}  // namespace weightmap
