// The files of one write: tensors are divided among them, each is filled with contents one after
// another, and none gets its name before all are complete. Names and index of a set follow
// transformers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightmap/new_file.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// Reports the bytes of several files as the progress of one operation.
class WrittenBytes {
 public:
  WrittenBytes(Progress progress, std::uint64_t all) : progress_(std::move(progress)), all_(all) {}

  // Fails with cancelled if the progress function, called from time to time, requests it.
  Result<void> add(std::uint64_t bytes);
  // Reports that everything was written.
  void finish() const;

 private:
  Progress progress_;
  std::uint64_t all_;
  std::uint64_t done_ = 0;
  std::uint64_t told_ = 0;
};

// A new file that is filled with contents one after another.
class ContentFile {
 public:
  // Reserves space for `bytes`. `written` must outlive this object.
  static Result<ContentFile> create(std::filesystem::path path, std::uint64_t bytes,
                                    const NewFileOptions& options, WrittenBytes& written);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t bytes() const noexcept { return bytes_; }

  // Writes bytes that the progress does not include.
  Result<void> put_head(std::span<const std::byte> head) { return gather(head); }
  // Errors of the content begin with `what`.
  Result<void> put(const RecordContent& content, const std::string& what);
  // Flushes the file to the disk if it is durable.
  Result<void> sync();
  // Compares the last bytes on the disk with `end`; see NewFile::check_end().
  Result<void> check_end(std::span<const std::byte> end) const { return file_.check_end(end); }
  Result<void> commit() { return file_.commit(); }

 private:
  ContentFile(std::filesystem::path path, std::uint64_t bytes, NewFile file, WrittenBytes& written)
      : path_(std::move(path)), bytes_(bytes), file_(std::move(file)), written_(&written) {}
  Result<void> flush();
  Result<void> gather(std::span<const std::byte> part);
  Result<void> put_memory(std::span<const std::byte> memory);
  Result<void> put_produced(const RecordContent& content, const std::string& what);
  Result<void> put_zeros(std::uint64_t bytes);

  std::filesystem::path path_;
  std::uint64_t bytes_;
  NewFile file_;
  WrittenBytes* written_;
  std::vector<std::byte> gathered_;  // small contents, which are written in one system call
};

// None gets its name before all are complete.
class FileSet {
 public:
  // `bytes` is the size of all contents together, for `progress`.
  FileSet(NewFileOptions options, Progress progress, std::uint64_t bytes)
      : options_(std::move(options)), written_(std::move(progress), bytes) {}
  FileSet(const FileSet&) = delete;
  FileSet& operator=(const FileSet&) = delete;

  // Adds a file and reserves its space.
  Result<void> add(std::filesystem::path path, std::uint64_t bytes);
  std::vector<ContentFile>& files() noexcept { return files_; }
  // Gives all files their names, in order. If one rename fails, formerly free names are free again.
  Result<void> commit();

 private:
  NewFileOptions options_;
  WrittenBytes written_;
  std::vector<ContentFile> files_;
};

struct ShardItem {
  std::uint64_t bytes;  // of its group
  std::size_t group;    // items of one group stay in one shard
};

// Returns the items of each shard, in order. A new shard begins where one would exceed
// `most_bytes`; a larger group has a shard of its own. Shards are numbered in the order in which
// they become full. 0 means one shard.
std::vector<std::vector<std::size_t>> divide_into_shards(std::span<const ShardItem> items,
                                                         std::uint64_t most_bytes);

// Returns "model-00001-of-00003.safetensors" for "model.safetensors".
std::filesystem::path shard_path(const std::filesystem::path& path, std::size_t index,
                                 std::size_t count);
// Returns "model.safetensors.index.json".
std::filesystem::path index_path(const std::filesystem::path& path);

// Returns the text of the index of these tensors, each with the number of its shard.
std::string shard_index_text(std::vector<std::pair<std::string_view, std::size_t>> shard_of,
                             std::size_t count, const std::filesystem::path& path,
                             std::uint64_t tensor_bytes);

}  // namespace weightmap
