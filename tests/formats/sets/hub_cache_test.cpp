// Models in the cache of huggingface_hub: which names are one, where the cache is, which commit a
// name stands for, and checkpoints that are opened by such a name.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/formats/sets/hub.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/variable.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::opened;
using test::TemporaryFolder;
using test::Variable;
namespace fs = std::filesystem;

namespace {

const std::string first_commit(40, 'a'), second_commit(40, 'b');

class WorkingFolder {
 public:
  explicit WorkingFolder(const fs::path& folder) { fs::current_path(folder); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;
  ~WorkingFolder() { fs::current_path(before_); }

 private:
  fs::path before_ = fs::current_path();
};

// The variables that say where the cache is, none of which is set at first, and an empty working
// folder, in which nothing hides a model.
struct Environment {
  Variable hub_cache{"HF_HUB_CACHE"}, old_hub_cache{"HUGGINGFACE_HUB_CACHE"}, hf_home{"HF_HOME"},
      cache_home{"XDG_CACHE_HOME"}, home{"HOME"};
  TemporaryFolder here;
  WorkingFolder working{here.path()};
};

void write(const fs::path& file, std::string_view content) {
  if (file.has_parent_path()) fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << content;
}

// A cache with the model org/name, whose main is the first of two commits.
struct Cache {
  Cache() {
    environment.hf_home.set(folder.path());
    add_snapshot(first_commit);
    add_snapshot(second_commit);
    refer("main", first_commit);
  }
  void add_snapshot(const std::string& commit) const {
    fs::create_directories(model / "snapshots" / commit);
  }
  void refer(const std::string& name, const std::string& text) const {
    write(model / "refs" / name, text);
  }
  // A file of a commit, as huggingface_hub keeps it.
  void add(const std::string& commit, const fs::path& name, const std::string& hash,
           std::string_view content) const {
    write(model / "blobs" / hash, content);
    const fs::path link = model / "snapshots" / commit / name;
    fs::create_directories(link.parent_path());
    fs::path up = "../..";
    for (fs::path below = name.parent_path(); !below.empty(); below = below.parent_path())
      up /= "..";
    fs::create_symlink(up / "blobs" / hash, link);
  }

  Environment environment;
  TemporaryFolder folder;
  fs::path hub = folder.path() / "hub";
  fs::path model = hub / "models--org--name";
};

sets::HubSnapshot found(std::string_view name) {
  const Result<std::optional<sets::HubSnapshot>> result = sets::find_in_hub_cache(name);
  REQUIRE_OK(result);
  REQUIRE(result->has_value());
  return **result;
}

bool is_no_name(std::string_view name) {
  const Result<std::optional<sets::HubSnapshot>> result = sets::find_in_hub_cache(name);
  return result.has_value() && !result->has_value();
}

std::string safetensors(const std::string& tensor, const std::string& bytes) {
  return test::safetensors({{tensor, bytes}});
}

std::string text_of(const Checkpoint& checkpoint, std::string_view tensor) {
  const auto view = checkpoint.find(tensor).value();
  return {reinterpret_cast<const char*>(view.bytes().data()), view.bytes().size()};
}

struct OfCache {
  Cache cache;
};

}  // namespace

// Names.

TEST_CASE_FIXTURE(OfCache,
                  "takes names of an organization and a model, with or without a revision") {
  for (const std::string& name :
       {"o/n"s, "Org-1/na.me_2-x"s, "_/_"s, "0/1.5B"s, std::string(96, 'o') + "/n",
        "o/" + std::string(96, 'n'), "o/n@main"s, "o/n@v1.0"s, "o/n@a/b"s, "o/n@a@b"s, "o/n@ "s,
        "o/n@refs/pr/1"s}) {
    CAPTURE(name);
    CHECK_FAILS(sets::find_in_hub_cache(name), ErrorCode::not_found,
                "there is no model \"" + name.substr(0, name.find('@')) + "\"");
  }
}

TEST_CASE_FIXTURE(OfCache, "takes nothing else for the name of a model") {
  for (const std::string& name : {""s, "name"s, "/"s, "/name"s, "org/"s, "org/name/"s, "org//name"s,
                                  "./org/name"s, "/org/name"s, "~/name"s, "../name"s, "org/.."s,
                                  "./name"s, "org/."s, "C:/name"s, "org/name/model.safetensors"s})
    CHECK_MESSAGE(is_no_name(name), name);
  for (const std::string& name :
       {".org/name"s, "-org/name"s, "org/.name"s, "org/-name"s, "or g/name"s, "org/na me"s,
        "org/n\xc3\xa4me"s, "org\\name"s, "org:name"s, "org/name\0"s, "org/name\n"s,
        std::string(97, 'o') + "/name", "org/" + std::string(97, 'n'), "@"s, "@main"s, "org@main"s,
        "org@main/name"s})
    CHECK_MESSAGE(is_no_name(name), name);
  // Two hyphens or two dots in a row are none of the hub.
  for (const char* name : {"a--b/c", "a/b--c", "a/b..c", "a..b/c"})
    CHECK_MESSAGE(is_no_name(name), name);
}

TEST_CASE_FIXTURE(OfCache, "takes no revision that leads elsewhere") {
  // What would be read if it were followed.
  write(cache.model / "main", first_commit);
  write(cache.folder.path() / "outside", first_commit);
  for (const std::string& revision :
       {""s, "/"s, "/main"s, (cache.folder.path() / "outside").string(), ".."s, "../main"s,
        "../../../outside"s, "a/../main"s, "main/.."s, "a..b"s, "main\0"s, "\0main"s}) {
    CAPTURE(revision);
    CHECK(is_no_name("org/name@" + revision));
  }
  // Which lead to folders.
  for (const std::string revision : {".", "./", "main/", "feature"}) {
    CAPTURE(revision);
    write(cache.model / "refs" / "feature" / "x", first_commit);
    CHECK_FAILS(sets::find_in_hub_cache("org/name@" + revision), ErrorCode::not_found,
                "there is no revision \"" + revision + "\" of \"org/name\"");
  }
}

TEST_CASE_FIXTURE(OfCache, "a file or folder that is called as the first part hides the model") {
  CHECK(found("org/name").commit == first_commit);
  fs::create_directory("org");
  CHECK(is_no_name("org/name"));
  CHECK(is_no_name("org/name@main"));
  CHECK(is_no_name("org/other"));
  CHECK_FAILS(sets::find_in_hub_cache("other/name"), ErrorCode::not_found, "no model");
  fs::remove("org");
  write("org", "");
  CHECK(is_no_name("org/name"));
  fs::rename("org", "name");
  CHECK(found("org/name").commit == first_commit);
}

// Where the cache is.

TEST_CASE("each variable says where the cache is, unless one before it does") {
  const Environment environment;
  const TemporaryFolder folder;
  struct Place {
    const Variable& variable;
    const char* value;
    const char* hub;
  };
  // From the last that counts to the first.
  const std::array places = {
      Place{environment.home, "home", "home/.cache/huggingface/hub"},
      Place{environment.cache_home, "cache", "cache/huggingface/hub"},
      Place{environment.hf_home, "hf", "hf/hub"},
      Place{environment.old_hub_cache, "old", "old"},
      Place{environment.hub_cache, "new", "new"},
  };
  for (const Place& place : places) {
    CAPTURE(place.value);
    place.variable.set(folder.path() / place.value);
    const fs::path hub = folder.path() / place.hub;
    // The caches of those that count less are not looked at.
    CHECK_FAILS(sets::find_in_hub_cache("org/name"), ErrorCode::not_found,
                "there is no model \"org/name\" in the hub cache " + hub.string() +
                    ", and nothing is fetched from the network");
    const fs::path model = hub / "models--org--name";
    write(model / "refs" / "main", place.value);
    fs::create_directories(model / "snapshots" / place.value);
    CHECK(found("org/name").commit == place.value);
    CHECK(found("org/name").folder == model / "snapshots" / place.value);
  }
  // An empty one says nothing.
  environment.hub_cache.set("");
  CHECK(found("org/name").commit == "old");
  environment.old_hub_cache.set("");
  CHECK(found("org/name").commit == "hf");
  environment.hf_home.set("");
  CHECK(found("org/name").commit == "cache");
  environment.cache_home.set("");
  CHECK(found("org/name").commit == "home");
  environment.home.set("");
  const auto nowhere = sets::find_in_hub_cache("org/name").value();
  CHECK_FALSE(nowhere.has_value());
}

TEST_CASE("a cache in the home folder, or below the working one, is found from anywhere") {
  const Environment environment;
  const TemporaryFolder folder;
  environment.home.set(folder.path());
  write(folder.path() / "hf/hub/models--org--name/refs/main", first_commit);
  fs::create_directories(folder.path() / "hf/hub/models--org--name/snapshots" / first_commit);
  const fs::path snapshot = folder.path() / "hf/hub/models--org--name/snapshots" / first_commit;
  environment.hf_home.set("~/hf");
  CHECK(found("org/name").folder == snapshot);
  environment.hf_home.set("hf");
  const fs::path working = fs::current_path();
  fs::current_path(folder.path());
  const fs::path relative = found("org/name").folder;
  fs::current_path(working);
  CHECK(fs::equivalent(relative, snapshot));
  CHECK(relative.is_absolute());
}

TEST_CASE("the place of the cache may have any name, which an error escapes") {
  const Environment environment;
  const TemporaryFolder folder;
  const fs::path hub = folder.path() / "a b\x1b[2J";
  environment.hub_cache.set(hub);
  CHECK_FAILS(sets::find_in_hub_cache("org/name"), ErrorCode::not_found, "/a b\\x1B[2J, and");
  write(hub / "models--org--name" / "refs" / "main", first_commit);
  fs::create_directories(hub / "models--org--name" / "snapshots" / first_commit);
  CHECK(found("org/name").folder == hub / "models--org--name" / "snapshots" / first_commit);
}

// Revisions.

TEST_CASE_FIXTURE(
    OfCache, "branches and tags stand for their commits, and may have slashes in their names") {
  const sets::HubSnapshot main = found("org/name");
  CHECK(main.commit == first_commit);
  CHECK(main.folder == cache.model / "snapshots" / first_commit);
  CHECK(main.ref_file == cache.model / "refs" / "main");
  CHECK(found("org/name@main").folder == main.folder);
  for (const std::string revision :
       {"v1.0", "feature/x", "feature/y/z", "refs/pr/1", "a@b", "-", ".x"}) {
    CAPTURE(revision);
    cache.refer(revision, second_commit);
    const sets::HubSnapshot snapshot = found("org/name@" + revision);
    CHECK(snapshot.commit == second_commit);
    CHECK(snapshot.folder == cache.model / "snapshots" / second_commit);
    CHECK(snapshot.ref_file == cache.model / "refs" / revision);
  }
}

TEST_CASE_FIXTURE(OfCache, "a commit may be asked for without a reference to it") {
  fs::remove_all(cache.model / "refs");
  const sets::HubSnapshot snapshot = found("org/name@" + second_commit);
  CHECK(snapshot.commit == second_commit);
  CHECK(snapshot.folder == cache.model / "snapshots" / second_commit);
  CHECK(snapshot.ref_file.empty());
}

TEST_CASE_FIXTURE(OfCache, "blanks around a commit in a reference are no part of it") {
  for (const std::string& text : {second_commit + "\n", second_commit + "\r\n",
                                  " " + second_commit + " ", second_commit + "\nmore"}) {
    CAPTURE(text);
    cache.refer("main", text);
    CHECK(found("org/name").commit == second_commit);
  }
}

TEST_CASE_FIXTURE(OfCache, "a model or revision that is not in the cache is missed by its name") {
  const std::string where =
      " in the hub cache " + cache.hub.string() + ", and nothing is fetched from the network";
  const auto missing = [&](const std::string& name, const std::string& what) {
    CAPTURE(name);
    const auto result = sets::find_in_hub_cache(name);
    CHECK_FAILS(result, ErrorCode::not_found, "");
    CHECK(result.error().message == what + where);
  };
  missing("org/other", "there is no model \"org/other\"");
  missing("other/name@main", "there is no model \"other/name\"");
  missing("Org/name", "there is no model \"Org/name\"");
  const std::string of_model = "\" of \"org/name\"";
  missing("org/name@v2", "there is no revision \"v2" + of_model);
  missing("org/name@feature/x", "there is no revision \"feature/x" + of_model);
  missing("org/name@" + std::string(40, 'c'),
          "there is no revision \"" + std::string(40, 'c') + of_model);
  missing("org/name@\x1b[2J", "there is no revision \"\\x1B[2J" + of_model);
  // The reference is there, but not the files of its commit.
  cache.refer("gone", std::string(40, 'c'));
  missing("org/name@gone", "there is no revision \"gone" + of_model);
  fs::remove(cache.model / "refs" / "main");
  missing("org/name", "there is no revision \"main" + of_model);
  // Files where folders should be.
  write(cache.model / "snapshots" / std::string(40, 'c'), "");
  missing("org/name@gone", "there is no revision \"gone" + of_model);
  write(cache.hub / "models--org--file", "");
  missing("org/file", "there is no model \"org/file\"");
}

TEST_CASE_FIXTURE(OfCache, "a reference whose text is no commit leads nowhere") {
  fs::create_directories(cache.folder.path() / "outside");
  for (const std::string& text :
       {""s, "\n"s, "."s, ".."s, "../.."s, "/"s, (cache.folder.path() / "outside").string(),
        "../../../outside"s, "a/b"s, "a\0b"s, std::string(97, 'a'), std::string(1 << 20, 'a')}) {
    CAPTURE(text.substr(0, 100));
    cache.refer("main", text);
    CHECK_FAILS(sets::find_in_hub_cache("org/name"), ErrorCode::not_found,
                "there is no revision \"main\" of \"org/name\"");
  }
}

// What becomes of a snapshot.

TEST_CASE_FIXTURE(OfCache, "a snapshot is current until the reference to it moves") {
  cache.refer("v1", first_commit);
  const sets::HubSnapshot main = found("org/name"), tag = found("org/name@v1"),
                          commit = found("org/name@" + first_commit);
  CHECK(sets::is_current(main));
  cache.refer("main", first_commit + "\n");
  CHECK(sets::is_current(main));
  cache.refer("main", second_commit);
  CHECK_FALSE(sets::is_current(main));
  CHECK(sets::is_current(tag));
  CHECK(sets::is_current(found("org/name")));
  cache.refer("main", first_commit);
  CHECK(sets::is_current(main));
  fs::remove_all(cache.model / "refs");
  CHECK_FALSE(sets::is_current(main));
  CHECK_FALSE(sets::is_current(tag));
  CHECK(sets::is_current(commit));
}

// Blobs.

TEST_CASE_FIXTURE(OfCache, "a blob has the name of the link in a snapshot that leads to it") {
  cache.add(first_commit, "model.safetensors", "1234", "x");
  cache.add(first_commit, "README.md", "123", "y");
  cache.add(second_commit, "text/encoder/model.safetensors", "12345", "z");
  const fs::path blobs = cache.model / "blobs", snapshots = cache.model / "snapshots";
  CHECK(sets::snapshot_path(blobs / "1234") == snapshots / first_commit / "model.safetensors");
  CHECK(sets::snapshot_path(blobs / "123") == snapshots / first_commit / "README.md");
  CHECK(sets::snapshot_path(blobs / "12345") ==
        snapshots / second_commit / "text/encoder/model.safetensors");
  // The file itself may be gone.
  fs::remove(blobs / "1234");
  CHECK(sets::snapshot_path(blobs / "1234") == snapshots / first_commit / "model.safetensors");
}

TEST_CASE_FIXTURE(OfCache, "a blob of two snapshots has the name of one of its links") {
  cache.add(first_commit, "old.safetensors", "1234", "x");
  cache.add(second_commit, "new.safetensors", "1234", "x");
  const fs::path link = sets::snapshot_path(cache.model / "blobs" / "1234");
  const fs::path snapshots = cache.model / "snapshots";
  const bool is_first = link == snapshots / first_commit / "old.safetensors";
  const bool is_second = link == snapshots / second_commit / "new.safetensors";
  CHECK(is_first != is_second);
}

TEST_CASE_FIXTURE(OfCache, "what is no blob, or one that no link leads to, has its own name") {
  cache.add(first_commit, "model.safetensors", "1234", "x");
  const fs::path blobs = cache.model / "blobs";
  for (const fs::path& path :
       {blobs / "5678", blobs / "12", cache.model / "1234", cache.model / "other" / "1234", blobs,
        cache.model / "snapshots" / first_commit / "model.safetensors", fs::path("1234"),
        fs::path("/"), fs::path()}) {
    CAPTURE(path);
    CHECK(sets::snapshot_path(path) == path);
  }
  // A cache whose snapshots were removed.
  fs::remove_all(cache.model / "snapshots");
  CHECK(sets::snapshot_path(blobs / "1234") == blobs / "1234");
}

// Checkpoints.

TEST_CASE_FIXTURE(OfCache, "a checkpoint is opened by the name of its model") {
  cache.add(first_commit, "model.safetensors", "1234", safetensors("w", "old"));
  cache.add(first_commit, "config.json", "5678", "{}");
  const Checkpoint checkpoint = opened("org/name");
  CHECK(text_of(checkpoint, "w") == "old");
  REQUIRE(checkpoint.source_count() == 1);
  CHECK(checkpoint.source(0).path ==
        cache.model / "snapshots" / first_commit / "model.safetensors");
  CHECK(Backing(checkpoint).opened_paths() == std::vector<fs::path>{"org/name"});
  CHECK(checkpoint.is_current());
  for (const std::string& revision : {"main"s, first_commit}) {
    const Checkpoint chosen = opened("org/name@" + revision);
    CHECK(text_of(chosen, "w") == "old");
    CHECK(Backing(chosen).opened_paths() == std::vector<fs::path>{"org/name@" + revision});
  }
}

TEST_CASE_FIXTURE(OfCache, "a checkpoint is opened again as what the name of its model means now") {
  cache.add(first_commit, "model.safetensors", "1234", safetensors("w", "old"));
  cache.add(second_commit, "model.safetensors", "5678", safetensors("w", "new"));
  const Checkpoint old = opened("org/name");
  const Checkpoint fixed = opened("org/name@" + first_commit);
  const auto same = old.reopen().value();
  CHECK(text_of(same, "w") == "old");
  cache.refer("main", second_commit);
  CHECK_FALSE(old.is_current());
  CHECK(fixed.is_current());
  const auto moved = old.reopen().value();
  CHECK(text_of(moved, "w") == "new");
  CHECK(moved.source(0).path == cache.model / "snapshots" / second_commit / "model.safetensors");
  CHECK(Backing(moved).opened_paths() == std::vector<fs::path>{"org/name"});
  CHECK(moved.is_current());
  CHECK(text_of(old, "w") == "old");
  const auto again = fixed.reopen().value();
  CHECK(text_of(again, "w") == "old");
  fs::remove_all(cache.model);
  CHECK_FAILS(old.reopen(), ErrorCode::io, "there is no model \"org/name\"");
}

TEST_CASE_FIXTURE(OfCache, "a model may be a set of shards, which are found beside the links") {
  cache.add(first_commit, "one.safetensors", "1", safetensors("a", "aa"));
  cache.add(first_commit, "two.safetensors", "2", safetensors("b", "bbb"));
  cache.add(first_commit, "model.safetensors.index.json", "3",
            R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const Checkpoint checkpoint = opened("org/name");
  CHECK(text_of(checkpoint, "a") == "aa");
  CHECK(text_of(checkpoint, "b") == "bbb");
  REQUIRE(checkpoint.source_count() == 3);
  CHECK(checkpoint.source(2).path == cache.model / "snapshots" / first_commit / "two.safetensors");
  CHECK(Backing(checkpoint).opened_paths() == std::vector<fs::path>{"org/name"});
  cache.refer("main", second_commit);
  CHECK_FALSE(checkpoint.is_current());
}

TEST_CASE_FIXTURE(OfCache, "a model that is not in the cache is missed as a file and as a model") {
  const auto failed = Checkpoint::open("org/other");
  CHECK_FAILS(failed, ErrorCode::io,
              "No such file or directory; there is no model \"org/other\" in the hub cache " +
                  cache.hub.string() + ", and nothing is fetched from the network");
  CHECK(failed.error().file == "org/other");
  CHECK(failed.error().os_error == ENOENT);
  CHECK_FAILS(Checkpoint::open("org/name@v2"), ErrorCode::io,
              "there is no revision \"v2\" of \"org/name\"");
  // Names of files that no model has.
  for (const char* path : {"no-such-file", "org/name/model.safetensors", "./org/name"}) {
    const auto missing = Checkpoint::open(path);
    CHECK_FAILS(missing, ErrorCode::io, "No such file or directory");
    CHECK(missing.error().message.find("hub") == std::string::npos);
  }
  // A snapshot without weights, as of one who fetched the configuration alone.
  cache.add(first_commit, "config.json", "5678", "{}");
  CHECK_FAILS_IN(Checkpoint::open("org/name"), ErrorCode::not_a_checkpoint,
                 "there is no checkpoint", (cache.model / "snapshots" / first_commit).string());
}

TEST_CASE_FIXTURE(OfCache, "files that are here come before models in the cache") {
  cache.add(first_commit, "model.safetensors", "1234", safetensors("w", "cached"));
  write("org/name", safetensors("w", "here"));
  const Checkpoint checkpoint = opened("org/name");
  CHECK(text_of(checkpoint, "w") == "here");
  CHECK(Backing(checkpoint).opened_paths() == std::vector<fs::path>{fs::absolute("org/name")});
  fs::remove("org/name");
  // The folder is still there, in which one would expect it.
  const auto failed = Checkpoint::open("org/name");
  CHECK_FAILS(failed, ErrorCode::io, "No such file or directory");
  CHECK(failed.error().message.find("hub") == std::string::npos);
  fs::remove("org");
  CHECK(text_of(opened("org/name"), "w") == "cached");
}

TEST_CASE("a checkpoint says what it was told to open, as absolute paths") {
  const TemporaryFolder here;
  const WorkingFolder working(here.path());
  write("model.safetensors", safetensors("a", "a"));
  write("other/model.safetensors", safetensors("b", "b"));
  const fs::path current = fs::current_path();
  const Checkpoint file = opened("model.safetensors");
  CHECK(Backing(file).opened_paths() == std::vector<fs::path>{current / "model.safetensors"});
  const Checkpoint folder = opened("other");
  CHECK(Backing(folder).opened_paths() == std::vector<fs::path>{current / "other"});
  const std::vector<fs::path> files = {"other/model.safetensors", current / "model.safetensors"};
  const auto list = Checkpoint::open_files(files).value();
  CHECK(Backing(list).opened_paths() ==
        std::vector<fs::path>{current / "other" / "model.safetensors",
                              current / "model.safetensors"});
  const int descriptor = ::open("model.safetensors", O_RDONLY | O_CLOEXEC);
  REQUIRE(descriptor >= 0);
  const auto by_descriptor = Checkpoint::open_descriptor(descriptor);
  ::close(descriptor);
  REQUIRE_OK(by_descriptor);
  CHECK(Backing(*by_descriptor).opened_paths().empty());
}
