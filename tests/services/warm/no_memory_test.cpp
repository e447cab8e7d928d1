// Memory that runs out: in a thread of a warmer, and at each allocation of a call.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "tests/services/cuda/fake_driver.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/cuda.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/warmer.hpp"

namespace {

std::atomic<bool> others_have_none{false};
thread_local bool is_main = false;
thread_local long allocations_left = -1;  // no limit

bool is_refused() {
  if (others_have_none && !is_main) return true;
  if (allocations_left > 0) --allocations_left;
  return allocations_left == 0;
}

}  // namespace

void* operator new(std::size_t size) {
  void* const memory = is_refused() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using namespace weightmap;
namespace fs = std::filesystem;

TEST_CASE("a warmer's thread without memory is an error of the warmer") {
  is_main = true;
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "model.pt";
  fs::copy_file(fs::path(WEIGHTMAP_TEST_DATA) / "training.pt", path);
  const Checkpoint checkpoint = Checkpoint::open(path).value();
  fs::resize_file(path, 100);  // to say so takes memory
  others_have_none = true;
  Result<Warmer> warmer = Warmer::start(checkpoint);
  const Result<WarmReport> report = warmer->wait();
  others_have_none = false;
  CHECK_FAILS(report, ErrorCode::io, "not enough memory to warm");
  CHECK(report.error().file == path);
}

TEST_CASE("residency without memory throws bad_alloc, wherever that is") {
  const Checkpoint checkpoint =
      Checkpoint::open(fs::path(WEIGHTMAP_TEST_DATA) / "views.pt").value();
  bool is_done = false;
  int refused = 0;
  for (long allocations = 1; !is_done; ++allocations) {
    allocations_left = allocations;
    try {
      is_done = residency(checkpoint).has_value();
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    allocations_left = -1;
  }
  CHECK(refused > 0);
}

TEST_CASE("an upload that begins without memory leaves the uploader free for another") {
  test::FakeDriver driver;
  const Checkpoint checkpoint =
      Checkpoint::open(fs::path(WEIGHTMAP_TEST_DATA) / "views.pt").value();
  cuda::UploaderOptions options;
  options.library = test::FakeDriver::path;
  cuda::Uploader uploader = cuda::Uploader::create(options).value();
  const std::vector<TensorView> views = {(*checkpoint.tensors().begin()).view};
  int refused = 0;
  // Ends where the driver is called, which allocates, too.
  for (long allocations = 1;; ++allocations) {
    driver.reset();
    driver.fail("cuCtxPushCurrent_v2", 1, 201);
    try {
      allocations_left = allocations;
      const Result<cuda::Upload> upload = uploader.start(checkpoint, views);
      allocations_left = -1;
      CHECK_FAILS(upload, ErrorCode::io, "cuCtxPushCurrent_v2 failed");
      break;
    } catch (const std::bad_alloc&) {
      allocations_left = -1;
      ++refused;
    }
  }
  CHECK(refused > 5);
  CHECK(uploader.start(checkpoint, views).has_value());
}
