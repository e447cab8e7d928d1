// What is said of a view that outlives its checkpoint, by a library that is built with assertions.
#include <doctest/doctest.h>
#include <signal.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tests/mmap/bus_child.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/weightmap.hpp"

using namespace weightmap;
using test::data;
using test::opened;

namespace {

const std::filesystem::path path = data / "state_dict.pt";

std::string end_of_use(const std::string& name) {
#ifdef NDEBUG
  static_cast<void>(name);
  return "signal 11";
#else
  return "weightmap: a tensor of " + name +
         " is used after its Checkpoint was destroyed: keep that for as long as its views, or hold "
         "a SharedTensor\nsignal 6";
#endif
}

// Of this process's mappings.
std::uint64_t bytes_without_access() {
  std::uint64_t bytes = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
    std::array<char, 8> access{};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s", &first, &end, access.data()) == 3 &&
        std::string_view(access.data()) == "---p")
      bytes += end - first;
  }
  return bytes;
}

// Reads or writes the first byte as a program does without handlers of its own; a sanitizer has
// one.
int use(const TensorView& view, bool writes = false) {
  auto* const at = const_cast<volatile std::byte*>(view.data());
  if (writes) *at = std::byte{1};
  return std::to_integer<int>(*at) * 0;
}

}  // namespace

TEST_CASE("a read through a view of a checkpoint that was destroyed names its file") {
  CHECK(test::said_and_end_of([] {
          ::signal(SIGSEGV, SIG_DFL);
          std::optional<Checkpoint> checkpoint = opened(path);
          const TensorView view = checkpoint->tensors()[1].view;
          if (use(view) != 0) return 1;
          checkpoint.reset();
          return use(view);
        }) == end_of_use(path.string()));
}

TEST_CASE("so does a write") {
  CHECK(test::said_and_end_of([] {
          ::signal(SIGSEGV, SIG_DFL);
          std::optional<Checkpoint> checkpoint = opened(path);
          const TensorView view = checkpoint->tensors()[1].view;
          checkpoint.reset();
          return use(view, true);
        }) == end_of_use(path.string()));
}

TEST_CASE("a view of what another checkpoint was assigned to names the file that was closed") {
  const test::TemporaryFolder folder;
  const std::filesystem::path other = folder.path() / "other.pt";
  std::filesystem::copy_file(path, other);
  CHECK(test::said_and_end_of([&] {
          ::signal(SIGSEGV, SIG_DFL);
          Checkpoint checkpoint = opened(other);
          const TensorView view = checkpoint.tensors()[1].view;
          checkpoint = opened(path);
          if (use(checkpoint.tensors()[1].view) != 0) return 1;
          return use(view);
        }) == end_of_use(other.string()));
}

TEST_CASE("views of a checkpoint that was moved, and of one with an owner, are as good as before") {
  CHECK(test::in_child([] {
          Checkpoint checkpoint = opened(path);
          const TensorView view = checkpoint.tensors()[1].view;
          const Checkpoint moved = std::move(checkpoint);
          SharedTensor shared;
          {
            auto owner = Checkpoint::open_shared(path);
            if (!owner) return 1;
            shared = SharedTensor(*owner, (*owner)->tensors()[1].view);
          }
          return use(view) + use(*shared);
        }) == "exit 0");
}

TEST_CASE("the addresses of 64 closed checkpoints are kept, and no more") {
  CHECK(test::in_child([] {
          const std::uint64_t before = bytes_without_access();
          for (int i = 0; i < 200; ++i)
            if (!Checkpoint::open(path)) return 1;
          const std::uint64_t page = 4096;
          const std::uint64_t pages = (std::filesystem::file_size(path) + page - 1) / page;
          // A sanitizer takes memory for objects out of what it has reserved.
          return bytes_without_access() <= before + 64 * pages * page ? 0 : 2;
        }) == "exit 0");
}
