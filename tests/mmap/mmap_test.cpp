#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <new>

#include "mmap/mapping.hpp"
#include "mmap/memory/huge_pages.hpp"
#include "mmap/reservation.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/page_size.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/open_files.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/texts.hpp"

namespace weightmap::mmap {
namespace {

using namespace test;

struct FileFixture {
  TemporaryFolder folder;
  std::filesystem::path path = folder.write("model.pt", "0123456789");

  os::File open(bool writable = false) const { return os::File::open(path, writable).value(); }
};

// --- File --------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(FileFixture, "a file reads what lies in it") {
  const os::File file = open();
  CHECK(file.size() == 10);
  std::array<std::byte, 4> out{};
  REQUIRE_OK(file.read(3, out));
  CHECK(text_of(out) == "3456");
  REQUIRE_OK(file.read(10, {}));
}

TEST_CASE_FIXTURE(FileFixture, "a file refuses a range beyond its end") {
  const os::File file = open();
  std::array<std::byte, 4> out{};
  CHECK_FAILS(file.read(7, out), ErrorCode::corrupt, "leave the file of 10 bytes");
  CHECK_FAILS(file.read(~std::uint64_t{0}, out), ErrorCode::corrupt, "leave the file");
}

TEST_CASE_FIXTURE(FileFixture, "a file that shrank while it was open says so, with the offset") {
  const os::File file = open();
  std::filesystem::resize_file(path, 5);
  std::array<std::byte, 4> out{};
  const auto result = file.read(3, out);
  CHECK_FAILS(result, ErrorCode::io, "the file shrank while it was read: it had 10 bytes");
  CHECK(result.error().file_offset == 5);
}

TEST_CASE_FIXTURE(FileFixture, "a file is closed on exec and by its destructor, once") {
  {
    os::File file = open();
    CHECK((::fcntl(file.descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(open_descriptors(path) == 1);
    os::File moved = std::move(file);
    CHECK(open_descriptors(path) == 1);
    moved = open();
    CHECK(open_descriptors(path) == 1);
    std::array<std::byte, 2> out{};
    REQUIRE_OK(moved.read(0, out));
    CHECK(text_of(out) == "01");
  }
  CHECK(open_descriptors(path) == 0);
}

TEST_CASE_FIXTURE(FileFixture, "opening for writing is explicit") {
  CHECK((::fcntl(open(false).descriptor(), F_GETFL) & O_ACCMODE) == O_RDONLY);
  CHECK((::fcntl(open(true).descriptor(), F_GETFL) & O_ACCMODE) == O_RDWR);
}

TEST_CASE_FIXTURE(FileFixture, "the identity of a file stays, until it is written or replaced") {
  const os::File file = open();
  CHECK(file.generation().size == 10);
  CHECK(file.generation() == open().generation());
  CHECK(file.current_generation().value() == file.generation());
  folder.write("model.pt", "0123456789a");
  CHECK_FALSE(file.current_generation().value() == file.generation());
  CHECK_FALSE(file.current_generation().value().same_content(file.generation()));
  folder.write("other.pt", "0123456789a");
  std::filesystem::rename(folder.path() / "other.pt", path);
  CHECK(open().generation().inode != file.generation().inode);
}

TEST_CASE_FIXTURE(FileFixture, "refuses a directory, for reading and for writing") {
  for (bool writable : {false, true})
    CHECK_FAILS(os::File::open(folder.path(), writable), ErrorCode::not_a_checkpoint,
                "is a directory, expected a regular file");
  CHECK(open_descriptors(folder.path()) == 0);
}

TEST_CASE_FIXTURE(FileFixture, "gives the system's words for what cannot be opened") {
  CHECK_FAILS(os::File::open(folder.path() / "missing.pt", false), ErrorCode::io,
              "cannot open the file: No such file or directory");
  CHECK(os::File::open(folder.path() / "missing.pt", false).error().os_error == ENOENT);
  CHECK_FAILS(os::File::open(path / "below", false), ErrorCode::io, "Not a directory");
  CHECK_FAILS(os::File::open(folder.path() / std::string(300, 'n'), false), ErrorCode::io,
              "File name too long");
  const auto loop = folder.path() / "loop";
  std::filesystem::create_symlink(loop, loop);
  CHECK_FAILS(os::File::open(loop, false), ErrorCode::io, "Too many levels of symbolic links");
}

// --- Mapping -----------------------------------------------------------------------------------

MapOptions how(Sharing sharing, bool writable) {
  return {.sharing = sharing, .writable = writable};
}

TEST_CASE_FIXTURE(FileFixture, "maps the whole file, once, in all four ways") {
  for (Sharing sharing : {Sharing::shared, Sharing::private_})
    for (bool writable : {false, true}) {
      const os::File file = open(writable && sharing == Sharing::shared);
      const auto mapping = Mapping::map(file, how(sharing, writable)).value();
      CHECK(text_of(mapping.bytes()) == "0123456789");
      CHECK(mapping.sharing() == sharing);
      CHECK_FALSE(mapping.fell_back());
      CHECK(mapping.writable() == writable);
      CHECK(mapping.writable_bytes().size() == (writable ? 10u : 0u));
      CHECK(mappings(path) == 1);
    }
  CHECK(mappings(path) == 0);
}

TEST_CASE_FIXTURE(FileFixture, "a private writable mapping leaves the file alone") {
  const os::File file = open();
  auto mapping = Mapping::map(file, how(Sharing::private_, true)).value();
  mapping.writable_bytes()[0] = std::byte{'X'};
  CHECK(text_of(mapping.bytes()) == "X123456789");
  CHECK(read_file(path) == "0123456789");
}

TEST_CASE_FIXTURE(FileFixture, "a shared writable mapping writes to the file") {
  const os::File file = open(true);
  auto mapping = Mapping::map(file, how(Sharing::shared, true)).value();
  mapping.writable_bytes()[0] = std::byte{'X'};
  CHECK(read_file(path) == "X123456789");
}

TEST_CASE_FIXTURE(FileFixture, "a shared writable mapping needs a file open for writing") {
  const os::File file = open(false);
  CHECK_FAILS(Mapping::map(file, how(Sharing::shared, true)), ErrorCode::io,
              "cannot map 10 bytes: Permission denied");
  CHECK(mappings(path) == 0);
}

TEST_CASE_FIXTURE(FileFixture, "a mapping outlives its file object and moves") {
  Mapping mapping;
  CHECK(mapping.bytes().empty());
  mapping = Mapping::map(open(), {}).value();
  const std::byte* const address = mapping.bytes().data();
  const Mapping moved = std::move(mapping);
  CHECK(moved.bytes().data() == address);
  CHECK(text_of(moved.bytes()) == "0123456789");
  CHECK(mappings(path) == 1);
}

TEST_CASE_FIXTURE(FileFixture, "gives advice on a file only if one read does not take it") {
  if (!test::can_refuse()) return;
  // Runs `use` in a child; whether that gave the advice.
  const auto advises = [](const test::Refusal& advice, const auto& use) {
    return test::in_child([&] {
             test::refuse(advice);
             use();
             return 0;
           }) != "exit 0";
  };
  const test::Refusal read_ahead{SYS_fadvise64, test::fatal};
  constexpr unsigned of_huge_pages = 2;  // a bit of MADV_HUGEPAGE that malloc's advice has not
  const test::Refusal huge_pages{SYS_madvise, test::fatal, of_huge_pages};
  for (const std::uintmax_t size : {65536u, 65537u}) {
    CAPTURE(size);
    const bool expected = size > 65536;
    std::filesystem::resize_file(path, size);
    const os::File file = open();
    CHECK(advises(read_ahead, [&] { file.advise_metadata(); }) == expected);
    CHECK(advises(read_ahead, [&] { file.advise_mapping(); }) == expected);
    CHECK(advises(huge_pages, [&] { Mapping::map(file, {}).value(); }) == expected);
  }
}

TEST_CASE_FIXTURE(FileFixture, "maps with every extra option") {
  const os::File file = open();
  MapOptions options = how(Sharing::private_, true);
  options.populate = options.no_reserve = options.locked = true;
  const auto mapping = Mapping::map(file, options).value();
  CHECK(text_of(mapping.bytes()) == "0123456789");
  unsigned char resident = 0;
  REQUIRE(::mincore(mapping.writable_bytes().data(), 10, &resident) == 0);
  CHECK((resident & 1) == 1);
}

TEST_CASE_FIXTURE(FileFixture, "populating a private writable mapping copies nothing") {
  const auto large = folder.write("large.pt", std::string(1 << 20, 'w'));
  const os::File file = os::File::open(large, false).value();
  MapOptions options = how(Sharing::private_, true);
  options.populate = true;
  const auto mapping = Mapping::map(file, options).value();
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  while (std::getline(smaps, line) && !line.ends_with(large.string())) {
  }
  while (std::getline(smaps, line) && !line.starts_with("Anonymous:")) {
  }
  CHECK(line.find(" 0 kB") != std::string::npos);
}

// What smaps says of the flags of the only mapping of a file.
std::string flags_of(const std::filesystem::path& path) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  while (std::getline(smaps, line) && !line.ends_with(path.string())) {
  }
  while (std::getline(smaps, line) && !line.starts_with("VmFlags:")) {
  }
  return line;
}

TEST_CASE_FIXTURE(FileFixture, "passes MAP_NORESERVE on, and no other flag") {
  const os::File file = open();
  MapOptions options = how(Sharing::private_, true);
  const auto flags = [&] {
    const auto mapping = Mapping::map(file, options);
    REQUIRE_OK(mapping);
    return flags_of(path);
  };
  const std::string without = flags();
  options.no_reserve = true;
  std::string expected = without;  // "ac": counted by the system as memory that may be needed
  REQUIRE(expected.ends_with(" ac "));
  CHECK(flags() == expected.replace(expected.size() - 4, 4, " nr "));
}

// Shared mappings fail with this errno, as on some network file systems.
constexpr test::Refusal refuse_shared(int error_number) {
  test::Refusal refusal = test::no_shared_mappings;
  refusal.error_number = static_cast<unsigned>(error_number);
  return refusal;
}

TEST_CASE_FIXTURE(FileFixture, "falls back to a private mapping where shared ones are refused") {
  const os::File file = open();
  for (const int error_number : {ENODEV, EINVAL, EOPNOTSUPP})
    test::with_refusals({refuse_shared(error_number)}, [&] {
      const auto mapping = Mapping::map(file, how(Sharing::shared, false)).value();
      CHECK(mapping.sharing() == Sharing::private_);
      CHECK(mapping.fell_back());
      CHECK(text_of(mapping.bytes()) == "0123456789");
    });
}

TEST_CASE_FIXTURE(FileFixture,
                  "does not fall back when writes must reach the file, or for other reasons") {
  const os::File file = open(true);
  test::with_refusals({refuse_shared(ENODEV)}, [&] {
    CHECK_FAILS(Mapping::map(file, how(Sharing::shared, true)), ErrorCode::io, "No such device");
  });
  test::with_refusals({refuse_shared(ENOMEM)}, [&] {
    CHECK_FAILS(Mapping::map(file, how(Sharing::shared, false)), ErrorCode::io, "RLIMIT_AS");
  });
  CHECK(mappings(path) == 0);
}

TEST_CASE_FIXTURE(FileFixture, "refuses a file that changed between opening and mapping") {
  const os::File file = open();
  folder.write("model.pt", "abcdefghijk");
  CHECK_FAILS(Mapping::map(file, {}), ErrorCode::io, "the file changed since it was opened");
  std::filesystem::resize_file(path, 4);
  CHECK_FAILS(Mapping::map(file, {}), ErrorCode::io, "it had 10 bytes and has now 4");
  CHECK(mappings(path) == 0);
}

TEST_CASE_FIXTURE(FileFixture, "maps a sparse file of twice this machine's memory") {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto sparse = folder.write("sparse.pt", "head");
  std::filesystem::resize_file(sparse, 2 * pages * page + 1);
  const os::File file = os::File::open(sparse, false).value();
  for (Sharing sharing : {Sharing::shared, Sharing::private_}) {
    const auto mapping = Mapping::map(file, how(sharing, false)).value();
    CHECK(mapping.bytes().size() == 2 * pages * page + 1);
    CHECK(text_of(mapping.bytes().first(4)) == "head");
    CHECK(mapping.bytes().back() == std::byte{0});
  }
}

TEST_CASE_FIXTURE(FileFixture, "names the limit when the address space is used up") {
  if (under_sanitizer) {
    MESSAGE("not run: a sanitizer has already taken more address space than the limit");
    return;
  }
  const auto sparse = folder.write("sparse.pt", "head");
  std::filesystem::resize_file(sparse, std::uint64_t{1} << 40);
  const os::File file = os::File::open(sparse, false).value();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit small{rlim_t{1} << 36, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &small) == 0);
  rlimit now{};
  if (::getrlimit(RLIMIT_AS, &now) != 0 || now.rlim_cur != small.rlim_cur) {
    MESSAGE("SKIPPED: the system does not limit the address space");
    return;
  }
  const auto mapping = Mapping::map(file, {});
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  CHECK_FAILS(mapping, ErrorCode::io, "Cannot allocate memory (address space, its limit RLIMIT_AS");
}

// --- HugePageResource --------------------------------------------------------------------------

TEST_CASE("large buffers start on a huge page and can be written to their end") {
  HugePageResource memory;
  for (std::size_t size :
       {HugePageResource::threshold, HugePageResource::threshold + 1, std::size_t{9'999'999}}) {
    auto* buffer = static_cast<std::byte*>(memory.allocate(size, 64));
    CHECK(reinterpret_cast<std::uintptr_t>(buffer) % HugePageResource::page == 0);
    buffer[0] = buffer[size - 1] = std::byte{1};
    memory.deallocate(buffer, size, 64);
  }
}

TEST_CASE("addresses that a refused mapping has left are taken again, unless others have them") {
  const std::size_t page = os::page_bytes();
  const struct Row {
    bool is_taken;
    int error;
    bool is_own;
  } rows[] = {
      {false, ENODEV, true}, {true, ENODEV, false}, {false, ENOMEM, true}, {true, ENOMEM, true}};
  for (const Row& row : rows) {
    CAPTURE(row.is_taken);
    CAPTURE(row.error);
    mmap::Reservation addresses(8 * page, page, mmap::Reservation::Access::none);
    const std::span<std::byte> all = addresses.bytes();
    const std::span<std::byte> part = all.subspan(2 * page, 2 * page);
    REQUIRE(::munmap(part.data(), part.size()) == 0);  // as MAP_FIXED does, and is refused then
    if (row.is_taken)
      REQUIRE(::mmap(part.data(), part.size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                     -1, 0) == part.data());
    CHECK(addresses.take_again(part, row.error) == row.is_own);
    CHECK(addresses.is_empty() == !row.is_own);
    addresses = mmap::Reservation();
    unsigned char state = 0;
    CHECK((::mincore(part.data(), page, &state) == 0) == !row.is_own);
    ::munmap(all.data(), all.size());
  }
}

TEST_CASE("small buffers are aligned as asked") {
  HugePageResource memory;
  for (std::size_t alignment : {8u, 64u, 4096u}) {
    void* buffer = memory.allocate(100, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer) % alignment == 0);
    memory.deallocate(buffer, 100, alignment);
  }
}

TEST_CASE("a large buffer goes back to the system when it is freed") {
  HugePageResource memory;
  constexpr std::size_t size = 6 << 20;
  auto* const buffer = static_cast<std::byte*>(memory.allocate(size, 64));
  unsigned char resident = 0;
  CHECK(::mincore(buffer, 1, &resident) == 0);
  memory.deallocate(buffer, size, 64);
  CHECK(::mincore(buffer, 1, &resident) == -1);
  CHECK(errno == ENOMEM);
}

TEST_CASE("buffers share the huge pages that have room for them") {
  HugePageResource memory;
  constexpr std::size_t size = HugePageResource::threshold;
  auto* const first = static_cast<std::byte*>(memory.allocate(size, 64));
  auto* const second = static_cast<std::byte*>(memory.allocate(HugePageResource::least, 4096));
  CHECK(second == first + size);
  auto* const third = static_cast<std::byte*>(memory.allocate(HugePageResource::page, 64));
  CHECK((third < first || third >= first + HugePageResource::page));
  memory.deallocate(first, size, 64);
  second[0] = std::byte{1};  // is still mapped
  memory.deallocate(second, HugePageResource::least, 4096);
  memory.deallocate(third, HugePageResource::page, 64);
}

TEST_CASE("a free page is used again, and goes back to the system with trim()") {
  HugePageResource memory;
  constexpr std::size_t size = HugePageResource::threshold;
  void* const buffer = memory.allocate(size, 64);
  memory.deallocate(buffer, size, 64);
  unsigned char resident = 0;
  CHECK(::mincore(buffer, 1, &resident) == 0);
  CHECK(memory.allocate(HugePageResource::page, 64) == buffer);
  memory.trim();
  CHECK(::mincore(buffer, 1, &resident) == 0);
  memory.deallocate(buffer, HugePageResource::page, 64);
  memory.trim();
  CHECK(::mincore(buffer, 1, &resident) == -1);
}

TEST_CASE("a size that no machine has throws bad_alloc") {
  HugePageResource memory;
  for (std::size_t size : {~std::size_t{0}, std::size_t{1} << 62})
    CHECK_THROWS_AS(static_cast<void>(memory.allocate(size, 64)), std::bad_alloc);
}

}  // namespace
}  // namespace weightmap::mmap
