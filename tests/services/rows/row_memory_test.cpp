// What memory the rows of a table take: of one process within its budget, and of several together.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "mmap/pages/page_cache.hpp"
#include "mmap/pages/smaps.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/memory/own_memory.hpp"
#include "runtime/system/page_size.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/on_demand.hpp"

using namespace weightmap;
using test::opened;
using test::TemporaryFolder;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t row_bytes = 256;
constexpr std::uint64_t row_count = 128 * mib / row_bytes;

struct LargeTable {
  TemporaryFolder folder;
  std::string header =
      R"({"table":{"dtype":"U8","shape":[524288,256],"data_offsets":[0,134217728]}})";
  std::filesystem::path path =
      folder.write("model.safetensors", test::framed(header, std::string(128 * mib, 'w')));
};

std::vector<std::int64_t> scattered(std::size_t count) {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < count; ++i)
    ids.push_back(static_cast<std::int64_t>(i * 2654435761u % row_count));
  return ids;
}

void gather(const RowReader& rows, std::span<const std::int64_t> ids) {
  std::string text(ids.size() * row_bytes, '?');
  REQUIRE_OK(rows.gather(ids, {std::as_writable_bytes(std::span(text))}));
  REQUIRE(std::ranges::count(text, 'w') == static_cast<std::ptrdiff_t>(text.size()));
}

// Bytes of the pages that have the rows.
std::uint64_t page_bytes_of(const Checkpoint& checkpoint, std::span<const std::int64_t> ids) {
  const auto base = static_cast<std::uint64_t>(checkpoint.find("table")->bytes().data() -
                                               checkpoint.mapping().data());
  std::set<std::uint64_t> pages;
  for (const std::int64_t id : ids) {
    const std::uint64_t first = base + static_cast<std::uint64_t>(id) * row_bytes;
    pages.insert({first / os::page_bytes(), (first + row_bytes - 1) / os::page_bytes()});
  }
  return pages.size() * os::page_bytes();
}

// What a process has mapped of a file, shared pages in equal parts.
std::uint64_t proportional_bytes(pid_t process, const std::filesystem::path& path) {
  std::ifstream text("/proc/" + std::to_string(process) + "/smaps");
  mmap::SmapsReader smaps(text);
  std::uint64_t bytes = 0;
  while (smaps.next())
    if (smaps.area().path == path.native()) bytes += smaps.memory().proportional;
  return bytes;
}

// A process that has read rows, and keeps what it has mapped until this ends.
class Holder {
 public:
  Holder(const std::filesystem::path& path, std::span<const std::int64_t> ids) {
    REQUIRE(::pipe(ready_.data()) == 0);
    REQUIRE(::pipe(end_.data()) == 0);
    child_ = test::start_child([&] {
      ::close(end_[1]);
      const Checkpoint checkpoint = opened(path);
      const RowReader rows = RowReader::of(checkpoint, {"table"}).value();
      gather(rows, ids);
      char byte = 'r';
      if (::write(ready_[1], &byte, 1) != 1) return 1;
      return ::read(end_[0], &byte, 1) == 0 ? 0 : 2;
    });
    ::close(ready_[1]);
    ::close(end_[0]);
    char byte = 0;
    REQUIRE(::read(ready_[0], &byte, 1) == 1);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    ::close(ready_[0]);
    ::close(end_[1]);
    CHECK(test::end_of(child_) == "exit 0");
  }
  pid_t process() const noexcept { return child_; }

 private:
  std::array<int, 2> ready_{}, end_{};
  pid_t child_ = 0;
};

}  // namespace

TEST_CASE_FIXTURE(LargeTable, "A process that reads a cached table by rows stays in its budget") {
  const Checkpoint checkpoint = opened(path);
  const std::uint64_t budget = 64 * mib;
  const RowReader rows = RowReader::of(checkpoint, {"table"}, {.budget_bytes = budget}).value();
  gather(rows, std::vector<std::int64_t>{1});
  const std::uint64_t before = os::resident_file_bytes();
  const std::vector<std::int64_t> ids = scattered(20000);
  std::uint64_t most = 0;
  for (std::size_t begin = 0; begin < ids.size(); begin += 500) {
    gather(rows, std::span(ids).subspan(begin, 500));
    most = std::max(most, os::resident_file_bytes());
  }
  CHECK(most > before + budget / 2);  // so that the budget is what limits it
  CHECK(most <= before + budget + budget / 20);
}

TEST_CASE_FIXTURE(LargeTable, "Four processes that read the same rows hold them once") {
  const os::File file = os::File::open(path, false).value();
  if (mmap::lives_in_memory(file)) {
    MESSAGE("SKIPPED: the temporary folder lives in memory, where all is cached");
    return;
  }
  REQUIRE(::fsync(file.descriptor()) == 0);
  if (const auto left = mmap::evict(file); !left || *left != 0) {
    MESSAGE("SKIPPED: the system keeps the file in the page cache");
    return;
  }
  const std::vector<std::int64_t> ids = scattered(2000);
  const std::uint64_t touched = page_bytes_of(opened(path), ids);
  const Holder first(path, ids), second(path, ids), third(path, ids), fourth(path, ids);
  std::uint64_t held = 0;
  for (const Holder* holder : {&first, &second, &third, &fourth})
    held += proportional_bytes(holder->process(), path);
  CHECK(held >= touched);
  CHECK(held <= touched + touched / 20);
  CHECK(mmap::cached_bytes_of(file).value() <= touched + touched / 20);
}
