#include "runtime/services/fetch/whole_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/formats/sets/model_files.hpp"
#include "runtime/services/fetch/compare_sum.hpp"

namespace weightmap {
namespace {

// What says which digests others have has none itself.
bool needs_no_digest(std::string_view name) noexcept {
  return name == sets::sums_name || name == sets::signature_name;
}

// Also a web page in place of what is not there, and S3's 403, which it answers to those who may
// not list the bucket.
bool is_absent(const Error& error) {
  return error.code == ErrorCode::not_found || error.code == ErrorCode::unsupported ||
         error.os_error == ENOENT || error.os_error == EACCES;
}

Result<std::string> text_of(const os::File& modules) {
  if (modules.size() > sets::most_bytes_of_modules)
    return failure(ErrorCode::limit_exceeded, "is longer than a list of modules may be");
  std::string text(static_cast<std::size_t>(modules.size()), '\0');
  TRY(modules.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::string name_of(const RangeSource& source) {
  return std::filesystem::path(source.name()).filename();
}

}  // namespace

Result<FetchReport> WholeFetch::bring(RangeSource& source, WholeSource& whole) {
  const auto began = std::chrono::steady_clock::now();
  source_ = &source;
  TRY(sum_for(name_, options_));
  Result<void> read = whole.read_whole(*this);
  if (read && taken_ != version_.size)
    read = failure(ErrorCode::io, "its source ended a read before all bytes had arrived");
  if (read) read = part_->sync();
  if (read && sum_) read = compare_sum(known_, *sum_, options_.progress);
  sum_.reset();
  if (!read && part_) part_->remove_files();
  TRY(read);
  FetchReport report;
  report.path = path_;
  report.version = version_;
  report.counts = source.counts();
  report.file_bytes = version_.size;
  known_.add_to(report);
  report.in_one_request = true;
  report.time = std::chrono::steady_clock::now() - began;
  return report;
}

Result<void> WholeFetch::begins(const RemoteVersion& version) {
  // The store is asked about this version.
  TRY_ASSIGN(known_, known_sum(name_, *source_, options_, beside_));
  version_ = version;
  taken_ = 0;
  sum_.reset();
  part_.reset();  // with its lock
  TRY(make_folder_of(path_));
  TRY_ASSIGN(part_, about_file(PartFile::open(path_, {}, version.size), path_));
  if (!known_.digest) return {};
  part_->keep_cached();
  sum_.emplace(part_->file());
  return {};
}

Result<void> WholeFetch::take(std::span<const std::byte> bytes) {
  if (bytes.size() > version_.size - taken_)
    return failure(ErrorCode::io, "the server sends more bytes than it said");
  TRY(part_->write(taken_, bytes));
  taken_ += bytes.size();
  if (sum_) sum_->reach(taken_);
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
  TRY_ASSIGN(const catalog::Catalog* const catalog, Checkpoint::Access::state(opened).placed());
  std::uint64_t bytes = 0;
  for (const auto& storage : catalog->storages())
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
  WholeFetch file(path, name_of(source), options);
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
  TRY(about_file(file.publish(replaces), path));
  return report;
}

namespace {

bool has_bytes_of(const std::filesystem::path& path, const os::File& other) {
  const Result<os::File> file = os::File::open(path, false);
  if (!file || file->size() != other.size()) return false;
  constexpr std::uint64_t step_bytes = std::uint64_t{1} << 20;
  std::vector<std::byte> one(static_cast<std::size_t>(std::min(step_bytes, file->size())));
  std::vector<std::byte> two(one.size());
  for (std::uint64_t at = 0; at < file->size(); at += step_bytes) {
    const auto length = static_cast<std::size_t>(std::min(step_bytes, file->size() - at));
    const auto read = std::span(one).first(length), read_too = std::span(two).first(length);
    if (!file->read(at, read) || !other.read(at, read_too) ||
        !std::equal(read.begin(), read.end(), read_too.begin()))
      return false;
  }
  return true;
}

}  // namespace

bool lies_beside_models(const RangeSource& source) {
  return sets::is_well_known(std::filesystem::path(source.name()).filename().native());
}

Result<void> FilesBeside::bring(const RangeSource& lead, const Beside& beside,
                                const std::filesystem::path& folder, const FetchOptions& options) {
  if (options.sha256.empty() &&
      std::ranges::find(beside.names, sets::sums_name) != beside.names.end())
    TRY(bring_sums(lead, beside.find_listed(sets::sums_name) == nullptr, folder, options));
  TRY(bring_all(lead, beside, folder, options));
  return bring_modules(lead, folder, options);
}

Result<void> FilesBeside::bring_all(const RangeSource& lead, const Beside& beside,
                                    const std::filesystem::path& folder,
                                    const FetchOptions& options) {
  std::vector<Found> all;
  for (const std::string& name : beside.names) {
    const bool are_given = !options.sha256.empty();
    if (are_given ? !options.sha256.contains(name) : name == sets::sums_name) continue;
    TRY_ASSIGN(std::unique_ptr<RangeSource> source, lead.sibling(name));
    if (dynamic_cast<WholeSource*>(source.get()) != nullptr)
      all.push_back({name, std::move(source), beside.find_listed(name) == nullptr});
  }
  constexpr std::size_t at_a_time = 32;
  TRY(parallel_for(all.size(), at_a_time,
                   [&](std::size_t number) { return bring(all[number], folder, options); }));
  for (Found& found : all) {
    if (found.file && found.name == sets::modules_name) {
      TRY_ASSIGN(modules_, about_file(text_of(found.file->part().file()), found.file->path()));
    }
    if (found.file) keep(std::move(found));
  }
  return {};
}

// Of the version that has come.
Result<void> FilesBeside::bring_modules(const RangeSource& lead,
                                        const std::filesystem::path& folder,
                                        const FetchOptions& options) {
  if (modules_.empty()) return {};
  Result<Beside> found = find_in_modules(lead, modules_);
  if (!found) return about_file(std::move(found.error()), folder);
  return bring_all(lead, *found, folder, options);
}

// Whatever else is brought is compared with them.
Result<void> FilesBeside::bring_sums(const RangeSource& lead, bool may_be_absent,
                                     const std::filesystem::path& folder,
                                     const FetchOptions& options) {
  TRY_ASSIGN(std::unique_ptr<RangeSource> source, lead.sibling(std::string(sets::sums_name)));
  if (dynamic_cast<WholeSource*>(source.get()) == nullptr) return {};
  Found found{std::string(sets::sums_name), std::move(source), may_be_absent};
  TRY(bring(found, folder, options));
  if (!found.file) return {};
  Result<Sha256Sums> sums = sums_in(found.file->part().file());
  if (!sums) {
    found.file->remove();
    return about_file(std::move(sums.error()), found.source->name());
  }
  sums_ = *std::move(sums);
  has_new_sums_ = keep(std::move(found));
  return {};
}

Result<void> FilesBeside::bring(Found& found, const std::filesystem::path& folder,
                                const FetchOptions& options) const {
  FetchOptions own = options;
  if (needs_no_digest(found.name)) own.require_digest = false;
  auto file = std::make_unique<WholeFetch>(folder / found.name, found.name, std::move(own), &sums_);
  Result<FetchReport> report =
      file->bring(*found.source, dynamic_cast<WholeSource&>(*found.source));
  if (!report && found.may_be_absent && is_absent(report.error())) return {};
  if (!report) return about_file(std::move(report.error()), file->path());
  found.file = std::move(file);
  found.report = std::move(*report);
  return {};
}

// False if the folder has the same bytes already.
bool FilesBeside::keep(Found found) {
  reports_.push_back(std::move(found.report));
  if (has_bytes_of(found.file->path(), found.file->part().file())) {
    found.file->remove();
    return false;
  }
  files_.push_back(std::move(found.file));
  return true;
}

Result<void> FilesBeside::publish() {
  for (const std::unique_ptr<WholeFetch>& file : files_)
    TRY(about_file(file->publish(true), file->path()));
  return {};
}

}  // namespace weightmap
