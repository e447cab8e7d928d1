#include "mmap/direct_reader.hpp"

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "mmap/cut_short.hpp"
#include "mmap/os_error.hpp"
#include "mmap/page_size.hpp"

namespace weightmap::os {
namespace {

constexpr std::uint64_t piece_bytes = std::uint64_t{2} << 20;
constexpr unsigned queue_depth = 4;

// Answers the errno of a refusal, or 0.
int make_ring(io_uring& ring) noexcept { return -::io_uring_queue_init(queue_depth, &ring, 0); }

// A rule of this system and not a want of memory or descriptors, which may pass.
bool is_forbidden(int error_number) noexcept {
  return error_number == ENOSYS || error_number == EPERM || error_number == EACCES;
}

tl::unexpected<Error> refused(const std::string& why) {
  return failure(ErrorCode::unsupported,
                 "the file system refuses reads past the page cache (O_DIRECT): " + why);
}

std::string words_of(int error_number) { return std::generic_category().message(error_number); }

// What offset, address and length of a read have to be multiples of; 0 if the file system knows
// that it cannot do any. Where it does not tell, every disk can do with pages.
std::uint64_t alignment_of([[maybe_unused]] int descriptor) noexcept {
#ifdef STATX_DIOALIGN  // Linux 6.1
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0)
    return std::max(status.stx_dio_mem_align, status.stx_dio_offset_align);
#endif
  return page_bytes();
}

Result<void> check_alignment(int descriptor) {
  const std::uint64_t alignment = alignment_of(descriptor);
  if (alignment == 0) return refused("it has none for this file");
  if (page_bytes() % alignment == 0) return {};
  return refused("it wants multiples of " + std::to_string(alignment) + " bytes");
}

Result<UniqueFd> open_direct(const File& file) {
  // The same file whatever its name is now.
  const std::string self = "/proc/self/fd/" + std::to_string(file.descriptor());
  UniqueFd direct(::open(self.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  if (direct.get() < 0 && errno == EINVAL) return refused(words_of(EINVAL));
  if (direct.get() < 0)
    return tl::unexpected<Error>(os_error("open the file past the page cache", errno));
  if (Result<void> ok = check_alignment(direct.get()); !ok)
    return tl::unexpected<Error>(ok.error());
  return direct;
}

}  // namespace

struct DirectReader::Piece {
  std::uint64_t offset;  // of the file
  iovec memory;
};

tl::unexpected<Error> DirectReader::cannot_read(const Piece& piece, int error_number) {
  return tl::unexpected<Error>(os_error(
      "read " + std::to_string(piece.memory.iov_len) + " bytes at " + std::to_string(piece.offset),
      error_number, piece.offset));
}

void DirectReader::ExitRing::operator()(io_uring* ring) const noexcept {
  ::io_uring_queue_exit(ring);
  delete ring;
}

std::string why_no_io_uring() {
  io_uring ring{};
  const int error_number = make_ring(ring);
  if (error_number == 0) ::io_uring_queue_exit(&ring);
  return is_forbidden(error_number) ? words_of(error_number) : std::string();
}

Result<void> DirectReader::prepare() {
  if (direct_.get() < 0) {
    Result<UniqueFd> direct = open_direct(file_);
    if (!direct) return tl::unexpected<Error>(direct.error());
    direct_ = std::move(*direct);
  }
  if (ring_) return {};
  auto ring = std::make_unique<io_uring>();
  const int error_number = make_ring(*ring);
  if (error_number == 0)
    ring_.reset(ring.release());
  else if (!is_forbidden(error_number))
    return tl::unexpected<Error>(os_error("set up io_uring", error_number));
  return {};
}

Result<void> DirectReader::read(std::uint64_t offset, std::span<std::byte> out) {
  if (Result<void> ok = prepare(); !ok) return ok;
  std::vector<Piece> pieces;
  for (std::uint64_t at = 0; at < out.size(); at += piece_bytes)
    pieces.push_back({offset + at, {out.data() + at, std::min(piece_bytes, out.size() - at)}});
  if (Result<void> ok = ring_ ? read_queued(pieces) : read_one_by_one(pieces); !ok) return ok;
  const std::uint64_t in_file = std::min<std::uint64_t>(out.size(), file_.size() - offset);
  // The disk's last block may hold anything behind the end of the file.
  std::memset(out.data() + in_file, 0, out.size() - in_file);
  return {};
}

Result<void> DirectReader::read_one_by_one(std::vector<Piece>& pieces) {
  for (Piece& piece : pieces)
    for (bool done = false; !done;) {
      const ssize_t got = ::pread(direct_.get(), piece.memory.iov_base, piece.memory.iov_len,
                                  static_cast<off_t>(piece.offset));
      const Result<bool> moved = advance(piece, got < 0 ? -errno : static_cast<int>(got));
      if (!moved) return tl::unexpected<Error>(moved.error());
      done = *moved;
    }
  return {};
}

Result<void> DirectReader::read_queued(std::vector<Piece>& pieces) {
  Result<void> outcome;
  std::size_t next = 0;
  unsigned under_way = 0;
  while (under_way > 0 || (outcome && next < pieces.size())) {
    for (; outcome && next < pieces.size() && under_way < queue_depth; ++under_way)
      enqueue(pieces[next++]);
    const int submitted = ::io_uring_submit_and_wait(ring_.get(), 1);
    if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) {
      // Not to be expected, and nothing can be waited for any more. What is under way keeps its
      // pages to itself until it is done, wherever they are mapped then.
      ring_.reset();
      return tl::unexpected<Error>(os_error("hand reads to io_uring", -submitted));
    }
    for (io_uring_cqe* answer = nullptr; ::io_uring_peek_cqe(ring_.get(), &answer) == 0;) {
      Piece& piece = *static_cast<Piece*>(::io_uring_cqe_get_data(answer));
      const Result<bool> done = advance(piece, answer->res);
      ::io_uring_cqe_seen(ring_.get(), answer);
      if (!done && outcome) outcome = tl::unexpected<Error>(done.error());
      if (done && !*done && outcome)
        enqueue(piece);
      else
        --under_way;
    }
  }
  return outcome;
}

// There is room: no more are under way than the queue is long.
void DirectReader::enqueue(Piece& piece) {
  io_uring_sqe* const entry = ::io_uring_get_sqe(ring_.get());
  ::io_uring_prep_readv(entry, direct_.get(), &piece.memory, 1, piece.offset);
  ::io_uring_sqe_set_data(entry, &piece);
}

Result<bool> DirectReader::advance(Piece& piece, int answer) const {
  if (answer == -EINTR || answer == -EAGAIN) return false;
  if (answer == -EINVAL) return refused(words_of(EINVAL));
  if (answer < 0) return cannot_read(piece, -answer);
  const auto got = static_cast<std::uint64_t>(answer);
  if (got == piece.memory.iov_len || piece.offset + got >= file_.size()) return true;
  // Goes on where the last whole page ended.
  const std::uint64_t whole = got / page_bytes() * page_bytes();
  if (whole == 0) {
    const std::uint64_t wanted =
        std::min<std::uint64_t>(piece.memory.iov_len, file_.size() - piece.offset);
    const Result<void> ok = check_not_cut_short(file_, piece.offset, wanted);
    return ok ? cannot_read(piece, EIO) : tl::unexpected<Error>(ok.error());
  }
  piece.offset += whole;
  piece.memory.iov_base = static_cast<std::byte*>(piece.memory.iov_base) + whole;
  piece.memory.iov_len -= whole;
  return false;
}

}  // namespace weightmap::os
