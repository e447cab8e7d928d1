// Reading a file past the page cache.
#include "runtime/system/file/direct_reader.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "mmap/pages/page_cache.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/page_size.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap::os {
namespace {

using test::Refusal;
using test::with_refusals;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t piece = 2 * mib;
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
    REQUIRE_OK(mmap::evict(file));
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

// Reads all of the file from `offset` on, and answers what the last read said of the page cache.
Result<bool> read_all(DirectReader& reader, std::uint64_t offset, const Pages& pages) {
  bool past_cache = false;
  for (std::uint64_t at = 0; at < pages.bytes().size(); at += piece) {
    const std::uint64_t length = std::min(piece, pages.bytes().size() - at);
    TRY_ASSIGN(past_cache, reader.read(offset + at, pages.bytes().subspan(at, length)));
  }
  return past_cache;
}

Result<bool> read_from(const File& file, std::uint64_t offset, const Pages& pages) {
  DirectReader reader(file);
  return read_all(reader, offset, pages);
}

// Whether the file system of the temporary folder reads past its cache.
bool reads_directly(const File& file) {
  DirectReader reader(file);
  REQUIRE_OK(read_all(reader, 0, Pages(1)));
  if (reader.why_not_direct().empty()) return true;
  MESSAGE("SKIPPED: the temporary folder: ", reader.why_not_direct());
  return false;
}

TEST_CASE_FIXTURE(Fixture, "reads past the page cache, and zeros from the end of the file on") {
  const File file = make(9 * mib + 12345);
  if (!reads_directly(file)) return;
  const std::uint64_t cached = mmap::cached_bytes_of(file).value();
  const Pages pages(file.size());
  REQUIRE_OK(read_from(file, 0, pages));
  CHECK(mmap::cached_bytes_of(file).value() == cached);
  CHECK((cached == 0 || mmap::lives_in_memory(file)));
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

TEST_CASE_FIXTURE(Fixture, "says that the file was truncated") {
  for (std::uint64_t size : {5 * mib + 100, 3 * mib, std::uint64_t{100}}) {
    const File file = make(8 * mib);
    if (!reads_directly(file)) return;
    const Pages pages(file.size());
    std::filesystem::resize_file(path, size);
    const Result<bool> read = read_from(file, 0, pages);
    CHECK_FAILS(read, ErrorCode::io, "the file was truncated while it was mapped: it had");
    CHECK_FAILS(read, ErrorCode::io, "and has now " + std::to_string(size));
    CHECK(read.error().file_offset <= size);
  }
}

TEST_CASE_FIXTURE(Fixture, "any thread may read") {
  const File file = make(9 * mib + 1);
  DirectReader reader(file);
  const Pages pages(file.size());
  REQUIRE_OK(parallel_for(5, 5, [&](std::size_t number) -> Result<void> {
    const std::uint64_t at = number * piece;
    const std::uint64_t length = std::min(piece, pages.bytes().size() - at);
    TRY(reader.read(at, pages.bytes().subspan(at, length)));
    return {};
  }));
  CHECK(first_wrong(pages.bytes().first(file.size())) == file.size());
}

TEST_CASE_FIXTURE(Fixture, "names the bytes that the disk did not give") {
  const File file = make(6 * mib);
  if (!reads_directly(file)) return;
  with_refusals({{SYS_pread64, EIO}}, [&] {
    const Result<bool> done = read_from(file, 2 * mib, Pages(2 * mib));
    CHECK_FAILS(done, ErrorCode::io, "cannot read 2097152 bytes at 2097152: Input/output error");
    CHECK(done.error().file_offset == 2 * mib);
    CHECK(done.error().os_error == EIO);
  });
}

TEST_CASE_FIXTURE(Fixture, "reads through the page cache what cannot be read past it, and why") {
  const File file = make(5 * mib + 1);
  const auto why = [&](const Refusal& refusal) {
    std::string answer;
    with_refusals({refusal}, [&] {
      DirectReader reader(file);
      const Pages pages(file.size());
      const bool past_cache = read_all(reader, 0, pages).value();
      CHECK_FALSE(past_cache);
      CHECK(first_wrong(pages.bytes().first(file.size())) == file.size());
      for (const std::byte rest : pages.bytes().subspan(file.size())) REQUIRE(rest == std::byte{0});
      answer = reader.why_not_direct();
    });
    return answer;
  };
  CHECK(why({SYS_openat, EINVAL, O_DIRECT}) ==
        "the file system refuses reads past the page cache (O_DIRECT): Invalid argument");
  CHECK(why({SYS_openat, ENOENT, O_DIRECT}) ==
        "reads past the page cache (O_DIRECT) need /proc, which is not mounted");
  CHECK(why({SYS_openat, EMFILE, O_DIRECT}) ==
        "cannot open the file past the page cache: Too many open files");
}

TEST_CASE_FIXTURE(Fixture, "a file system may refuse only when it is to read") {
  const File file = make(2 * mib);
  if (!reads_directly(file)) return;
  // No memory begins at an odd address, so the system refuses that read, and no other.
  const Pages pages(3 * mib);
  DirectReader reader(file);
  const bool past_cache = reader.read(0, pages.bytes().subspan(1, 2 * mib)).value();
  CHECK_FALSE(past_cache);
  CHECK(first_wrong(pages.bytes().subspan(1, 2 * mib)) == 2 * mib);
  CHECK(reader.why_not_direct() ==
        "the file system refuses reads past the page cache (O_DIRECT): Invalid argument");
}

}  // namespace
}  // namespace weightmap::os
