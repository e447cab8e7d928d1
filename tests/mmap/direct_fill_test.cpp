// Filling a mapping past the page cache: private memory in the place of the file's pages.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "mmap/direct_reader.hpp"
#include "mmap/fill.hpp"
#include "mmap/memory/private_pages.hpp"
#include "mmap/pages/mapped_memory.hpp"
#include "mmap/pages/page_cache.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap::os {
namespace {

using test::no_io_uring;
using test::with_refusals;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));

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

Mapping map(const File& file, const MapOptions& options = {}) {
  return Mapping::map(file, options).value();
}

MappedMemory memory_of(const Mapping& mapping) { return mapped_memory(mapping.bytes()).value(); }

// Whether the file system of the temporary folder reads past its cache.
bool reads_directly(const File& file) {
  const Mapping mapping = map(file);
  const Result<void> filled = Filler(file, mapping, FillMethod::direct).fill(0, 1);
  if (filled) return true;
  CHECK_FAILS(filled, ErrorCode::unsupported, "refuses reads past the page cache (O_DIRECT)");
  MESSAGE("SKIPPED: the file system of the temporary folder refuses O_DIRECT");
  return false;
}

// --- sequential --------------------------------------------------------------------------------

TEST_CASE_FIXTURE(Fixture, "touches every page of a range in order") {
  const File file = make(3 * mib + 5);
  const Mapping mapping = map(file);
  REQUIRE_OK(Filler(file, mapping, FillMethod::sequential).fill(0, file.size()));
  CHECK(memory_of(mapping).resident == whole_pages(file.size()));
  CHECK(memory_of(mapping).anonymous == 0);
  CHECK(cached_bytes_of(file).value() == file.size());
}

TEST_CASE_FIXTURE(Fixture, "does not touch in order what was cut off") {
  const File file = make(mib);
  const Mapping mapping = map(file);
  std::filesystem::resize_file(path, 100);
  const auto filled = Filler(file, mapping, FillMethod::sequential).fill(0, file.size());
  CHECK_FAILS(filled, ErrorCode::io, "the file was cut short while it was mapped");
}

// --- direct ------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(Fixture, "fills a mapping past the page cache") {
  const File file = make(9 * mib + 12345);
  if (!reads_directly(file)) return;
  const Mapping mapping = map(file);
  const std::uint64_t cached = cached_bytes_of(file).value();
  REQUIRE_OK(Filler(file, mapping, FillMethod::direct).fill(0, file.size()));
  CHECK(cached_bytes_of(file).value() == cached);
  CHECK((cached == 0 || lives_in_memory(file)));
  CHECK(first_wrong(mapping.bytes()) == file.size());
  CHECK(memory_of(mapping).anonymous == whole_pages(file.size()));
  CHECK(memory_of(mapping).resident == whole_pages(file.size()));
  // A mapping is zero from the end of its file to the end of the page.
  for (std::uint64_t i = file.size(); i < whole_pages(file.size()); ++i)
    REQUIRE(mapping.bytes().data()[i] == std::byte{0});
}

TEST_CASE_FIXTURE(Fixture, "replaces the pages of a range and no others") {
  const File file = make(2 * mib);
  if (!reads_directly(file)) return;
  const Mapping mapping = map(file);
  Filler filler(file, mapping, FillMethod::direct);
  REQUIRE_OK(filler.fill(0, 0));
  CHECK(memory_of(mapping).anonymous == 0);
  REQUIRE_OK(filler.fill(5 * page + 7, page));
  CHECK(memory_of(mapping).anonymous == 2 * page);
  REQUIRE_OK(filler.fill_exactly(page, 1));
  CHECK(memory_of(mapping).anonymous == 3 * page);
  REQUIRE_OK(filler.fill_alone(file.size() - 1, 1));
  CHECK(memory_of(mapping).anonymous == 4 * page);
  CHECK(first_wrong(mapping.bytes()) == file.size());
}

TEST_CASE_FIXTURE(Fixture, "replaces a range again with what the file has now") {
  const File file = make(mib);
  if (!reads_directly(file)) return;
  const Mapping mapping = map(file);
  Filler filler(file, mapping, FillMethod::direct);
  REQUIRE_OK(filler.fill(0, file.size()));
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << "new";
  CHECK(mapping.bytes()[0] == byte_at(0));  // private
  REQUIRE_OK(filler.fill(0, file.size()));
  CHECK(mapping.bytes()[0] == std::byte{'n'});
  CHECK(memory_of(mapping).anonymous == mib);
}

TEST_CASE_FIXTURE(Fixture, "its pages are large if those of the mapping are") {
  const File file = make(8 * mib);
  if (!reads_directly(file)) return;
  MapOptions small;
  small.huge_pages = false;
  for (const MapOptions& options : {MapOptions{}, small}) {
    const Mapping mapping = map(file, options);
    REQUIRE_OK(Filler(file, mapping, FillMethod::direct).fill(0, file.size()));
    const MappedMemory memory = memory_of(mapping);
    CHECK(memory.anonymous == 8 * mib);
    std::string enabled;
    std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), enabled);
    if (enabled.find("[madvise]") == std::string::npos)
      MESSAGE("SKIPPED: the system does not leave it to programs who gets large pages");
    else
      CHECK((memory.anonymous_huge > 0) == options.huge_pages);
  }
}

TEST_CASE_FIXTURE(Fixture, "unmapping a mapping unmaps what took the place of its pages") {
  const File file = make(4 * mib);
  if (!reads_directly(file)) return;
  void* first = nullptr;
  {
    const Mapping mapping = map(file);
    REQUIRE_OK(Filler(file, mapping, FillMethod::direct).fill(2 * mib, mib));
    first = const_cast<std::byte*>(mapping.bytes().data());
  }
  for (std::uint64_t at : {0 * mib, 2 * mib, 3 * mib}) {
    unsigned char resident = 0;
    CHECK(::mincore(static_cast<std::byte*>(first) + at, 1, &resident) == -1);
    CHECK(errno == ENOMEM);
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "leaves a mapping alone whose file was cut short, with reads under way") {
  for (std::uint64_t size : {5 * mib + 100, 3 * mib, std::uint64_t{100}}) {
    const File file = make(8 * mib);
    if (!reads_directly(file)) return;
    const Mapping mapping = map(file);
    std::filesystem::resize_file(path, size);
    const auto fill = [&] {
      return Filler(file, mapping, FillMethod::direct).fill(0, file.size());
    };
    Result<void> queued = fill();
    CHECK_FAILS(queued, ErrorCode::io, "the file was cut short while it was mapped: it had");
    CHECK(queued.error().file_offset <= size);
    with_refusals({no_io_uring}, [&] {
      CHECK_FAILS(fill(), ErrorCode::io, "and has now " + std::to_string(size));
    });
    CHECK(memory_of(mapping).anonymous == 0);
  }
}

TEST_CASE_FIXTURE(Fixture, "refuses what would lose writes or a lock") {
  folder.write("file", content_of(mib));
  const File file = File::open(folder.path() / "file", true).value();
  MapOptions options;
  options.writable = true;
  for (Sharing sharing : {Sharing::shared, Sharing::private_}) {
    options.sharing = sharing;
    const Mapping mapping = map(file, options);
    CHECK_FAILS(Filler(file, mapping, FillMethod::direct).fill(0, page), ErrorCode::unsupported,
                "a writable mapping cannot be filled past the page cache");
    CHECK(memory_of(mapping).anonymous == 0);
  }
  options = {};
  options.locked = true;
  const Mapping locked = map(file, options);
  CHECK_FAILS(Filler(file, locked, FillMethod::direct).fill(0, page), ErrorCode::unsupported,
              "a locked mapping cannot be filled past the page cache");
  options = {};
  options.sharing = Sharing::private_;
  CHECK(check_replaceable(map(file, options)).has_value());
}

TEST_CASE_FIXTURE(Fixture, "reads by pread where io_uring is forbidden, and says why") {
  const File file = make(5 * mib + 1);
  if (!reads_directly(file)) return;
  with_refusals({no_io_uring}, [&] {
    CHECK(why_no_io_uring() == "Operation not permitted");
    const Mapping mapping = map(file);
    REQUIRE_OK(Filler(file, mapping, FillMethod::direct).fill(0, file.size()));
    CHECK(first_wrong(mapping.bytes()) == file.size());
    CHECK(memory_of(mapping).anonymous == whole_pages(file.size()));
  });
}

TEST_CASE_FIXTURE(Fixture, "does not fall back for want of memory or descriptors") {
  const File file = make(mib);
  if (!reads_directly(file)) return;
  with_refusals({{SYS_io_uring_setup, EMFILE}}, [&] {
    CHECK(why_no_io_uring().empty());
    const Mapping mapping = map(file);
    CHECK_FAILS(Filler(file, mapping, FillMethod::direct).fill(0, file.size()), ErrorCode::io,
                "cannot set up io_uring: Too many open files");
  });
}

TEST_CASE_FIXTURE(Fixture, "says so where nothing can be handed to io_uring") {
  const File file = make(mib);
  if (!reads_directly(file) || !why_no_io_uring().empty()) return;
  with_refusals({{SYS_io_uring_enter, EPERM}}, [&] {
    const Mapping mapping = map(file);
    Filler filler(file, mapping, FillMethod::direct);
    for (int i = 0; i < 2; ++i)
      CHECK_FAILS(filler.fill(0, file.size()), ErrorCode::io, "cannot hand reads to io_uring");
    CHECK(memory_of(mapping).anonymous == 0);
  });
}

TEST_CASE_FIXTURE(Fixture, "names the bytes that the disk did not give") {
  const File file = make(6 * mib);
  if (!reads_directly(file)) return;
  with_refusals({no_io_uring, {SYS_pread64, EIO}}, [&] {
    const Mapping mapping = map(file);
    const auto filled = Filler(file, mapping, FillMethod::direct).fill(2 * mib, 4 * mib);
    CHECK_FAILS(filled, ErrorCode::io, "cannot read 2097152 bytes at 2097152: Input/output error");
    CHECK(filled.error().file_offset == 2 * mib);
    CHECK(filled.error().os_error == EIO);
    CHECK(memory_of(mapping).anonymous == 0);
  });
}

TEST_CASE_FIXTURE(Fixture, "says that a file system refuses direct reads") {
  const File file = make(mib);
  const Mapping mapping = map(file);
  const auto fill = [&] { return Filler(file, mapping, FillMethod::direct).fill(0, file.size()); };
  with_refusals({{SYS_openat, EINVAL, O_DIRECT}}, [&] {
    CHECK_FAILS(fill(), ErrorCode::unsupported, "(O_DIRECT): Invalid argument");
  });
  if (!reads_directly(file)) return;
  with_refusals({no_io_uring, {SYS_pread64, EINVAL}}, [&] {
    CHECK_FAILS(fill(), ErrorCode::unsupported, "(O_DIRECT): Invalid argument");
  });
}

TEST_CASE_FIXTURE(Fixture, "leaves the mapping as it was if there are too many of them") {
  const File file = make(mib);
  if (!reads_directly(file)) return;
  with_refusals({{SYS_mremap, ENOMEM}}, [&] {
    const Mapping mapping = map(file);
    CHECK_FAILS(Filler(file, mapping, FillMethod::direct).fill(0, file.size()), ErrorCode::io,
                "vm.max_map_count, is used up");
    CHECK(memory_of(mapping).anonymous == 0);
    CHECK(first_wrong(mapping.bytes()) == file.size());
  });
}

TEST_CASE_FIXTURE(Fixture, "readers find the same bytes while pages are replaced") {
  const File file = make(6 * mib + 77);
  if (!reads_directly(file)) return;
  const Mapping mapping = map(file);
  std::atomic<bool> finished{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<unsigned> rounds{0};
  std::thread reader([&] {
    while (!finished) {
      if (first_wrong(mapping.bytes()) != file.size()) ++wrong;
      ++rounds;
    }
  });
  const auto fill_all = [&](std::uint64_t step, std::uint64_t from) {
    Filler filler(file, mapping, FillMethod::direct);
    for (std::uint64_t at = from; at < file.size(); at += 2 * step)
      CHECK(filler.fill(at, std::min(step, file.size() - at)).has_value());
  };
  while (rounds < 10) {
    std::thread other(fill_all, 16 * page, 16 * page);
    fill_all(16 * page, 0);
    other.join();
    fill_all(2 * mib, 0);
    fill_all(2 * mib, 2 * mib);
  }
  finished = true;
  reader.join();
  CHECK(wrong == 0);
  CHECK(memory_of(mapping).anonymous == whole_pages(file.size()));
}

}  // namespace
}  // namespace weightmap::os
