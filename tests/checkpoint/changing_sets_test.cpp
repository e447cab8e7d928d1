// A file of a set changes at any moment between the first look at the set and the end of its open:
// the open is refused, or each file's tensors are those of one of its versions, whole.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/services/write/watched_calls.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/texts.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using namespace weightmap::test;
namespace fs = std::filesystem;

namespace {

using MakeFile = std::string (*)(const test::Tensors&);

// Two files with two tensors each, and what opens them.
struct Layout {
  std::string name;
  std::string extension;
  MakeFile make;
  bool has_index;
  bool is_list;

  std::string file(int number) const {
    return "model-0000" + std::to_string(number) + "-of-00002" + extension;
  }
  // The versions differ in each byte, and in size.
  std::string content(int number, bool is_new) const {
    const std::string bytes(is_new ? 300 : 500, is_new ? 'n' : 'o');
    return make({{"a" + std::to_string(number), bytes}, {"b" + std::to_string(number), bytes}});
  }
  void fill(const TemporaryFolder& folder) const {
    for (const int number : {1, 2}) folder.write(file(number), content(number, false));
    if (has_index)
      folder.write("model" + extension + ".index.json",
                   index_of({{"a1", file(1)}, {"b1", file(1)}, {"a2", file(2)}, {"b2", file(2)}}));
  }
  Result<Checkpoint> open(const fs::path& folder) const {
    if (!is_list) return Checkpoint::open(folder);
    const std::vector<fs::path> files{folder / file(1), folder / file(2)};
    return Checkpoint::open_files(files);
  }
};

const std::vector<Layout> layouts{
    {"an index", ".safetensors", safetensors, true, false},
    {"a folder", ".safetensors", safetensors, false, false},
    {"a list", ".safetensors", safetensors, false, true},
    {"an index of .bin", ".bin", torch_zip, true, false},
};

struct Change {
  std::string name;
  std::function<void(const Layout&, const fs::path& file)> make;
};

const std::vector<Change> changes{
    {"is replaced",
     [](const Layout& layout, const fs::path& file) { replace(file, layout.content(2, true)); }},
    {"is removed", [](const Layout&, const fs::path& file) { fs::remove(file); }},
    {"becomes a folder",
     [](const Layout&, const fs::path& file) {
       fs::remove(file);
       fs::create_directory(file);
     }},
    {"becomes a FIFO",
     [](const Layout&, const fs::path& file) {
       fs::remove(file);
       REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
     }},
    {"becomes a link to nothing",
     [](const Layout&, const fs::path& file) {
       fs::remove(file);
       fs::create_symlink("nothing", file);
     }},
    {"becomes another file's name",
     [](const Layout& layout, const fs::path& file) {
       fs::remove(file);
       fs::create_symlink(layout.file(1), file);
     }},
};

enum Outcome : int { refused, old_version, new_version, mixed };

// Of what the second file's tensors are.
Outcome outcome(const Result<Checkpoint>& checkpoint) {
  if (!checkpoint) return refused;
  const std::string old_bytes(500, 'o'), new_bytes(300, 'n');
  std::string second;
  for (const char* name : {"a1", "b1", "a2", "b2"}) {
    const Result<NamedTensor> tensor = checkpoint->get(name);
    if (!tensor) return mixed;
    const std::string text = text_of(tensor->view.bytes());
    if (name[1] == '1' ? text != old_bytes : !second.empty() && text != second) return mixed;
    if (name[1] == '2') second = text;
  }
  return second == old_bytes ? old_version : second == new_bytes ? new_version : mixed;
}

}  // namespace

TEST_CASE(
    "a file of a set that changes while the set is opened is refused, or whole in one version") {
  int opens = 0;
  for (const Layout& layout : layouts)
    for (const Change& change : changes) {
      std::vector<int> seen(4);
      for (std::size_t moment = 0;; ++moment) {
        const TemporaryFolder folder;
        layout.fill(folder);
        std::size_t calls = 0;
        const int status =
            test::watch_calls([&] { return outcome(layout.open(folder.path())); },
                              [&](const test::SystemCall&) {
                                if (calls++ == moment)
                                  change.make(layout, folder.path() / layout.file(2));
                                return test::Answer::make_it();
                              });
        if (status == -1) return;
        CAPTURE(layout.name);
        CAPTURE(change.name);
        CAPTURE(moment);
        REQUIRE(WIFEXITED(status));
        REQUIRE(WEXITSTATUS(status) < mixed);
        ++seen[static_cast<std::size_t>(WEXITSTATUS(status))];
        ++opens;
        if (calls <= moment) break;  // it had ended before
      }
      CAPTURE(layout.name);
      CAPTURE(change.name);
      CHECK(seen[old_version] > 0);  // what changed after the file was opened
      CHECK(seen[change.name == "is replaced" ? new_version : refused] > 0);
    }
  MESSAGE(opens << " opens");
  CHECK(opens > 100);
}
