#include "runtime/services/write/file_set.hpp"

#include <algorithm>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "mmap/guard.hpp"
#include "runtime/base/json/json_text.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/sets/file_names.hpp"

namespace weightmap {
namespace {

constexpr std::size_t gathered_bytes = std::size_t{1} << 20;
constexpr std::size_t small_bytes = std::size_t{64} << 10;
constexpr std::uint64_t told_bytes = std::uint64_t{4} << 20;

Result<void> about(const std::string& what, Result<void> result) {
  if (!result) result.error().message.insert(0, what + ": ");
  return result;
}

tl::unexpected<Error> wrong_size(const RecordContent& content, const std::string& what,
                                 const std::string& got) {
  return failure(
      ErrorCode::invalid_argument,
      what + " was announced with " + std::to_string(content.size()) + " bytes and got " + got);
}

}  // namespace

Result<void> FileSet::add(std::filesystem::path path, std::uint64_t bytes) {
  TRY_ASSIGN(ContentFile file, ContentFile::create(std::move(path), bytes, options_, written_));
  files_.push_back(std::move(file));
  return {};
}

Result<void> FileSet::commit() {
  std::vector<std::filesystem::path> made;
  for (ContentFile& file : files_) {
    std::error_code ignored;
    const bool is_free = !std::filesystem::exists(symlink_status(file.path(), ignored));
    // A file with its name but a failed sync is removed, too, unless it is the only one: see
    // NewFile.
    if (is_free && files_.size() > 1) made.push_back(file.path());
    Result<void> ok = file.commit();
    if (ok) continue;
    for (const std::filesystem::path& path : made) std::filesystem::remove(path, ignored);
    return ok;
  }
  written_.finish();
  return {};
}

Result<void> WrittenBytes::add(std::uint64_t bytes) {
  done_ += bytes;
  if (!progress_ || done_ - told_ < told_bytes) return {};
  told_ = done_;
  if (progress_(done_, all_)) return {};
  return failure(ErrorCode::cancelled, "the writing was stopped");
}

void WrittenBytes::finish() const {
  if (progress_) progress_(all_, all_);
}

Result<ContentFile> ContentFile::create(std::filesystem::path path, std::uint64_t bytes,
                                        const NewFileOptions& options, WrittenBytes& written) {
  TRY_ASSIGN(NewFile file, NewFile::create(path, options));
  TRY(file.reserve(bytes));
  return ContentFile(std::move(path), bytes, std::move(file), written);
}

Result<void> ContentFile::put(const RecordContent& content, const std::string& what) {
  switch (content.kind()) {
    case RecordContent::Kind::memory:
      TRY(put_memory(content.memory()));
      // The memory may be mapped from a file that was lost meanwhile.
      return about(what, mmap::Guard::check_read(content.memory()));
    case RecordContent::Kind::produced:
      return put_produced(content, what);
    case RecordContent::Kind::zeros:
    case RecordContent::Kind::reserved:
      break;
  }
  return put_zeros(content.size());
}

Result<void> ContentFile::sync() {
  TRY(flush());
  gathered_ = {};
  return file_.sync();
}

Result<void> ContentFile::flush() {
  if (gathered_.empty()) return {};
  TRY(file_.write(gathered_));
  gathered_.clear();
  return {};
}

Result<void> ContentFile::gather(std::span<const std::byte> part) {
  gathered_.insert(gathered_.end(), part.begin(), part.end());
  return gathered_.size() < gathered_bytes ? Result<void>{} : flush();
}

Result<void> ContentFile::put_memory(std::span<const std::byte> memory) {
  while (!memory.empty()) {
    const auto part = memory.first(std::min<std::size_t>(memory.size(), told_bytes));
    if (part.size() < small_bytes) {
      TRY(gather(part));
    } else {
      TRY(flush());
      TRY(file_.write(part));
    }
    TRY(written_->add(part.size()));
    memory = memory.subspan(part.size());
  }
  return {};
}

Result<void> ContentFile::put_produced(const RecordContent& content, const std::string& what) {
  std::uint64_t got = 0;
  bool taken = true;
  Result<void> produced = content.produce()([&](std::span<const std::byte> part) -> Result<void> {
    const bool fits = part.size() <= content.size() - got;
    got += part.size();
    Result<void> ok = fits ? put_memory(part) : wrong_size(content, what, "more");
    taken = ok.has_value();
    return ok;
  });
  TRY(taken ? about(what, std::move(produced)) : produced);
  return got == content.size() ? Result<void>{} : wrong_size(content, what, std::to_string(got));
}

Result<void> ContentFile::put_zeros(std::uint64_t bytes) {
  TRY(flush());
  TRY(file_.skip(bytes));
  return written_->add(bytes);
}

std::vector<std::vector<std::size_t>> divide_into_shards(std::span<const ShardItem> items,
                                                         std::uint64_t most_bytes) {
  std::vector<std::vector<std::size_t>> shards(1);  // in the order of their beginnings
  std::vector<std::size_t> full;
  std::unordered_map<std::size_t, std::size_t> shard_of;  // by group
  std::size_t open = 0;
  std::uint64_t open_bytes = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto [bytes, group] = items[i];
    const auto [place, is_new] = shard_of.emplace(group, open);
    if (is_new && most_bytes != 0 && bytes > most_bytes) {
      place->second = shards.size();
      full.push_back(shards.size());
      shards.emplace_back();
    } else if (is_new && most_bytes != 0 && bytes > most_bytes - open_bytes) {
      full.push_back(open);
      place->second = open = shards.size();
      open_bytes = bytes;
      shards.emplace_back();
    } else if (is_new) {
      open_bytes += bytes;
    }
    shards[place->second].push_back(i);
  }
  if (!shards[open].empty() || full.empty()) full.push_back(open);
  std::vector<std::vector<std::size_t>> numbered;
  for (const std::size_t shard : full) numbered.push_back(std::move(shards[shard]));
  return numbered;
}

std::filesystem::path shard_path(const std::filesystem::path& path, std::size_t index,
                                 std::size_t count) {
  const std::string stem = path.stem().native();
  const sets::ShardName name{stem, static_cast<std::uint32_t>(index + 1),
                             static_cast<std::uint32_t>(count)};
  return path.parent_path() / sets::to_string(name, path.extension().native());
}

std::filesystem::path index_path(const std::filesystem::path& path) {
  return std::filesystem::path(path) += ".index.json";
}

std::string shard_index_text(std::vector<std::pair<std::string_view, std::size_t>> shard_of,
                             std::size_t count, const std::filesystem::path& path,
                             std::uint64_t tensor_bytes) {
  std::ranges::sort(shard_of);
  std::string text = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(tensor_bytes) +
                     "\n  },\n  \"weight_map\": {";
  std::string_view before = "\n    ";
  for (const auto& [name, shard] : shard_of) {
    text += before;
    json::append_string(text, name, json::BeyondAscii::escaped);
    text += ": ";
    json::append_string(text, shard_path(path, shard, count).filename().native(),
                        json::BeyondAscii::escaped);
    before = ",\n    ";
  }
  return text + "\n  }\n}\n";
}

}  // namespace weightmap
