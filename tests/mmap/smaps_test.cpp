// The text in which the system lists the mappings of a process.
#include "mmap/pages/smaps.hpp"

#include <doctest/doctest.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "mmap/pages/process_maps.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap::mmap {
namespace {

// As Linux 6.18 writes it.
const std::string model =
    "7f1000000000-7f1000400000 r--s 00200000 fe:10 1234567                    /data/a b.pt\n"
    "Size:               4096 kB\n"
    "KernelPageSize:        4 kB\n"
    "Rss:                4096 kB\n"
    "Pss:                 512 kB\n"
    "Pss_Dirty:           100 kB\n"
    "Anonymous:             0 kB\n"
    "AnonHugePages:         0 kB\n"
    "ShmemPmdMapped:        0 kB\n"
    "FilePmdMapped:      2048 kB\n"
    "Locked:              512 kB\n"
    "THPeligible:           1\n"
    "VmFlags: rd sh mr mw me ms lo\n";
const std::string heap =
    "55d0c0de0000-55d0c0e01000 rwxp 00000000 00:00 0                          [heap]\n"
    "Rss:                   8 kB\n"
    "Anonymous:             8 kB\n";
const std::string memory =
    "7f2000000000-7f2000200000 rw-s 00000000 00:01 42                         /memfd:x (deleted)\n"
    "ShmemPmdMapped:     2048 kB\n";

TEST_CASE("reads what each mapping is and what it holds") {
  std::istringstream text(model + heap + memory);
  SmapsReader reader(text);
  REQUIRE(reader.next());
  CHECK(reader.area().begin == 0x7f1000000000);
  CHECK(reader.area().end == 0x7f1000400000);
  CHECK(reader.area().shared);
  CHECK_FALSE(reader.area().writable);
  CHECK_FALSE(reader.area().executable);
  CHECK(reader.area().file_offset == 0x200000);
  CHECK(reader.area().device == makedev(0xfe, 0x10));
  CHECK(reader.area().inode == 1234567);
  CHECK(reader.area().path == "/data/a b.pt");
  CHECK(reader.memory().resident == 4096 * 1024);
  CHECK(reader.memory().proportional == 512 * 1024);
  CHECK(reader.memory().huge == 2048 * 1024);
  CHECK(reader.memory().locked == 512 * 1024);
  REQUIRE(reader.next());
  CHECK(reader.area().inode == 0);
  CHECK(reader.area().path == "[heap]");
  CHECK(reader.area().writable);
  CHECK(reader.area().executable);
  CHECK_FALSE(reader.area().shared);
  CHECK(reader.memory().anonymous == 8192);
  CHECK(reader.memory().locked == 0);
  REQUIRE(reader.next());
  CHECK(reader.area().path == "/memfd:x (deleted)");
  CHECK(reader.memory().huge == 2048 * 1024);
  CHECK(reader.memory().resident == 0);
  CHECK_FALSE(reader.next());
}

TEST_CASE("reads a list of mappings without their memory") {
  std::istringstream text(
      "1000-2000 r--p 00000000 08:01 7 /a\n2000-3000 ---p 00000000 00:00 0 \n"
      "3000-4000 r--s 00000000 08:01 8 /b\\012c\n");
  SmapsReader reader(text);
  REQUIRE(reader.next());
  CHECK(reader.area().path == "/a");
  REQUIRE(reader.next());
  CHECK(reader.area().path.empty());
  REQUIRE(reader.next());
  CHECK(reader.area().path == "/b\\012c");
  CHECK(reader.area().inode == 8);
  CHECK_FALSE(reader.next());
}

TEST_CASE("passes over what is no mapping, and takes what it can of one that is cut off") {
  MappedArea area;
  for (const char* line : {"", "-", "Rss: 4 kB", "2000-1000 r--s 0 0:0 1 /a", "1000-1000 r--s",
                           "zz-1000 r--s", "1000", "1000-2000", "fffffffffffffffff-1 r--s"})
    CHECK_FALSE(parse_area(line, area));
  REQUIRE(parse_area("1000-2000 ", area));
  CHECK(area.end == 0x2000);
  CHECK(area.path.empty());
  REQUIRE(parse_area("1000-2000 rw-s 00000010 fe:zz 9 /a", area));
  CHECK(area.writable);
  CHECK(area.file_offset == 16);
  CHECK(area.inode == 0);
  CHECK(area.path.empty());
  std::istringstream none("Rss: 4 kB\n");
  CHECK_FALSE(SmapsReader(none).next());
}

// --- processes ---------------------------------------------------------------------------------

// Processes as the kernel shows them, under a folder of the test.
class FakeProc {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_.path() / "proc" / name;
    std::filesystem::create_directories(path.parent_path());
    folder_.write("proc/" + name, text);
  }
  const std::filesystem::path& root() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

bool has_file(const MappedArea& area) { return area.inode != 0; }

TEST_CASE("lists processes in the order of their numbers, and nothing else of /proc") {
  const FakeProc proc;
  for (const char* name : {"10/maps", "9/maps", "self/maps", "0/maps", "7x/maps", "-3/maps"})
    proc.write(name, "");
  CHECK(process_numbers(proc.root()) == std::vector<std::int64_t>{9, 10});
  CHECK(process_numbers(proc.root() / "nowhere").empty());
}

TEST_CASE("finds the mappings of a process, and none of one that ended") {
  const FakeProc proc;
  proc.write("5/maps", model.substr(0, model.find('\n') + 1));
  proc.write("5/smaps", heap + model);
  const auto areas = areas_of_process(5, has_file, proc.root()).value();
  REQUIRE(areas.size() == 1);
  CHECK(areas.front().memory.resident == 4096 * 1024);
  REQUIRE(areas_of_process(6, has_file, proc.root()).has_value());
  CHECK(areas_of_process(6, has_file, proc.root())->empty());
  // Ended between two looks.
  proc.write("7/maps", model);
  REQUIRE(areas_of_process(7, has_file, proc.root()).has_value());
  CHECK(areas_of_process(7, has_file, proc.root())->empty());
}

TEST_CASE("does not count the pages of a process that has nothing of interest") {
  const FakeProc proc;
  proc.write("5/maps", heap);
  proc.write("5/smaps", model);
  CHECK(areas_of_process(5, has_file, proc.root())->empty());
}

TEST_CASE("tells what a process was started as") {
  const FakeProc proc;
  proc.write("5/cmdline", std::string("python3\0serve.py\0\0", 18));
  proc.write("6/cmdline", "");
  proc.write("6/comm", "kworker/0:1\n");
  proc.write("7/cmdline", std::string(100000, 'x'));
  CHECK(command_of_process(5, proc.root()) == "python3 serve.py");
  CHECK(command_of_process(6, proc.root()) == "kworker/0:1");
  CHECK(command_of_process(7, proc.root()).size() == 4096);
  CHECK(command_of_process(8, proc.root()).empty());
}

}  // namespace
}  // namespace weightmap::mmap
