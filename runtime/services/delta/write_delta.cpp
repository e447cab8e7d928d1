#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/byte_source.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/json/json_text.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/services/delta/chain.hpp"
#include "runtime/services/delta/delta_folder.hpp"
#include "runtime/services/delta/encoding.hpp"
#include "runtime/services/delta/model_version.hpp"
#include "runtime/services/delta/sums.hpp"
#include "runtime/system/write/new_folder.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/delta.hpp"
#include "weightmap/new_file.hpp"
#include "weightmap/safetensors_writer.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;

// The bytes of a tensor, read from its file, so that one that is truncated meanwhile is an error.
class TensorBytes final : public bytes::ByteSource {
 public:
  TensorBytes(const Sources& sources, std::uint64_t position, std::uint64_t size) noexcept
      : sources_(&sources), position_(position), size_(size) {}

  std::uint64_t size() const noexcept override { return size_; }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (!bytes::contains(size_, offset, out.size()))
      return bytes::leaves_source(*this, offset, out.size());
    return sources_->read(position_ + offset, out);
  }

 private:
  const Sources* sources_;
  std::uint64_t position_;
  std::uint64_t size_;
};

// A tensor in both versions.
struct Pair {
  std::string_view name;
  TensorBytes from;
  TensorBytes to;
};

tl::unexpected<Error> refuse(ErrorCode code, std::string_view name, const std::string& why) {
  return failure(code, "the tensor " + bytes::quote(name) + " " + why);
}

Result<TensorBytes> bytes_of(const Checkpoint& checkpoint, const NamedTensor& tensor) {
  if (!tensor.view.is_contiguous() || tensor.view.is_foreign_byte_order() ||
      tensor.view.fault() != nullptr || tensor.view.is_conjugate() || tensor.view.is_negative())
    return refuse(ErrorCode::unsupported, tensor.name,
                  "does not lie as a row of its elements: convert the checkpoint first");
  const Sources& sources = Checkpoint::Access::state(checkpoint).sources;
  return TensorBytes(sources, sources[tensor.source].base() + tensor.file_offset,
                     tensor.view.nbytes());
}

// Returns the tensors of both. Fails if they have not the same ones.
Result<std::vector<Pair>> pairs_of(const Checkpoint& from, const Checkpoint& to) {
  std::map<std::string_view, NamedTensor> old;
  for (const NamedTensor& tensor : from.tensors()) old.emplace(tensor.name, tensor);
  std::vector<Pair> pairs;
  for (const NamedTensor& tensor : to.tensors()) {
    const auto found = old.find(tensor.name);
    if (found == old.end())
      return refuse(ErrorCode::invalid_argument, tensor.name,
                    "is not in the old version, and a delta changes tensors only");
    const TensorView& before = found->second.view;
    if (before.dtype() != tensor.view.dtype() ||
        !std::ranges::equal(before.shape(), tensor.view.shape()))
      return refuse(ErrorCode::invalid_argument, tensor.name,
                    "has another type or shape than in the old version");
    TRY_ASSIGN(const TensorBytes old_bytes, bytes_of(from, found->second));
    TRY_ASSIGN(const TensorBytes new_bytes, bytes_of(to, tensor));
    pairs.push_back({tensor.name, old_bytes, new_bytes});
    old.erase(found);
  }
  if (old.empty()) return pairs;
  return refuse(ErrorCode::invalid_argument, old.begin()->first,
                "is in the old version only, and a delta changes tensors only");
}

Result<void> check_options(const DeltaOptions& options, const std::vector<Pair>& pairs) {
  if (options.level < 1 || options.level > 19)
    return failure(ErrorCode::invalid_argument,
                   "the level of zstd is " + std::to_string(options.level) + ", and not 1 to 19");
  TRY(delta::check_available(options.sum));
  if (options.encoding != DeltaEncoding::overwrite) return {};
  for (const Pair& pair : pairs)
    if (pair.to.size() > UINT32_MAX)
      return refuse(ErrorCode::unsupported, pair.name,
                    "has " + std::to_string(pair.to.size()) +
                        " bytes, and the positions of overwrite have 32 bits: use xor");
  return {};
}

class DeltaWriting {
 public:
  DeltaWriting(std::vector<Pair> pairs, const fs::path& folder, const DeltaOptions& options,
               DeltaReport& report)
      : pairs_(std::move(pairs)), folder_(folder), options_(options), report_(report) {
    for (const Pair& pair : pairs_) report_.tensor_bytes += pair.to.size();
    report_.tensors = pairs_.size();
  }

  Result<void> run() {
    for (std::size_t begin = 0; begin < pairs_.size();) {
      std::size_t end = begin;
      std::uint64_t bytes = 0;
      do bytes += pairs_[end++].to.size();
      while (end < pairs_.size() && bytes + pairs_[end].to.size() <= options_.file_bytes);
      TRY(write_file(begin, end));
      begin = end;
    }
    TRY(name_files());
    return write_index();
  }

 private:
  // Encodes the tensors [begin, end), and writes those that changed to one file.
  Result<void> write_file(std::size_t begin, std::size_t end) {
    std::vector<delta::EncodedTensor> encoded(end - begin);
    TRY(parallel_for(encoded.size(), delta::threads_of(options_.threads),
                     [&](std::size_t number) -> Result<void> {
                       const Pair& pair = pairs_[begin + number];
                       TRY_ASSIGN(encoded[number], delta::encode(options_, pair.from, pair.to));
                       return advance(pair.to.size());
                     }));
    std::vector<SafetensorsTensor> tensors;
    SafetensorsMetadata sums;
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      const delta::EncodedTensor& tensor = encoded[i];
      if (tensor.frame.empty()) continue;
      const std::string name(pairs_[begin + i].name);
      tensors.push_back({.name = name,
                         .dtype = DType::uint8,
                         .shape = {static_cast<std::int64_t>(tensor.frame.size())},
                         .content = RecordContent::bytes(tensor.frame)});
      sums.emplace_back(name, tensor.sum);
      file_of_.emplace_back(name, files_);
      report_.changed_bytes += tensor.changed_bytes;
    }
    if (tensors.empty()) return {};
    report_.changed_tensors += tensors.size();
    TRY_ASSIGN(const SafetensorsReport written,
               write_safetensors(std::move(tensors), sums, folder_ / unnamed(files_),
                                 {.file = {.durable = false}}));
    report_.bytes += written.bytes;
    ++files_;
    return {};
  }

  static std::string unnamed(std::size_t number) { return "file-" + std::to_string(number); }
  std::string name_of(std::size_t number) const {
    return sets::to_string(
        {"model", static_cast<std::uint32_t>(number + 1), static_cast<std::uint32_t>(files_)},
        ".safetensors");
  }

  // The name says how many files there are.
  Result<void> name_files() {
    for (std::size_t i = 0; i < files_; ++i) {
      std::error_code failed;
      fs::rename(folder_ / unnamed(i), folder_ / name_of(i), failed);
      if (failed) return failure(ErrorCode::io, "cannot name the file: " + failed.message());
      report_.files.emplace_back(name_of(i));
    }
    return {};
  }

  Result<void> write_index() {
    std::string text = "{\"metadata\": {";
    const std::pair<std::string_view, std::string_view> facts[] = {
        {"version", report_.version},
        {"base_version", report_.base_version},
        {"delta_encoding", to_string(options_.encoding)},
        {"compression_format", "zstd"},
        {"checksum_format", to_string(options_.sum)}};
    for (const auto& fact : facts) add_item(text, fact);
    text += "}, \"weight_map\": {";
    for (const auto& [name, file] : file_of_)
      add_item(text, std::pair<std::string_view, std::string_view>(name, name_of(file)));
    text += "}}\n";
    TRY_ASSIGN(NewFile index, NewFile::create(folder_ / delta::index_name, {.durable = false}));
    TRY(index.write(std::as_bytes(std::span(text))));
    TRY(index.commit());
    report_.files.emplace_back(delta::index_name);
    report_.bytes += text.size();
    return {};
  }

  static void add_item(std::string& text, std::pair<std::string_view, std::string_view> item) {
    if (text.back() != '{') text += ", ";
    json::append_string(text, item.first);
    text += ": ";
    json::append_string(text, item.second);
  }

  Result<void> advance(std::uint64_t bytes) {
    if (!options_.progress) return {};
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    return go_on(options_.progress, done_, report_.tensor_bytes);
  }

  std::vector<Pair> pairs_;
  const fs::path& folder_;
  const DeltaOptions& options_;
  DeltaReport& report_;
  std::size_t files_ = 0;
  std::vector<std::pair<std::string, std::size_t>> file_of_;  // of each changed tensor
  std::mutex mutex_;
  std::uint64_t done_ = 0;  // protected by the mutex
};

// Fails with io if one of its files was replaced or written to.
Result<void> check_current(const Checkpoint& checkpoint, const fs::path& path) {
  if (checkpoint.state() == CheckpointState::current) return {};
  return about_file({ErrorCode::io, "was replaced or written to while it was compared"}, path);
}

Result<std::string> version_of_source(const Checkpoint& checkpoint) {
  const fs::path folder = checkpoint.source(0).path.parent_path();
  return delta::version_of(folder, folder, checkpoint);
}

Result<void> settle_versions(const DeltaOptions& options, const Checkpoint& from,
                             const fs::path& folder, DeltaReport& report) {
  TRY_ASSIGN(report.base_version, options.base_version ? Result<std::string>(*options.base_version)
                                                       : version_of_source(from));
  std::optional<std::string> version = options.version;
  if (!version) version = delta::version_in_name(folder);
  if (!version) version = delta::version_after(report.base_version);
  if (!version)
    return failure(ErrorCode::invalid_argument, "say which version it leads to: after " +
                                                    bytes::quote(report.base_version) +
                                                    " there is no next one by itself");
  report.version = *std::move(version);
  Result<void> ascends = delta::check_ascends(report.base_version, report.version);
  if (!ascends) ascends.error().code = ErrorCode::invalid_argument;
  return ascends;
}

}  // namespace

Result<DeltaReport> write_delta(const fs::path& from, const fs::path& to, const fs::path& folder,
                                const DeltaOptions& options) {
  TRY_ASSIGN(const Checkpoint old, Checkpoint::open(from, options.open));
  TRY_ASSIGN(const Checkpoint now, Checkpoint::open(to, options.open));
  for (const fs::path& version : {from, to}) TRY(about_file(delta::check_ended(version), version));
  DeltaReport report;
  TRY(about_file(settle_versions(options, old, folder, report), folder));
  Result<std::vector<Pair>> pairs = about_file(pairs_of(old, now), to);
  if (!pairs) return passed_on(std::move(pairs).error());
  TRY(check_options(options, *pairs));
  TRY_ASSIGN(os::NewFolder made, about_file(os::NewFolder::create(folder), folder));
  TRY(about_file(DeltaWriting(*std::move(pairs), made.filled(), options, report).run(), folder));
  TRY(check_current(old, from));
  TRY(check_current(now, to));
  TRY(about_file(made.commit(options.durable), folder));
  for (fs::path& file : report.files) file = folder / file;
  return report;
}

}  // namespace weightmap
