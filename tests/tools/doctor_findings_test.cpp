// What is found on machines that are not at hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tools/doctor/findings.hpp"

using namespace weightmap;
using cli::doctor::Facts;
using cli::doctor::Finding;
using cli::doctor::findings;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

// A file of 64 MiB on a local disk, in memory in huge pages: nothing is slow.
Facts healthy() {
  Facts facts;
  facts.file = "m.pt";
  facts.around = {.files = {{.path = "/models/m.pt",
                             .bytes = 64 * mib,
                             .file_system = "ext4",
                             .read_ahead_bytes = mib / 8,
                             .read_ahead_setting = "/sys/dev/block/8:0/queue/read_ahead_kb",
                             .extents = 1}},
                  .kernel = "6.18.1",
                  .page_bytes = 4096,
                  .huge_page_bytes = 2 * mib,
                  .huge_page_setting = "madvise",
                  .available_bytes = 1024 * mib,
                  .available_reason = "MemAvailable",
                  .has_populate_read = true,
                  .has_cachestat = true};
  facts.residency.emplace();
  facts.residency->file_bytes = facts.residency->cached_bytes = 64 * mib;
  facts.residency->sampled_bytes = facts.residency->sampled_huge_bytes = 16 * mib;
  facts.residency->is_fragmented = false;
  facts.tensors.bytes = {{DType::float32, 64 * mib}};
  return facts;
}

Finding find(const Facts& facts, std::string_view topic) {
  const std::vector<Finding> all = findings(facts);
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Finding& finding) { return finding.topic == topic; });
  REQUIRE(found != all.end());
  return *found;
}

void check(const Facts& facts, std::string_view topic, Finding::State state,
           const std::string& found, const std::string& advice = "") {
  const Finding finding = find(facts, topic);
  CHECK(finding.state == state);
  CHECK(finding.found == found);
  CHECK(finding.advice == advice);
}

}  // namespace

TEST_CASE("a healthy start has ten findings in their order, all of them good") {
  std::string topics;
  for (const Finding& finding : findings(healthy())) {
    CHECK(finding.state == Finding::good);
    CHECK(finding.advice == "");
    topics += std::string(finding.topic) + ";";
  }
  CHECK(topics ==
        "file system;read-ahead;fragmentation;page cache;pages;memory;dtype;alignment;copies;"
        "kernel;");
}

TEST_CASE("a remote file system is slow, and a single file can be staged") {
  Facts facts = healthy();
  for (const char* type : {"nfs4", "ceph", "lustre", "fuse", "fuse.sshfs"}) {
    facts.around.files[0].file_system = type;
    check(facts, "file system", Finding::slow,
          std::string(type) + ": each page fault may wait for a server or a daemon",
          "weightmap stage m.pt -- COMMAND {}");
  }
  facts.around.files.insert(facts.around.files.begin(), {.file_system = "ext4"});
  facts.around.files[1].device = "host:/models";
  CHECK(find(facts, "file system").found ==
        "fuse.sshfs on host:/models: each page fault may wait for a server or a daemon");
  CHECK(find(facts, "file system").advice == "weightmap warm m.pt");
}

TEST_CASE("of a folder with one file, that file is what takes no folder") {
  Facts facts = healthy();
  facts.file = "/";
  facts.around.files[0].file_system = "nfs4";
  facts.residency->is_fragmented = true;
  CHECK(find(facts, "file system").advice == "weightmap stage /models/m.pt -- COMMAND {}");
  CHECK(find(facts, "pages").advice == "weightmap residency --repair /models/m.pt");
}

TEST_CASE("nothing is to be warmed where each open drops what is cached") {
  Facts facts = healthy();
  facts.around.files[0].file_system = "fuse";
  facts.drops_pages_at_open = true;
  const std::string dropped =
      "the file system drops it whenever anybody opens the file, so warming does not help";
  check(facts, "page cache", Finding::slow, dropped, "weightmap stage m.pt -- COMMAND {}");
  facts.around.files.push_back(facts.around.files[0]);
  const std::string mount = "mount it with kernel_cache, if its files do not change";
  check(facts, "page cache", Finding::slow, dropped, mount);
  CHECK(find(facts, "file system").advice == mount);
}

TEST_CASE("a local file system is good, one that is not told unknown") {
  Facts facts = healthy();
  for (const char* type : {"xfs", "overlay", "fusectl"}) {
    facts.around.files[0].file_system = type;
    check(facts, "file system", Finding::good, type);
  }
  facts.around.files[0].device = "/dev/sda1";
  check(facts, "file system", Finding::good, "fusectl on /dev/sda1");
  facts.around.files[0].file_system = "";
  check(facts, "file system", Finding::unknown, "not known here");
}

TEST_CASE("little read-ahead is slow, over a network sooner") {
  Facts facts = healthy();
  check(facts, "read-ahead", Finding::good, "128.0 KiB");
  facts.around.files[0].read_ahead_bytes = 4096;
  check(facts, "read-ahead", Finding::slow,
        "4.0 KiB: what is not in memory is read in many small requests",
        "echo 128 | sudo tee /sys/dev/block/8:0/queue/read_ahead_kb");
  facts.around.files[0].read_ahead_bytes = mib / 8;
  facts.around.files[0].file_system = "nfs";
  CHECK(find(facts, "read-ahead").advice ==
        "echo 1024 | sudo tee /sys/dev/block/8:0/queue/read_ahead_kb");
  facts.around.files[0].read_ahead_bytes.reset();
  check(facts, "read-ahead", Finding::unknown, "not known here");
}

TEST_CASE("many small extents are slow, the file of the most is to be copied") {
  Facts facts = healthy();
  facts.around.files[0].extents = 64;
  check(facts, "fragmentation", Finding::good, "64 extents on the disk");
  facts.around.files[0].extents = 128;
  check(facts, "fragmentation", Finding::slow, "128 extents on the disk, 512.0 KiB each",
        "cp --reflink=never /models/m.pt /models/m.pt.new && mv /models/m.pt.new /models/m.pt");
  facts.around.files[0] = {.bytes = 100, .extents = 1};
  CHECK(find(facts, "fragmentation").state == Finding::good);
  facts.around.files[0].extents.reset();
  check(facts, "fragmentation", Finding::unknown, "not known here");
}

TEST_CASE("what is not cached is slow, what is not told unknown") {
  Facts facts = healthy();
  check(facts, "page cache", Finding::good, "64.0 MiB of 64.0 MiB");
  facts.residency->cached_bytes = mib;
  check(facts, "page cache", Finding::slow,
        "1.0 MiB of 64.0 MiB: the rest is read from the disk when it is touched",
        "weightmap warm m.pt");
  facts.residency.reset();
  facts.residency_problem = "cannot learn what is cached";
  check(facts, "page cache", Finding::unknown, "cannot learn what is cached");
}

TEST_CASE("a file in memory needs no disk") {
  Facts facts = healthy();
  facts.lives_in_memory = true;
  facts.around.files[0] = {.bytes = 2048 * mib, .file_system = "tmpfs"};
  facts.residency->cached_bytes = 0;
  check(facts, "file system", Finding::good, "tmpfs, in memory");
  check(facts, "read-ahead", Finding::good, "not needed, in memory");
  check(facts, "fragmentation", Finding::good, "not on a disk");
  check(facts, "page cache", Finding::good, "all of it is in memory");
  CHECK(find(facts, "memory").state == Finding::good);
}

TEST_CASE("small pages are slow where there could be huge ones") {
  Facts facts = healthy();
  facts.residency->sampled_huge_bytes = 0;
  facts.residency->is_fragmented = true;
  check(facts, "pages", Finding::slow,
        "4.0 KiB, huge ones of 2.0 MiB: madvise; 0 B of 16.0 MiB sampled in huge ones: each small "
        "one costs a page fault",
        "weightmap residency --repair m.pt");
  facts.around.files.push_back({});
  CHECK(find(facts, "pages").advice == "weightmap residency --evict m.pt && weightmap warm m.pt");
  facts.around.huge_page_setting = "never";
  check(facts, "pages", Finding::slow, "4.0 KiB, huge ones of 2.0 MiB: never",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
  facts.around.huge_page_bytes = 0;
  check(facts, "pages", Finding::good, "4.0 KiB, and no huge ones in this kernel");
}

TEST_CASE("a tight cgroup is slow, conversions and copies count") {
  Facts facts = healthy();
  facts.around.available_bytes = 80 * mib;
  facts.around.available_reason = "memory.max of /pod";
  check(facts, "memory", Finding::good, "64.0 MiB needed, 80.0 MiB to be had (memory.max of /pod)");
  facts.tensors.converted_bytes = 32 * mib;
  check(facts, "memory", Finding::slow,
        "96.0 MiB needed, 80.0 MiB to be had (memory.max of /pod): pages are dropped and read "
        "again",
        "raise memory.max of /pod by 16.0 MiB");
  facts.around.available_reason = "MemAvailable";
  CHECK(find(facts, "memory").advice == "free 16.0 MiB of memory");
  facts.around.available_bytes.reset();
  check(facts, "memory", Finding::unknown, "not known here");
}

TEST_CASE("another dtype costs memory of each worker, and is converted once") {
  Facts facts = healthy();
  check(facts, "dtype", Finding::good,
        "float32 64.0 MiB; --dtype says what another one would cost");
  facts.wanted = DType::bfloat16;
  check(facts, "dtype", Finding::good, "float32 64.0 MiB; nothing to convert to bfloat16");
  facts.tensors.converted_bytes = 32 * mib;
  check(facts, "dtype", Finding::slow,
        "float32 64.0 MiB; as bfloat16 32.0 MiB of its own for each worker",
        "save it in bfloat16 once, with the library that wrote it");
}

TEST_CASE("odd addresses, compressed records and the other byte order mean copies") {
  Facts facts = healthy();
  facts.tensors.misaligned = 1;
  facts.tensors.misaligned_bytes = 4096;
  check(facts, "alignment", Finding::slow, "1 tensor, 4.0 KiB, at odd addresses: torch copies them",
        "weightmap convert m.pt m.aligned.safetensors");
  facts.tensors.foreign = 2;
  facts.tensors.foreign_bytes = 64;
  check(facts, "copies", Finding::slow,
        "2 tensors, 64 B, in the other byte order: swapped into copies",
        "weightmap convert m.pt m.native.safetensors");
  facts.inflated_storages = 3;
  facts.inflated_bytes = mib;
  check(facts, "copies", Finding::slow,
        "3 storages compressed, inflated into 1.0 MiB for each worker",
        "weightmap convert m.pt m.stored.pt");
}

TEST_CASE("what the kernel lacks is named") {
  Facts facts = healthy();
  check(facts, "kernel", Finding::good, "6.18.1, with MADV_POPULATE_READ and cachestat");
  facts.around.has_populate_read = facts.around.has_cachestat = false;
  check(facts, "kernel", Finding::slow,
        "6.18.1, without MADV_POPULATE_READ (warm-ups map nothing), cachestat (what is cached is "
        "slow to count)",
        "a kernel that has them (5.14, 6.5), or a system call filter that allows them");
}

TEST_CASE("commands are quoted for a shell") {
  Facts facts = healthy();
  facts.residency->cached_bytes = 0;
  const auto advice = [&](const std::string& file) {
    facts.file = file;
    return find(facts, "page cache").advice;
  };
  CHECK(advice("a b.pt") == "weightmap warm 'a b.pt'");
  CHECK(advice(" a") == "weightmap warm ' a'");
  CHECK(advice("it's.pt") == R"(weightmap warm 'it'\''s.pt')");
  CHECK(advice("$(x).pt") == "weightmap warm '$(x).pt'");
  CHECK(advice("a\n'b.pt") == R"(weightmap warm $'a\x0A\'b.pt')");
}
