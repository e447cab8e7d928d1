// Opening, refusing and closing over and over leaves nothing: no memory, descriptor or mapping.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/faults/failing_calls.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;

namespace {

// WEIGHTMAP_CYCLES says how often, for `scripts/test --long`.
std::uint64_t cycles() {
  const char* const wanted = std::getenv("WEIGHTMAP_CYCLES");
  if (wanted != nullptr) return std::strtoull(wanted, nullptr, 10);
  return test::under_sanitizer ? 500 : 5000;
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  statm >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Files that open, and files that are refused in different places.
std::vector<std::filesystem::path> files(const test::TemporaryFolder& folder) {
  const std::string whole = test::read_file(test::data / "state_dict.pt");
  std::string damaged = whole;
  damaged[whole.size() / 2] ^= 1;
  return {test::data / "state_dict.pt",
          test::data / "legacy" / "dict.pt",
          test::data / "scripted.pt",
          test::data / "rezipped_deflated.pt",
          test::data / "strangers" / "model.safetensors",
          folder.path() / "missing.pt",
          folder.write("cut.pt", whole.substr(0, whole.size() / 2)),
          folder.write("without_end.pt", whole.substr(0, whole.size() - 30)),
          folder.write("damaged.pt", damaged)};
}

void open_each(const std::vector<std::filesystem::path>& paths, const OpenOptions& options) {
  for (const std::filesystem::path& path : paths) {
    const Result<Checkpoint> opened = Checkpoint::open(path, options);
    if (opened)
      CHECK(opened->tensors().size() != 0);
    else
      CHECK(!opened.error().message.empty());
  }
}

}  // namespace

TEST_CASE("what a process holds stays the same however often it opens") {
  const test::TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths = files(folder);
  const OpenOptions options{.verify = Verify::crc};
  open_each(paths, options);
  const test::Held before = test::held();
  std::uint64_t resident = 0;
  const std::uint64_t rounds = cycles() / paths.size() + 1;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    open_each(paths, options);
    if (round == rounds / 10) resident = resident_bytes();
  }
  const test::Held after = test::held();
  CHECK(after.allocations == before.allocations);
  CHECK(after.mapped_bytes == before.mapped_bytes);
  CHECK(after.descriptors == before.descriptors);
  // A sanitizer keeps what was freed, and notes who did it.
  constexpr std::uint64_t noise = std::uint64_t{1} << 20;
  if (!test::under_sanitizer) CHECK(resident_bytes() <= resident + noise);
}
