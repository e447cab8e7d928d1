#include "tools/bench/cold/direct_reader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/bench/cold/plain_files.hpp"
#include "tools/bench/cold/wanted_tensors.hpp"
#include "weightmap/backing.hpp"

namespace weightmap::cli::bench {
namespace {

constexpr std::uint64_t sector = 4096;  // O_DIRECT's alignment of offsets and lengths

// The part of a tensor that one read covers. It begins at a multiple of eight of the tensor's
// bytes, since its words are summed.
struct Piece {
  int file;
  std::uint64_t offset;
  std::uint64_t end;
};

void cut(const NamedTensor& tensor, int file, std::vector<Piece>& pieces) {
  const std::uint64_t end = tensor.file_offset + tensor.view.nbytes();
  // One sector less, so that a piece that begins within a sector still fits into a buffer.
  constexpr std::uint64_t step = DirectBuffers::size - sector;
  for (std::uint64_t at = tensor.file_offset; at < end; at += step)
    pieces.push_back({file, at, std::min(at + step, end)});
}

class DirectReader {
 public:
  // `files` come from open_sources().
  DirectReader(std::span<const RawFile> files, std::span<const NamedTensor> tensors,
               Stopwatch& watch)
      : watch_(watch) {
    for (const NamedTensor& tensor : tensors) {
      cut(tensor, files[tensor.source].descriptor(), pieces_);
      if (first_tensor_pieces_ == 0) first_tensor_pieces_ = pieces_.size();
    }
  }

  void run(const DirectBuffers& buffers) {
    const Piece& first = pieces_.front();
    read({first.file, first.offset, first.offset + 1}, buffers.get(0));
    watch_.read_first_byte();
    std::thread other([&] { work(buffers.get(1)); });
    work(buffers.get(0));
    other.join();
    watch_.read_all();
  }

  bool failed() const noexcept { return failed_; }
  std::uint64_t sum() const noexcept { return sum_; }

 private:
  std::span<const std::byte> read(const Piece& piece, std::byte* buffer) noexcept {
    const std::uint64_t from = piece.offset / sector * sector;
    const std::uint64_t length = (piece.end - from + sector - 1) / sector * sector;
    const ssize_t got = ::pread(piece.file, buffer, length, static_cast<off_t>(from));
    if (got < static_cast<ssize_t>(piece.end - from)) {
      failed_ = true;
      return {};
    }
    return {buffer + (piece.offset - from), piece.end - piece.offset};
  }

  void work(std::byte* buffer) noexcept {
    for (std::size_t i = next_++; i < pieces_.size() && !failed_; i = next_++) {
      sum_ += checksum(read(pieces_[i], buffer));
      if (i < first_tensor_pieces_ && ++first_tensor_done_ == first_tensor_pieces_)
        watch_.read_first_tensor();
    }
  }

  Stopwatch& watch_;
  std::vector<Piece> pieces_;
  std::size_t first_tensor_pieces_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> first_tensor_done_{0};
  std::atomic<std::uint64_t> sum_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace

DirectBuffers::DirectBuffers() {
  constexpr std::size_t alignment = std::size_t{2} << 20;
  for (auto& buffer : buffers_) {
    buffer.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, size)));
    if (!buffer) throw std::bad_alloc();
    ::madvise(buffer.get(), size, MADV_HUGEPAGE);
    std::memset(buffer.get(), 1, size);
  }
}

Result<std::uint64_t> read_directly(const Checkpoint& checkpoint,
                                    std::span<const NamedTensor> tensors,
                                    const DirectBuffers& buffers, Stopwatch& watch) {
  TRY_ASSIGN(const std::vector<RawFile> files, open_sources(checkpoint, O_DIRECT));
  DirectReader reader(files, tensors, watch);
  reader.run(buffers);
  if (reader.failed())
    return tl::unexpected<Error>(system_error(Backing(checkpoint).opened_paths().front().string(),
                                              "cannot be read with O_DIRECT"));
  return reader.sum();
}

}  // namespace weightmap::cli::bench
