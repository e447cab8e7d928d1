// What is cached and mapped of real files, in the folder of temporary files.
#include "mmap/pages/page_cache.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "mmap/mapping.hpp"
#include "mmap/page_loader.hpp"
#include "mmap/pages/file_window.hpp"
#include "mmap/pages/huge_sample.hpp"
#include "mmap/pages/page_table.hpp"
#include "mmap/pages/process_faults.hpp"
#include "mmap/pages/smaps.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/kernel.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/held_pages.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap::mmap {
namespace {

using test::TemporaryFolder;

const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// A file that is on the disk, and nothing of it in the page cache but what a test puts there.
class CacheFixture {
 public:
  os::File make(std::uint64_t size) {
    const auto path = folder.write("file", std::string(size, 'w'));
    os::File file = os::File::open(path, false).value();
    REQUIRE(::fsync(file.descriptor()) == 0);
    return file;
  }

  // False where the file system keeps files in memory, so that a test has nothing to say.
  static bool evicted(const os::File& file) {
    if (lives_in_memory(file)) {
      MESSAGE("SKIPPED: the temporary folder is in memory, where nothing can be evicted");
      return false;
    }
    // Again while pages stay that the system itself is about to take.
    for (int tries = 0; evict(file).value() > 0; ++tries) REQUIRE(tries < 1000);
    return true;
  }

  // Brings so many pages in, and no others.
  void read_pages(std::uint64_t first, std::uint64_t count = 1) {
    held.hold(folder.path() / "file", first * page, count * page);
  }

  TemporaryFolder folder;
  test::HeldPages held;
};

void touch_page(const Mapping& mapping, std::uint64_t index) {
  static_cast<void>(*static_cast<const volatile std::byte*>(&mapping.bytes()[index * page]));
}

// Of the pages from `first` on, which stay mapped.
void map_pages(const Mapping& mapping, std::uint64_t first, std::uint64_t count) {
  test::lock_when_touched(mapping.bytes());
  auto* const begin = const_cast<std::byte*>(&mapping.bytes()[first * page]);
  REQUIRE(::madvise(begin, count * page, MADV_POPULATE_READ) == 0);
}

// --- CachedPages -------------------------------------------------------------------------------

TEST_CASE_FIXTURE(CacheFixture, "counts the bytes of cached pages, cut at range and file") {
  const os::File file = make(10 * page + 100);
  if (!evicted(file)) return;
  for (std::uint64_t index : {2u, 3u, 10u}) read_pages(index);
  const CachedPages cached = CachedPages::of(file).value();
  CHECK(cached.cached_bytes() == 2 * page + 100);
  CHECK(cached.cached_bytes(0, 2 * page) == 0);
  CHECK(cached.cached_bytes(2 * page + 7, 5) == 5);
  CHECK(cached.cached_bytes(page, page + 1) == 1);
  CHECK(cached.cached_bytes(4 * page - 1, 2) == 1);
  CHECK(cached.cached_bytes(page + 1, 3 * page) == 2 * page);
  CHECK(cached.cached_bytes(10 * page + 99, 50) == 1);
  CHECK(cached.cached_bytes(10 * page, ~std::uint64_t{0}) == 100);
  CHECK(cached.cached_bytes(11 * page, 5) == 0);
  CHECK(cached.cached_bytes(~std::uint64_t{0}, ~std::uint64_t{0}) == 0);
  CHECK(cached.cached_bytes(2 * page, 0) == 0);
}

TEST_CASE_FIXTURE(CacheFixture, "agrees with counting page by page, over many words of bits") {
  constexpr std::uint64_t pages = 300;
  const os::File file = make(pages * page);
  if (!evicted(file)) return;
  const auto was_read = [](std::uint64_t i) { return i % 3 == 0 || (i >= 120 && i < 200); };
  for (std::uint64_t i = 0; i < pages; ++i)
    if (was_read(i)) read_pages(i);
  const CachedPages cached = CachedPages::of(file).value();
  for (std::uint64_t first = 0; first < pages; first += 7)
    for (std::uint64_t last = first; last < pages; last += 11) {
      std::uint64_t expected = 0;
      for (std::uint64_t i = first; i <= last; ++i) expected += was_read(i) ? page : 0;
      REQUIRE(cached.cached_bytes(first * page, (last - first + 1) * page) == expected);
    }
  CHECK(cached_bytes_of(file).value() == cached.cached_bytes());
}

TEST_CASE_FIXTURE(CacheFixture, "sees the same whether it counts pieces or asks for each page") {
  const os::File file = make(10 * mib + 3 * page + 1);
  if (!evicted(file)) return;
  read_pages(2 * mib / page, 2 * mib / page);
  for (std::uint64_t i = 0; i < 100; i += 3) read_pages(6 * mib / page + i);
  read_pages(10 * mib / page, 4);
  const Mapping mapping = Mapping::map(file, {}).value();
  std::vector<unsigned char> by_page((file.size() + page - 1) / page);
  REQUIRE(::mincore(const_cast<std::byte*>(mapping.bytes().data()), file.size(), by_page.data()) ==
          0);
  const CachedPages by_piece = CachedPages::of(file).value();
  CHECK(by_piece.cached_bytes() == 2 * mib + 34 * page + 3 * page + 1);
  for (std::uint64_t at = 0; at < file.size(); at += page)
    REQUIRE((by_piece.cached_bytes(at, page) != 0) == ((by_page[at / page] & 1) != 0));
}

TEST_CASE_FIXTURE(CacheFixture, "a file that shrank has less in the cache, not a failure") {
  const os::File file = make(20 * page);
  if (!evicted(file)) return;
  for (std::uint64_t index : {1u, 15u}) read_pages(index);
  std::filesystem::resize_file(folder.path() / "file", 5 * page);
  CHECK(CachedPages::of(file).value().cached_bytes() == page);
  CHECK(cached_bytes_of(file).value() == page);
}

TEST_CASE_FIXTURE(CacheFixture, "knows whether all of a range is cached") {
  const os::File file = make(10 * page + 100);
  if (!evicted(file)) return;
  for (std::uint64_t index : {2u, 3u, 10u}) read_pages(index);
  const Mapping mapping = Mapping::map(file, {}).value();
  const auto cached = [&](std::uint64_t offset, std::uint64_t length) {
    return is_cached({file, mapping}, offset, length);
  };
  CHECK(cached(2 * page, 2 * page));
  CHECK(cached(2 * page + 5, page));
  CHECK(cached(10 * page, 100));
  CHECK_FALSE(cached(2 * page, 2 * page + 1));
  CHECK_FALSE(cached(2 * page - 1, 5));
  CHECK_FALSE(cached(4 * page, 1));
  CHECK_FALSE(cached(0, 10 * page + 100));
  CHECK(mapped_memory(mapping.bytes()).value().resident == 0);
  CHECK(check_tells_what_is_cached(file).has_value());
}

TEST_CASE("does not believe a system that hides what is cached") {
  const os::File file = os::File::open("/etc/passwd", false).value();
  if (::geteuid() == 0) REQUIRE(::seteuid(65534) == 0);
  const auto told = check_tells_what_is_cached(file);
  const auto pages = CachedPages::of(file);
  const auto bytes = cached_bytes_of(file);
  const auto stays = evict(file);
  if (::getuid() == 0) REQUIRE(::seteuid(0) == 0);
  if (pages.has_value() && bytes.has_value()) {
    MESSAGE("SKIPPED: this kernel tells everybody (before Linux 5.2)");
    return;
  }
  CHECK_FAILS(pages, ErrorCode::io, "tells to the file's owner");
  CHECK_FAILS(told, ErrorCode::io, "tells to the file's owner");
  CHECK_FAILS(bytes, ErrorCode::io, "tells to the file's owner");
  CHECK_FAILS(stays, ErrorCode::io, "tells to the file's owner");
  CHECK(pages.error().os_error == EPERM);
}

// Counts, in a child with mounts of its own, what is cached of lower/file seen through an overlay.
std::string count_through_overlay(const std::filesystem::path& folder, std::uint64_t expected) {
  return test::in_child([&] {
    const std::string at = folder.string();
    const std::string how =
        "lowerdir=" + at + "/lower,upperdir=" + at + "/upper,workdir=" + at + "/work";
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("overlay", (at + "/seen").c_str(), "overlay", 0, how.c_str()) != 0)
      return 77;
    const Result<os::File> file = os::File::open(folder / "seen/file", false);
    const bool agrees = file && cached_bytes_of(*file).value_or(0) == expected &&
                        CachedPages::of(*file).value().cached_bytes() == expected;
    return agrees ? 0 : 1;
  });
}

TEST_CASE("sees the pages below a file of an overlay, which has none itself") {
  const TemporaryFolder folder;
  for (const char* name : {"lower", "upper", "work", "seen"})
    std::filesystem::create_directory(folder.path() / name);
  const test::HeldPages held(folder.write("lower/file", std::string(3 * page + 5, 'w')));
  const std::string end = count_through_overlay(folder.path(), 3 * page + 5);
  if (end == "exit 77")
    MESSAGE("SKIPPED: an overlay cannot be mounted here");
  else
    CHECK(end == "exit 0");
}

// --- evict -------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(CacheFixture, "evicts a whole file, the last part of a page included") {
  const os::File file = make(3 * mib + 10);
  read_pages(0, file.size() / page + 1);
  CHECK(cached_bytes_of(file).value() == 3 * mib + 10);
  held.release();
  if (!evicted(file)) return;
  CHECK(cached_bytes_of(file).value() == 0);
  CHECK(evict(file).value() == 0);
}

TEST_CASE_FIXTURE(CacheFixture, "answers how much stays because it is mapped") {
  const os::File file = make(100 * page);
  if (!evicted(file)) return;
  MapOptions options;
  options.huge_pages = false;  // whose faults read neighbours in, whatever was advised
  const Mapping mapping = Mapping::map(file, options).value();
  auto* const first = const_cast<std::byte*>(mapping.bytes().data());
  REQUIRE(::madvise(first, 100 * page, MADV_RANDOM) == 0);
  map_pages(mapping, 4, 2);
  map_pages(mapping, 50, 1);
  CHECK(evict(file).value() == 3 * page);
  CHECK(CachedPages::of(file).value().cached_bytes(50 * page, page) == page);
}

TEST_CASE_FIXTURE(CacheFixture, "tells what is not on the disk yet") {
  const auto path = folder.write("file", std::string(50 * page, 'w'));
  const os::File file = os::File::open(path, false).value();
  if (lives_in_memory(file)) {
    MESSAGE("SKIPPED: the temporary folder is in memory");
    return;
  }
  if (unwritten_bytes_of(file) == 0) MESSAGE("written at once, or the kernel does not tell");
  REQUIRE(::fsync(file.descriptor()) == 0);
  CHECK(unwritten_bytes_of(file) == 0);
}

TEST_CASE("knows a file that lives in memory, of which everything stays") {
  const std::filesystem::path shared = "/dev/shm";
  std::string name = (shared / "weightmap-XXXXXX").string();
  const os::UniqueFd made(::mkstemp(name.data()));
  if (made.get() < 0) {
    MESSAGE("SKIPPED: no files can be made in " << shared.string());
    return;
  }
  REQUIRE(::ftruncate(made.get(), 8) == 0);
  REQUIRE(::pwrite(made.get(), "12345678", 8, 0) == 8);
  const os::File file = os::File::open(name, false).value();
  std::filesystem::remove(name);
  CHECK(lives_in_memory(file));
  CHECK(evict(file).value() == 8);
}

// --- MappedMemory ------------------------------------------------------------------------------

Result<MappedMemory> memory_in(const std::string& text, std::uint64_t begin, std::uint64_t end) {
  std::istringstream smaps(text);
  return read_smaps(smaps, std::array{AddressRange{begin, end}});
}

const std::string three_mappings =
    "1000-3000 r--s 00000000 fe:00 12     /a\n"
    "Rss:                   8 kB\n"
    "Pss:                   4 kB\n"
    "3000-5000 r--s 00002000 fe:00 12     /a Rss: 9999 kB\n"
    "Size:                  8 kB\n"
    "Rss:                   4 kB\n"
    "Pss:                   1 kB\n"
    "Pss_Dirty:           100 kB\n"
    "Anonymous:             2 kB\n"
    "AnonHugePages:      4096 kB\n"
    "FilePmdMapped:      2048 kB\n"
    "VmFlags: rd sh mr mw me ms\n"
    "5000-6000 rw-p 00000000 00:00 0 \n"
    "Rss:                  64 kB\n";

TEST_CASE("adds up the mappings of a range and no others, and takes its part of a joined one") {
  const MappedMemory all = memory_in(three_mappings, 0x1000, 0x5000).value();
  CHECK(all.resident == 12 * 1024);
  CHECK(all.proportional == 5 * 1024);
  CHECK(all.anonymous == 2 * 1024);
  CHECK(all.huge == 2 * mib);
  CHECK(all.anonymous_huge == 4 * mib);
  CHECK(memory_in(three_mappings, 0x5000, 0x6000).value().resident == 64 * 1024);
  CHECK(memory_in(three_mappings, 0x1000, 0x3000).value().huge == 0);
  // Half of two that the kernel joined with their neighbours.
  const MappedMemory some = memory_in(three_mappings, 0x2000, 0x4000).value();
  CHECK(some.resident == 6 * 1024);
  CHECK(some.anonymous == 1024);
  CHECK(some.huge == mib);
  std::istringstream smaps(three_mappings);  // several ranges in one reading of the list
  const std::array ranges = {AddressRange{0x5000, 0x6000}, AddressRange{0x1000, 0x3000}};
  CHECK(read_smaps(smaps, ranges).value().resident == 72 * 1024);
}

TEST_CASE("refuses a list that does not match the range") {
  CHECK_FAILS(memory_in(three_mappings, 0x5000, 0x7000), ErrorCode::io, "lists 4096 of 8192");
  CHECK_FAILS(memory_in(three_mappings, 0x8000, 0x9000), ErrorCode::io, "lists 0 of 4096");
  CHECK_FAILS(memory_in("", 0x1000, 0x2000), ErrorCode::io, "lists 0");
}

TEST_CASE("passes over lines that it does not understand") {
  const std::string text =
      "1000-2000 r--s 0 0:0 1 /a\nRss: many kB\nRss: 7\nRss:\nPss\n\n-\nRss: 99999999999999999 kB\n"
      "Rss: 18446744073709551616 kB\n2000-1000 x\nzz\nRss: 4 kB\n";
  CHECK(memory_in(text, 0x1000, 0x2000).value().resident == 4096);
}

TEST_CASE_FIXTURE(CacheFixture, "tells what of a mapping was touched, and what was copied") {
  const os::File file = make(64 * page);
  MapOptions options;
  options.sharing = Sharing::private_;
  options.writable = true;
  const Mapping mapping = Mapping::map(file, options).value();
  CHECK(mapped_memory(mapping.bytes()).value().resident == 0);
  map_pages(mapping, 0, 64);
  const MappedMemory mapped = mapped_memory(mapping.bytes()).value();
  CHECK(mapped.resident == 64 * page);
  CHECK(mapped.proportional == 64 * page);
  CHECK(mapped.anonymous == 0);
  mapping.writable_bytes()[3 * page] = std::byte{'X'};
  CHECK(mapped_memory(mapping.bytes()).value().anonymous == page);
  CHECK(mapped_memory(std::span<const std::byte>{}).value().resident == 0);
}

// --- MappedPages -------------------------------------------------------------------------------

// The scan, or what stands in for it before Linux 6.7, after saying so.
MappedPages scanned(std::span<const std::byte> mapping) {
  Result<MappedPages> pages = MappedPages::scan(mapping);
  if (pages) return std::move(*pages);
  MESSAGE("SKIPPED: this kernel cannot scan a page table: " << pages.error().message);
  return MappedPages::read(mapping).value();
}

// Without huge pages, since a fault among those brings in all of one.
MapOptions writable_copy() {
  MapOptions options;
  options.huge_pages = false;
  options.sharing = Sharing::private_;
  options.writable = true;
  return options;
}

TEST_CASE_FIXTURE(CacheFixture, "tells of each page whether it is mapped, and whether copied") {
  const os::File file = make(64 * page + 100);
  if (!evicted(file)) return;
  const Mapping mapping = Mapping::map(file, writable_copy()).value();
  const std::span<std::byte> bytes = mapping.writable_bytes();
  REQUIRE(::madvise(bytes.data(), bytes.size(), MADV_RANDOM) == 0);
  test::lock_when_touched(bytes);
  bytes[3 * page] = bytes[40 * page] = std::byte{'X'};
  for (std::uint64_t i = 32; i < 40; ++i) touch_page(mapping, i);
  touch_page(mapping, 64);
  for (const MappedPages& pages :
       {scanned(mapping.bytes()), MappedPages::read(mapping.bytes()).value()}) {
    CHECK(pages.bytes(0, 3 * page).resident == 0);
    CHECK(pages.bytes(3 * page, page).resident == page);
    CHECK(pages.bytes(3 * page, page).anonymous == page);
    CHECK(pages.bytes(4 * page - 5, 10).resident == 5);
    CHECK(pages.bytes(4 * page, 28 * page).resident == 0);
    CHECK(pages.bytes(32 * page, 8 * page).resident == 8 * page);
    CHECK(pages.bytes(32 * page, 8 * page).anonymous == 0);
    CHECK(pages.bytes(40 * page - 1, page).anonymous == page - 1);
    CHECK(pages.bytes(0, ~std::uint64_t{0}).resident == 10 * page + 100);
    CHECK(pages.bytes(0, ~std::uint64_t{0}).anonymous == 2 * page);
    CHECK(pages.bytes(65 * page, 1).resident == 0);
  }
  CHECK(scanned(mapping.bytes()).bytes(0, 65 * page).huge.value_or(0) == 0);
  CHECK(MappedPages::read(mapping.bytes()).value().bytes(0, page).huge == std::nullopt);
}

TEST_CASE_FIXTURE(CacheFixture, "counts what smaps counts, also where a mapping is in parts") {
  const os::File file = make(96 * page);
  const Mapping mapping = Mapping::map(file, writable_copy()).value();
  const std::span<std::byte> bytes = mapping.writable_bytes();
  REQUIRE(::madvise(&bytes[16 * page], 8 * page, MADV_RANDOM) == 0);
  REQUIRE(::mmap(&bytes[40 * page], 16 * page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == &bytes[40 * page]);
  test::lock_when_touched(bytes);
  bytes[41 * page] = bytes[2 * page] = std::byte{1};
  map_pages(mapping, 60, 30);
  const MappedMemory smaps = mapped_memory(mapping.bytes()).value();
  CHECK(smaps.resident >= 32 * page);
  CHECK(smaps.anonymous == 2 * page);
  for (const MappedPages& pages :
       {scanned(mapping.bytes()), MappedPages::read(mapping.bytes()).value()}) {
    CHECK(pages.bytes(0, 96 * page).resident == smaps.resident);
    CHECK(pages.bytes(0, 96 * page).anonymous == smaps.anonymous);
    CHECK(pages.bytes(41 * page, page).anonymous == page);
  }
}

TEST_CASE_FIXTURE(CacheFixture, "takes an answer of more parts than fit in one call") {
  constexpr std::uint64_t pages = 9000;
  const os::File file = make(pages * page);
  const Mapping mapping = Mapping::map(file, writable_copy()).value();
  test::lock_when_touched(mapping.bytes());
  for (std::uint64_t i = 0; i < pages; i += 2) mapping.writable_bytes()[i * page] = std::byte{1};
  for (const MappedPages& found :
       {scanned(mapping.bytes()), MappedPages::read(mapping.bytes()).value()})
    for (std::uint64_t i = 0; i < pages; ++i)
      REQUIRE(found.bytes(i * page, page).anonymous == (i % 2 == 0 ? page : 0));
}

TEST_CASE_FIXTURE(CacheFixture, "tells what is mapped by huge pages, as smaps does") {
  const os::File file = make(21 * 2 * mib + 3 * page);
  if (!evicted(file)) return;
  const Mapping mapping = Mapping::map(file, {}).value();
  map_pages(mapping, 0, 20 * mib / page);
  const MappedMemory smaps = mapped_memory(mapping.bytes()).value();
  const MappedBytes all = scanned(mapping.bytes()).bytes(0, file.size());
  CHECK(all.resident == smaps.resident);
  CHECK(all.resident >= 20 * mib);
  if (!all.huge) return;
  CHECK(*all.huge == smaps.huge);
  if (smaps.huge == 0) MESSAGE("SKIPPED: the system gave no large pages to this file");
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < file.size(); at += 2 * mib) {
    const MappedBytes part = scanned(mapping.bytes()).bytes(at, 2 * mib);
    CHECK((*part.huge == 0 || *part.huge == 2 * mib));
    sum += *part.huge;
  }
  CHECK(sum == smaps.huge);
}

TEST_CASE("a sum of which one part is not known is not known") {
  MappedBytes known{3 * page, page, page};
  known += MappedBytes{page, page, page};
  CHECK(known.resident == 4 * page);
  CHECK(known.anonymous == 2 * page);
  CHECK(known.huge == 2 * page);
  known += MappedBytes{page, 0, std::nullopt};
  CHECK(known.resident == 5 * page);
  CHECK(known.huge == std::nullopt);
}

// --- ProcessFaults -----------------------------------------------------------------------------

// Touches pages that nobody has touched.
void fault_in_new_pages(std::uint64_t count) {
  void* const memory = ::mmap(nullptr, count * page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  REQUIRE(::madvise(memory, count * page, MADV_NOHUGEPAGE) == 0);
  for (std::uint64_t i = 0; i < count; ++i) static_cast<volatile char*>(memory)[i * page] = 1;
  ::munmap(memory, count * page);
}

TEST_CASE("counts the page faults of the process since a moment") {
  const ProcessFaults start = process_faults();
  fault_in_new_pages(500);
  const ProcessFaults faults = faults_since(start);
  CHECK(faults.minor >= 500);
  CHECK(faults.minor <= process_faults().minor - start.minor);
  CHECK(faults.forks == start.forks);
}

TEST_CASE("a process that was forked since has its own page faults, and not fewer than none") {
  fault_in_new_pages(5000);
  const ProcessFaults start = process_faults();
  REQUIRE(start.minor >= 5000);
  CHECK(test::in_child([&] {
          const std::uint64_t own = faults_since(start).minor;
          return own > 0 && own < start.minor ? 0 : 1;
        }) == "exit 0");
}

// --- large reads -------------------------------------------------------------------------------

TEST_CASE_FIXTURE(CacheFixture, "sees by trying that large pages come whole, and nothing more") {
  const os::File file = make(6 * mib);
  if (!evicted(file)) return;
  if (!reads_large_pages(file, 2 * mib)) {
    MESSAGE("SKIPPED: the system brings this file in by small pages");
    return;
  }
  const CachedPages cached = CachedPages::of(file).value();
  CHECK(cached.cached_bytes() <= 2 * mib);
  CHECK(cached.cached_bytes(2 * mib, 2 * mib) == cached.cached_bytes());
}

TEST_CASE_FIXTURE(CacheFixture, "sees no large pages where none fits") {
  const os::File file = make(4 * mib - 1);
  CHECK(!reads_large_pages(file, 2 * mib));
  CHECK(!reads_large_pages(file, 8 * mib));
}

TEST_CASE_FIXTURE(CacheFixture, "sees no large pages where the cache holds small ones") {
  const os::File file = make(2 * mib);
  if (!evicted(file)) return;
  read_pages(mib / page);
  CHECK(!reads_large_pages(file, 0));
}

// --- ranges ------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(CacheFixture,
                  "drops the whole pages in a range, and what is read again is right") {
  const os::File file = make(4 * mib);
  if (!evicted(file)) return;
  const Mapping mapping = Mapping::map(file, {}).value();
  REQUIRE_OK(PageLoader({file, mapping}, LoadMethod::populate).load(0, 4 * mib));
  read_pages(0, 2 * mib / page);
  drop_range({file, mapping}, 2 * mib, 2 * mib);
  CHECK(CachedPages::of(file).value().cached_bytes(0, 2 * mib) == 2 * mib);
  CHECK(CachedPages::of(file).value().cached_bytes(2 * mib, 2 * mib) == 0);
  drop_range({file, mapping}, 1, page);  // not one whole page
  CHECK(CachedPages::of(file).value().cached_bytes(0, 2 * mib) == 2 * mib);
  CHECK(mapping.bytes()[3 * mib] == std::byte{'w'});
}

TEST_CASE_FIXTURE(CacheFixture, "what is loaded is mapped, unless it is only read") {
  const os::File file = make(4 * mib);
  MapOptions options;
  options.huge_pages = false;
  for (const LoadMethod method : {LoadMethod::populate, LoadMethod::copy, LoadMethod::read}) {
    CAPTURE(to_string(method));
    const Mapping mapping = Mapping::map(file, options).value();
    evicted(file);
    REQUIRE_OK(PageLoader({file, mapping}, method).load(2 * mib, 2 * mib));
    const bool is_mapped = mapped_memory(mapping.bytes()).value().resident > 0;
    CHECK(is_mapped == (method != LoadMethod::read));
  }
}

TEST_CASE_FIXTURE(CacheFixture, "a copy that the file is too short for says where") {
  const os::File file = make(4 * mib);
  const Mapping mapping = Mapping::map(file, {}).value();
  if (!evicted(file)) return;
  std::filesystem::resize_file(folder.path() / "file", mib);
  const Result<void> loaded = PageLoader({file, mapping}, LoadMethod::copy).load(0, 4 * mib);
  CHECK_FAILS(loaded, ErrorCode::io, "truncated");
  CHECK(loaded.error().file_offset == mib);
}

TEST_CASE_FIXTURE(CacheFixture, "what is made to yield stays where it is while memory lasts") {
  const os::File file = make(4 * mib);
  const Mapping mapping = Mapping::map(file, {}).value();
  read_pages(0, 4 * mib / page);
  map_pages(mapping, 0, 4 * mib / page);
  REQUIRE(::munlock(mapping.bytes().data(), 4 * mib) == 0);
  yield_range({file, mapping}, 1, 4 * mib - 1);
  CHECK(cached_bytes_of(file).value() == 4 * mib);
  CHECK(mapped_memory(mapping.bytes()).value().resident == 4 * mib);
}

// --- HugeSample --------------------------------------------------------------------------------

TEST_CASE("a sample is fragmented if most of it is small and it could be better") {
  const auto sample = [](std::uint64_t bytes, std::uint64_t huge, bool could_be_huge) {
    return HugeSample{bytes, huge, could_be_huge}.is_fragmented();
  };
  CHECK(sample(0, 0, true) == std::nullopt);
  CHECK(sample(16 * mib, 0, false) == std::nullopt);
  CHECK(sample(16 * mib, 0, true) == true);
  CHECK(sample(16 * mib, 6 * mib, false) == true);
  CHECK(sample(16 * mib, 8 * mib, false) == false);
  CHECK(sample(16 * mib, 16 * mib, true) == false);
}

TEST_CASE_FIXTURE(CacheFixture,
                  "a sample takes only what is cached as a whole, and reads nothing") {
  const std::uint64_t huge = huge_page_bytes();
  if (huge == 0 || huge > 4 * mib) {
    MESSAGE("SKIPPED: this kernel has no huge pages of a few MiB");
    return;
  }
  const os::File file = make(4 * huge + 5 * page);
  if (!evicted(file)) return;
  CHECK(sample_huge_pages(file, CachedPages::of(file).value()).bytes == 0);
  read_pages(0, 3 * huge / page - 1);
  const std::uint64_t before = cached_bytes_of(file).value();
  CHECK(before == 3 * huge - page);
  const HugeSample sample = sample_huge_pages(file, CachedPages::of(file).value());
  CHECK(sample.bytes == 2 * huge);
  CHECK(sample.huge_bytes == 0);  // they came page by page
  CHECK(cached_bytes_of(file).value() == before);
  held.release();
  CHECK(evicted(file));  // nothing of it stays mapped
}

TEST_CASE_FIXTURE(CacheFixture, "a sample does not take up reading ahead where others stopped") {
  const std::uint64_t huge = huge_page_bytes();
  const os::File file = make(64 * mib);
  if (huge == 0 || huge > 4 * mib || !evicted(file)) return;
  std::vector<std::byte> begin(2 * huge);
  for (std::uint64_t at = 0; at < begin.size(); at += 128 << 10)
    REQUIRE_OK(file.read(at, std::span(begin).subspan(at, 128 << 10)));
  read_pages(0, begin.size() / page);
  const std::uint64_t before = cached_bytes_of(file).value();
  CHECK(sample_huge_pages(file, CachedPages::of(file).value()).bytes > 0);
  CHECK(cached_bytes_of(file).value() <= before);
}

TEST_CASE_FIXTURE(CacheFixture, "a sample sees pages that came in large pieces") {
  const std::uint64_t huge = huge_page_bytes();
  const os::File file = make(20 * 2 * mib);
  if (huge != 2 * mib || !evicted(file)) return;
  const Mapping mapping = Mapping::map(file, {}).value();
  for (std::uint64_t at = 0; at < file.size(); at += huge)
    map_pages(mapping, at / page, huge / page);
  const HugeSample sample = sample_huge_pages(file, CachedPages::of(file).value());
  CHECK(sample.bytes == 8 * huge);
  if (!sample.could_be_huge || sample.huge_bytes == 0)
    MESSAGE("SKIPPED: the system gave no large pages to this file");
  else
    CHECK(sample.is_fragmented() == false);
}

}  // namespace
}  // namespace weightmap::mmap
