#include "tools/snapshot/image_files.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/file/file.hpp"
#include "tools/support/files.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

// One disk request follows another, and two processors have something to do.
constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20;
constexpr std::size_t reading_threads = 4;

// A piece of one of several files.
struct Piece {
  std::size_t file;
  std::uint64_t offset, length;
};

// The checksum of a file is that of the checksums of its pieces, so that pieces are read together.
class Summing {
 public:
  explicit Summing(std::vector<os::File> files) : files_(std::move(files)) {
    for (std::size_t i = 0; i < files_.size(); ++i)
      for (std::uint64_t at = 0; at < files_[i].size(); at += piece_bytes)
        pieces_.push_back({i, at, std::min(piece_bytes, files_[i].size() - at)});
    sums_.resize(pieces_.size());
  }

  // Returns a checksum for each file.
  Result<std::vector<std::uint64_t>> run() {
    TRY(parallel_for(pieces_.size(), reading_threads, [this](std::size_t i) { return sum(i); }));
    std::vector<std::uint64_t> sums(files_.size());
    for (std::size_t i = 0; i < files_.size(); ++i) sums[i] = sum_of_pieces(i);
    return sums;
  }

 private:
  Result<void> sum(std::size_t index) {
    thread_local std::vector<std::byte> scratch(piece_bytes);
    const Piece& piece = pieces_[index];
    const std::span<std::byte> content = std::span(scratch).first(piece.length);
    TRY(files_[piece.file].read(piece.offset, content));
    sums_[index] = XXH3_64bits(content.data(), content.size());
    return {};
  }

  std::uint64_t sum_of_pieces(std::size_t file) const {
    const auto begin = std::find_if(pieces_.begin(), pieces_.end(),
                                    [file](const Piece& piece) { return piece.file == file; });
    const auto end = std::find_if(begin, pieces_.end(),
                                  [file](const Piece& piece) { return piece.file != file; });
    return XXH3_64bits(sums_.data() + (begin - pieces_.begin()),
                       static_cast<std::size_t>(end - begin) * sizeof sums_[0]);
  }

  std::vector<os::File> files_;
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> sums_;
};

Result<std::vector<ImageFile>> sums_of(const fs::path& folder, std::vector<ImageFile> files) {
  std::vector<os::File> open;
  std::vector<ImageFile*> read;
  for (ImageFile& file : files) {
    const fs::path path = folder / file.name;
    std::error_code error;
    file.size = fs::file_size(path, error);
    if (!error && file.size == 0) continue;  // of which there is no sum
    Result<os::File> opened = os::File::open_foreign(path);
    if (!opened) return about_file(path, opened.error());
    if (Result<void> ours = expect_own(opened->descriptor()); !ours)
      return about_file(path, ours.error());
    file.size = opened->size();
    read.push_back(&file);
    open.push_back(std::move(*opened));
  }
  TRY_ASSIGN(const std::vector<std::uint64_t> sums, Summing(std::move(open)).run());
  for (std::size_t i = 0; i < read.size(); ++i) read[i]->checksum = sums[i];
  return files;
}

}  // namespace

std::uint64_t checksum_of(std::string_view text) noexcept {
  return XXH3_64bits(text.data(), text.size());
}

std::string hexadecimal(std::uint64_t number) { return fmt::format("{:016x}", number); }

Result<std::vector<ImageFile>> checksum_files(const fs::path& folder) {
  std::vector<ImageFile> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    files.push_back({at->path().filename().native()});
  if (error) return failure(ErrorCode::io, printable(folder.native()) + ": " + error.message());
  std::sort(files.begin(), files.end(),
            [](const ImageFile& a, const ImageFile& b) { return a.name < b.name; });
  return sums_of(folder, std::move(files));
}

Result<void> verify_files(const fs::path& folder, const std::vector<ImageFile>& expected) {
  TRY_ASSIGN(const std::vector<ImageFile> found, sums_of(folder, expected));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    Error error{ErrorCode::corrupt, "", Error::no_offset, {}};
    error.message = found[i].size == expected[i].size
                        ? "its checksum is " + hexadecimal(found[i].checksum) + ", expected " +
                              hexadecimal(expected[i].checksum)
                        : "has " + std::to_string(found[i].size) + " bytes, expected " +
                              std::to_string(expected[i].size);
    return about_file(folder / expected[i].name, std::move(error));
  }
  return {};
}

Result<void> expect_own(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return failure(ErrorCode::io, std::strerror(errno));
  if (status.st_uid != ::geteuid())
    return failure(ErrorCode::invalid_argument, "belongs to user " + std::to_string(status.st_uid) +
                                                    ", not to user " + std::to_string(::geteuid()) +
                                                    ", so it is not used");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return failure(ErrorCode::invalid_argument, "others may write to it, so it is not used");
  return {};
}

Result<void> make_private(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    fs::permissions(at->path(), fs::perms::owner_read | fs::perms::owner_write, error);
    if (error) break;
  }
  if (error) return failure(ErrorCode::io, printable(folder.native()) + ": " + error.message());
  return {};
}

}  // namespace weightmap::cli::snapshot
