#include "runtime/services/warm/warm_options.hpp"

#include <algorithm>
#include <string>

#include "runtime/base/try.hpp"
#include "runtime/services/warm/warm_plan.hpp"
#include "runtime/system/memory/memory_limit.hpp"

namespace weightmap {
namespace {

constexpr unsigned max_threads = 64;

tl::unexpected<Error> refused(std::string why) {
  return failure(ErrorCode::invalid_argument, std::move(why));
}

Result<void> check_ranges(const WarmOptions& options) {
  if (options.threads == 0 || options.threads > max_threads)
    return refused("threads must be 1 to " + std::to_string(max_threads) + ", not " +
                   std::to_string(options.threads));
  if (options.step_bytes < os::large_page)
    return refused("step_bytes must be at least 2 MiB, not " + std::to_string(options.step_bytes));
  return {};
}

Result<void> check_combination(const WarmOptions& options) {
  if (!options.slices.empty() && (!options.tensors.empty() || options.follow))
    return refused("slices cannot be combined with tensors or follow");
  if (options.follow && options.lock) return refused("lock cannot be combined with follow");
  if (options.for_others && options.lock)
    return refused("lock cannot be combined with for_others, which maps nothing");
  if (options.follow && options.one_reader)
    return refused("one_reader cannot be combined with follow: all would wait for one consumer");
  if (options.drop_behind && !options.follow) return refused("drop_behind needs follow");
  if (options.drop_behind && options.verify_crc)
    return refused(
        "drop_behind cannot be combined with verify_crc: it could drop what is not summed yet");
  return {};
}

}  // namespace

Result<void> check_options(const WarmOptions& options, const CheckpointInfo& info) {
  TRY(check_ranges(options));
  TRY(check_combination(options));
  if (options.drop_behind && info.writable && info.sharing == Sharing::private_)
    return refused(
        "drop_behind cannot be combined with a private writable checkpoint: what was written to it "
        "would be lost");
  return {};
}

void choose_budget(const WarmOptions& options, std::uint64_t most, os::LockShare& share,
                   WarmReport& report) {
  os::MemoryLimit limit;
  const auto look = [&] {
    if (options.budget_bytes == 0) limit = os::memory_limit();
    return limit;
  };
  if (options.budget_bytes != 0) most = std::min(most, options.budget_bytes);
  const std::uint64_t room = options.lock ? share.promise(most, look) : look().usable();
  report.budget_bytes = options.budget_bytes != 0 ? options.budget_bytes : room;
  report.budget_reason = limit.reason;
}

}  // namespace weightmap
