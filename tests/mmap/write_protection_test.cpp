#include "mmap/pages/write_protection.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>

#include "tests/mmap/bus_child.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

using namespace weightmap;
using test::in_child;
using test::TemporaryFolder;

namespace {

const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

// Two pages of a file, as torch maps them: private, for writing.
struct Mapped {
  TemporaryFolder folder;
  std::filesystem::path path = folder.write("model.pt", std::string(2 * page, 'a'));
  volatile char* memory = nullptr;

  Mapped() {
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    void* const mapped =
        ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
    ::close(descriptor);
    REQUIRE(mapped != MAP_FAILED);
    memory = static_cast<volatile char*>(mapped);
  }
  ~Mapped() { ::munmap(const_cast<char*>(memory), 2 * page); }
};

}  // namespace

TEST_CASE("protects what somebody else mapped of a file") {
  const Mapped mapped;
  mapped.memory[0] = 'b';
  const WriteProtection done = protect_mappings(mapped.path).value();
  CHECK(done.mappings == 1);
  CHECK(done.bytes == 2 * page);
  CHECK(done.anonymous_bytes == page);
  CHECK(mapped.memory[0] == 'b');
  CHECK(mapped.memory[page] == 'a');
  CHECK(in_child([&] {
          ::signal(SIGSEGV, SIG_DFL);
          mapped.memory[1] = 'c';
          return 0;
        }) == "signal 11");
}

TEST_CASE("finds nothing that is writable the second time, nor in another file") {
  const Mapped mapped;
  const Mapped other;
  CHECK(protect_mappings(mapped.path).value().mappings == 1);
  CHECK(protect_mappings(mapped.path).value().mappings == 0);
  other.memory[0] = 'b';
  CHECK(other.memory[0] == 'b');
}

TEST_CASE("says what file it cannot open") {
  CHECK_FAILS(protect_mappings("/nowhere/model.pt"), ErrorCode::io, "No such file");
}
