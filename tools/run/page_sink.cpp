#include "tools/run/page_sink.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace weightmap::cli::start {

PageSink::PageSink(std::uint64_t bytes_at_once)
    : nothing_(::open("/dev/null", O_WRONLY | O_CLOEXEC)) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  from_ = Descriptor(ends[0]);
  to_ = Descriptor(ends[1]);
  // A pipe that may not be so large takes the part in several turns.
  ::fcntl(to_.get(), F_SETPIPE_SZ, static_cast<int>(bytes_at_once));
}

bool PageSink::take(const os::File& file, const ByteRange& part) {
  const auto end = static_cast<off64_t>(part.offset + part.length);
  for (auto at = static_cast<off64_t>(part.offset); at < end;) {
    const ssize_t got = ::splice(file.descriptor(), &at, to_.get(), nullptr,
                                 static_cast<std::size_t>(end - at), SPLICE_F_NONBLOCK);
    if (got == 0) return true;  // the file has become shorter
    if (got < 0 || !drop(got)) return false;
  }
  return true;
}

// A pipe that keeps something is used no more.
bool PageSink::drop(std::int64_t bytes) {
  while (bytes > 0) {
    const ssize_t gone =
        ::splice(from_.get(), nullptr, nothing_.get(), nullptr, static_cast<std::size_t>(bytes), 0);
    if (gone <= 0) to_ = Descriptor();
    if (gone <= 0) return false;
    bytes -= gone;
  }
  return true;
}

}  // namespace weightmap::cli::start
