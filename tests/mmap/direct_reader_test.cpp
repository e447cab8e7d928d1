// Reading a file past the page cache.
#include "mmap/direct_reader.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "mmap/page_size.hpp"
#include "mmap/pages/page_cache.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap::os {
namespace {

using test::no_io_uring;
using test::with_refusals;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
const std::uint64_t page = page_bytes();

std::uint64_t whole_pages(std::uint64_t size) { return (size + page - 1) / page * page; }

// No two pages of a file are alike.
std::byte byte_at(std::uint64_t offset) {
  return static_cast<std::byte>(offset * 2654435761u >> 13 & 0xff);
}

std::string content_of(std::uint64_t size) {
  std::string content(size, '\0');
  for (std::uint64_t i = 0; i < size; ++i) content[i] = static_cast<char>(byte_at(i));
  return content;
}

// Where the first byte lies that is not the file's; the size if there is none.
std::uint64_t first_wrong(std::span<const std::byte> bytes) {
  std::uint64_t at = 0;
  while (at < bytes.size() && bytes[at] == byte_at(at)) ++at;
  return at;
}

struct Fixture {
  test::TemporaryFolder folder;
  std::filesystem::path path;

  // On the disk and, but for what a file system in memory has there, not in the page cache.
  File make(std::uint64_t size) {
    path = folder.write("file", content_of(size));
    File file = File::open(path, false).value();
    REQUIRE(::fsync(file.descriptor()) == 0);
    REQUIRE_OK(evict(file));
    return file;
  }
};

// Memory that begins with a page and has whole pages, filled with what no file has.
class Pages {
 public:
  explicit Pages(std::uint64_t size)
      : size_(whole_pages(size)),
        memory_(static_cast<std::byte*>(std::aligned_alloc(page, size_)), &std::free) {
    std::memset(memory_.get(), 0xff, size_);
  }
  std::span<std::byte> bytes() const { return {memory_.get(), size_}; }

 private:
  std::uint64_t size_;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

// Reads all of the file from `offset` on.
Result<void> read_from(const File& file, std::uint64_t offset, const Pages& pages) {
  return DirectReader(file).read(offset, pages.bytes());
}

// Whether the file system of the temporary folder reads past its cache.
bool reads_directly(const File& file) {
  const Result<void> done = read_from(file, 0, Pages(1));
  if (done) return true;
  CHECK_FAILS(done, ErrorCode::unsupported, "refuses reads past the page cache (O_DIRECT)");
  MESSAGE("SKIPPED: the file system of the temporary folder refuses O_DIRECT");
  return false;
}

TEST_CASE_FIXTURE(Fixture, "reads past the page cache, and zeros from the end of the file on") {
  const File file = make(9 * mib + 12345);
  if (!reads_directly(file)) return;
  const std::uint64_t cached = cached_bytes_of(file).value();
  const Pages pages(file.size());
  REQUIRE_OK(read_from(file, 0, pages));
  CHECK(cached_bytes_of(file).value() == cached);
  CHECK((cached == 0 || lives_in_memory(file)));
  CHECK(first_wrong(pages.bytes().first(file.size())) == file.size());
  for (const std::byte rest : pages.bytes().subspan(file.size())) REQUIRE(rest == std::byte{0});
}

TEST_CASE_FIXTURE(Fixture, "reads a range that begins with a page") {
  const File file = make(2 * mib);
  if (!reads_directly(file)) return;
  const Pages pages(3 * page);
  REQUIRE_OK(read_from(file, 5 * page, pages));
  for (std::uint64_t i = 0; i < 3 * page; ++i) REQUIRE(pages.bytes()[i] == byte_at(5 * page + i));
}

TEST_CASE_FIXTURE(Fixture, "says that the file was cut short, with reads under way") {
  for (std::uint64_t size : {5 * mib + 100, 3 * mib, std::uint64_t{100}}) {
    const File file = make(8 * mib);
    if (!reads_directly(file)) return;
    const Pages pages(file.size());
    std::filesystem::resize_file(path, size);
    const Result<void> queued = read_from(file, 0, pages);
    CHECK_FAILS(queued, ErrorCode::io, "the file was cut short while it was mapped: it had");
    CHECK(queued.error().file_offset <= size);
    with_refusals({no_io_uring}, [&] {
      CHECK_FAILS(read_from(file, 0, pages), ErrorCode::io, "and has now " + std::to_string(size));
    });
  }
}

TEST_CASE_FIXTURE(Fixture, "reads by pread where io_uring is forbidden, and says why") {
  const File file = make(5 * mib + 1);
  if (!reads_directly(file)) return;
  with_refusals({no_io_uring}, [&] {
    CHECK(why_no_io_uring() == "Operation not permitted");
    const Pages pages(file.size());
    REQUIRE_OK(read_from(file, 0, pages));
    CHECK(first_wrong(pages.bytes().first(file.size())) == file.size());
  });
}

TEST_CASE_FIXTURE(Fixture, "does not fall back for want of memory or descriptors") {
  const File file = make(mib);
  if (!reads_directly(file)) return;
  with_refusals({{SYS_io_uring_setup, EMFILE}}, [&] {
    CHECK(why_no_io_uring().empty());
    CHECK_FAILS(read_from(file, 0, Pages(mib)), ErrorCode::io,
                "cannot set up io_uring: Too many open files");
  });
}

TEST_CASE_FIXTURE(Fixture, "says so where nothing can be handed to io_uring") {
  const File file = make(mib);
  if (!reads_directly(file) || !why_no_io_uring().empty()) return;
  with_refusals({{SYS_io_uring_enter, EPERM}}, [&] {
    DirectReader reader(file);
    const Pages pages(mib);
    for (int i = 0; i < 2; ++i)
      CHECK_FAILS(reader.read(0, pages.bytes()), ErrorCode::io, "cannot hand reads to io_uring");
  });
}

TEST_CASE_FIXTURE(Fixture, "names the bytes that the disk did not give") {
  const File file = make(6 * mib);
  if (!reads_directly(file)) return;
  with_refusals({no_io_uring, {SYS_pread64, EIO}}, [&] {
    const Result<void> done = read_from(file, 2 * mib, Pages(4 * mib));
    CHECK_FAILS(done, ErrorCode::io, "cannot read 2097152 bytes at 2097152: Input/output error");
    CHECK(done.error().file_offset == 2 * mib);
    CHECK(done.error().os_error == EIO);
  });
}

TEST_CASE_FIXTURE(Fixture, "says that a file system refuses direct reads") {
  const File file = make(mib);
  with_refusals({{SYS_openat, EINVAL, O_DIRECT}}, [&] {
    CHECK_FAILS(read_from(file, 0, Pages(mib)), ErrorCode::unsupported,
                "(O_DIRECT): Invalid argument");
  });
  if (!reads_directly(file)) return;
  with_refusals({no_io_uring, {SYS_pread64, EINVAL}}, [&] {
    CHECK_FAILS(read_from(file, 0, Pages(mib)), ErrorCode::unsupported,
                "(O_DIRECT): Invalid argument");
  });
}

}  // namespace
}  // namespace weightmap::os
