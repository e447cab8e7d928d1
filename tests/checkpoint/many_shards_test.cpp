// Sets of more files than the process may have open.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <string>

#include "tests/mmap/bus_child.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using test::in_child;
using test::TemporaryFolder;

namespace {

constexpr rlim_t soft = 256;
constexpr rlim_t hard = 2048;
constexpr int shards = 400;

void limit_open_files(rlim_t most) {
  rlimit limit{soft, most};
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

rlim_t soft_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

std::string name_of(int number) {
  std::string text = std::to_string(number);
  text.insert(0, 5 - text.size(), '0');
  return "model-" + text + "-of-00400.safetensors";
}

// A set with one tensor in each file, with an index or without.
struct Set {
  explicit Set(bool has_index) {
    test::Tensors map;
    for (int number = 1; number <= shards; ++number) {
      const std::string tensor = "t." + std::to_string(number);
      folder.write(name_of(number), test::safetensors({{tensor, "ab"}}));
      map.emplace_back(tensor, name_of(number));
    }
    if (has_index) folder.write("model.safetensors.index.json", test::index_of(map));
  }
  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("a set of more files than the soft limit opens, if the hard limit allows it") {
  for (const bool has_index : {true, false}) {
    const Set set(has_index);
    CHECK(in_child([&] {
            limit_open_files(hard);
            const Result<Checkpoint> opened = Checkpoint::open(set.folder.path());
            // As many as the set needs, so the program has as much room as before.
            const bool is_raised = soft_limit() == soft + shards;
            return opened && opened->info().tensors == shards && is_raised ? 0 : 1;
          }) == "exit 0");
  }
}

TEST_CASE("a few files leave the limit as it is") {
  const TemporaryFolder folder;
  folder.write("model-00001-of-00002.safetensors", test::safetensors({{"a", "aa"}}));
  folder.write("model-00002-of-00002.safetensors", test::safetensors({{"b", "bb"}}));
  CHECK(in_child([&] {
          limit_open_files(hard);
          const bool is_open = Checkpoint::open(folder.path()).has_value();
          return is_open && soft_limit() == soft ? 0 : 1;
        }) == "exit 0");
}
