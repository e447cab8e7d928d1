// verify_crc(): the checksums of all storages, with the disk read once.

#include <memory>
#include <utility>

#include "runtime/checkpoint/state.hpp"
#include "runtime/services/verify/storage_summer.hpp"
#include "runtime/services/warm/warm_work.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {
namespace {

CrcReport sum_alone(const Sources& sources, const catalog::Catalog& catalog,
                    const Progress& progress) {
  CrcReport report;
  StorageSummer summer(sources, catalog, progress);
  for (std::size_t i = 0; i < catalog.storages().size() && !report.cancelled; ++i)
    summer.check(i, report);
  return report;
}

}  // namespace

CrcReport verify_crc(const Checkpoint& checkpoint, const Progress& progress) {
  Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  if (Result<void> ok = state.check_view_memory(); !ok) return {.faults = {std::move(ok.error())}};
  const Result<const catalog::Catalog*> catalog = state.placed();
  if (!catalog) return {.faults = {catalog.error()}};
  WarmOptions options;
  options.verify_crc = true;
  options.budget_bytes = os::MemoryLimit::unknown;  // each page is needed once
  const Result<std::unique_ptr<WarmWork>> work = WarmWork::start(state, options, progress);
  if (work) {
    Result<WarmReport> report = (*work)->wait();
    if (report && (report->storages_left_out == 0 || report->crc.cancelled))
      return std::move(report->crc);
  }
  // The fallback without threads, or after a failed read, reports the fault of each storage.
  return sum_alone(state.sources, **catalog, progress);
}

}  // namespace weightmap
