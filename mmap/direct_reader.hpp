// Reading a file past the page cache, several pieces at a time where the system has io_uring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mmap/file.hpp"
#include "mmap/unique_fd.hpp"
#include "weightmap/result.hpp"

struct io_uring;

namespace weightmap::os {

// Why the system refuses io_uring, as containers and sysctls make it do; empty if it does not.
std::string why_no_io_uring();

// One for each thread. The file must outlive it.
class DirectReader {
 public:
  explicit DirectReader(const File& file) noexcept : file_(file) {}

  // Fills `out`, whole pages that begin at a page, from `offset`, a multiple of the page size
  // inside the file. What lies beyond the end of the file becomes zero, as in a mapping. By
  // io_uring with four reads of 2 MiB under way, or by pread where why_no_io_uring() has something
  // to say. Nothing is being read into `out` any more when it returns, well or not.
  //
  // Fails with unsupported if the file system refuses such reads; with io, at the first byte that
  // is missing, if the file was cut short or the disk failed.
  Result<void> read(std::uint64_t offset, std::span<std::byte> out);

 private:
  // A piece of the range that one read is under way for, or what is left of it.
  struct Piece;
  struct ExitRing {
    void operator()(io_uring* ring) const noexcept;
  };

  Result<void> prepare();
  Result<void> read_one_by_one(std::vector<Piece>& pieces);
  Result<void> read_queued(std::vector<Piece>& pieces);
  void enqueue(Piece& piece);
  // Takes what a read answered, a count or a negative errno, and says whether the piece is done.
  Result<bool> advance(Piece& piece, int answer) const;
  static tl::unexpected<Error> cannot_read(const Piece& piece, int error_number);

  const File& file_;
  UniqueFd direct_;  // opened at the first read
  std::unique_ptr<io_uring, ExitRing> ring_;
};

}  // namespace weightmap::os
