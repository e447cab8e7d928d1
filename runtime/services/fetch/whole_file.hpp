// Files that are fetched by one request: of servers without ranges, and those that lie beside a
// set and are no checkpoints.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/services/fetch/compare_sum.hpp"
#include "runtime/services/fetch/names_beside.hpp"
#include "runtime/services/fetch/part_file.hpp"
#include "runtime/services/fetch/running_sum.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// One of them. Errors name no file.
class WholeFetch final : private WholeReader {
 public:
  // `name`: by which the options have its SHA-256. `beside`: as known_sum() has it; outlives this.
  WholeFetch(std::filesystem::path path, std::string name, FetchOptions options,
             const Sha256Sums* beside = nullptr)
      : path_(std::move(path)),
        name_(std::move(name)),
        options_(std::move(options)),
        beside_(beside) {}

  // Brings all of it, as `path`.part, and compares it if a SHA-256 is known. Nothing is left of one
  // that differs. Fails as the source does.
  Result<FetchReport> bring(RangeSource& source, WholeSource& whole);
  const std::filesystem::path& path() const noexcept { return path_; }
  const PartFile& part() const noexcept { return *part_; }
  // Gives it its name, in place of a file that has it.
  Result<void> publish(bool replaces) { return part_->publish(replaces); }
  void remove() noexcept { part_->remove_files(); }

 private:
  Result<void> begins(const RemoteVersion& version) override;
  Result<void> take(std::span<const std::byte> bytes) override;

  const std::filesystem::path path_;
  const std::string name_;
  const FetchOptions options_;
  const Sha256Sums* const beside_;
  RemoteVersion version_;
  RangeSource* source_ = nullptr;
  KnownSum known_;
  std::optional<PartFile> part_;
  std::optional<RunningSum> sum_;  // of the part, if a digest is known
  std::uint64_t taken_ = 0;
};

// The source as one that can be read as a whole, if that is the only way; else nullptr.
WholeSource* only_whole(RangeSource& source) noexcept;
// Fetches a checkpoint of one file so, or what lies beside models. See fetch().
Result<FetchReport> fetch_whole(RangeSource& source, const std::filesystem::path& path,
                                const FetchOptions& options, bool replaces);

// By its name: config.json, the tokenizer's files and the like, which are no checkpoints.
bool lies_beside_models(const RangeSource& source);

// What lies beside the index of a model's shards, so that the folder can be served.
class FilesBeside {
 public:
  // Brings those that the store has as parts in the folder, but for one that has the same bytes
  // there already; all, if they are listed; and those of the modules that modules.json names. With
  // SHA-256s only those that have one; otherwise SHA256SUMS first, with which they are compared.
  // Errors name the file.
  Result<void> bring(const RangeSource& lead, const Beside& beside,
                     const std::filesystem::path& folder, const FetchOptions& options);
  // What SHA256SUMS says; empty without it. Stays as it is once bring() has returned.
  const Sha256Sums& sums() const noexcept { return sums_; }
  // The folder does not have the same SHA256SUMS already.
  bool has_new_sums() const noexcept { return has_new_sums_; }
  const std::vector<FetchReport>& reports() const noexcept { return reports_; }
  // Gives them their names.
  Result<void> publish();

 private:
  struct Found {
    std::string name;
    std::unique_ptr<RangeSource> source;
    bool may_be_absent = true;
    std::unique_ptr<WholeFetch> file = {};  // nullptr: the store has none
    FetchReport report = {};
  };
  Result<void> bring_sums(const RangeSource& lead, bool may_be_absent,
                          const std::filesystem::path& folder, const FetchOptions& options);
  // Does not bring what the options have no SHA-256 for, if they have any.
  Result<void> bring_all(const RangeSource& lead, const Beside& beside,
                         const std::filesystem::path& folder, const FetchOptions& options);
  Result<void> bring_modules(const RangeSource& lead, const std::filesystem::path& folder,
                             const FetchOptions& options);
  Result<void> bring(Found& found, const std::filesystem::path& folder,
                     const FetchOptions& options) const;
  bool keep(Found found);

  Sha256Sums sums_;
  bool has_new_sums_ = false;
  std::vector<std::unique_ptr<WholeFetch>> files_;  // that are to get their names
  std::vector<FetchReport> reports_;
  std::string modules_;  // the text of modules.json; empty without it
};

}  // namespace weightmap
