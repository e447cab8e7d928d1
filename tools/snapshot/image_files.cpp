#include "tools/snapshot/image_files.hpp"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "tools/support/files.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

// One disk request follows another, and two processors have something to do.
constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20;
constexpr std::size_t reading_threads = 4;
// What is copied and summed while the processor has it in its cache.
constexpr std::uint64_t scratch_bytes = std::uint64_t{256} << 10;

// A piece of one of several files.
struct Piece {
  std::size_t file;
  std::uint64_t offset, length;
};

// The checksum of a file is that of the checksums of its pieces, so that pieces are read together.
class Summing {
 public:
  // Which must outlive it.
  explicit Summing(std::vector<const os::File*> files) : files_(std::move(files)) {
    for (std::size_t i = 0; i < files_.size(); ++i)
      for (std::uint64_t at = 0; at < files_[i]->size(); at += piece_bytes)
        pieces_.push_back({i, at, std::min(piece_bytes, files_[i]->size() - at)});
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
    thread_local std::vector<std::byte> scratch(scratch_bytes);
    const auto [number, offset, length] = pieces_[index];
    const os::File& file = *files_[number];
    // The disk gets one request for the whole piece.
    ::posix_fadvise(file.descriptor(), static_cast<off_t>(offset), static_cast<off_t>(length),
                    POSIX_FADV_WILLNEED);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (std::uint64_t at = 0; at < length; at += scratch_bytes) {
      const std::span content = std::span(scratch).first(std::min(scratch_bytes, length - at));
      TRY(file.read(offset + at, content));
      XXH3_64bits_update(&state, content.data(), content.size());
    }
    sums_[index] = XXH3_64bits_digest(&state);
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

  std::vector<const os::File*> files_;
  std::vector<Piece> pieces_;
  std::vector<std::uint64_t> sums_;
};

// None for an empty file.
Result<std::optional<os::File>> open_own(const fs::path& path) {
  std::error_code error;
  if (fs::file_size(path, error) == 0 && !error) return std::nullopt;
  Result<os::File> file = os::File::open_foreign(path);
  if (!file) return about_file(path, file.error());
  if (Result<void> own = expect_own(file->descriptor()); !own) return about_file(path, own.error());
  return std::move(*file);
}

tl::unexpected<Error> damaged(const fs::path& path, std::string how) {
  return about_file(path, {ErrorCode::corrupt, std::move(how), Error::no_offset, {}});
}

// criu copies the content of these files into the memory of processes, and looks into the others.
bool holds_pages(const std::string& name) {
  return name.starts_with("pages-") && name.ends_with(".img");
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
  std::vector<std::optional<os::File>> open;
  std::vector<const os::File*> read;
  for (const ImageFile& file : files) {
    TRY_ASSIGN(std::optional<os::File> opened, open_own(folder / file.name));
    open.push_back(std::move(opened));
  }
  for (const std::optional<os::File>& file : open)
    if (file) read.push_back(&*file);
  TRY_ASSIGN(const std::vector<std::uint64_t> sums, Summing(std::move(read)).run());
  auto sum = sums.begin();
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!open[i]) continue;
    files[i].size = open[i]->size();
    files[i].checksum = *sum++;
  }
  return files;
}

Result<ImageCheck> ImageCheck::open(const fs::path& folder,
                                    const std::vector<ImageFile>& expected) {
  ImageCheck check(folder);
  for (const ImageFile& file : expected) {
    const fs::path path = folder / file.name;
    TRY_ASSIGN(std::optional<os::File> opened, open_own(path));
    const std::uint64_t size = opened ? opened->size() : 0;
    if (size != file.size)
      return damaged(
          path, "has " + std::to_string(size) + " bytes, expected " + std::to_string(file.size));
    if (!opened) continue;  // without a checksum
    (holds_pages(file.name) ? check.pages_ : check.description_)
        .push_back({file, std::move(*opened)});
  }
  return check;
}

Result<void> ImageCheck::compare(const std::vector<OpenFile>& files) const {
  std::vector<const os::File*> read;
  for (const OpenFile& file : files) read.push_back(&file.content);
  TRY_ASSIGN(const std::vector<std::uint64_t> sums, Summing(std::move(read)).run());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const ImageFile& expected = files[i].expected;
    if (sums[i] != expected.checksum)
      return damaged(folder_ / expected.name, "its checksum is " + hexadecimal(sums[i]) +
                                                  ", expected " + hexadecimal(expected.checksum));
  }
  return {};
}

Result<void> verify_files(const fs::path& folder, const std::vector<ImageFile>& expected) {
  TRY_ASSIGN(const ImageCheck check, ImageCheck::open(folder, expected));
  TRY(check.compare_description());
  return check.compare_pages();
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
