#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/fetch/fetch_file.hpp"
#include "runtime/sets/file_name.hpp"
#include "runtime/warm/staged_file.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap {
namespace {

// The names come from a file of the store, or from its URL.
Result<void> check_name(const SourceFile& file) {
  if (sets::stays_below(file.name_beside)) return {};
  return failure(ErrorCode::corrupt,
                 bytes::quote(file.name_beside) + " is no name of a file in the folder");
}

Result<void> make_folder_of(const std::filesystem::path& path) {
  std::error_code failed;
  std::filesystem::create_directories(path.parent_path(), failed);
  if (!failed) return {};
  return failure(ErrorCode::io, "cannot make its folder: " + failed.message());
}

class FolderFetch {
 public:
  FolderFetch(const Checkpoint& checkpoint, std::filesystem::path folder,
              const FetchOptions& options)
      : checkpoint_(checkpoint), folder_(std::move(folder)), options_(options) {
    all_ = state().sources.bytes();
    if (!options.progress) return;
    options_.progress = [this, progress = options.progress](std::uint64_t done, std::uint64_t) {
      return progress(before_ + done, all_);
    };
  }

  Result<std::vector<FetchReport>> run() {
    for (const SourceFile& file : state().sources.opened()) TRY(check_name(file));
    std::vector<const SourceFile*> files = lead_last();
    const auto is_current = [this](const SourceFile* file) {
      return is_there(path_of(*file), file->remote->version());
    };
    const SourceFile& lead = *files.back();
    // What is replaced must not be taken for a part of the old set.
    if (!std::all_of(files.begin(), files.end() - 1, is_current)) TRY(remove(lead));
    std::vector<FetchReport> reports;
    for (const SourceFile* file : files) {
      Result<FetchReport> report = is_current(file) ? report_of(*file) : fetch(*file);
      if (!report) return about_file(std::move(report.error()), path_of(*file));
      before_ += file->file.size();
      reports.push_back(std::move(*report));
    }
    TRY(check_set(lead));
    return reports;
  }

 private:
  const Checkpoint::State& state() const noexcept { return Checkpoint::Access::state(checkpoint_); }
  std::filesystem::path path_of(const SourceFile& file) const { return folder_ / file.name_beside; }

  // The file that leads to the others comes last, so that it never leads to one that is not there.
  std::vector<const SourceFile*> lead_last() const {
    std::vector<const SourceFile*> files;
    for (const SourceFile& file : state().sources.opened()) files.push_back(&file);
    std::stable_partition(files.begin(), files.end(), [this](const SourceFile* file) {
      return file->info.path != state().given.front().path;
    });
    return files;
  }

  FetchReport report_of(const SourceFile& file) const {
    FetchReport report;
    report.path = path_of(file);
    report.version = file.remote->version();
    report.counts = file.remote->source()->counts();
    report.file_bytes = file.file.size();
    return report;
  }

  Result<FetchReport> fetch(const SourceFile& file) const {
    const std::filesystem::path path = path_of(file);
    TRY(make_folder_of(path));
    return fetch_file({checkpoint_, file, path, true, !state().is_set()}, options_);
  }

  Result<void> remove(const SourceFile& file) const {
    std::error_code failed;
    std::filesystem::remove(path_of(file), failed);
    if (!failed) return {};
    return about_file({ErrorCode::io, "cannot remove the file: " + failed.message()},
                      path_of(file));
  }

  // A file of a set may be no checkpoint by itself, so the set is opened once it is whole.
  Result<void> check_set(const SourceFile& lead) const {
    if (!state().is_set()) return {};
    Result<void> checked =
        check_copy(checkpoint_, Checkpoint::open(path_of(lead), OpenOptions::to_look()));
    if (checked) return checked;
    static_cast<void>(remove(lead));
    return about_file(std::move(checked.error()), path_of(lead));
  }

  const Checkpoint& checkpoint_;
  const std::filesystem::path folder_;
  FetchOptions options_;
  std::uint64_t before_ = 0;  // bytes of the files that are done
  std::uint64_t all_ = 0;     // bytes
};

}  // namespace

Result<std::vector<FetchReport>> fetch_into(std::unique_ptr<RangeSource> source,
                                            const std::filesystem::path& folder,
                                            const FetchOptions& options) {
  const std::string name = source->name();
  const Result<Checkpoint> opened = open_to_fetch(std::move(source));
  if (!opened) return about_file(opened.error(), name);
  return FolderFetch(*opened, folder, options).run();
}

}  // namespace weightmap
