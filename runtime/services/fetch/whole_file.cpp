#include "runtime/services/fetch/whole_file.hpp"

#include <string>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/fetch/compare_sum.hpp"
#include "runtime/services/fetch/files_beside.hpp"

namespace weightmap {

Result<FetchReport> WholeFetch::bring(RangeSource& source, WholeSource& whole) {
  const auto began = std::chrono::steady_clock::now();
  const std::string name = std::filesystem::path(source.name()).filename();
  TRY_ASSIGN(const auto* const wanted, sum_for(name, options_));
  Result<void> read = whole.read_whole(*this);
  if (read && taken_ != version_.size)
    read = failure(ErrorCode::io, "its source ended a read before all bytes had arrived");
  if (read) read = part_->sync();
  if (read && wanted != nullptr) read = compare_sum(*wanted, part_->file(), options_.progress);
  if (!read && part_) part_->remove_files();
  TRY(read);
  FetchReport report;
  report.path = path_;
  report.version = version_;
  report.counts = source.counts();
  report.file_bytes = version_.size;
  report.summed_bytes = wanted == nullptr ? 0 : version_.size;
  report.in_one_request = true;
  report.time = std::chrono::steady_clock::now() - began;
  return report;
}

Result<void> WholeFetch::begins(const RemoteVersion& version) {
  version_ = version;
  taken_ = 0;
  part_.reset();  // with its lock
  Result<PartFile> part = PartFile::open(path_, {}, version.size);
  if (!part) return about_file(std::move(part.error()), path_);
  part_ = std::move(*part);
  return {};
}

Result<void> WholeFetch::take(std::span<const std::byte> bytes) {
  if (bytes.size() > version_.size - taken_)
    return failure(ErrorCode::io, "the server sends more bytes than it said");
  TRY(part_->write(taken_, bytes));
  taken_ += bytes.size();
  return go_on(options_.progress, taken_, version_.size);
}

WholeSource* only_whole(RangeSource& source) noexcept {
  auto* const whole = dynamic_cast<WholeSource*>(&source);
  const bool is_one = whole != nullptr && (whole->has_no_ranges() || lies_beside_models(source));
  return is_one ? whole : nullptr;
}

namespace {

// Opens it, and compares the checksums of a zip archive. Returns the bytes that have one.
Result<std::uint64_t> check_checkpoint(const PartFile& part, bool verify) {
  OpenOptions look = OpenOptions::to_look();
  if (verify) look.verify = Verify::crc;
  TRY_ASSIGN(const Checkpoint opened, Checkpoint::open_descriptor(part.file().descriptor(), look));
  std::uint64_t bytes = 0;
  for (const auto& storage : Checkpoint::Access::state(opened).catalog().storages())
    if (verify && storage.crc32 != 0) bytes += storage.nbytes;
  return bytes;
}

}  // namespace

Result<FetchReport> fetch_whole(RangeSource& source, const std::filesystem::path& path,
                                const FetchOptions& options, bool replaces) {
  const bool is_checkpoint = !lies_beside_models(source);
  if (is_checkpoint && source.name().ends_with(".json"))
    return about_file({ErrorCode::unsupported,
                       "its server knows no ranges, so a set is not found by its index: fetch each "
                       "of its files by a URL of its own"},
                      source.name());
  WholeFetch file(path, options);
  Result<FetchReport> report = file.bring(source, *only_whole(source));
  if (!report) return about_file(std::move(report.error()), path);
  Result<std::uint64_t> verified = 0;
  if (is_checkpoint) verified = check_checkpoint(file.part(), options.verify);
  if (!verified) {
    file.remove();
    verified.error().file.clear();
    return about_file(std::move(verified.error()), source.name());
  }
  report->verified_bytes = *verified;
  if (Result<void> named = file.publish(replaces); !named)
    return about_file(std::move(named.error()), path);
  return report;
}

}  // namespace weightmap
