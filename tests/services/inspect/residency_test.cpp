// What of a checkpoint is in memory, and putting it out of there. What of a large file is cached is
// tested through the command line tool, which has a maker of large files.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/held_pages.hpp"
#include "tests/support/progress.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/inspect.hpp"

using namespace weightmap;
using test::data;
using test::read_file;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));

// A copy of a fixture, on the disk.
struct CopyFixture {
  TemporaryFolder folder;
  fs::path path = folder.write("model.pt", read_file(data / "aligned_4096.pt"));
  std::uint64_t size = fs::file_size(path);

  CopyFixture() { test::write_to_disk(path); }

  Checkpoint open(const OpenOptions& options = {}) const {
    return Checkpoint::open(path, options).value();
  }
  std::uint64_t whole_pages() const { return (size + page - 1) / page * page; }
};

// What is touched stays mapped.
void touch(const TensorView& view) {
  const auto page_of = reinterpret_cast<std::uintptr_t>(view.data()) / page * page;
  test::lock_when_touched({reinterpret_cast<const std::byte*>(page_of), page});
  static_cast<void>(*static_cast<const volatile std::byte*>(view.data()));
}

bool in_memory(const EvictReport& report) {
  if (report.lives_in_memory) MESSAGE("SKIPPED: the temporary folder is in memory");
  return report.lives_in_memory;
}

}  // namespace

TEST_CASE_FIXTURE(CopyFixture, "tells of the file and of each tensor what is cached") {
  const test::HeldPages held(path);
  const Checkpoint checkpoint = open();
  const ResidencyReport report = residency(checkpoint).value();
  CHECK(report.file.file_bytes == size);
  CHECK(report.file.cached_bytes == size);
  CHECK(report.file.sampled_bytes == 0);  // no 2 MiB in one piece
  CHECK(report.file.is_fragmented == std::nullopt);
  REQUIRE(report.tensors.size() == checkpoint.tensors().size());
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    const TensorResidency& entry = report.tensors[tensor.index];
    CHECK(entry.index == tensor.index);
    CHECK(entry.file_offset == tensor.file_offset);
    CHECK(entry.extent_bytes == tensor.view.bytes().size());
    CHECK(entry.cached_bytes == entry.extent_bytes);
  }
}

TEST_CASE_FIXTURE(CopyFixture, "tells what this checkpoint has mapped, and looking maps nothing") {
  const Checkpoint checkpoint = open();
  CHECK(residency(checkpoint).value().file.resident_bytes == 0);
  CHECK(residency(checkpoint).value().file.resident_bytes == 0);
  touch(checkpoint.tensors()[0].view);
  const Residency touched = residency(checkpoint).value().file;
  CHECK(touched.resident_bytes >= page);
  CHECK(touched.resident_bytes <= whole_pages());
  CHECK(touched.pss_bytes == touched.resident_bytes);  // nobody else has it
  CHECK(touched.anonymous_bytes == 0);
  CHECK(touched.pss_anonymous_bytes == 0u);
  CHECK(touched.huge_mapped_bytes == 0);
}

TEST_CASE_FIXTURE(CopyFixture, "tells what was copied by writing, in either mapping") {
  Checkpoint checkpoint = open({.sharing = Sharing::private_, .writable = true});
  checkpoint.writable_bytes(checkpoint.tensors()[0].view).value()[0] = std::byte{1};
  CHECK(residency(checkpoint).value().file.anonymous_bytes == page);

  const Checkpoint reader = open();
  touch(reader.tensors()[0].view);
  const std::span<std::byte> copies = Backing(reader).copy_on_write().value();
  const std::uint64_t before = residency(reader).value().file.resident_bytes;
  copies[reader.tensors()[1].file_offset] = std::byte{1};
  const Residency after = residency(reader).value().file;
  CHECK(after.anonymous_bytes == page);
  CHECK(after.resident_bytes >= before + page);
}

TEST_CASE_FIXTURE(CopyFixture, "tells of each storage what is cached") {
  const test::HeldPages held(path);
  const Checkpoint checkpoint = open();
  const ResidencyReport report = residency(checkpoint).value();
  REQUIRE(report.storages.size() == Backing(checkpoint).storage_count());
  REQUIRE(report.storages.size() > 1);
  for (std::size_t i = 0; i < report.storages.size(); ++i) {
    const NamedStorage storage = Backing(checkpoint).storage(i);
    CHECK(report.storages[i].key == storage.key);
    CHECK(report.storages[i].file_offset == storage.payload_offset);
    CHECK(report.storages[i].extent_bytes == storage.nbytes);
    CHECK(report.storages[i].cached_bytes == storage.nbytes);
  }
}

TEST_CASE_FIXTURE(CopyFixture, "tells of each tensor and storage what this checkpoint has mapped") {
  Checkpoint checkpoint = open({.sharing = Sharing::private_, .writable = true});
  const ResidencyReport before = residency(checkpoint).value();
  for (const TensorResidency& tensor : before.tensors) CHECK(tensor.resident_bytes == 0u);
  // Writing maps the page that it copies, and no neighbour.
  const NamedTensor last = checkpoint.tensors()[checkpoint.tensors().size() - 1];
  checkpoint.writable_bytes(last.view).value()[0] = std::byte{1};
  const ResidencyReport report = residency(checkpoint).value();
  for (const TensorResidency& tensor : report.tensors) {
    const bool is_written = tensor.file_offset / page == last.file_offset / page;
    const std::uint64_t mapped = is_written ? std::min(tensor.extent_bytes, page) : 0;
    CHECK(tensor.resident_bytes == mapped);
    CHECK(tensor.anonymous_bytes == mapped);
    CHECK(tensor.huge_mapped_bytes.value_or(0) == 0);
  }
  const StorageResidency& storage = report.storages[last.storage_index];
  CHECK(storage.resident_bytes == std::min(storage.extent_bytes, page));
  CHECK(storage.anonymous_bytes == storage.resident_bytes);
  CHECK(report.file.resident_bytes == page);
}

TEST_CASE_FIXTURE(CopyFixture, "counts what both mappings of a checkpoint hold twice") {
  const Checkpoint checkpoint = open();
  const NamedTensor tensor = checkpoint.tensors()[0];
  touch(tensor.view);
  const std::span<std::byte> copies = Backing(checkpoint).copy_on_write().value();
  copies[tensor.file_offset] = std::byte{1};
  const TensorResidency seen = residency(checkpoint).value().tensors[0];
  CHECK(seen.resident_bytes == 2 * seen.extent_bytes);
  CHECK(seen.anonymous_bytes == seen.extent_bytes);
}

TEST_CASE_FIXTURE(CopyFixture, "splits what is shared only while the copies are not") {
  const Checkpoint checkpoint = open();
  touch(checkpoint.tensors()[0].view);
  Backing(checkpoint).copy_on_write().value()[0] = std::byte{1};
  const Residency alone = residency(checkpoint).value().file;
  CHECK(alone.pss_anonymous_bytes == page);
  CHECK(alone.pss_bytes == alone.resident_bytes);

  int until_looked[2];
  REQUIRE(::pipe(until_looked) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(until_looked[1]);
    char none = 0;
    ::_exit(::read(until_looked[0], &none, 1) == 0 ? 0 : 1);
  }
  const Residency shared = residency(checkpoint).value().file;
  ::close(until_looked[0]);
  ::close(until_looked[1]);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(shared.anonymous_bytes == page);
  CHECK(shared.pss_anonymous_bytes == std::nullopt);
  // Whoever looks at the child at this moment (`weightmap ps` does) keeps its memory for as long.
  std::optional<std::uint64_t> after;
  for (int i = 0; i < 1000 && !after; ++i) {
    after = residency(checkpoint).value().file.pss_anonymous_bytes;
    if (!after) ::usleep(10'000);
  }
  CHECK(after == page);
}

TEST_CASE_FIXTURE(CopyFixture, "counts the page faults of the process since it was opened") {
  const auto faults = [](const Checkpoint& checkpoint) {
    const Residency file = residency(checkpoint).value().file;
    return file.minor_faults_since_open + file.major_faults_since_open;
  };
  const Checkpoint checkpoint = open();
  const std::uint64_t before = faults(checkpoint);
  touch(checkpoint.tensors()[0].view);
  CHECK(faults(checkpoint) > before);
  const std::uint64_t of_another = faults(open());
  CHECK(of_another < faults(checkpoint));
}

TEST_CASE_FIXTURE(CopyFixture, "an empty tensor has no bytes to be cached") {
  const Checkpoint checkpoint = Checkpoint::open(data / "scalars_and_empty.pt").value();
  const ResidencyReport report = residency(checkpoint).value();
  for (const NamedTensor& tensor : checkpoint.tensors())
    if (tensor.view.numel() == 0) CHECK(report.tensors[tensor.index].extent_bytes == 0);
}

TEST_CASE_FIXTURE(CopyFixture, "evicts a file and says how much there was") {
  {
    const test::HeldPages held(path);
    const EvictReport report = evict(path).value();
    CHECK(report.cached_before == size);
    CHECK(report.cached_after == size);
  }
  const EvictReport report = evict(path).value();
  CHECK(report.file_bytes == size);
  CHECK(report.cached_before <= size);
  if (in_memory(report)) return;
  CHECK(report.cached_after == 0);
  CHECK(report.unwritten_bytes == 0);
  CHECK(evict(path).value().cached_before == 0);
}

TEST_CASE_FIXTURE(CopyFixture, "what is mapped stays, until its checkpoint is gone") {
  {
    const Checkpoint checkpoint = open();
    touch(checkpoint.tensors()[0].view);
    const EvictReport report = evict(path).value();
    CHECK(report.cached_after > 0);
    if (in_memory(report)) return;
    CHECK(report.cached_after <= size);
    CHECK(report.unwritten_bytes == 0);
  }
  CHECK(evict(path).value().cached_after == 0);
}

TEST_CASE_FIXTURE(CopyFixture, "a checkpoint that was opened and not read does not hold its file") {
  const Checkpoint checkpoint = open();
  const EvictReport report = evict(path).value();
  if (in_memory(report)) return;
  // The first page may come back at any time: `weightmap ps` looks at what anyone has mapped.
  CHECK(report.cached_after <= page);
  CHECK(residency(checkpoint).value().file.cached_bytes <= page);
  CHECK(residency(checkpoint).value().file.cached_bytes <= page);  // looking reads nothing
}

TEST_CASE_FIXTURE(CopyFixture, "an eviction and a repair are cancelled") {
  if (in_memory(evict(path).value())) return;
  const test::HeldPages held(path);
  CHECK_FAILS(evict(path, test::stop), ErrorCode::cancelled, "was cancelled after");
  CHECK_FAILS(repair(path, test::stop), ErrorCode::cancelled, "was cancelled after");
}

TEST_CASE_FIXTURE(CopyFixture, "evicts any regular file, and only those") {
  CHECK(evict(folder.write("notes.txt", "not a checkpoint")).value().file_bytes == 16);
  CHECK_FAILS(evict(folder.write("empty", "")), ErrorCode::not_a_checkpoint, "is empty");
  const test::TemporaryFolder without;
  CHECK_FAILS(evict(without.path()), ErrorCode::not_a_checkpoint,
              "is a folder in which there is no checkpoint");
  CHECK_FAILS(evict(folder.path() / "missing"), ErrorCode::io, "No such file");
  CHECK(evict(folder.path() / "missing").error().file == (folder.path() / "missing").string());
}

TEST_CASE_FIXTURE(CopyFixture, "repairs by evicting and reading again what was cached") {
  std::uint64_t done = 0;
  std::uint64_t all = 0;
  const auto report = repair(path, [&](std::uint64_t d, std::uint64_t a) {
    done = d, all = a;
    return true;
  });
  REQUIRE_OK(report);
  // What was cached when it looked, of which the system may take some at any time.
  CHECK(report->evicted.cached_before <= report->read_bytes);
  CHECK(report->cached_bytes <= report->read_bytes);
  CHECK(report->read_bytes <= size);
  CHECK(done == all);
  CHECK(all == report->read_bytes);
  CHECK(read_file(path) == read_file(data / "aligned_4096.pt"));
  if (in_memory(evict(path).value())) return;
  CHECK(repair(path).value().read_bytes == 0);  // nothing was cached
}

TEST_CASE_FIXTURE(CopyFixture, "repair fails as evict does") {
  CHECK_FAILS(repair(folder.path()), ErrorCode::not_a_checkpoint, "is a directory");
  CHECK_FAILS(repair(folder.path() / "missing"), ErrorCode::io, "No such file");
}
