// Catalogs that one process publishes and others take over: what they answer, what is refused, what
// is healed.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/shared_catalog/published.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/shared_catalog/support.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/processes.hpp"
#include "weightmap/residency.hpp"
#include "weightmap/shared_catalogs.hpp"
#include "weightmap/stage.hpp"
#include "weightmap/warmer.hpp"

using namespace weightmap;
using namespace weightmap::test::catalogs;
using test::data;
namespace fs = std::filesystem;

namespace {

// What a child process of this function's answers by its exit status.
int in_child(const std::function<bool()>& function) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(function() ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "an attached checkpoint says of every fixture what a parsed one says") {
  std::size_t compared = 0;
  std::vector<std::string> others;
  for (const auto& entry : fs::directory_iterator(data)) {
    if (entry.path().extension() != ".pt") continue;
    const std::string name = entry.path().filename();
    CAPTURE(name);
    if (!Checkpoint::open(entry.path())) continue;
    const fs::path file = copy(name);
    const Checkpoint own = parsed(file);
    const Checkpoint first = opened(file);
    if (!first.info().catalog_reason.empty()) {  // more than a catalog can say
      CHECK(first.info().catalog == CatalogSource::parsed);
      others.push_back(name);
      continue;
    }
    CHECK(first.info().catalog == CatalogSource::published);
    CHECK(first.info().catalog_reason == "");
    const Checkpoint second = opened(file);
    REQUIRE(second.info().catalog == CatalogSource::attached);
    CHECK(describe_tensors(second) == describe_tensors(own));
    CHECK(describe_all(second) == describe_all(own));
    const Value root = own.root();
    auto same = root.items().begin();
    for (const auto& [key, value] : second.root().items()) {
      const auto tensor = second.tensor(value);
      const auto expected = own.tensor((*same).second);
      REQUIRE(tensor.has_value() == expected.has_value());
      if (tensor) CHECK(tensor->index == expected->index);
      ++same;
    }
    CHECK(!second.catalog_was_damaged());
    ++compared;
  }
  CHECK(compared > 30);
  std::sort(others.begin(), others.end());
  CHECK(others == std::vector<std::string>{"nested_tensor.pt", "quantized.pt",
                                           "rezipped_deflated.pt", "scripted.pt", "sparse.pt",
                                           "torchscript.pt"});
}

TEST_CASE_FIXTURE(Fixture, "attaches and answers without a single read of the checkpoint") {
  const fs::path file = copy("training.pt");
  const std::string expected = describe_tensors(opened(file));
  test::with_refusals({{SYS_pread64, EIO}, {SYS_read, EIO}}, [&] {
    const Checkpoint attached = opened(file, sharing_unverified());
    CHECK(attached.info().catalog == CatalogSource::attached);
    CHECK(describe_tensors(attached) == expected);
    CHECK(attached.stats().reads == 0);
    CHECK(attached.stats().bytes_read == 0);
    CHECK(attached.stats().local_headers_read == 0);
    CHECK(attached.stats().local_headers_verified == 0);
    CHECK_FAILS(attached.load_root(), ErrorCode::io, "cannot read");
  });
}

TEST_CASE_FIXTURE(Fixture,
                  "compares headers and sums of an attached checkpoint where it is told to") {
  const fs::path file = copy("state_dict.pt");
  OpenOptions options = sharing();
  options.verify = Verify::crc;
  CHECK(source_of(file, options) == CatalogSource::published);
  const Checkpoint attached = opened(file, options);
  CHECK(attached.info().catalog == CatalogSource::attached);
  CHECK(attached.stats().local_headers_verified == attached.storage_count());
  CHECK(attached.verify_headers().has_value());
  CHECK(attached.verify_crc().storages_checked == attached.storage_count());
}

TEST_CASE_FIXTURE(Fixture, "shares nothing without the option") {
  const fs::path file = copy("state_dict.pt");
  CHECK(source_of(file, {}) == CatalogSource::parsed);
  CHECK(!fs::exists(shared));
}

TEST_CASE_FIXTURE(Fixture, "does not publish a file that has just been changed") {
  const fs::path file = copy("state_dict.pt");
  REQUIRE(chmod(file.c_str(), 0600) == 0);
  const Checkpoint made = opened(file);
  CHECK(made.info().catalog == CatalogSource::parsed);
  CHECK(made.info().catalog_reason.find("changed less than 20 ms before") != std::string::npos);
  CHECK(files().empty());
  settle();
  CHECK(source_of(file) == CatalogSource::published);
}

TEST_CASE_FIXTURE(Fixture, "warms, measures and remembers demands as ever") {
  const fs::path file = copy("state_dict.pt");
  opened(file);
  const Checkpoint attached = opened(file);
  REQUIRE(attached.info().catalog == CatalogSource::attached);
  WarmOptions warm;
  warm.tensors = {2, 0};
  warm.verify_crc = true;
  Result<Warmer> warmer = Warmer::start(attached, warm);
  REQUIRE_OK(warmer);
  CHECK(warmer->wait().has_value());
  const NamedTensor first = attached.tensors()[1];
  CHECK(attached.demand(first.view).has_value());
  CHECK(attached.demand_order() == std::vector<std::size_t>{1});
  const Result<ResidencyReport> report = residency(attached);
  REQUIRE_OK(report);
  CHECK(report->tensors.size() == attached.tensors().size());
  CHECK(attached.copy_on_write().has_value());
}

TEST_CASE_FIXTURE(Fixture, "a flipped bit anywhere is refused or healed, and answers stay right" *
                               doctest::test_suite("exhaustive")) {
  struct Case {
    fs::path file;
    std::size_t stride;
  };
  std::size_t healed = 0;
  // A catalog of one chunk, and one of many: those are looked at when they are used.
  for (const auto& [file, stride] : {Case{copy("odd_storage.pt"), 3}, Case{many(300), 61}}) {
    opened(file);
    const fs::path place = block();
    const std::string good = test::read_file(place);
    const std::string expected = describe_tensors(parsed(file));
    for (std::size_t i = 0; i < good.size(); i += stride) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
      plant(place, bad);
      const Checkpoint checkpoint = opened(file, sharing_unverified());
      if (describe_tensors(checkpoint) != expected) FAIL("byte " << i);
      const bool attached = checkpoint.info().catalog == CatalogSource::attached;
      if (attached != checkpoint.catalog_was_damaged()) FAIL("byte " << i);
      healed += attached ? 1 : 0;
      if (test::read_file(place) != good) FAIL("byte " << i << " stays damaged");
    }
    fs::remove(place);
  }
  CHECK(healed > 300);
}

TEST_CASE_FIXTURE(Fixture, "no flipped bit of a block passes its checks" *
                               doctest::test_suite("exhaustive")) {
  const fs::path file = copy("odd_storage.pt");
  opened(file);
  const std::string good = test::read_file(block());
  bytes::Buffer buffer(good.size(), *std::pmr::new_delete_resource());
  std::memcpy(buffer.data(), good.data(), good.size());
  const auto passes = [&] {
    Result<catalog::Published> read = catalog::Published::read(buffer.span());
    return read && read->check_all();
  };
  CHECK(passes());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    const auto flip = [&] { buffer.data()[bit / 8] ^= std::byte(1 << bit % 8); };
    flip();
    if (passes()) FAIL("bit " << bit);
    flip();
  }
}

TEST_CASE_FIXTURE(Fixture,
                  "sums of chunks are checked in groups, once something under them is used") {
  const fs::path file = many(3000);
  opened(file);
  const std::string good = test::read_file(block());
  bytes::Buffer buffer(good.size(), *std::pmr::new_delete_resource());
  std::memcpy(buffer.data(), good.data(), good.size());
  const auto read = [&] { return catalog::Published::read(buffer.span()); };
  const std::size_t block_bytes = read().value().catalog().block().size();
  const std::size_t chunks = (block_bytes + 4095) / 4096;
  REQUIRE(chunks > 64);
  REQUIRE(chunks <= 128);
  CHECK(read().value().check_all());
  std::size_t refused = 0;
  std::size_t found_later = 0;
  for (std::size_t i = 0; i < good.size() - block_bytes; ++i) {
    buffer.data()[i] ^= std::byte(1 << i % 8);
    Result<catalog::Published> damaged = read();
    refused += damaged ? 0 : 1;
    // Its sizes and its name lie in the second group.
    if (damaged && !damaged->check_entry(0)) ++found_later;
    buffer.data()[i] ^= std::byte(1 << i % 8);
  }
  // The second group has the rest of the sums, and the zeros behind them.
  CHECK(found_later >= (chunks - 64) * 8);
  CHECK(refused > 64 * 8);
  CHECK(refused + found_later == good.size() - block_bytes);
}

TEST_CASE_FIXTURE(Fixture, "a block truncated at any length, or longer, is refused and replaced" *
                               doctest::test_suite("exhaustive")) {
  const fs::path file = copy("odd_storage.pt");
  opened(file);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  std::vector<std::size_t> lengths(good.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i;
  lengths.push_back(good.size() + 1);
  lengths.push_back(good.size() + 4096);
  for (std::size_t length : lengths) {
    std::string bad = good;
    bad.resize(length);
    plant(place, bad);
    const Checkpoint checkpoint = opened(file, sharing_unverified());
    if (checkpoint.info().catalog != CatalogSource::published) FAIL("length " << length);
    if (checkpoint.info().catalog_reason.empty()) FAIL("length " << length);
    if (test::read_file(place) != good) FAIL("length " << length);
  }
}

TEST_CASE_FIXTURE(Fixture, "a file that was touched, replaced or grown is parsed again") {
  const fs::path file = copy("state_dict.pt");
  opened(file);
  CHECK(source_of(file) == CatalogSource::attached);
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  settle();
  CHECK(source_of(file) == CatalogSource::published);
  CHECK(source_of(file) == CatalogSource::attached);

  const auto time = fs::last_write_time(file);
  fs::rename(copy("training.pt"), file);
  fs::last_write_time(file, time);
  settle();
  const Checkpoint replaced = opened(file);
  CHECK(replaced.info().catalog == CatalogSource::published);
  CHECK(replaced.find("model.0.weight").has_value());

  // The same size, the same times but the one that only the system can set.
  const std::string other = test::read_file(file);
  std::fstream(file, std::ios::binary | std::ios::in | std::ios::out) << other;
  fs::last_write_time(file, time);
  settle();
  CHECK(source_of(file) == CatalogSource::published);
  std::ofstream(file, std::ios::binary | std::ios::app) << "x";
  settle();
  CHECK(!Checkpoint::open(file, sharing()).has_value());
}

TEST_CASE_FIXTURE(Fixture, "a block that others could have written is replaced, not believed") {
  const fs::path file = copy("state_dict.pt");
  opened(file);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  const fs::path elsewhere = memory / "elsewhere";
  const auto is_replaced = [&](const std::string& why) {
    const Checkpoint checkpoint = opened(file);
    CHECK(checkpoint.info().catalog == CatalogSource::published);
    CHECK_MESSAGE(checkpoint.info().catalog_reason.find(why) != std::string::npos,
                  checkpoint.info().catalog_reason);
    CHECK(fs::is_regular_file(fs::symlink_status(place)));
    CHECK(test::read_file(place) == good);
    CHECK(source_of(file) == CatalogSource::attached);
  };
  REQUIRE(chmod(place.c_str(), 0640) == 0);
  is_replaced("lets other users in");
  fs::create_hard_link(place, elsewhere);
  is_replaced("more than one name");
  fs::remove(place);
  fs::create_symlink(elsewhere, place);
  is_replaced("cannot open");
  CHECK(test::read_file(elsewhere) == good);
  fs::remove(place);
  REQUIRE(mkfifo(place.c_str(), 0600) == 0);
  is_replaced("not a regular file");
  if (geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give a file away");
    return;
  }
  REQUIRE(chown(place.c_str(), 65534, 65534) == 0);
  is_replaced("belongs to another user");
}

TEST_CASE_FIXTURE(Fixture, "no catalog is taken from a folder that others could write to") {
  const fs::path file = copy("state_dict.pt");
  opened(file);
  const auto is_parsed = [&](const std::string& why) {
    const Checkpoint checkpoint = opened(file);
    CHECK(checkpoint.info().catalog == CatalogSource::parsed);
    CHECK_MESSAGE(checkpoint.info().catalog_reason.find(why) != std::string::npos,
                  checkpoint.info().catalog_reason);
  };
  REQUIRE(chmod(shared.c_str(), 0770) == 0);
  is_parsed("lets other users in: chmod 700 it");
  REQUIRE(chmod(shared.c_str(), 0700) == 0);
  CHECK(source_of(file) == CatalogSource::attached);
  fs::rename(shared, memory / "elsewhere");
  fs::create_directory_symlink(memory / "elsewhere", shared);
  is_parsed("cannot open the folder");
  fs::remove(shared);
  fs::rename(memory / "elsewhere", shared);
  if (geteuid() != 0) {
    MESSAGE("SKIPPED: only root can give a folder away");
    return;
  }
  REQUIRE(chown(shared.c_str(), 65534, 65534) == 0);
  is_parsed("belongs to another user");
}

TEST_CASE_FIXTURE(Fixture, "opens where nothing can be published, and says why") {
  const fs::path file = copy("state_dict.pt");
  const test::Refusal no_unnamed{SYS_openat, ENOSPC, O_TMPFILE & ~O_DIRECTORY};
  test::with_refusals({{SYS_openat, ENOSPC, O_CREAT}, no_unnamed}, [&] {
    const Checkpoint made = opened(file);
    CHECK(made.info().catalog == CatalogSource::parsed);
    CHECK(made.info().catalog_reason.find("No space left") != std::string::npos);
    CHECK(made.find("layers.0.weight").has_value());
  });
  CHECK(files().empty());
  test::with_refusals({{SYS_renameat, EACCES}},
                      [&] { CHECK(source_of(file) == CatalogSource::parsed); });
  CHECK(files().empty());
  setenv("WEIGHTMAP_RUNTIME_DIR", "/proc/self/fd/none", 1);
  const Checkpoint made = opened(file);
  CHECK(made.info().catalog == CatalogSource::parsed);
  CHECK(made.info().catalog_reason.find("cannot make the folder") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "a block with right sums and wild numbers is healed, whatever is wild") {
  const fs::path file = copy("training.pt");
  opened(file);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  const std::string expected = describe_tensors(parsed(file));
  const std::uint64_t size = fs::file_size(file);
  const auto most = ~std::uint64_t{0};
  using Change = std::function<void(Forgery&)>;
  struct Case {
    const char* what;
    Change change;
  };
  const std::vector<Case> cases = {
      {"position beyond", [&](Forgery& f) { f.entry(0).position = most; }},
      {"position in the directory", [&](Forgery& f) { f.entry(0).position = size - 8; }},
      {"position before", [](Forgery& f) { f.entry(0).position -= 1; }},
      {"extent", [&](Forgery& f) { f.entry(0).extent = most; }},
      {"extent of nothing", [](Forgery& f) { f.entry(0).extent = 0; }},
      {"nbytes", [&](Forgery& f) { f.entry(0).nbytes = most; }},
      {"storage_offset", [](Forgery& f) { f.entry(0).storage_offset = -1; }},
      {"storage_offset of another", [](Forgery& f) { f.entry(0).storage_offset += 1; }},
      {"name.offset", [](Forgery& f) { f.entry(0).name.offset = 0xFFFFFFFF; }},
      {"name.length", [](Forgery& f) { f.entry(0).name.length = 0xFFFFFFFF; }},
      {"path.first", [](Forgery& f) { f.entry(0).path.first = 0xFFFFFFFE; }},
      {"path.length", [](Forgery& f) { f.entry(0).path.length = 0xFFFFFFFF; }},
      {"path part", [](Forgery& f) { f.at<std::uint32_t>(f.sections().path_parts) = 0xFFFFFFFF; }},
      {"path part that is no integer",
       [](Forgery& f) { f.at<std::uint32_t>(f.sections().path_parts) |= 1; }},
      {"dims", [](Forgery& f) { f.entry(0).dims = 0xFFFFFFFF; }},
      {"dims that begin near and end behind", [](Forgery& f) { f.entry(0).dims = 111; }},
      {"dims behind everything", [](Forgery& f) { f.entry(0).dims = 112; }},
      {"rank", [](Forgery& f) { f.entry(0).rank = 255; }},
      {"size", [](Forgery& f) { f.at<std::int64_t>(f.sections().near) = std::int64_t{1} << 62; }},
      {"size below zero", [](Forgery& f) { f.at<std::int64_t>(f.sections().near) = -4; }},
      {"stride", [](Forgery& f) { f.at<std::int64_t>(f.sections().near, 2) = 1 << 30; }},
      {"dtype", [](Forgery& f) { f.entry(0).dtype = static_cast<DType>(255); }},
      {"storage", [](Forgery& f) { f.entry(0).storage = 0xFFFFFFFF; }},
      {"location", [](Forgery& f) { f.entry(0).location = 0xFFFF; }},
      {"location's offset",
       [](Forgery& f) { f.at<catalog::Text>(f.sections().locations).offset = 0xFFFFFFFF; }},
      {"location's length",
       [](Forgery& f) { f.at<catalog::Text>(f.sections().locations).length = 0xFFFFFFFF; }},
      {"position of a storage", [&](Forgery& f) { f.storage(0).position = most; }},
      {"file of a storage", [](Forgery& f) { f.storage(0).source = 1; }},
      {"storage's nbytes", [&](Forgery& f) { f.storage(0).nbytes = most; }},
      {"key's offset", [](Forgery& f) { f.storage(0).key.offset = 0xFFFFFFFF; }},
      {"key's length", [](Forgery& f) { f.storage(0).key.length = 0xFFFFFFFF; }},
      {"slots beyond the tensors",
       [](Forgery& f) {
         for (std::size_t i = 0; i < f.header.slots; ++i)
           f.at<std::uint64_t>(f.sections().slots, i) |= 0xFFFFFFFF;
       }},
      {"slots without an end",
       [](Forgery& f) {
         for (std::size_t i = 0; i < f.header.slots; ++i)
           f.at<std::uint64_t>(f.sections().slots, i) = 1;
       }},
      {"header's tensors", [&](Forgery& f) { f.at<catalog::Header>(0).tensors = most; }},
      {"header's storages", [](Forgery& f) { f.at<catalog::Header>(0).storages = 1ull << 58; }},
      {"header's dims", [](Forgery& f) { f.at<catalog::Header>(0).dims += 1; }},
      {"header's path_parts", [](Forgery& f) { f.at<catalog::Header>(0).path_parts += 2; }},
      {"header's locations", [](Forgery& f) { f.at<catalog::Header>(0).locations += 1; }},
      {"header's slots", [](Forgery& f) { f.at<catalog::Header>(0).slots = 0; }},
      {"header's slots, no power of two", [](Forgery& f) { f.at<catalog::Header>(0).slots -= 1; }},
      {"header's string_bytes", [](Forgery& f) { f.at<catalog::Header>(0).string_bytes += 8; }},
      {"header's block_bytes", [](Forgery& f) { f.at<catalog::Header>(0).block_bytes += 8; }},
      {"header's header_bytes", [](Forgery& f) { f.at<catalog::Header>(0).header_bytes = 0; }},
      {"header's magic", [](Forgery& f) { f.at<catalog::Header>(0).magic = 0; }},
      {"header's version", [](Forgery& f) { f.at<catalog::Header>(0).version += 1; }},
      {"generation", [](Forgery& f) { f.description.generation.ctime_ns += 1; }},
      {"strategy", [](Forgery& f) { f.description.strategy = static_cast<OffsetStrategy>(9); }},
  };
  for (const Case& wild : cases) {
    CAPTURE(wild.what);
    fs::remove(place);
    plant(place, good);
    Forgery forgery(place);
    wild.change(forgery);
    plant(place, forgery.forged());
    const Checkpoint checkpoint = opened(file, sharing_unverified());
    CHECK(describe_tensors(checkpoint) == expected);
    const bool was_refused = checkpoint.info().catalog == CatalogSource::published &&
                             !checkpoint.info().catalog_reason.empty();
    CHECK((was_refused || checkpoint.catalog_was_damaged()));
    CHECK(test::read_file(place) == good);
  }
}

TEST_CASE_FIXTURE(Fixture, "shapes that do not lie near the header are checked, too") {
  const fs::path file = folder.path() / "shapes.pt";
  std::string command =
      std::string(WEIGHTMAP_MAKE_CHECKPOINT) + " " + file.string() + " --count 32 --shape 2x1";
  for (int i = 2; i <= 32; ++i) command += ",2x" + std::to_string(i);
  REQUIRE(std::system(command.c_str()) == 0);
  settle();
  opened(file);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  const std::string expected = describe_tensors(parsed(file));
  CHECK(describe_tensors(opened(file)) == expected);
  using Change = std::function<void(Forgery&)>;
  for (const Change& change : std::vector<Change>{
           [](Forgery& f) { f.at<std::int64_t>(f.sections().dims) = std::int64_t{1} << 62; },
           [](Forgery& f) { f.at<std::int64_t>(f.sections().dims) = -2; },
           [](Forgery& f) { f.entry(31).dims += 1; }, [](Forgery& f) { f.entry(28).dims -= 1; }}) {
    Forgery forgery(place);
    REQUIRE(forgery.header.dims == 16);
    REQUIRE(forgery.entry(28).dims == 112);
    REQUIRE(forgery.entry(31).dims == 124);
    change(forgery);
    plant(place, forgery.forged());
    const Checkpoint checkpoint = opened(file, sharing_unverified());
    CHECK(describe_tensors(checkpoint) == expected);
    CHECK(checkpoint.catalog_was_damaged());
    CHECK(test::read_file(place) == good);
  }
}

TEST_CASE_FIXTURE(Fixture, "an entry that is not sound takes no other one with it") {
  const fs::path file = many(40);
  opened(file);
  Forgery forgery(block());
  forgery.entry(17).nbytes += 1;
  forgery.storage(5).position = ~std::uint64_t{0};
  const std::string forged = forgery.forged();
  bytes::Buffer buffer(forged.size(), *std::pmr::new_delete_resource());
  std::memcpy(buffer.data(), forged.data(), forged.size());
  Result<catalog::Published> read = catalog::Published::read(buffer.span());
  REQUIRE_OK(read);
  for (int round = 0; round < 2; ++round)
    for (std::size_t i = 0; i < 40; ++i) {
      CAPTURE(i);
      CHECK(read->check_entry(i) == (i != 17 && i != 5));
      const std::string name = "tensor." + std::to_string(i);
      CHECK(read->find(name) == (i == 17 ? std::nullopt : std::optional<std::uint32_t>(i)));
    }
  CHECK(!read->check_entry(40));
}

// An allocation would leave its mark: nothing is given back meanwhile.
TEST_CASE_FIXTURE(Fixture, "finds tensors of an attached catalog without allocating") {
  const fs::path file = many(10'000);
  opened(file);
  const Checkpoint attached = opened(file);
  REQUIRE(attached.info().catalog == CatalogSource::attached);
  const Checkpoint own = parsed(file);
  std::vector<std::string> names;
  for (const NamedTensor& tensor : own.tensors()) names.emplace_back(tensor.name);
  std::size_t found = 0;
  const std::size_t before = mallinfo2().uordblks;
  for (const std::string& name : names) found += attached.find(name).has_value() ? 1 : 0;
  const std::size_t after = mallinfo2().uordblks;
  CHECK(found == 10'000);
  CHECK(after == before);
  CHECK(!attached.catalog_was_damaged());
}

TEST_CASE_FIXTURE(Fixture, "finds nothing in a forged table that has no empty slot, and ends") {
  const fs::path file = copy("training.pt");
  opened(file);
  const fs::path place = block();
  Forgery forgery(place);
  for (std::size_t i = 0; i < forgery.header.slots; ++i)
    forgery.at<std::uint64_t>(forgery.sections().slots, i) = std::uint64_t{0xFFFFFFFF} << 32 | 1;
  plant(place, forgery.forged());
  const Checkpoint checkpoint = opened(file, sharing_unverified());
  CHECK(!checkpoint.find("no such tensor"));
  CHECK(checkpoint.catalog_was_damaged());
  CHECK(checkpoint.find("model.0.weight").has_value());
}

TEST_CASE_FIXTURE(Fixture, "with headers compared, a forged catalog of sound numbers is refused") {
  const fs::path file = copy("state_dict.pt");
  opened(file);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  Forgery forgery(place);
  forgery.storage(0).position += 64;
  for (std::size_t i = 0; i < forgery.header.tensors; ++i)
    if (forgery.entry(i).storage == 0) forgery.entry(i).position += 64;
  plant(place, forgery.forged());
  OpenOptions options = sharing();
  options.verify = Verify::headers;
  const Checkpoint checkpoint = opened(file, options);
  CHECK(checkpoint.info().catalog == CatalogSource::published);
  CHECK(describe_tensors(checkpoint) == describe_tensors(parsed(file)));
  CHECK(test::read_file(place) == good);
}

TEST_CASE_FIXTURE(Fixture, "takes no catalog that was made under other options, and leaves it") {
  const fs::path file = copy("no_byteorder.pt");
  opened(file);
  const std::string good = test::read_file(block());
  OpenOptions narrow = sharing();
  narrow.limits.depth = 999;
  const Checkpoint other = opened(file, narrow);
  CHECK(other.info().catalog == CatalogSource::parsed);
  CHECK(other.info().catalog_reason ==
        "the shared catalog was made under wider limits than these options allow");
  CHECK(test::read_file(block()) == good);
  OpenOptions wide = sharing();
  wide.limits.depth = 1001;
  CHECK(source_of(file, wide) == CatalogSource::attached);
  OpenOptions big = sharing();
  big.missing_byte_order = ByteOrder::big;
  const Checkpoint swapped = opened(file, big);
  CHECK(swapped.info().catalog == CatalogSource::parsed);
  CHECK(swapped.info().byteorder == "big");
  CHECK(swapped.info().catalog_reason.find("another byte order") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture,
                  "a catalog is used by who refuses unknown names only if there are none") {
  OpenOptions strict = sharing();
  strict.globals = Globals::torch_safe;
  const fs::path plain = copy("state_dict.pt");
  CHECK(source_of(plain, sharing()) == CatalogSource::published);
  CHECK(source_of(plain, strict) == CatalogSource::attached);
  const fs::path module = copy("module.pt");
  CHECK(source_of(module, sharing()) == CatalogSource::published);
  CHECK_FAILS(Checkpoint::open(module, strict), ErrorCode::unsafe_pickle, "safe_globals");
  CHECK(source_of(module, sharing()) == CatalogSource::attached);
}

TEST_CASE_FIXTURE(Fixture, "many processes that publish at once leave one whole catalog") {
  const fs::path file = copy("training.pt");
  const std::string expected = describe_tensors(parsed(file));
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    bool right = true;
    for (int round = 0; round < 20; ++round) {
      std::error_code ignored;
      for (const auto& made : fs::directory_iterator(shared, ignored))
        if (round % 2 == 0 && made.path().extension() != ".tmp") fs::remove(made, ignored);
      const Result<Checkpoint> checkpoint = Checkpoint::open(file, sharing());
      right = right && checkpoint && describe_tensors(*checkpoint) == expected &&
              !checkpoint->catalog_was_damaged();
    }
    _exit(right ? 0 : 1);
  }
  for (pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  opened(file);
  CHECK(source_of(file) == CatalogSource::attached);
  CHECK(files().size() == 1);
}

// Opens the file in a child that ends where it would give the finished catalog its name.
int publish_and_die(const fs::path& file, const OpenOptions& options) {
  return in_child([&] {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{4, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return false;
    return Checkpoint::open(file, options).has_value();
  });
}

TEST_CASE_FIXTURE(Fixture, "a process killed while it publishes leaves a file that gc removes") {
  const fs::path file = copy("state_dict.pt");
  REQUIRE(WIFSIGNALED(publish_and_die(file, sharing())));
  REQUIRE(files(".tmp").size() == 1);
  const Result<std::vector<SharedFile>> removed = remove_stale_catalogs();
  REQUIRE_OK(removed);
  REQUIRE(removed->size() == 1);
  CHECK(removed->front().state == SharedFileState::leftover);
  CHECK(files(".tmp").empty());
  CHECK(source_of(file) == CatalogSource::published);
}

TEST_CASE_FIXTURE(Fixture, "and that the next one who publishes removes") {
  const fs::path file = copy("state_dict.pt");
  REQUIRE(WIFSIGNALED(publish_and_die(file, sharing())));
  REQUIRE(files(".tmp").size() == 1);
  CHECK(source_of(file) == CatalogSource::published);
  CHECK(files(".tmp").empty());
  CHECK(source_of(file) == CatalogSource::attached);
}

TEST_CASE_FIXTURE(Fixture,
                  "does not publish what whole seconds could not tell from the next change") {
  const fs::path file = copy("state_dict.pt");
  const timespec times[] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  REQUIRE(utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const Checkpoint checkpoint = opened(file);
  CHECK(checkpoint.info().catalog == CatalogSource::parsed);
  CHECK(checkpoint.info().catalog_reason.find("changed less than 2000 ms before") !=
        std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "lists catalogs, and removes those that nobody can use") {
  CHECK(shared_catalogs()->empty());
  const fs::path kept = copy("state_dict.pt");
  const fs::path changed = copy("training.pt");
  const fs::path gone = copy("names.pt");
  opened(kept);
  const fs::path kept_block = block();
  const Checkpoint changing = opened(changed);
  const Checkpoint going = opened(gone);
  const Checkpoint still_used = opened(gone);
  const std::string expected = describe_tensors(going);
  fs::last_write_time(changed, fs::last_write_time(changed) + std::chrono::seconds(1));
  fs::remove(gone);
  Fixture::plant(shared / "catalog-0-1-2-3-4-5", "of another version");
  std::ofstream(shared / "warm-1-2-3-4-5.lock");
  std::ofstream(shared / "something-else");
  const int held = open((shared / "warm-held.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(held >= 0);
  // Of another process: a process's own locks do not keep it out.
  int ready[2], done[2];
  REQUIRE(pipe(ready) == 0);
  REQUIRE(pipe(done) == 0);
  const pid_t holder = fork();
  char byte = 0;
  if (holder == 0) {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    const bool locked = fcntl(held, F_SETLK, &whole) == 0 && write(ready[1], "x", 1) == 1;
    close(done[1]);
    (void)!read(done[0], &byte, 1);
    _exit(locked ? 0 : 1);
  }
  REQUIRE(read(ready[0], &byte, 1) == 1);

  const Result<std::vector<SharedFile>> listed = shared_catalogs();
  REQUIRE_OK(listed);
  std::set<std::string> lines;
  for (const SharedFile& file : *listed)
    lines.insert(std::string(to_string(file.state)) + " " + std::to_string(file.tensors) + " " +
                 fs::path(file.checkpoint).filename().string());
  CHECK(lines == std::set<std::string>{
                     "current 7 state_dict.pt",
                     "changed " + std::to_string(changing.tensors().size()) + " training.pt",
                     "gone " + std::to_string(going.tensors().size()) + " names.pt",
                     "unreadable 0 "});
  const Result<std::vector<SharedFile>> removed = remove_stale_catalogs();
  close(done[1]);
  int status = -1;
  REQUIRE(waitpid(holder, &status, 0) == holder);
  CHECK(status == 0);
  for (int end : {held, ready[0], ready[1], done[0]}) close(end);
  REQUIRE_OK(removed);
  CHECK(removed->size() == 4);
  const std::vector<fs::path> left = files();
  CHECK(std::set<fs::path>(left.begin(), left.end()) ==
        std::set<fs::path>{kept_block, shared / "something-else", shared / "warm-held.lock"});
  CHECK(describe_tensors(still_used) == expected);
}

TEST_CASE_FIXTURE(Fixture, "passes a catalog on as sealed memory") {
  const fs::path file = copy("training.pt");
  const Checkpoint own = parsed(file);
  const Result<int> descriptor = own.share_catalog();
  REQUIRE_OK(descriptor);
  CHECK((fcntl(*descriptor, F_GETFD) & FD_CLOEXEC) != 0);
  constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  CHECK((fcntl(*descriptor, F_GET_SEALS) & seals) == seals);
  const Result<Checkpoint> attached = Checkpoint::attach(file, *descriptor);
  close(*descriptor);
  REQUIRE_OK(attached);
  CHECK(attached->info().catalog == CatalogSource::attached);
  CHECK(describe_all(*attached) == describe_all(own));
  CHECK(!fs::exists(shared));
  // And from there to the next.
  const Result<int> again =
      Checkpoint::attach(file, own.share_catalog().value()).value().share_catalog();
  REQUIRE_OK(again);
  const Result<Checkpoint> third = Checkpoint::attach(file, *again);
  close(*again);
  REQUIRE_OK(third);
  CHECK(describe_all(*third) == describe_all(own));
}

TEST_CASE_FIXTURE(Fixture, "passes on the catalog of sealed memory, whatever its times are") {
  const StagedFile staged = stage(copy("training.pt")).value();
  const Checkpoint own = Checkpoint::open_descriptor(staged.descriptor()).value();
  const Result<int> descriptor = own.share_catalog();
  REQUIRE_OK(descriptor);
  const Result<Checkpoint> attached = Checkpoint::attach(staged.path(), *descriptor);
  close(*descriptor);
  REQUIRE_OK(attached);
  CHECK(describe_all(*attached) == describe_all(own));
}

TEST_CASE_FIXTURE(Fixture, "attaches to a catalog where the file is a descriptor, too") {
  const StagedFile staged = stage(copy("training.pt")).value();
  const Checkpoint own = Checkpoint::open_descriptor(staged.descriptor()).value();
  const int catalog = own.share_catalog().value();
  const Result<Checkpoint> attached = Checkpoint::attach_descriptor(staged.descriptor(), catalog);
  REQUIRE_OK(attached);
  CHECK(attached->info().catalog == CatalogSource::attached);
  CHECK(describe_all(*attached) == describe_all(own));

  const StagedFile other = stage(copy("state_dict.pt")).value();
  const Result<Checkpoint> refused = Checkpoint::attach_descriptor(other.descriptor(), catalog);
  CHECK_FAILS(refused, ErrorCode::invalid_argument, "is about another file");
  CHECK(refused.error().file == "descriptor " + std::to_string(other.descriptor()));
  CHECK_FAILS(Checkpoint::attach_descriptor(-1, catalog), ErrorCode::io, "");
  close(catalog);
}

TEST_CASE_FIXTURE(Fixture, "the log says how many tensors were attached, in the right number") {
  const fs::path file = copy("tensor_root.pt");
  opened(file);
  std::string line;
  OpenOptions options = sharing();
  options.log = [&](std::string_view text) { line = text; };
  REQUIRE(source_of(file, options) == CatalogSource::attached);
  CHECK(line.starts_with(file.string() +
                         ": attached: 1 tensor in 1 storage from a shared catalog, "));
}

TEST_CASE_FIXTURE(Fixture, "a catalog is not listed as a checkpoint that a process has mapped") {
  const fs::path file = copy("training.pt");
  const Result<int> descriptor = parsed(file).share_catalog();
  REQUIRE_OK(descriptor);
  const Checkpoint attached = Checkpoint::attach(file, *descriptor).value();
  close(*descriptor);
  const ProcessesReport report = processes().value();
  for (const MappedCheckpoint& mapped : report.mapped)
    CHECK(mapped.file.find("weightmap-catalog") == std::string::npos);
}

namespace {

int memory_of(const std::string& bytes, int seals) {
  const int made = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(made >= 0);
  REQUIRE(write(made, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  REQUIRE(fcntl(made, F_ADD_SEALS, seals) == 0);
  return made;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "refuses a descriptor that could change, is truncated or of another file") {
  const fs::path file = copy("state_dict.pt");
  const fs::path other = copy("training.pt");
  opened(file);
  const std::string good = test::read_file(block());
  constexpr int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const auto attach = [](const fs::path& path, int descriptor) {
    Result<Checkpoint> attached = Checkpoint::attach(path, descriptor);
    close(descriptor);
    return attached;
  };
  CHECK(attach(file, memory_of(good, all)).has_value());
  for (int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE})
    CHECK_FAILS(attach(file, memory_of(good, all & ~missing)), ErrorCode::invalid_argument,
                "is not sealed memory");
  CHECK_FAILS(attach(file, open(block().c_str(), O_RDONLY | O_CLOEXEC)),
              ErrorCode::invalid_argument, "is not sealed memory");
  CHECK_FAILS(Checkpoint::attach(file, -1), ErrorCode::invalid_argument, "is not sealed memory");
  CHECK_FAILS(attach(other, memory_of(good, all)), ErrorCode::invalid_argument,
              "is about another file");
  for (std::size_t length : {std::size_t{0}, std::size_t{100}, std::size_t{4096}, good.size() - 1})
    CHECK_FAILS(attach(file, memory_of(good.substr(0, length), all)), ErrorCode::corrupt,
                "the shared");
  OpenOptions narrow;
  narrow.limits.rank = 1;
  const int descriptor = memory_of(good, all);
  CHECK_FAILS(Checkpoint::attach(file, descriptor, narrow), ErrorCode::invalid_argument,
              "wider limits");
  close(descriptor);
}

TEST_CASE_FIXTURE(Fixture, "a forked child goes on with what its parent attached") {
  const fs::path file = many(300);
  opened(file);
  const Checkpoint attached = opened(file, sharing_unverified());
  REQUIRE(attached.info().catalog == CatalogSource::attached);
  const std::string expected = describe_all(parsed(file));
  // The parent has looked at nothing yet but its header; chunks, entries and root() come after.
  for (int i = 0; i < 3; ++i)
    CHECK(in_child([&] { return describe_all(attached) == expected; }) == 0);
  CHECK(describe_all(attached) == expected);
  CHECK(in_child([&] { return describe_all(attached) == expected; }) == 0);
}

TEST_CASE_FIXTURE(Fixture, "threads that meet a damaged catalog together parse the file once") {
  const fs::path file = many(300);
  opened(file);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  const Checkpoint own = parsed(file);
  const std::string expected = describe_all(own);
  for (int round = 0; round < 20; ++round) {
    std::string bad = good;
    bad[good.size() - 1 - static_cast<std::size_t>(round) * 1000] ^= 1;
    plant(place, bad);
    const Checkpoint attached = opened(file, sharing_unverified());
    REQUIRE(attached.info().catalog == CatalogSource::attached);
    const std::string_view early = attached.tensors()[0].name;
    std::vector<std::string> answers(4);
    std::vector<std::thread> threads;
    for (std::string& answer : answers)
      threads.emplace_back([&] { answer = describe_all(attached); });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& answer : answers) CHECK(answer == expected);
    CHECK(early == own.tensors()[0].name);
    CHECK(attached.catalog_was_damaged());
  }
}

TEST_CASE_FIXTURE(Fixture, "a damaged catalog of a file that changed gives errors, no answers") {
  const fs::path file = many(300);
  opened(file);
  std::string bad = test::read_file(block());
  for (std::size_t i = bad.size() - 4096; i < bad.size(); ++i) bad[i] ^= 1;
  for (std::size_t i = 3 * 4096; i < bad.size(); i += 4096) bad[i] ^= 1;
  plant(block(), bad);
  const Checkpoint attached = opened(file, sharing_unverified());
  REQUIRE(attached.info().catalog == CatalogSource::attached);
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  CHECK(!attached.find("no such tensor"));
  for (std::size_t i = 0; i < attached.tensors().size(); ++i)
    CHECK(attached.tensors()[i].view.bytes().empty());
  CHECK(attached.path(5).empty());
  CHECK(attached.storage(7).nbytes == 0);
  CHECK(!attached.find("w.7"));
  CHECK(attached.root().is_none());
  CHECK_FAILS(attached.load_root(), ErrorCode::io, "changed since it was opened");
  CHECK_FAILS(attached.get("w.7"), ErrorCode::io, "changed since it was opened");
  CHECK_FAILS(attached.verify_headers(), ErrorCode::io, "changed since it was opened");
  CHECK(attached.verify_crc().faults.size() == 1);
  CHECK_FAILS(residency(attached), ErrorCode::io, "changed since it was opened");
  CHECK(files().empty());
}

TEST_CASE_FIXTURE(Fixture, "the tree of a file that changed since it was attached is none") {
  const fs::path file = copy("training.pt");
  opened(file);
  const Checkpoint attached = opened(file, sharing_unverified());
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  CHECK(attached.root().is_none());
  CHECK(attached.root().find("epoch") == std::nullopt);
  CHECK_FAILS(attached.load_root(), ErrorCode::io, "changed since it was opened");
  CHECK(attached.find("model.0.weight").has_value());
  CHECK(!attached.catalog_was_damaged());
}
