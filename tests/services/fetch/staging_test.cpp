// Remote checkpoints in shared memory, used while they arrive.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/bytes/sha256.hpp"
#include "tests/services/fetch/scripted_source.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/progress.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/fetch.hpp"

using namespace weightmap;
using test::mebi;
using test::noise;
using test::read_file;
using test::source_of;
using test::Store;
using test::tensor_bytes;
namespace fs = std::filesystem;

namespace {

std::string bytes_of(std::uint32_t number) { return noise(tensor_bytes, number); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string content_of(const StagedFile& staged) {
  return read_file("/proc/self/fd/" + std::to_string(staged.descriptor()));
}

// Blocks the thread that fetches before it asks for the range of a number, until it may go on. The
// end of the file is read before all of them, which asks twice: for it, and for what comes next.
class Gate {
 public:
  void close(Store& store, std::size_t number) {
    store.before_next = [this, number, asked = std::size_t{0}]() mutable {
      if (asked++ != number + 2) return;
      reached_.set_value();
      open_.get_future().wait();
    };
  }
  void wait_until_reached() { reached_.get_future().wait(); }
  void open() { open_.set_value(); }

 private:
  std::promise<void> reached_;
  std::promise<void> open_;
};

struct StagingFixture {
  const std::string content = test::twelve_mebi();
  Store store{.files = {{"model.pt", content}}, .at_a_time = 1};
  RemoteStageOptions options{.fetch = {.chunk_bytes = 2 * mebi}};
  const std::string name = "weightmap-fetch-test-" + std::to_string(::getpid());
  const fs::path named = "/dev/shm/" + name;

  ~StagingFixture() { fs::remove(named); }

  // The offset of a byte of "t3". A few bytes are enough to find it.
  std::uint64_t in_third() const { return content.find(bytes_of(3).substr(0, 32)) + 5; }

  Result<StagedFile> stage() { return weightmap::stage(source_of(store), options); }
  Result<Staging> start() { return start_staging(source_of(store), options); }
};

}  // namespace

TEST_CASE_FIXTURE(StagingFixture, "A staged copy has the bytes of the remote file, and is sealed") {
  const Result<StagedFile> staged = stage();
  REQUIRE_OK(staged);
  CHECK(content_of(*staged) == content);
  CHECK(store.bytes == content.size());
  CHECK(staged->report().file_bytes == content.size());
  CHECK(staged->report().sealed);
  CHECK(staged->report().time.count() > 0);
  CHECK(staged->pinnable_memory().empty());
  const int seals = ::fcntl(staged->descriptor(), F_GET_SEALS);
  CHECK((seals & F_SEAL_WRITE) != 0);
  CHECK((seals & F_SEAL_SHRINK) != 0);
  const Result<Checkpoint> copy = Checkpoint::open_descriptor(staged->descriptor());
  REQUIRE_OK(copy);
  CHECK(text_of(copy->find("t5")->bytes()) == bytes_of(5));
}

TEST_CASE_FIXTURE(StagingFixture, "A copy has the SHA-256 that was asked for, or none is made") {
  bytes::Sha256 sum;
  sum.add(std::as_bytes(std::span(content)));
  options.fetch.sha256[""] = sum.digest();
  store.at_a_time = 5;
  store.damage_at(in_third(), 1);
  Result<Staging> staging = start();
  REQUIRE_OK(staging);
  REQUIRE_OK(staging->finish());
  CHECK(staging->report().summed_bytes == content.size());
  options.fetch.sha256[""] = {};
  CHECK_FAILS(stage(), ErrorCode::corrupt, "has the SHA-256 ");
  options.fetch.sha256 = {{"other.pt", {}}};
  store.asked.clear();
  CHECK_FAILS(start(), ErrorCode::invalid_argument, "is not among the files");
  CHECK(store.asked.size() == 1);  // the end of the file
}

TEST_CASE_FIXTURE(StagingFixture, "What a failed staging has left is summed by the next") {
  bytes::Sha256 sum;
  sum.add(std::as_bytes(std::span(content)));
  options.fetch.sha256[""] = sum.digest();
  store.arriving = 3;
  Result<Staging> failed = start();
  REQUIRE_OK(failed);
  CHECK_FAILS(failed->finish(), ErrorCode::io, "503");
  store.arriving = Store::never;
  Result<Staging> again = start_staging_again(source_of(store), options, *failed);
  REQUIRE_OK(again);
  const Result<StagedFile> staged = again->finish();
  REQUIRE_OK(staged);
  CHECK(content_of(*staged) == content);
  CHECK(again->report().summed_bytes == content.size());
}

TEST_CASE_FIXTURE(StagingFixture, "A small file is asked for once") {
  store.files["model.pt"] = test::torch_zip({{"t", "abcd"}});
  REQUIRE_OK(stage());
  CHECK(store.bytes == store.files["model.pt"].size());
  CHECK(store.asked.empty());
}

TEST_CASE_FIXTURE(StagingFixture, "Ranges may arrive in any order") {
  store.at_a_time = 5;
  const Result<StagedFile> staged = stage();
  REQUIRE_OK(staged);
  CHECK(content_of(*staged) == content);
}

TEST_CASE_FIXTURE(StagingFixture,
                  "The metadata is there at once, and a tensor as soon as it arrived") {
  Gate gate;
  gate.close(store, 2);
  const Result<Staging> staging = start();
  REQUIRE_OK(staging);
  gate.wait_until_reached();  // two ranges have arrived: up to 4 MiB
  CHECK(staging->checkpoint().tensors().size() == 8);
  const Result<TensorView> second = staging->wait("t1");
  REQUIRE_OK(second);
  CHECK(text_of(second->bytes()) == bytes_of(1));
  CHECK(second->data() == staging->checkpoint().find("t1")->data());
  gate.open();
  const Result<TensorView> last = staging->wait("t7");
  REQUIRE_OK(last);
  CHECK(text_of(last->bytes()) == bytes_of(7));
}

TEST_CASE_FIXTURE(StagingFixture, "Copies of tensors wait for their bytes") {
  Gate gate;
  gate.close(store, 1);
  const Result<Staging> staging = start();
  REQUIRE_OK(staging);
  gate.wait_until_reached();
  std::future<std::string> copied = std::async(std::launch::async, [&] {
    std::string bytes(tensor_bytes, '\0');
    const Checkpoint& checkpoint = staging->checkpoint();
    const Result<void> ok =
        checkpoint.gather(*checkpoint.find("t4"), std::as_writable_bytes(std::span(bytes)));
    return ok ? bytes : ok.error().message;
  });
  gate.open();
  CHECK(copied.get() == bytes_of(4));
}

TEST_CASE_FIXTURE(StagingFixture, "Many threads wait for all tensors") {
  const Result<Staging> staging = start();
  REQUIRE_OK(staging);
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t first = 0; first < 4; ++first)
      threads.emplace_back([&, first] {
        for (std::uint32_t i = 0; i < 8; ++i) {
          const std::uint32_t number = (first * 3 + i) % 8;
          const Result<TensorView> view = staging->wait("t" + std::to_string(number));
          if (view && text_of(view->bytes()) == bytes_of(number)) ++right;
        }
      });
  }
  CHECK(right == 32);
}

TEST_CASE_FIXTURE(StagingFixture,
                  "A finished copy is that of stage(), and views of the metadata stay") {
  Result<Staging> staging = start();
  REQUIRE_OK(staging);
  const TensorView view = *staging->checkpoint().find("t2");
  Result<StagedFile> staged = staging->finish();
  REQUIRE_OK(staged);
  CHECK(content_of(*staged) == content);
  CHECK(staged->report().sealed);
  CHECK(text_of(view.bytes()) == bytes_of(2));
  REQUIRE_OK(staging->wait("t2"));
  const FetchReport report = staging->report();
  CHECK(report.version == RemoteVersion{content.size(), "\"1\"", ""});
  CHECK(report.counts.bytes == content.size());
  CHECK(report.verified_bytes == 12 * mebi);
  CHECK(report.file_bytes == content.size());
  CHECK_FAILS(staging->finish(), ErrorCode::invalid_argument, "is staged already");
  staging = start();  // the first one ends
  REQUIRE_OK(staging);
  CHECK(content_of(*staged) == content);
}

TEST_CASE_FIXTURE(StagingFixture, "Nobody waits for a tensor that there is not") {
  const Result<Staging> staging = start();
  REQUIRE_OK(staging);
  CHECK_FAILS(staging->wait("t8"), ErrorCode::not_found, "t8");
}

TEST_CASE_FIXTURE(StagingFixture,
                  "The error of a fetch reaches all who wait, but for what has arrived") {
  for (std::size_t arriving = 0; arriving < 6; ++arriving) {
    CAPTURE(arriving);
    store.arriving = 1 + arriving;  // after the end of the file
    Result<Staging> staging = start();
    REQUIRE_OK(staging);
    const Result<TensorView> seventh = staging->wait("t6");  // in two chunks
    if (arriving < 2) {
      CHECK_FAILS(seventh, ErrorCode::io, "503");
      CHECK(seventh.error().file == "https://host/model.pt");
    }
    const Result<StagedFile> staged = staging->finish();
    CHECK_FAILS(staged, ErrorCode::io, "503");
    CHECK(staged.error().file == "https://host/model.pt");
    if (seventh) CHECK(text_of(staging->wait("t6")->bytes()) == bytes_of(6));
  }
}

TEST_CASE_FIXTURE(StagingFixture, "A storage that is damaged is not given out before it is right") {
  store.damage_at(in_third(), 1);
  Result<Staging> staging = start();
  REQUIRE_OK(staging);
  const Result<TensorView> view = staging->wait("t3");
  REQUIRE_OK(view);
  CHECK(text_of(view->bytes()) == bytes_of(3));
  REQUIRE_OK(staging->finish());
  CHECK(store.bytes == content.size() + tensor_bytes);
}

TEST_CASE_FIXTURE(StagingFixture, "A storage that stays damaged is never given out") {
  store.damage_at(in_third(), 1000);
  options.name = name;
  Result<Staging> staging = start();
  REQUIRE_OK(staging);
  CHECK_FAILS(staging->wait("t3"), ErrorCode::corrupt, "record \"data/3\"");
  CHECK_FAILS(staging->finish(), ErrorCode::corrupt, "record \"data/3\"");
  CHECK_FALSE(fs::exists(named));
}

TEST_CASE_FIXTURE(StagingFixture, "Who waits learns that it was cancelled") {
  Gate gate;
  gate.close(store, 1);
  Result<Staging> staging = start();
  REQUIRE_OK(staging);
  gate.wait_until_reached();
  std::future<Result<TensorView>> waiting =
      std::async(std::launch::async, [&] { return staging->wait("t6"); });
  staging->cancel();
  CHECK_FAILS(waiting.get(), ErrorCode::cancelled, "was cancelled");
  gate.open();
  CHECK_FAILS(staging->finish(), ErrorCode::cancelled, "was cancelled");
  REQUIRE_OK(staging->wait("t0"));  // was there
}

TEST_CASE_FIXTURE(StagingFixture, "The end of a Staging cancels the rest") {
  Gate gate;
  gate.close(store, 2);
  {
    const Result<Staging> staging = start();
    REQUIRE_OK(staging);
    gate.wait_until_reached();
    staging->cancel();  // so that the order does not matter in which the two of them go on
    gate.open();
  }
  CHECK(store.asked.size() == 3);
}

TEST_CASE_FIXTURE(StagingFixture, "stage() calls the progress in the calling thread, and stops") {
  const std::thread::id caller = std::this_thread::get_id();
  options.fetch.progress = [&](std::uint64_t done, std::uint64_t all) {
    CHECK(std::this_thread::get_id() == caller);
    CHECK(all == content.size());
    return done < all / 2;
  };
  options.name = name;
  CHECK_FAILS(stage(), ErrorCode::cancelled, "was cancelled after");
  CHECK_FALSE(fs::exists(named));
}

TEST_CASE_FIXTURE(StagingFixture, "A copy with a name gets it when it is whole") {
  options.name = name;
  Gate gate;
  gate.close(store, 1);
  Result<Staging> staging = start();
  REQUIRE_OK(staging);
  gate.wait_until_reached();
  CHECK_FALSE(fs::exists(named));
  gate.open();
  const Result<StagedFile> staged = staging->finish();
  REQUIRE_OK(staged);
  CHECK(staged->path() == named);
  CHECK(read_file(named) == content);
  CHECK_FALSE(staged->report().sealed);
  CHECK(fs::status(named).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  store.bytes = 0;
  CHECK_FAILS(stage(), ErrorCode::invalid_argument, name);
  CHECK(store.bytes == 0);
}

TEST_CASE_FIXTURE(StagingFixture, "A copy that does not fit is refused before its tensors come") {
  options.budget_bytes = content.size() - 1;
  CHECK_FAILS(stage(), ErrorCode::io, "(the budget)");
  CHECK(store.asked.size() == 1);  // the end of the file
}

TEST_CASE_FIXTURE(StagingFixture, "Compressed storages are there from the beginning") {
  store.files["model.pt"] = read_file(test::data / "rezipped_deflated.pt");
  Result<Staging> staging = start();
  REQUIRE_OK(staging);
  const Checkpoint local = test::opened(test::data / "rezipped_deflated.pt");
  for (const NamedTensor tensor : local.tensors()) {
    const Result<TensorView> view = staging->wait(tensor.name);
    REQUIRE_OK(view);
    CHECK(text_of(view->bytes()) == text_of(tensor.view.bytes()));
  }
  const Result<StagedFile> staged = staging->finish();
  REQUIRE_OK(staged);
  CHECK(content_of(*staged) == store.files["model.pt"]);
}

TEST_CASE_FIXTURE(StagingFixture, "Sets and other files are refused") {
  store.files["a.index.json"] = test::index_of({{"a", "b.safetensors"}});
  store.files["b.safetensors"] = test::safetensors({{"a", "123"}});
  CHECK_FAILS(weightmap::stage(source_of(store, "a.index.json"), options), ErrorCode::unsupported,
              "is a checkpoint of several files");
  store.files["model.pt"] = "<html>404</html>";
  CHECK_FAILS(stage(), ErrorCode::not_a_checkpoint, "");
}
