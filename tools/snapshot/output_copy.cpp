#include "tools/snapshot/output_copy.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

namespace weightmap::cli::snapshot {

Result<void> OutputCopy::open() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return failure(ErrorCode::io, std::string("no pipe can be made: ") + std::strerror(errno));
  output_ = Descriptor(ends[0]);
  input_ = Descriptor(ends[1]);
  ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  return {};
}

std::uint64_t OutputCopy::inode() const noexcept {
  struct stat status {};
  return ::fstat(output_.get(), &status) == 0 ? status.st_ino : 0;
}

pollfd OutputCopy::wanted() const noexcept {
  if (!pending_.empty()) return {target_, POLLOUT, 0};
  return {output_.get(), POLLIN, 0};
}

void OutputCopy::step() { pending_.empty() ? read() : write(); }

void OutputCopy::read() {
  // A pipe takes as much as this at once, so that the write does not block.
  std::array<char, PIPE_BUF> buffer;
  const ssize_t got = ::read(output_.get(), buffer.data(), buffer.size());
  if (got > 0)
    pending_.assign(buffer.data(), static_cast<std::size_t>(got));
  else if (got == 0 || (errno != EAGAIN && errno != EINTR))
    output_ = Descriptor();
}

void OutputCopy::write() {
  const ssize_t put = ::write(target_, pending_.data(), pending_.size());
  if (put >= 0) {
    pending_.erase(0, static_cast<std::size_t>(put));
  } else if (errno != EAGAIN && errno != EINTR) {
    pending_.clear();  // nobody reads any more, which the command learns in the same way
    output_ = Descriptor();
  }
}

void OutputCopy::finish() {
  do {
    while (!pending_.empty()) {
      pollfd target = wanted();
      ::poll(&target, 1, -1);
      write();
    }
    if (output_.get() >= 0) read();
  } while (!pending_.empty());
}

}  // namespace weightmap::cli::snapshot
