// New files that are filled with contents one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
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

}  // namespace weightmap
