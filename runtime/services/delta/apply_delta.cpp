#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/delta/chain.hpp"
#include "runtime/services/delta/encoding.hpp"
#include "runtime/services/delta/model_version.hpp"
#include "runtime/system/file/directory.hpp"
#include "runtime/system/os_error.hpp"
#include "runtime/system/write/new_folder.hpp"
#include "runtime/system/write/replace.hpp"
#include "runtime/system/write/write_all.hpp"
#include "weightmap/delta.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using delta::Base;
using delta::Chain;
using delta::ChangedTensor;
using delta::ChangedTensors;
using delta::TensorChange;

// A range of a file of the new version: copied, or a tensor that changes.
struct Piece {
  std::size_t source;
  ByteRange range;
  const ChangedTensor* changed;  // nullptr: copied
  std::size_t number = 0;        // among those of its file
};

// What is copied is divided, so that threads can share it.
constexpr std::uint64_t copied_at_a_time = std::uint64_t{64} << 20;

void add_copies(std::vector<Piece>& pieces, std::size_t source, std::uint64_t begin,
                std::uint64_t end) {
  for (; begin < end; begin += copied_at_a_time)
    pieces.push_back({source, {begin, std::min(copied_at_a_time, end - begin)}, nullptr});
}

// The files of the weights of a new version, which are written by several threads.
class NewWeights {
 public:
  NewWeights(const Base& base, const fs::path& folder, const ApplyOptions& options)
      : base_(base), folder_(folder), options_(options) {}

  Result<void> write(const ChangedTensors& changed) {
    for (const SourceFile& source : base_.sources())
      TRY(about_file(create(source), source.info.path));
    const std::vector<Piece> pieces = plan(changed);
    for (const Piece& piece : pieces) all_ += piece.range.length;
    TRY(parallel_for(pieces.size(), delta::threads_of(options_.threads),
                     [&](std::size_t number) { return write(pieces[number]); }));
    for (File& file : files_) TRY(about_file(file.file.commit(NewFile::Existing::refuse), folder_));
    return {};
  }

  // Of the files that began as reflinks.
  std::uint64_t shared_bytes() const noexcept { return shared_bytes_; }

 private:
  struct File {
    NewFile file;
    bool is_reflink;  // holds what the old one has
  };

  Result<void> create(const SourceFile& source) {
    const fs::path path = folder_ / source.info.path.lexically_relative(base_.folder);
    std::error_code failed;
    fs::create_directories(path.parent_path(), failed);
    TRY_ASSIGN(NewFile file, NewFile::create(path, {.durable = false}));
    const bool is_reflink = os::share_blocks(file.descriptor(), source.file).has_value();
    if (is_reflink)
      shared_bytes_ += source.file.size();
    else
      TRY(file.reserve(source.file.size()));
    TRY_ASSIGN(const os::UniqueFd beside, os::open_directory(source.info.path.parent_path()));
    TRY(os::take_permissions_of(beside.get(), source.info.path.filename(), file.descriptor()));
    files_.push_back({std::move(file), is_reflink});
    return {};
  }

  // The pieces of all files, of which those that take long come first, and neighbours are of
  // different files, since writes to one file wait for one another.
  std::vector<Piece> plan(const ChangedTensors& changed) const {
    std::vector<std::vector<const ChangedTensor*>> of_file(files_.size());
    for (const auto& [index, tensor] : changed) of_file[tensor.source].push_back(&tensor);
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      std::ranges::sort(of_file[i], {}, [](const ChangedTensor* t) { return t->range.offset; });
      std::uint64_t end = 0;
      for (const ChangedTensor* tensor : of_file[i]) {
        if (!files_[i].is_reflink) add_copies(pieces, i, end, tensor->range.offset);
        pieces.push_back({i, tensor->range, tensor});
        end = tensor->range.offset + tensor->range.length;
      }
      if (!files_[i].is_reflink) add_copies(pieces, i, end, base_.sources()[i].file.size());
    }
    std::vector<std::size_t> count_of(files_.size());
    for (Piece& piece : pieces) piece.number = count_of[piece.source]++;
    std::ranges::sort(pieces, std::greater<>(), [](const Piece& piece) {
      return std::tuple(piece.changed != nullptr, piece.range.length, ~piece.number, piece.source);
    });
    return pieces;
  }

  Result<void> write(const Piece& piece) {
    if (piece.changed != nullptr) return change(*piece.changed);
    return each_window(piece.source, piece.range,
                       [](std::span<std::byte>) { return Result<void>(); });
  }

  // Writes the range of the file, each window of it after `work` has changed it.
  template <class Work>
  Result<void> each_window(std::size_t source, ByteRange range, const Work& work) {
    const SourceFile& from = base_.sources()[source];
    std::vector<std::byte> memory(std::min<std::uint64_t>(delta::window_bytes, range.length));
    for (std::uint64_t done = 0; done < range.length;) {
      const std::uint64_t at = range.offset + done;
      // Windows end at multiples of their size, so that files get whole pages.
      const std::uint64_t most = delta::window_bytes - at % delta::window_bytes;
      const std::span window = std::span(memory).first(std::min(most, range.length - done));
      TRY(about_file(from.file.read(at, window), from.info.path));
      TRY(work(window));
      TRY(about_file(files_[source].file.write_at(at, window), folder_));
      done += window.size();
      TRY(advance(window.size()));
    }
    return {};
  }

  Result<void> change(const ChangedTensor& tensor) {
    TRY_ASSIGN(TensorChange change, TensorChange::open(tensor));
    TRY(each_window(tensor.source, tensor.range,
                    [&](std::span<std::byte> window) { return change.apply(window); }));
    return change.finish();
  }

  Result<void> advance(std::uint64_t bytes) {
    if (!options_.progress) return {};
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    return go_on(options_.progress, done_, all_);
  }

  const Base& base_;
  const fs::path& folder_;
  const ApplyOptions& options_;
  std::vector<File> files_;  // as the sources of the base
  std::uint64_t shared_bytes_ = 0;
  std::mutex mutex_;
  std::uint64_t done_ = 0;  // protected by the mutex
  std::uint64_t all_ = 0;
};

// Fails unless the folder has the version and the files of the report.
Result<void> check_made(const Base& base, const fs::path& folder, const ApplyReport& report) {
  TRY_ASSIGN(const std::string found, delta::recorded_version(folder));
  if (!delta::is_same_version(found, report.version))
    return failure(ErrorCode::invalid_argument, "is there already, with version " +
                                                    bytes::quote(found) + " and not " +
                                                    bytes::quote(report.version));
  for (std::size_t i = 0; i < report.files.size(); ++i) {
    std::error_code missing;
    const std::uint64_t size = fs::file_size(report.files[i], missing);
    if (missing || size != base.sources()[i].file.size())
      return about_file(
          {ErrorCode::corrupt, "is not as version " + bytes::quote(found) +
                                   " has it, whose folder is there already; remove that"},
          report.files[i]);
  }
  return {};
}

// Begins the new folder; nullopt: it is there already, of this version.
Result<std::optional<os::NewFolder>> begin(const Base& base, const fs::path& to,
                                           const ApplyReport& report, const ApplyOptions& options) {
  if (!options.once) return os::NewFolder::create(to);
  constexpr std::chrono::milliseconds pause(10);
  for (;;) {
    Result<std::optional<os::NewFolder>> begun = os::NewFolder::begin(to);
    if (begun && begun->has_value()) return begun;
    if (std::error_code unknown; !begun && !fs::exists(to, unknown)) return begun;
    if (!begun) break;
    TRY(go_on(options.progress, 0, 1));
    std::this_thread::sleep_for(pause);
  }
  TRY(check_made(base, to, report));
  return std::nullopt;
}

}  // namespace

Result<std::string> model_version(const fs::path& folder) {
  TRY_ASSIGN(delta::Base base, about_file(delta::Base::open(folder, folder, {}), folder));
  return std::move(base.version);
}

Result<ApplyReport> apply_delta(const fs::path& base, std::span<const fs::path> deltas,
                                const fs::path& to, const ApplyOptions& options) {
  TRY_ASSIGN(const Chain chain, Chain::open(base, base, deltas, options));
  TRY(about_file(delta::check_ended(chain.base.folder), base));
  ApplyReport report = chain.report(to);
  TRY_ASSIGN(std::optional<os::NewFolder> folder,
             about_file(begin(chain.base, to, report, options), to));
  report.made = folder.has_value();
  if (!folder) return report;
  std::error_code failed;  // until it has the permissions of the base
  fs::permissions(folder->filled(), fs::perms::owner_all, failed);
  if (failed) return about_file(os::os_error("hide the new folder", failed.value()), to);
  NewWeights weights(chain.base, folder->filled(), options);
  TRY(weights.write(chain.changed));
  report.shared_bytes = weights.shared_bytes();
  TRY(chain.base.beside.copy_to(folder->filled()));
  TRY(about_file(
      delta::record_version(folder->filled(), report.version, report.base_version, false), to));
  TRY(chain.check_unchanged());
  TRY(about_file(folder->take_permissions_of(chain.base.folder), to));
  TRY(about_file(folder->commit(options.durable), to));
  return report;
}

}  // namespace weightmap
