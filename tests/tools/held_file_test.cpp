// What `weightmap hold` does about a file when the system starts no thread.
#include "tools/hold/held_file.hpp"

#include <doctest/doctest.h>
#include <pthread.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <thread>

#include "runtime/base/bytes/sha256.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"

using namespace weightmap;
using cli::hold::HeldFile;

namespace {

// In its lifetime no thread starts: its stack is larger than the address space.
class NoThreads {
 public:
  NoThreads() {
    REQUIRE(::pthread_getattr_default_np(&before_) == 0);
    pthread_attr_t huge;
    REQUIRE(::pthread_getattr_default_np(&huge) == 0);
    REQUIRE(::pthread_attr_setstacksize(&huge, std::size_t{1} << 48) == 0);
    REQUIRE(::pthread_setattr_default_np(&huge) == 0);
    ::pthread_attr_destroy(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

cli::hold::WantedDigests digest_for_any(const std::string& content) {
  bytes::Sha256 sum;
  sum.add(std::as_bytes(std::span(content)));
  return {{{"", sum.digest()}}};
}

void finish_warming(HeldFile& file) {
  for (; file.is_warming(); file.advance())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

TEST_CASE("a file whose comparison could not start is compared at the next look") {
  const test::TemporaryFolder folder;
  const std::string content = test::safetensors({{"a", std::string(4096, 'a')}});
  const auto path = folder.write("model.safetensors", content);
  const cli::hold::WantedDigests wanted = digest_for_any(content);
  Result<HeldFile> file = HeldFile::open(path, true, wanted, [](const std::string&) {});
  REQUIRE_OK(file);
  {
    const NoThreads none;  // but the one that reads, which has started
    finish_warming(*file);
  }
  const cli::Json refused = file->describe();
  CHECK(refused["sha256_compared"] == false);
  CHECK(refused["locked"] == false);
  CHECK(refused["problem"].get<std::string>().starts_with("cannot start a thread: "));
  file->look(false);
  REQUIRE(file->is_warming());
  finish_warming(*file);
  CHECK(file->describe()["sha256_compared"] == true);
  CHECK(file->describe()["problem"] == nullptr);
}
