#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "mmap/pages/page_cache.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/arriving_file.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/formats/sets/model_files.hpp"
#include "runtime/formats/sets/select_files.hpp"
#include "runtime/services/fetch/compare_sum.hpp"
#include "runtime/services/fetch/fetch_file.hpp"
#include "runtime/services/fetch/fetched_version.hpp"
#include "runtime/services/fetch/joint_progress.hpp"
#include "runtime/services/fetch/journal.hpp"
#include "runtime/services/fetch/names_beside.hpp"
#include "runtime/services/fetch/part_file.hpp"
#include "runtime/services/fetch/whole_file.hpp"
#include "runtime/services/warm/staged_file.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap {
namespace {

// The names come from a file of the store, or from its URL.
Result<void> check_name(const SourceFile& file, bool is_of_a_set) {
  const std::string& name = file.name_beside;
  if (!sets::stays_below(name))
    return failure(ErrorCode::corrupt, bytes::quote(name) + " is no name of a file in the folder");
  if (!is_of_a_set || (name != sets::update_mark && !name.ends_with(".part") &&
                       !name.ends_with(".part.journal") && !sets::is_well_known(name)))
    return {};
  return failure(ErrorCode::unsupported, "the set has a file " + bytes::quote(name) +
                                             ", a name that a fetch needs for another file of the "
                                             "folder; fetch the files of the set one by one");
}

FetchOptions without_progress(FetchOptions options) {
  options.progress = {};
  return options;
}

class FolderFetch {
 public:
  FolderFetch(const Checkpoint& checkpoint, std::filesystem::path folder,
              const FetchOptions& options)
      : checkpoint_(checkpoint),
        folder_(std::move(folder)),
        given_(options),
        options_(without_progress(options)) {
    for (const SourceFile& file : state().sources.opened())
      metadata_bytes_.push_back(file.remote->source()->counts().bytes);
  }

  Result<std::vector<FetchReport>> run() {
    if (state().is_set() && options_.sha256.contains(""))
      return failure(ErrorCode::invalid_argument,
                     "is a set of several files, whose SHA-256s are given by their names (--sums)");
    for (const SourceFile& file : state().sources.opened()) {
      TRY(check_name(file, state().is_set()));
      TRY(sum_for(file.name_beside, options_));
    }
    const std::vector<const SourceFile*> files = lead_last();
    TRY(make_folder_of(path_of(*files.back())));
    TRY(check_room_for_all());
    TRY(bring_beside(*files.back()));
    const bool is_one_moment = state().is_set() || !beside_.reports().empty();
    if (is_one_moment) TRY(check_versions(true));
    std::vector<Brought> brought(files.size());
    TRY(bring(files, brought));
    std::vector<FetchReport> reports = beside_.reports();
    std::vector<const SourceFile*> fetched;  // as parts
    for (std::size_t i = 0; i < files.size(); ++i) {
      reports.push_back(std::move(brought[i].report));
      if (!brought[i].was_there) fetched.push_back(files[i]);
    }
    if (is_one_moment && !(fetched.empty() && beside_.reports().empty()))
      TRY(check_versions(false));
    if (state().is_set())
      TRY(replace(fetched, *files.back()));
    else
      TRY(beside_.publish());
    return reports;
  }

 private:
  static constexpr std::size_t files_at_a_time = 3;

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

  // All files had their versions at one moment: each has it still, once all are known. A later read
  // of a file says so as well, but for one of a version that stays to be had (RemoteVersion::id).
  Result<void> check_versions(bool of_lasting_ones) const {
    constexpr std::size_t at_a_time = 32;
    const std::span<const SourceFile> files = state().sources.opened();
    return parallel_for(files.size(), at_a_time, [&](std::size_t number) -> Result<void> {
      const ArrivingFile& remote = *files[number].remote;
      const bool lasts = !remote.version().id.empty();
      const bool was_read = remote.source()->counts().bytes != metadata_bytes_[number];
      if (lasts != of_lasting_ones || (!lasts && was_read)) return {};
      const std::filesystem::path name = files[number].name_beside;
      TRY(about_file(check_version(*remote.source(), remote.version(), name.filename()),
                     remote.source()->name()));
      return {};
    });
  }

  // Of the parts that are there the disk, or the memory, has the room.
  Result<void> check_room_for_all() {
    std::uint64_t missing = 0;
    for (const SourceFile& file : state().sources.opened()) {
      if (has_version(path_of(file), *file.remote->source(), file.remote->version())) continue;
      std::error_code none;
      const std::uintmax_t part = std::filesystem::file_size(path_of(file) += ".part", none);
      missing += file.file.size() - (none ? 0 : std::min<std::uint64_t>(part, file.file.size()));
    }
    TRY(about_file(check_room(folder_, missing), folder_));
    TRY_ASSIGN(const os::UniqueFd folder, about_file(os::open_directory(folder_), folder_));
    if (!mmap::lives_in_memory(folder.get())) return {};
    TRY(about_file(check_fits(missing, 0, false), folder_));
    const std::uint64_t left = os::memory_limit().usable();
    buffer_bytes_ =
        std::max<std::uint64_t>((left - std::min(left, missing)) / 4 / files_at_a_time, 1);
    return {};
  }

  struct Brought {
    FetchReport report = {};
    bool was_there = false;
  };

  Result<void> bring_beside(const SourceFile& lead) {
    RangeSource& source = *lead.remote->source();
    TRY_ASSIGN(Beside found, find_beside(source, lead.name_beside));
    std::erase_if(found.names, [this](const std::string& name) {
      return std::ranges::find(state().sources.opened(), name, &SourceFile::name_beside) !=
             state().sources.opened().end();
    });
    return beside_.bring(source, found, path_of(lead).parent_path(), options_);
  }

  // Several files at a time, so that requests for one are on their way while another one ends.
  Result<void> bring(const std::vector<const SourceFile*>& files,
                     std::vector<Brought>& brought) const {
    JointProgress progress(files.size(), state().sources.bytes(), given_.progress);
    const NumberedWork work = [&](std::size_t number) -> Result<void> {
      const SourceFile& file = *files[number];
      FetchOptions options = options_;
      options.progress = progress.of(number);
      return about_file(bring(file, options, brought[number]), path_of(file));
    };
    return progress.run([&] { return parallel_for(files.size(), files_at_a_time, work); });
  }

  Result<void> bring(const SourceFile& file, const FetchOptions& options, Brought& brought) const {
    KnownSum known;
    brought.was_there = is_current(file, options, known);
    TRY_ASSIGN(brought.report, brought.was_there ? report_of(file, known) : fetch(file, options));
    if (brought.was_there) PartFile::remove_rests(path_of(file));
    return go_on(options.progress, file.file.size(), file.file.size());
  }

  Result<FetchReport> report_of(const SourceFile& file, const KnownSum& known) const {
    FetchReport report;
    report.path = path_of(file);
    report.version = file.remote->version();
    report.counts = file.remote->source()->counts();
    report.file_bytes = file.file.size();
    known.add_to(report);
    return report;
  }

  // A file of a set may be no checkpoint by itself.
  FetchFile what(const SourceFile& file, const std::filesystem::path& path) const {
    FetchFile what{checkpoint_,     file,         path, true, !state().is_set(), {},
                   &beside_.sums(), buffer_bytes_};
    if (state().is_set() && !is_exact(file.remote->version()))
      what.journal = first_line(own_name_, file.remote->version());
    return what;
  }

  // Compares it with what is known, unless that was done when it came.
  bool is_current(const SourceFile& file, const FetchOptions& options, KnownSum& known) const {
    RangeSource& source = *file.remote->source();
    if (!has_version(path_of(file), source, file.remote->version())) return false;
    const Sha256Sums& beside = beside_.sums();
    if (options_.sha256.empty() && !options_.require_digest && !beside.contains(file.name_beside))
      return true;
    const Result<KnownSum> said = known_sum(file.name_beside, source, options_, &beside);
    if (!said) return false;  // which fetch() says
    known = *said;
    if (known.from == SumFrom::beside && !beside_.has_new_sums()) return true;
    const Result<os::File> there = os::File::open(path_of(file), false);
    return there && compare_sum(*known.digest, *there, options.progress);
  }

  Result<FetchReport> fetch(const SourceFile& file, const FetchOptions& options) const {
    const std::filesystem::path path = path_of(file);
    TRY(make_folder_of(path));
    if (state().is_set()) return fetch_part(what(file, path), options);
    return fetch_file(what(file, path), options);
  }

  // Gives the parts their names. From the first one to the last the files are of two versions, and
  // the folder has the mark; what knows no mark finds no file that leads to the others.
  Result<void> replace(const std::vector<const SourceFile*>& files, const SourceFile& lead) {
    const std::filesystem::path mark = folder_ / sets::update_mark;
    std::error_code unknown;
    if (files.empty() && !std::filesystem::exists(mark, unknown)) return beside_.publish();
    TRY_ASSIGN(const os::UniqueFd folder, os::open_directory(folder_));
    TRY_ASSIGN(const os::UniqueFd made, os::open_or_create(folder.get(), sets::update_mark));
    TRY(os::sync_directory(folder.get()));
    if (!files.empty() && files.back() == &lead) TRY(remove(lead));
    TRY(beside_.publish());
    for (const SourceFile* file : files) {
      const std::filesystem::path path = path_of(*file);
      TRY(about_file(publish_part(what(*file, path)), path));
    }
    TRY(os::remove_name(folder.get(), sets::update_mark));
    TRY(os::sync_directory(folder.get()));
    return check_set(lead);
  }

  Result<void> remove(const SourceFile& file) const {
    std::error_code failed;
    std::filesystem::remove(path_of(file), failed);
    if (!failed) return {};
    return about_file({ErrorCode::io, "cannot remove the file: " + failed.message()},
                      path_of(file));
  }

  // The set is opened once it is whole.
  Result<void> check_set(const SourceFile& lead) const {
    Result<void> checked =
        check_copy(checkpoint_, Checkpoint::open(path_of(lead), OpenOptions::to_look()));
    if (checked) return checked;
    static_cast<void>(remove(lead));
    return about_file(std::move(checked.error()), path_of(lead));
  }

  const Checkpoint& checkpoint_;
  const std::filesystem::path folder_;
  const FetchOptions& given_;
  const FetchOptions options_;  // without its progress
  FilesBeside beside_;
  std::uint64_t buffer_bytes_ = 0;             // of each file, beside a copy in memory; else 0
  std::vector<std::uint64_t> metadata_bytes_;  // that each file's source had received before
  // Of parts whose version has no name, so that no other fetch goes on with them.
  const std::string own_name_ = "fetch " + std::to_string(std::random_device()());
};

// See only_whole().
Result<std::vector<FetchReport>> fetch_whole_into(RangeSource& source,
                                                  const std::filesystem::path& folder,
                                                  const FetchOptions& options) {
  const std::filesystem::path path = folder / std::filesystem::path(source.name()).filename();
  TRY_ASSIGN(FetchReport report, fetch_whole(source, path, options, true));
  return std::vector<FetchReport>{std::move(report)};
}

}  // namespace

Result<std::vector<FetchReport>> fetch_into(std::unique_ptr<RangeSource> source,
                                            const std::filesystem::path& folder,
                                            const FetchOptions& options) {
  const std::shared_ptr<RangeSource> shared = std::move(source);
  const Result<Checkpoint> opened = open_to_fetch(shared);
  if (!opened && only_whole(*shared) != nullptr) return fetch_whole_into(*shared, folder, options);
  if (!opened) return about_file(opened.error(), shared->name());
  return FolderFetch(*opened, folder, options).run();
}

}  // namespace weightmap
