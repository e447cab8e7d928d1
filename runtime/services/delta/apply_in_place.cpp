// A model that is changed in place. While it is, its folder has another name, so that nobody opens
// what is of two versions; who goes on after a process that was killed there restores the window
// that this one had begun, and changes the rest.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/delta/chain.hpp"
#include "runtime/services/delta/change_journal.hpp"
#include "runtime/services/delta/model_version.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/file/name_lock.hpp"
#include "runtime/system/file/write_lease.hpp"
#include "runtime/system/write/replace.hpp"
#include "runtime/system/write/write_all.hpp"
#include "weightmap/delta.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using delta::Chain;
using delta::ChangedTensor;
using delta::ChangeJournal;
using delta::DeltaFolder;
using delta::TensorChange;

// The names of the folder.
struct Names {
  // A link leads to a folder that may have the other name now.
  static Result<Names> of(const fs::path& base) {
    std::error_code failed;
    TRY_ASSIGN(fs::path shown, os::resolved_name(base));
    for (int links = 0; links < most_links && fs::is_symlink(shown, failed); ++links) {
      TRY_ASSIGN(shown, os::resolved_name(shown.parent_path() / fs::read_symlink(shown, failed)));
    }
    fs::path hidden =
        shown.parent_path() / ("." + shown.filename().native() + ".weightmap-in-place");
    return Names{std::move(shown), std::move(hidden)};
  }
  // The one that it has now.
  Result<fs::path> present() const {
    std::error_code unknown;
    if (!fs::exists(hidden, unknown)) return shown;
    if (!fs::exists(shown, unknown)) return hidden;
    return failure(ErrorCode::invalid_argument,
                   "is there, and beside it " + hidden.filename().native() +
                       ", of a change in place that was not ended; remove one of them");
  }
  Result<void> give(const fs::path& name) const {
    TRY_ASSIGN(const os::UniqueFd folder, os::open_directory(shown.parent_path()));
    const fs::path& other = name == shown ? hidden : shown;
    return os::rename_to_free(folder.get(), other.filename(), name.filename());
  }

  static constexpr int most_links = 40;
  fs::path shown;
  fs::path hidden;
};

// What is applied to what, so that a change is gone on with by the same deltas only.
std::string fingerprint(const std::vector<DeltaFolder>& deltas) {
  delta::RunningSum sum(TensorSum::xxh3_128);
  const auto add = [&sum](const std::string& text) {
    sum.add(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
  };
  for (const DeltaFolder& folder : deltas) {
    add(folder.base_version);
    add(folder.version);
    for (const DeltaFolder::Tensor& tensor : folder.tensors) {
      add(tensor.name);
      add(tensor.sum);
      add(std::to_string(tensor.frame.length));
    }
  }
  return sum.text();
}

// A file that is changed, which nobody else has open or mapped.
struct LeasedFile {
  os::File file;
  os::WriteLease lease;
};

// Without `same`, the file may have changed since then.
Result<LeasedFile> lease(const fs::path& path, const std::optional<Generation>& same) {
  std::error_code failed;
  if (fs::canonical(path, failed) != path || failed)
    return failure(ErrorCode::unsupported,
                   "is, or lies in, a symbolic link, and a change in place would be one of what it "
                   "leads to");
  TRY_ASSIGN(os::File file, os::File::open(path, true));
  if (os::has_other_names(file.descriptor()))
    return failure(ErrorCode::unsupported,
                   "has other names, by which a change in place would be seen, too");
  if (same && !same->same_content(file.generation()))
    return failure(ErrorCode::io, "was written to meanwhile");
  TRY_ASSIGN(std::optional<os::WriteLease> lease, os::WriteLease::take(file.descriptor()));
  if (!lease)
    return failure(ErrorCode::io,
                   "is open or mapped elsewhere, where a change in place would be seen half done; "
                   "`weightmap ps` lists by whom");
  return LeasedFile{std::move(file), *std::move(lease)};
}

class InPlace {
 public:
  InPlace(const Chain& chain, const ApplyOptions& options) : options_(options) {
    for (const auto& [index, tensor] : chain.changed) tensors_.push_back(tensor);
    for (const ChangedTensor& tensor : tensors_) all_ += 2 * tensor.range.length;
  }

  // Reads all that will change, and compares it with its sums, before a byte is written.
  Result<void> prove(const Chain& chain) {
    for (const ChangedTensor& tensor : tensors_) {
      const SourceFile& source = chain.base.sources()[tensor.source];
      TRY_ASSIGN(TensorChange change, TensorChange::open(tensor));
      const auto apply = [&change](std::uint64_t, std::span<std::byte> window) {
        return change.apply(window);
      };
      TRY(about_file(each_window(source.file, tensor, 0, apply), source.info.path));
      TRY(change.finish());
    }
    return chain.check_unchanged();
  }

  // The same of what a process has begun that was killed: what is changed has the sums, and the
  // rest will have them. First restores the window that this process had begun.
  Result<void> prove_rest(const std::vector<LeasedFile>& files, const ChangeJournal& journal) {
    if (!is_of_these(journal))
      return failure(ErrorCode::corrupt, "the journal of the change is damaged");
    if (const auto& begun = journal.begun()) TRY(restore(files, *begun));
    for (std::size_t number = 0; number < tensors_.size(); ++number) {
      const ChangedTensor& tensor = tensors_[number];
      const std::uint64_t at = journal.position().tensor;
      const std::uint64_t changed = number < at    ? tensor.range.length
                                    : number == at ? journal.position().offset
                                                   : 0;
      TRY(prove_rest(files[tensor.source].file, tensor, changed));
    }
    return {};
  }

  // From the journal's position on.
  Result<void> change(const std::vector<LeasedFile>& files, ChangeJournal& journal) {
    while (const ChangedTensor* const tensor = tensor_at(journal.position().tensor))
      TRY(change(files[tensor->source].file, *tensor, journal));
    return {};
  }

 private:
  const ChangedTensor* tensor_at(std::uint64_t number) const noexcept {
    return number < tensors_.size() ? &tensors_[number] : nullptr;
  }

  Result<void> change(const os::File& file, const ChangedTensor& tensor, ChangeJournal& journal) {
    const std::uint64_t number = journal.position().tensor;
    TRY_ASSIGN(TensorChange change, TensorChange::open(tensor));
    TRY(change.skip(journal.position().offset));
    std::vector<std::byte> old_bytes;
    const auto change_window = [&](std::uint64_t done,
                                   std::span<std::byte> window) -> Result<void> {
      old_bytes.assign(window.begin(), window.end());
      TRY(change.apply(window));
      TRY(journal.begin(old_bytes));
      TRY(os::write_at(file.descriptor(), tensor.range.offset + done, window));
      return journal.end({number, done + window.size()});
    };
    TRY(each_window(file, tensor, journal.position().offset, change_window));
    TRY(change.finish());
    return journal.end({number + 1, 0});
  }

  bool is_of_these(const ChangeJournal& journal) const noexcept {
    const auto [number, offset] = journal.position();
    const std::uint64_t begun = journal.begun() ? journal.begun()->old_bytes.size() : 0;
    if (const ChangedTensor* const tensor = tensor_at(number))
      return bytes::contains(tensor->range.length, offset, begun);
    return number == tensors_.size() && offset == 0 && begun == 0;
  }

  Result<void> restore(const std::vector<LeasedFile>& files, const ChangeJournal::Begun& begun) {
    const ChangedTensor& tensor = tensors_[begun.position.tensor];
    return os::write_at(files[tensor.source].file.descriptor(),
                        tensor.range.offset + begun.position.offset, begun.old_bytes);
  }

  // The first `changed` bytes are new ones.
  Result<void> prove_rest(const os::File& file, const ChangedTensor& tensor,
                          std::uint64_t changed) {
    const delta::Step& last = tensor.steps.back();
    delta::RunningSum sum(last.folder->sum);
    TRY_ASSIGN(TensorChange change, TensorChange::open(tensor));
    TRY(change.skip(changed));
    const auto add = [&](std::uint64_t done, std::span<std::byte> window) -> Result<void> {
      // Windows begin anew at what is not changed, so none has bytes of both.
      if (done >= changed) TRY(change.apply(window));
      sum.add(window);
      return {};
    };
    TRY(each_window(file, tensor, 0, add, changed));
    TRY(change.finish());
    Result<void> same = delta::compare_sum(last, sum.text());
    if (!same) return passed_on(last.folder->about(*last.tensor, std::move(same).error()));
    return {};
  }

  // Windows end at `border`, too.
  template <class Work>
  Result<void> each_window(const os::File& file, const ChangedTensor& tensor, std::uint64_t done,
                           const Work& work, std::uint64_t border = 0) {
    std::vector<std::byte> memory(
        std::min<std::uint64_t>(delta::window_bytes, tensor.range.length));
    while (done < tensor.range.length) {
      const std::uint64_t end = done < border ? border : tensor.range.length;
      const std::span window =
          std::span(memory).first(std::min<std::uint64_t>(memory.size(), end - done));
      TRY(file.read(tensor.range.offset + done, window));
      TRY(work(done, window));
      done += window.size();
      told_ = std::min(all_, told_ + window.size());
      TRY(go_on(options_.progress, told_, all_));
    }
    return {};
  }

  const ApplyOptions& options_;
  std::vector<ChangedTensor> tensors_;  // in the order of the base
  std::uint64_t all_ = 0;               // read twice
  std::uint64_t told_ = 0;
};

// The facts of a base that are needed once it is closed.
struct BaseFile {
  fs::path name;  // in the folder
  Generation generation;
};

std::vector<BaseFile> files_of(const delta::Base& base) {
  std::vector<BaseFile> files;
  for (const SourceFile& source : base.sources())
    files.push_back({source.info.path.lexically_relative(base.folder), source.file.generation()});
  return files;
}

// True if a process was killed after all else, before it gave the folder its name again.
bool is_ended(const Names& names, const fs::path& present, const std::string& version) {
  if (present != names.hidden) return false;
  const Result<std::string> recorded = delta::recorded_version(present);
  return recorded && delta::is_same_version(*recorded, version);
}

// A folder with a journal has bytes of two versions, and may say either.
Result<Chain> open_chain(const Names& names, const fs::path& present,
                         std::span<const fs::path> deltas, ApplyOptions options) {
  if (!deltas.empty() && present == names.hidden) {
    TRY_ASSIGN(const DeltaFolder first, DeltaFolder::open(deltas.front(), options.open.limits));
    TRY_ASSIGN(const DeltaFolder last, DeltaFolder::open(deltas.back(), options.open.limits));
    if (ChangeJournal::is_in(present) || is_ended(names, present, last.version))
      options.base_version = first.base_version;
  }
  return Chain::open(present, names.shown, deltas, options);
}

// Opens none of the files, which would wait for their leases.
Result<void> finish(const Names& names, const std::vector<LeasedFile>& files,
                    ChangeJournal& journal, const ApplyReport& report, bool durable) {
  if (durable)
    for (const LeasedFile& file : files) TRY(os::sync(file.file.descriptor()));
  TRY(delta::record_version(names.hidden, report.version, report.base_version, durable));
  TRY(journal.remove());
  TRY(names.give(names.shown));
  TRY_ASSIGN(const os::UniqueFd beside, os::open_directory(names.shown.parent_path()));
  return durable ? os::sync_directory(beside.get()) : Result<void>();
}

}  // namespace

Result<ApplyReport> apply_delta_in_place(const fs::path& base, std::span<const fs::path> deltas,
                                         const ApplyOptions& options) {
  TRY_ASSIGN(const Names names, about_file(Names::of(base), base));
  TRY_ASSIGN(const std::optional<os::NameLock> lock,
             about_file(os::NameLock::take(names.shown), base));
  if (!lock) return about_file(Error{ErrorCode::io, "another process changes it now"}, base);
  TRY_ASSIGN(const fs::path present, about_file(names.present(), base));
  std::vector<BaseFile> to_change;
  std::optional<ChangeJournal> journal;
  TRY_ASSIGN(Chain opened, open_chain(names, present, deltas, options));
  ApplyReport report = opened.report(names.shown);
  to_change = files_of(opened.base);
  TRY_ASSIGN(journal, ChangeJournal::open(present, fingerprint(opened.deltas)));
  const bool goes_on = journal.has_value();
  if (!goes_on && is_ended(names, present, report.version)) {
    TRY(about_file(names.give(names.shown), base));
    return report;
  }
  InPlace work(opened, options);
  if (!goes_on) TRY(work.prove(opened));
  // The base is closed here, so that nobody has it open; the work refers to the deltas.
  const std::vector<DeltaFolder> kept = std::move(opened).close();

  if (std::error_code unknown; fs::is_symlink(present / delta::version_name, unknown))
    return about_file({ErrorCode::unsupported,
                       "is a symbolic link, and the version would be written to what it leads to"},
                      present / delta::version_name);
  std::vector<LeasedFile> files;
  for (const BaseFile& file : to_change) {
    const fs::path path = present / file.name;
    TRY_ASSIGN(
        LeasedFile leased,
        about_file(lease(path, goes_on ? std::nullopt : std::optional(file.generation)), path));
    files.push_back(std::move(leased));
  }
  if (present == names.shown) TRY(about_file(names.give(names.hidden), base));
  Result<void> changed;
  if (!journal) {
    Result<ChangeJournal> made = ChangeJournal::create(names.hidden, fingerprint(kept));
    if (!made) {  // nothing is changed yet
      if (present == names.shown) TRY(about_file(names.give(names.shown), base));
      return passed_on(std::move(made).error());
    }
    journal = *std::move(made);
  }
  if (changed && goes_on) changed = work.prove_rest(files, *journal);
  if (changed) changed = work.change(files, *journal);
  if (changed) changed = finish(names, files, *journal, report, options.durable);
  if (changed) return report;
  changed.error().message += "; the model is called " +
                             bytes::quote(names.hidden.filename().native()) +
                             " until this is run again, which ends the change";
  return about_file(std::move(changed).error(), base);
}

}  // namespace weightmap
