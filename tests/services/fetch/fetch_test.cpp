// Remote checkpoints that are fetched into files.
#include "weightmap/fetch.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/fetch/journal.hpp"
#include "runtime/system/file/file.hpp"
#include "runtime/system/file/file_system_extras.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/services/fetch/scripted_source.hpp"
#include "tests/services/write/watched_calls.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/progress.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"

using namespace weightmap;
using test::mebi;
using test::noise;
using test::read_file;
using test::source_of;
using test::Store;
using test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

struct FetchFixture {
  const std::string content = test::twelve_mebi();
  const std::uint64_t tail = content.size() - 640 * 1024;  // which is asked for after the head
  Store store{.files = {{"model.pt", content}}};
  TemporaryFolder folder;
  fs::path path = folder.path() / "model.pt";
  fs::path part = folder.path() / "model.pt.part";
  fs::path journal = folder.path() / "model.pt.part.journal";
  FetchOptions options{.chunk_bytes = 2 * mebi};

  Result<FetchReport> fetch(bool replaces = false) {
    return weightmap::fetch(*source_of(store), path, options, replaces);
  }
  // A fetch that fails when so many ranges have arrived, of which the first is the tail.
  void break_off(std::size_t arriving = 3) {
    store.arriving = arriving;
    CHECK_FAILS(fetch(), ErrorCode::io, "503");
    store.arriving = Store::never;
  }
  // A fetch that is right.
  FetchReport fetched() {
    Result<FetchReport> report = fetch();
    REQUIRE_OK(report);
    CHECK(read_file(path) == store.files.at("model.pt"));
    return std::move(*report);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.path()))
      all.push_back(fs::relative(entry.path(), folder.path()));
    std::sort(all.begin(), all.end());
    return all;
  }
  // What the journal says is on the disk.
  std::uint64_t recorded() const {
    std::istringstream text(read_file(journal));
    std::string line;
    std::uint64_t sum = 0, offset = 0, length = 0;
    for (std::getline(text, line); text >> line >> offset >> length;) sum += length;
    return sum;
  }
  bool has_only_the_file() const { return names() == std::vector<std::string>{"model.pt"}; }
  // The offset of a byte of this tensor in the file.
  std::uint64_t in_tensor(const std::string& name) const {
    return content.find(noise(3 * mebi / 2, static_cast<std::uint32_t>(name.back() - '0'))) +
           3 * mebi / 4;
  }
};

}  // namespace

TEST_CASE_FIXTURE(FetchFixture,
                  "A fetched file has the bytes of the remote one, each asked for once") {
  const FetchReport report = fetched();
  CHECK(has_only_the_file());
  CHECK(store.bytes == content.size());
  CHECK(report.version == RemoteVersion{content.size(), "\"1\"", ""});
  CHECK(report.counts.bytes == content.size());
  CHECK(report.file_bytes == content.size());
  CHECK(report.resumed_bytes == 0);
  CHECK(report.verified_bytes == 12 * mebi);
  CHECK(report.time.count() > 0);
}

TEST_CASE_FIXTURE(FetchFixture,
                  "Chunks begin at multiples of their size, in the order of the file") {
  store.at_a_time = 1;
  REQUIRE_OK(fetch());
  CHECK(store.asked_offsets() == std::vector<std::uint64_t>{tail, 1 * mebi, 2 * mebi, 4 * mebi,
                                                            6 * mebi, 8 * mebi, 10 * mebi});
}

TEST_CASE_FIXTURE(FetchFixture, "The tensors that are named come first, in this order") {
  store.at_a_time = 1;
  options.order = {"t6", "no such tensor", "", "t[34]"};
  REQUIRE_OK(fetch());
  // t6 is from 9 MiB to 10.5 MiB, t3 from 4.5 MiB, t4 to 7.5 MiB.
  CHECK(store.asked_offsets() == std::vector<std::uint64_t>{tail, 8 * mebi, 10 * mebi, 4 * mebi,
                                                            6 * mebi, 1 * mebi, 2 * mebi});
  CHECK(read_file(path) == content);
}

TEST_CASE_FIXTURE(FetchFixture, "A chunk is a multiple of 2 MiB") {
  store.at_a_time = 1;
  options.chunk_bytes = 3 * mebi;
  REQUIRE_OK(fetch());
  CHECK(store.asked_offsets() == std::vector<std::uint64_t>{tail, 1 * mebi, 4 * mebi, 8 * mebi});
}

TEST_CASE_FIXTURE(FetchFixture, "Whichever range fails, the next fetch goes on where it was") {
  for (std::size_t arriving = 1; arriving < 7; ++arriving) {  // the first one is the tail
    CAPTURE(arriving);
    store.arriving = arriving;
    store.bytes = 0;
    CHECK_FAILS(fetch(), ErrorCode::io, "503");
    CHECK_FALSE(fs::exists(path));
    const std::uint64_t metadata = mebi + 640 * 1024;
    const std::uint64_t first = store.bytes;
    CHECK(first >= metadata + (arriving - 1) * mebi / 2);
    store.arriving = Store::never;
    const FetchReport report = fetched();
    CHECK(report.resumed_bytes == first);
    CHECK(store.bytes == content.size() + metadata);
    CHECK(report.verified_bytes == 12 * mebi);
    CHECK(has_only_the_file());
    fs::remove(path);
  }
}

TEST_CASE_FIXTURE(FetchFixture, "A source without memory is an error, and nothing waits for it") {
  const auto throws = [asked = 0]() mutable {
    if (++asked > 3) throw std::bad_alloc();  // the end of the file is asked for before
  };
  store.before_next = throws;
  CHECK_FAILS(fetch(), ErrorCode::io, "cannot be read: std::bad_alloc");
  store.before_next = throws;
  const auto staging = start_staging(source_of(store));
  REQUIRE(staging);
  CHECK_FAILS(staging->wait("t3"), ErrorCode::io, "cannot be read: std::bad_alloc");
}

TEST_CASE_FIXTURE(FetchFixture, "A fetch that was cancelled leaves what it has for the next one") {
  options.progress = [](std::uint64_t done, std::uint64_t all) { return done < all / 2; };
  CHECK_FAILS(fetch(), ErrorCode::cancelled, "was cancelled after");
  CHECK_FALSE(fs::exists(path));
  options.progress = {};
  const FetchReport report = fetched();
  CHECK(report.resumed_bytes > 4 * mebi);
}

TEST_CASE_FIXTURE(FetchFixture, "A fetch that was killed leaves what the journal says") {
  const pid_t child = ::fork();
  if (child == 0) {
    // Received 10 MiB, which are soon on the disk.
    options.progress = [this](std::uint64_t done, std::uint64_t) {
      while (done > 10 * mebi && recorded() < 8 * mebi) std::this_thread::yield();
      if (done > 10 * mebi) ::_exit(0);
      return true;
    };
    static_cast<void>(fetch());
    ::_exit(1);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  CHECK_FALSE(fs::exists(path));
  const FetchReport report = fetched();
  CHECK(report.resumed_bytes >= 8 * mebi);
  CHECK(has_only_the_file());
}

TEST_CASE_FIXTURE(FetchFixture, "What the disk did not take is neither recorded nor published") {
  test::with_refusals({{SYS_fsync, EIO}}, [this] {
    CHECK_FAILS(fetch(), ErrorCode::io, "cannot write the file to the disk");
    CHECK(names() == std::vector<std::string>{"model.pt.part", "model.pt.part.journal"});
    CHECK(recorded() == 0);
  });
}

TEST_CASE_FIXTURE(FetchFixture, "Progress tells of all bytes at the end, and never of more") {
  std::uint64_t last = 0;
  store.damage_at(in_tensor("t3"), 1);
  options.progress = [&](std::uint64_t done, std::uint64_t all) {
    CHECK(all == content.size());
    CHECK(done <= all);
    last = done;
    return true;
  };
  REQUIRE_OK(fetch());
  CHECK(last == content.size());
}

TEST_CASE_FIXTURE(FetchFixture, "A storage that arrives damaged is fetched once more, alone") {
  store.damage_at(in_tensor("t3"), 1);
  const FetchReport report = fetched();
  CHECK(store.bytes == content.size() + 3 * mebi / 2);
  CHECK(report.verified_bytes == 12 * mebi);
}

TEST_CASE_FIXTURE(FetchFixture, "A storage that arrives damaged twice is corrupt") {
  store.damage_at(in_tensor("t3"), 2);
  const Result<FetchReport> report = fetch();
  CHECK_FAILS(report, ErrorCode::corrupt, "record \"data/3\" of 1572864 bytes has CRC-32 0x");
  CHECK(report.error().message.ends_with(", also when fetched once more"));
  CHECK(report.error().file == "https://host/model.pt");
  CHECK(report.error().file_offset == in_tensor("t3") - 3 * mebi / 4);
  CHECK_FALSE(fs::exists(path));
  fetched();  // what is wrong on the disk is fetched again
}

TEST_CASE_FIXTURE(FetchFixture, "Checksums are not compared if the options say so") {
  store.damage_at(in_tensor("t3"), 9);
  options.verify = false;
  const Result<FetchReport> report = fetch();
  REQUIRE_OK(report);
  CHECK(report->verified_bytes == 0);
  CHECK(read_file(path) != content);
}

TEST_CASE_FIXTURE(FetchFixture, "A file without checksums is fetched as it comes") {
  test::Tensors tensors{{"a", noise(3 * mebi, 1)}, {"b", noise(3 * mebi, 2)}};
  store.files["model.safetensors"] = test::safetensors(tensors);
  path = folder.path() / "model.safetensors";
  const Result<FetchReport> report =
      weightmap::fetch(*source_of(store, "model.safetensors"), path, options);
  REQUIRE_OK(report);
  CHECK(report->verified_bytes == 0);
  CHECK(read_file(path) == store.files["model.safetensors"]);
  CHECK(store.bytes == store.files["model.safetensors"].size());
}

TEST_CASE_FIXTURE(FetchFixture, "A small file is there with its metadata") {
  store.files["model.pt"] = read_file(test::data / "state_dict.pt");
  fetched();
  CHECK(store.asked.empty());
}

TEST_CASE_FIXTURE(FetchFixture, "Compressed storages are fetched as they are") {
  store.files["model.pt"] = read_file(test::data / "rezipped_deflated.pt");
  fetched();
}

TEST_CASE_FIXTURE(FetchFixture, "What is not surely the same version begins again") {
  struct Versions {
    const char* name;
    std::string before, now;
  };
  for (const Versions& versions :
       {Versions{"another one", "\"1\"", "\"2\""}, Versions{"without a name", "", ""},
        Versions{"by a weak ETag", "W/\"1\"", "W/\"1\""}}) {
    CAPTURE(std::string(versions.name));
    store.tag = versions.before;
    break_off();
    store.tag = versions.now;
    store.bytes = 0;
    CHECK(fetched().resumed_bytes == 0);
    CHECK(store.bytes == content.size());
    if (versions.now.empty())
      CHECK(os::attribute_of(path, "user.weightmap.version").value_or("").empty());
    fs::remove(path);
  }
}

TEST_CASE_FIXTURE(FetchFixture, "A damaged journal, and a part of another size, begin again") {
  const auto resumes_after = [this](auto change) {
    break_off();
    change();
    const FetchReport report = fetched();
    CHECK(has_only_the_file());
    fs::remove(path);
    return report.resumed_bytes != 0;
  };
  CHECK(resumes_after([] {}));
  CHECK_FALSE(resumes_after([this] { fs::resize_file(part, content.size() - 1); }));
  CHECK_FALSE(resumes_after([this] { fs::remove(part); }));
  CHECK_FALSE(resumes_after([this] { fs::remove(journal); }));
  CHECK_FALSE(resumes_after([this] { folder.write("model.pt.part.journal", "something"); }));
  for (const char flipped : {char{1}, char{64}})  // another digit, and none
    CHECK_FALSE(resumes_after([this, flipped] {
      std::string text = read_file(journal);
      text[text.size() - 2] ^= flipped;
      folder.write("model.pt.part.journal", text);
    }));
  CHECK(resumes_after([this] {  // as a kill in the middle of a write leaves it
    folder.write("model.pt.part.journal", read_file(journal) + "0123");
  }));
}

TEST_CASE_FIXTURE(FetchFixture, "A line that was cut stays no part of the journal") {
  store.arriving = 3;
  CHECK_FAILS(fetch(), ErrorCode::io, "503");
  const std::uint64_t first = recorded();
  folder.write("model.pt.part.journal", read_file(journal) + "0123");
  store.arriving = 4;
  CHECK_FAILS(fetch(), ErrorCode::io, "503");
  CHECK(recorded() > first);
  store.arriving = Store::never;
  const Result<FetchReport> report = fetch();
  REQUIRE_OK(report);
  CHECK(report->resumed_bytes > first);
}

TEST_CASE_FIXTURE(FetchFixture,
                  "A part or a journal that is another file's, too, is not written to") {
  for (const fs::path& linked : {part, journal}) {
    break_off();
    const fs::path other = folder.path() / "other";
    fs::create_hard_link(linked, other);
    const std::string before = read_file(other);
    const FetchReport report = fetched();
    CHECK(report.resumed_bytes == 0);
    CHECK(read_file(other) == before);
    fs::remove(other);
    CHECK(has_only_the_file());
    fs::remove(path);
  }
}

TEST_CASE_FIXTURE(FetchFixture, "What changed on the disk since is fetched again") {
  break_off();
  std::fstream(part, std::ios::binary | std::ios::in | std::ios::out).seekp(mebi / 2) << "wrong";
  fetched();
}

TEST_CASE_FIXTURE(FetchFixture, "A file that changes meanwhile is not published") {
  store.arriving = 2;
  store.error.message = "changed: its tag was \"1\" and is \"2\"";
  const Result<FetchReport> report = fetch();
  CHECK_FAILS(report, ErrorCode::io, "changed: its tag was");
  CHECK(report.error().message.starts_with("changed"));
  CHECK(report.error().file == "https://host/model.pt");
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE_FIXTURE(FetchFixture, "A file that is there stays, unless it is to be replaced") {
  folder.write("model.pt", "old");
  fs::permissions(path, fs::perms::owner_read);
  CHECK_FAILS(fetch(), ErrorCode::invalid_argument, "is there already");
  CHECK(store.bytes == 0);
  CHECK(read_file(path) == "old");
  REQUIRE_OK(fetch(true));
  CHECK(read_file(path) == content);
  CHECK(fs::status(path).permissions() == fs::perms::owner_read);
}

TEST_CASE_FIXTURE(FetchFixture,
                  "The content is on the disk before the name, and the name at last") {
  std::vector<std::string> calls;
  const int status =
      test::watch_calls([this] { return fetch() ? 0 : 1; },
                        [&calls](const test::SystemCall& call) {
                          if (call.number == SYS_fsync)
                            calls.push_back(fs::read_symlink(call.open_file()));
                          if (call.number == SYS_renameat2 || call.number == SYS_renameat)
                            calls.push_back("rename");
                          return test::Answer::make_it();
                        });
  if (status == -1) return;
  CHECK(status == 0);
  REQUIRE(calls.size() >= 3);
  CHECK(std::vector(calls.end() - 3, calls.end()) ==
        std::vector<std::string>{part, "rename", folder.path()});
}

TEST_CASE_FIXTURE(FetchFixture, "A file that appears meanwhile stays") {
  options.progress = test::meanwhile([this] { folder.write("model.pt", "theirs"); });
  CHECK_FAILS(fetch(), ErrorCode::invalid_argument, "is there already");
  CHECK(read_file(path) == "theirs");
}

TEST_CASE_FIXTURE(FetchFixture, "A folder is no file to be replaced, and no folder none to be in") {
  fs::create_directory(path);
  CHECK_FAILS(fetch(true), ErrorCode::invalid_argument, "is not a regular file");
  path = folder.path() / "missing" / "model.pt";
  const Result<FetchReport> report = fetch();
  CHECK_FAILS(report, ErrorCode::io, "cannot open the directory");
  CHECK(report.error().file == path.native());
}

TEST_CASE_FIXTURE(FetchFixture, "Of two fetches of one file, the second fails") {
  bool is_first = true;
  options.progress = test::meanwhile([&] {
    if (!std::exchange(is_first, false)) return;
    Store other = store;
    const Result<FetchReport> second = weightmap::fetch(*source_of(other), path);
    CHECK_FAILS(second, ErrorCode::io, "is being fetched by another process or thread");
  });
  REQUIRE_OK(fetch());
  CHECK_FALSE(is_first);
  CHECK(read_file(path) == content);
}

TEST_CASE_FIXTURE(FetchFixture, "What is no checkpoint is not fetched") {
  store.files["model.pt"] = "<html>404</html>";
  const Result<FetchReport> report = fetch();
  CHECK_FAILS(report, ErrorCode::not_a_checkpoint, "");
  CHECK(report.error().file == "https://host/model.pt");
  CHECK(names().empty());
}

TEST_CASE_FIXTURE(FetchFixture,
                  "Of a file with another SHA-256 than was asked for nothing is left") {
  options.sha256[""] = {};
  CHECK_FAILS(fetch(), ErrorCode::corrupt, "has the SHA-256 ");
  CHECK(names().empty());
}

TEST_CASE_FIXTURE(FetchFixture,
                  "A SHA-256 is that of the file, in whatever order and however often it arrives") {
  bytes::Sha256 sum;
  sum.add(std::as_bytes(std::span(content)));
  options.sha256[""] = sum.digest();
  store.damage_at(in_tensor("t3"), 1);
  break_off();
  const FetchReport report = fetched();
  CHECK(report.resumed_bytes > 0);
  CHECK(report.summed_bytes == content.size());
  options.verify = false;
  fs::remove(path);
  break_off();
  CHECK(fetched().summed_bytes == content.size());
}

TEST_CASE_FIXTURE(FetchFixture, "A part that somebody else has written to gets no name") {
  options.progress = [this](std::uint64_t done, std::uint64_t all) {
    if (done < all) return true;
    std::fstream file(part, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(content.size() - 22)) << "no end record";
    return true;
  };
  CHECK_FAILS(fetch(), ErrorCode::io, "the copy is no good: ");
  CHECK_FALSE(fs::exists(path));
}

namespace {

// A server without ranges, which says a size and sends a text.
struct WholeText final : test::PlainSource, WholeSource {
  WholeText() : PlainSource("https://host/model.pt") {}
  std::uint64_t said = 0;
  std::string sent;

  Result<RemoteVersion> identify(std::span<std::byte>, std::span<std::byte>) override {
    return failure(ErrorCode::unsupported, "sends all of it");
  }
  Result<void> read(RangeReader&) override { return failure(ErrorCode::unsupported, "no ranges"); }
  bool has_no_ranges() const noexcept override { return true; }
  Result<void> read_whole(WholeReader& reader) override {
    TRY(reader.begins({.size = said, .tag = "\"1\""}));
    return reader.take(std::as_bytes(std::span(sent)));
  }
};

}  // namespace

TEST_CASE_FIXTURE(FetchFixture,
                  "A server without ranges sends as many bytes as it said, or nothing "
                  "is left of them") {
  WholeText source;
  source.said = content.size();
  source.sent = content;
  REQUIRE_OK(weightmap::fetch(source, path, options));
  CHECK(read_file(path) == content);
  CHECK(has_only_the_file());
  fs::remove(path);
  bytes::Sha256 sum;
  sum.add(std::as_bytes(std::span(content)));
  options.sha256[""] = sum.digest();
  const Result<FetchReport> summed = weightmap::fetch(source, path, options);
  REQUIRE_OK(summed);
  CHECK(summed->summed_bytes == content.size());
  options.sha256[""] = {};
  fs::remove(path);
  CHECK_FAILS(weightmap::fetch(source, path, options), ErrorCode::corrupt, "has the SHA-256 ");
  CHECK(names().empty());
  options.sha256.clear();
  source.said = content.size() + 1;
  CHECK_FAILS(weightmap::fetch(source, path, options), ErrorCode::io,
              "its source ended a read before all bytes had arrived");
  CHECK(names().empty());
  source.said = content.size() - 1;
  CHECK_FAILS(weightmap::fetch(source, path, options), ErrorCode::io,
              "the server sends more bytes than it said");
  CHECK(names().empty());
}

TEST_CASE_FIXTURE(FetchFixture,
                  "A file that the disk has no room for is refused before any of it") {
  // The header of 32 TiB of weights.
  struct Huge final : test::PlainSource {
    using PlainSource::PlainSource;
    const std::string head = test::framed(
        R"({"a":{"dtype":"U8","shape":[35184372088832],"data_offsets":[0,35184372088832]}})", "");
    bool was_read = false;
    Result<RemoteVersion> identify(std::span<std::byte> front, std::span<std::byte>) override {
      std::copy_n(std::as_bytes(std::span(head)).begin(), head.size(), front.begin());
      return RemoteVersion{.size = head.size() + 35184372088832, .tag = "\"1\""};
    }
    Result<void> read(RangeReader&) override {
      was_read = true;
      return {};
    }
  } huge("https://host/huge.safetensors");
  CHECK_FAILS(weightmap::fetch(huge, path), ErrorCode::io, "bytes, and its disk has");
  CHECK_FALSE(huge.was_read);
  CHECK(names().empty());
}

namespace {

struct SetFixture : FetchFixture {
  std::string index =
      test::index_of({{"a", "model-1.safetensors"}, {"b", "sub/model-2.safetensors"}});

  SetFixture() {
    store.files = {{"m/model.safetensors.index.json", index},
                   {"m/model-1.safetensors", test::safetensors({{"a", noise(3 * mebi, 1)}})},
                   {"m/sub/model-2.safetensors", test::safetensors({{"b", noise(3 * mebi, 2)}})}};
  }

  Result<std::vector<FetchReport>> fetch_into() {
    return weightmap::fetch_into(source_of(store, "m/model.safetensors.index.json"), folder.path(),
                                 options);
  }
  bool is_whole() const {
    for (const auto& [name, bytes] : store.files)
      if (read_file(folder.path() / name.substr(2)) != bytes) return false;
    return true;
  }
  bool keeps_versions() const {
    return os::attribute_of(folder.path() / "model-1.safetensors", "user.weightmap.version")
        .has_value();
  }
};

}  // namespace

TEST_CASE_FIXTURE(SetFixture,
                  "A set is fetched into a folder, and what leads to the rest comes last") {
  std::vector<std::string> seen;
  options.progress = [&](std::uint64_t done, std::uint64_t all) {
    CHECK(all ==
          store.files.begin()->second.size() + store.files.rbegin()->second.size() + index.size());
    CHECK(done <= all);
    CHECK_FALSE(fs::exists(folder.path() / "model.safetensors.index.json"));
    return true;
  };
  const Result<std::vector<FetchReport>> reports = fetch_into();
  REQUIRE_OK(reports);
  CHECK(is_whole());
  CHECK(names() == std::vector<std::string>{"model-1.safetensors", "model.safetensors.index.json",
                                            "sub", "sub/model-2.safetensors"});
  REQUIRE(reports->size() == 3);
  CHECK(reports->front().file_bytes == store.files["m/model-1.safetensors"].size());
  CHECK(reports->back().file_bytes == index.size());
  const Checkpoint copy = test::opened(folder.path());
  CHECK(copy.tensors().size() == 2);
}

TEST_CASE_FIXTURE(SetFixture, "Files of the same version that are there stay") {
  REQUIRE_OK(fetch_into());
  if (!keeps_versions()) {
    MESSAGE("SKIPPED: the file system of the temporary folder keeps no attributes");
    return;
  }
  store.asked.clear();
  REQUIRE_OK(fetch_into());
  CHECK(store.asked.empty());
  fs::remove(folder.path() / "model-1.safetensors");
  fs::resize_file(folder.path() / "sub" / "model-2.safetensors", 7);
  REQUIRE_OK(fetch_into());
  CHECK(store.asked.size() == 4);  // of both
  CHECK(is_whole());
}

namespace {

// The set of another version: other bytes, and another tag.
void replace_in(Store& store) {
  store.tag = "\"2\"";
  store.files["m/model-1.safetensors"] = test::safetensors({{"a", noise(3 * mebi, 3)}});
  store.files["m/sub/model-2.safetensors"] = test::safetensors({{"b", noise(3 * mebi, 4)}});
}

}  // namespace

TEST_CASE_FIXTURE(SetFixture, "An update that fails halfway leaves the old set, and goes on") {
  REQUIRE_OK(fetch_into());
  const Store old = store;
  replace_in(store);
  store.arriving = 3;
  const Result<std::vector<FetchReport>> reports = fetch_into();
  CHECK_FAILS(reports, ErrorCode::io, "503");
  CHECK(reports.error().file.starts_with("https://host/m/"));  // one of those under way
  for (const auto& [name, bytes] : old.files)
    CHECK(read_file(folder.path() / name.substr(2)) == bytes);
  CHECK(Checkpoint::open(folder.path()).has_value());
  store.arriving = Store::never;
  REQUIRE_OK(fetch_into());
  CHECK(is_whole());
}

TEST_CASE_FIXTURE(SetFixture, "A folder that is being updated is no checkpoint") {
  REQUIRE_OK(fetch_into());
  folder.write(".weightmap-update", "");
  for (const fs::path& opened : {folder.path(), folder.path() / "model.safetensors.index.json"}) {
    const Result<Checkpoint> refused = Checkpoint::open(opened);
    CHECK_FAILS(refused, ErrorCode::corrupt, "so they are of two versions");
  }
  const std::vector<fs::path> both = {folder.path() / "model-1.safetensors",
                                      folder.path() / "sub" / "model-2.safetensors"};
  CHECK_FAILS(Checkpoint::open_files(both), ErrorCode::corrupt, "so they are of two versions");
  REQUIRE_OK(fetch_into());  // nothing is missing but the end of the update
  CHECK_FALSE(fs::exists(folder.path() / ".weightmap-update"));
  CHECK(Checkpoint::open(folder.path()).has_value());
}

TEST_CASE_FIXTURE(SetFixture, "An update that is killed between two names is ended by the next") {
  REQUIRE_OK(fetch_into());
  replace_in(store);
  options.progress = [&](std::uint64_t done, std::uint64_t all) {
    if (done < all) return true;
    fs::remove(folder.path() / "model-1.safetensors");
    fs::create_directory(folder.path() / "model-1.safetensors");  // so that it gets no name
    return true;
  };
  CHECK_FAILS(fetch_into(), ErrorCode::invalid_argument, "is no regular file");
  options.progress = {};
  CHECK(fs::exists(folder.path() / ".weightmap-update"));
  CHECK_FAILS(Checkpoint::open(folder.path()), ErrorCode::corrupt, "of two versions");
  fs::remove(folder.path() / "model-1.safetensors");
  store.asked.clear();
  REQUIRE_OK(fetch_into());
  for (const test::Asked& range : store.asked)
    CHECK(range.length == 1);  // is it this version still
  CHECK(is_whole());
}

TEST_CASE_FIXTURE(SetFixture,
                  "What is there counts only as this version of this store, unchanged") {
  REQUIRE_OK(fetch_into());
  if (!keeps_versions()) {
    MESSAGE("SKIPPED: the file system of the temporary folder keeps no attributes");
    return;
  }
  const fs::path shard = folder.path() / "model-1.safetensors";
  SUBCASE("it was written to") {
    std::fstream file(shard, std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(mebi));
    file << "other";
  }
  SUBCASE("it was cut, and has its time still") {
    const auto written = fs::last_write_time(shard);
    fs::resize_file(shard, mebi);
    fs::last_write_time(shard, written);
  }
  SUBCASE("another file was written over it") {
    std::ofstream(shard) << std::string(store.files["m/model-1.safetensors"].size(), 'x');
  }
  SUBCASE("another file has its size, time and attribute, as cp -a copies them") {
    const std::string name = "user.weightmap.version";
    const fs::path other = folder.write("other", test::safetensors({{"a", noise(3 * mebi, 3)}}));
    const Result<os::File> copy = os::File::open(other, true);
    REQUIRE_OK(copy);
    REQUIRE(os::set_attribute(copy->descriptor(), name, os::attribute_of(shard, name).value()));
    fs::last_write_time(other, fs::last_write_time(shard));
    fs::rename(other, shard);
    REQUIRE_FALSE(is_whole());
  }
  SUBCASE("another store has the same name, size and ETag") {
    replace_in(store);
    store.tag = "\"1\"";
    store.host = "https://other/";
  }
  SUBCASE("a weak ETag") {
    replace_in(store);
    store.tag = "W/\"1\"";
    REQUIRE_OK(fetch_into());
    store.files["m/model-1.safetensors"] = test::safetensors({{"a", noise(3 * mebi, 5)}});
  }
  REQUIRE_OK(fetch_into());
  CHECK(is_whole());
}

TEST_CASE_FIXTURE(SetFixture, "A single file is fetched into a folder under its name") {
  const Result<std::vector<FetchReport>> reports = weightmap::fetch_into(
      source_of(store, "m/model-1.safetensors"), folder.path() / "new", options);
  REQUIRE_OK(reports);
  CHECK(reports->size() == 1);
  CHECK(names() == std::vector<std::string>{"new", "new/model-1.safetensors"});
}

TEST_CASE_FIXTURE(SetFixture, "A compressed file is fetched into a folder as it is") {
  store.files["m/model.pt"] = read_file(test::data / "rezipped_deflated.pt");
  REQUIRE_OK(weightmap::fetch_into(source_of(store, "m/model.pt"), folder.path(), options));
  CHECK(names() == std::vector<std::string>{"model.pt"});
  CHECK(read_file(folder.path() / "model.pt") == store.files["m/model.pt"]);
}

TEST_CASE_FIXTURE(SetFixture, "One file of a set is not the set") {
  CHECK_FAILS(weightmap::fetch(*source_of(store, "m/model.safetensors.index.json"), path),
              ErrorCode::unsupported, "is a checkpoint of several files");
  CHECK(names().empty());
}

TEST_CASE_FIXTURE(SetFixture, "A name that leaves the folder is refused") {
  for (const std::string name : {"../model-1.safetensors", "/model-1.safetensors"}) {
    CAPTURE(name);
    store.files["m/model.safetensors.index.json"] = test::index_of({{"a", name}});
    store.files["m/" + name] = store.files["m/model-1.safetensors"];
    CHECK_FAILS(fetch_into(), ErrorCode::corrupt, "");
    CHECK(names().empty());
  }
}

TEST_CASE_FIXTURE(SetFixture, "A URL that ends in no name of a file is refused") {
  for (const std::string name : {"m/..", "m/", "m/a\\b"}) {
    CAPTURE(name);
    store.files[name] = store.files["m/model-1.safetensors"];
    CHECK_FAILS(weightmap::fetch_into(source_of(store, name), folder.path(), options),
                ErrorCode::corrupt, "is no name of a file in the folder");
    CHECK(names().empty());
  }
}

TEST_CASE_FIXTURE(SetFixture, "A set that lacks a file is refused before any is fetched") {
  store.files.erase("m/sub/model-2.safetensors");
  CHECK_FAILS(fetch_into(), ErrorCode::io, "404");
  CHECK(names().empty());
}
