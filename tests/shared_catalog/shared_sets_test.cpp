// Catalogs of checkpoints of several files: keyed by all of them, and taken over without reading
// one.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/shared_catalog/file_list.hpp"
#include "tests/mmap/refused_calls.hpp"
#include "tests/shared_catalog/support.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/shared_catalogs.hpp"

using namespace weightmap;
using namespace weightmap::test::catalogs;
using test::index_of;
using test::safetensors;
using test::Tensors;
using test::torch_zip;
namespace fs = std::filesystem;

namespace {

const std::string one = "model-00001-of-00002.safetensors";
const std::string two = "model-00002-of-00002.safetensors";

struct SetFixture : Fixture {
  fs::path write(const std::string& name, const std::string& content) const {
    fs::create_directories((folder.path() / name).parent_path());
    const fs::path made = folder.write(name, content);
    settle();
    return made;
  }
  fs::path file(const std::string& name) const { return folder.path() / name; }
  // Two shards in `below`, of which the first has a tensor that the index does not name.
  fs::path index(const std::string& below = "") const {
    write(below + one, safetensors({{"b", "bbbb"}, {"stale", "s"}, {"a", "aa"}}));
    write(below + two, safetensors({{"c", "ccc"}, {"none", ""}}));
    return write(
        "model.safetensors.index.json",
        index_of(
            {{"a", below + one}, {"b", below + one}, {"c", below + two}, {"none", below + two}}));
  }
  // Its folder.
  fs::path shards_without_index() const {
    write(one, safetensors({{"b", "bbbb"}, {"a", "aa"}}));
    write(two, safetensors({{"c", "ccc"}}));
    return folder.path();
  }
  fs::path torch_shards() const {
    write("pytorch_model-00001-of-00002.bin", torch_zip({{"b", "bbbb"}, {"a", "aa"}}));
    write("pytorch_model-00002-of-00002.bin", torch_zip({{"c", "ccc"}}));
    return folder.path();
  }
};

// All that a set says, with the place and the bytes of each tensor.
std::string describe_set(const Checkpoint& checkpoint) {
  std::string text = describe_all(checkpoint);
  text += "not indexed " + std::to_string(checkpoint.info().tensors_not_indexed) + "\n";
  for (std::size_t i = 0; i < checkpoint.source_count(); ++i) {
    const SourceInfo& source = checkpoint.source(i);
    text += source.path.string() + " " + std::to_string(source.bytes) + " at " +
            std::to_string(source.mapping_offset) + "\n";
  }
  for (const NamedTensor& tensor : checkpoint.tensors())
    text += std::string(tensor.name) + "=" +
            std::string(reinterpret_cast<const char*>(tensor.view.bytes().data()),
                        tensor.view.bytes().size()) +
            " in " + std::to_string(tensor.source) + " " + std::string(tensor.file) + "\n";
  return text;
}

// That the first process publishes and the next one attaches, to the same answers.
void check_is_shared(const fs::path& path) {
  CAPTURE(path);
  const std::string expected = describe_set(parsed(path));
  const Checkpoint first = opened(path);
  CHECK(first.info().catalog_reason == "");
  CHECK(first.info().catalog == CatalogSource::published);
  const Checkpoint second = opened(path, sharing_unverified());
  CHECK(second.info().catalog_reason == "");
  REQUIRE(second.info().catalog == CatalogSource::attached);
  CHECK(second.stats().reads == 0);
  CHECK(describe_set(second) == expected);
  CHECK_FALSE(second.catalog_was_damaged());
}

}  // namespace

TEST_CASE_FIXTURE(SetFixture, "an index of safetensors files is attached") {
  const fs::path path = index();
  check_is_shared(path);
  const Checkpoint attached = opened(path, sharing_unverified());
  CHECK(attached.info().format == "safetensors");
  CHECK(attached.info().tensors == 4);
  CHECK(attached.info().tensors_not_indexed == 1);
  REQUIRE(attached.source_count() == 3);
  CHECK(attached.source(1).path == file(one));
  CHECK(attached.source(1).mapping_offset == 2097152);
  CHECK(attached.source(2).mapping_offset == 4194304);
  const Result<NamedTensor> c = attached.get("c");
  REQUIRE_OK(c);
  CHECK(c->source == 2);
  CHECK(c->view.bytes()[2] == std::byte{'c'});
  CHECK_FALSE(attached.contains("stale"));
  CHECK(attached.root().find("total_size")->integer() == 1);
}

TEST_CASE_FIXTURE(SetFixture, "an index whose shards lie in a folder below is attached") {
  check_is_shared(index("below/more/"));
}

TEST_CASE_FIXTURE(SetFixture, "a folder with an index is attached by the index") {
  const fs::path path = index();
  check_is_shared(folder.path());
  CHECK(source_of(path) == CatalogSource::attached);
  CHECK(files().size() == 1);
}

TEST_CASE_FIXTURE(SetFixture, "a folder of safetensors shards without an index is attached") {
  check_is_shared(shards_without_index());
}

TEST_CASE_FIXTURE(SetFixture, "shards of torch.save are attached, and so is one of them alone") {
  const fs::path path = torch_shards();
  check_is_shared(path);
  check_is_shared(file("pytorch_model-00001-of-00002.bin"));
  CHECK(files().size() == 2);
  CHECK(source_of(path) == CatalogSource::attached);
  OpenOptions options = sharing();
  options.verify = Verify::crc;
  const Checkpoint checked = opened(path, options);
  CHECK(checked.info().catalog == CatalogSource::attached);
  CHECK(checked.stats().local_headers_verified == 3);
  CHECK(checked.verify_crc().storages_checked == 3);
}

TEST_CASE_FIXTURE(SetFixture, "a set is attached without a single read of any file") {
  const fs::path path = index();
  const std::string expected = describe_tensors(opened(path));
  test::with_refusals({{SYS_pread64, EIO}, {SYS_read, EIO}}, [&] {
    const Checkpoint attached = opened(path, sharing_unverified());
    CHECK(attached.info().catalog == CatalogSource::attached);
    CHECK(describe_tensors(attached) == expected);
    CHECK(attached.stats().reads == 0);
    CHECK(attached.stats().bytes_read == 0);
    CHECK_FAILS(attached.load_root(), ErrorCode::io, "cannot read");
  });
}

TEST_CASE_FIXTURE(SetFixture, "another process attaches to a set, and so does reopen()") {
  const fs::path path = index();
  opened(path);
  const std::string expected = describe_set(parsed(path));
  const auto is_attached = [&](const Checkpoint& checkpoint) {
    return checkpoint.info().catalog == CatalogSource::attached &&
           describe_set(checkpoint) == expected;
  };
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const Result<Checkpoint> attached = Checkpoint::open(path, sharing());
    _exit(attached && is_attached(*attached) ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  const Result<Checkpoint> again = opened(path).reopen();
  REQUIRE_OK(again);
  CHECK(is_attached(*again));
}

// What changes.

TEST_CASE_FIXTURE(SetFixture, "a replaced shard ends the use of a catalog of its index") {
  const fs::path path = index();
  opened(path);
  test::replace(file(two), safetensors({{"c", "CCC"}, {"none", ""}}));
  settle();
  const Checkpoint again = opened(path);
  CHECK(again.info().catalog == CatalogSource::published);
  CHECK(again.info().catalog_reason == "the shared catalog is about another file than " +
                                           file(two).string() +
                                           ", or about it as it was before it changed");
  CHECK(again.get("c")->view.bytes()[0] == std::byte{'C'});
  CHECK(files().size() == 1);
  fs::remove(block());
  check_is_shared(path);
}

TEST_CASE_FIXTURE(SetFixture, "a shard that was touched ends it, too") {
  const fs::path path = index();
  opened(path);
  fs::last_write_time(file(one), fs::last_write_time(file(one)) + std::chrono::seconds(1));
  settle();
  const Checkpoint again = opened(path);
  CHECK(again.info().catalog == CatalogSource::published);
  CHECK(again.info().catalog_reason.find(one) != std::string::npos);
  CHECK(source_of(path) == CatalogSource::attached);
}

TEST_CASE_FIXTURE(SetFixture, "an index that was rewritten has no catalog") {
  const fs::path path = index();
  opened(path);
  test::replace(path, index_of({{"a", one}, {"stale", one}, {"c", two}}));
  settle();
  const Checkpoint again = opened(path);
  CHECK(again.info().catalog == CatalogSource::published);
  CHECK(again.info().catalog_reason == "");
  CHECK(again.contains("stale"));
  CHECK_FALSE(again.contains("b"));
  CHECK(source_of(path) == CatalogSource::attached);
}

TEST_CASE_FIXTURE(SetFixture, "a shard that is missing is told by its name, as without a catalog") {
  const fs::path path = index();
  opened(path);
  fs::remove(file(two));
  const Result<Checkpoint> refused = Checkpoint::open(path, sharing());
  CHECK_FAILS(refused, ErrorCode::io, "names it");
  CHECK(refused.error().file == file(two).string());
  CHECK(refused.error().message == Checkpoint::open(path).error().message);
}

TEST_CASE_FIXTURE(SetFixture, "a folder with a replaced shard has no catalog") {
  const fs::path path = shards_without_index();
  opened(path);
  test::replace(file(two), safetensors({{"c", "CCC"}}));
  settle();
  const Checkpoint again = opened(path);
  CHECK(again.info().catalog == CatalogSource::published);
  CHECK(again.info().catalog_reason == "");
  CHECK(again.get("c")->view.bytes()[0] == std::byte{'C'});
  CHECK(source_of(path) == CatalogSource::attached);
}

TEST_CASE_FIXTURE(SetFixture, "a set with a shard that has just been changed is not published") {
  const fs::path path = index();
  REQUIRE(chmod(file(two).c_str(), 0600) == 0);
  const Checkpoint made = opened(path);
  CHECK(made.info().catalog == CatalogSource::parsed);
  CHECK(made.info().catalog_reason.starts_with(file(two).string() +
                                               " was changed less than 20 ms before"));
  CHECK(files().empty());
}

TEST_CASE_FIXTURE(SetFixture, "a catalog of a set is current only while all of its files are") {
  const fs::path path = index();
  opened(path);
  const auto state = [] { return shared_catalogs().value().at(0).state; };
  CHECK(shared_catalogs().value().at(0).checkpoint == path.string());
  CHECK(shared_catalogs().value().at(0).tensors == 4);
  CHECK(state() == SharedFileState::current);
  fs::last_write_time(file(two), fs::last_write_time(file(two)) + std::chrono::seconds(1));
  CHECK(state() == SharedFileState::changed);
  fs::remove(file(one));
  CHECK(state() == SharedFileState::gone);
  CHECK(remove_stale_catalogs().value().size() == 1);
  CHECK(files().empty());
}

TEST_CASE_FIXTURE(SetFixture, "a set under narrower limits takes no catalog, and leaves it") {
  const fs::path path = index();
  opened(path);
  const std::string good = test::read_file(block());
  OpenOptions narrow = sharing();
  narrow.limits.rank = 1;
  const Checkpoint other = opened(path, narrow);
  CHECK(other.info().catalog == CatalogSource::parsed);
  CHECK(other.info().catalog_reason ==
        "the shared catalog was made under wider limits than these options allow");
  CHECK(other.source_count() == 3);
  CHECK(test::read_file(block()) == good);
}

// What is not shared.

TEST_CASE_FIXTURE(SetFixture, "sets of which a catalog does not say all are not shared") {
  struct Case {
    std::vector<std::pair<std::string, std::string>> files;
    std::string reason;
  };
  const std::string f4 =
      test::framed(R"({"odd":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]},)"
                   R"("half":{"dtype":"F4","shape":[2,1],"data_offsets":[3,4]}})",
                   "abcd");
  const std::string kinds =
      "of sets of files, only catalogs of those of torch.save or of safetensors, of one byte "
      "order, are shared";
  for (const auto& [content, reason] : std::vector<Case>{
           {{{one, safetensors({{"a", "aa"}})}, {two, torch_zip({{"b", "b"}})}}, kinds},
           {{{one, safetensors({{"a", "aa"}})}, {two, f4}},
            "a catalog cannot say which tensors are not listed"}}) {
    for (const auto& [name, bytes] : content) write(name, bytes);
    const Checkpoint made = opened(folder.path());
    CHECK(made.info().catalog == CatalogSource::parsed);
    CHECK(made.info().catalog_reason == reason);
    CHECK_FAILS(made.share_catalog(), ErrorCode::unsupported, reason);
    CHECK(files().empty());
  }
}

TEST_CASE_FIXTURE(SetFixture, "a list of files is not shared") {
  shards_without_index();
  const std::vector<fs::path> paths = {file(one), file(two)};
  const Result<Checkpoint> made = Checkpoint::open_files(paths, sharing());
  REQUIRE_OK(made);
  CHECK(made->info().catalog == CatalogSource::parsed);
  CHECK(made->info().catalog_reason == "a list of files takes no shared catalog");
  CHECK_FAILS(made->share_catalog(), ErrorCode::unsupported, "a list of files takes no");
}

// What somebody else may have put there.

TEST_CASE_FIXTURE(SetFixture,
                  "a list of files that is wrong in any field is refused and replaced") {
  const fs::path path = index();
  const fs::path outside = write("outside.safetensors", safetensors({{"c", "xxx"}, {"none", ""}}));
  const std::string expected = describe_set(parsed(path));
  opened(path);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  const std::string beside = "does not lie beside the first";
  const std::string another = "is about another file than " + file(two).string();
  const std::string cannot_be = "where it cannot be";
  using Files = std::vector<catalog::ListedFile>;
  struct Case {
    std::string what;
    std::function<void(Files&)> change;
    std::string reason;
  };
  const std::vector<Case> cases = {
      {"name above", [](Files& f) { f[1].name = "../" + two; }, beside},
      {"name above from below", [](Files& f) { f[1].name = "x/../" + two; }, beside},
      {"name from the root", [&](Files& f) { f[1].name = file(two).string(); }, beside},
      {"no name", [](Files& f) { f[1].name = ""; }, beside},
      {"name with a zero", [](Files& f) { f[1].name += '\0'; }, beside},
      {"name too long", [](Files& f) { f[1].name = std::string(4097, 'x'); }, beside},
      {"name of nothing", [](Files& f) { f[1].name = "no-such-file"; }, "cannot be opened"},
      {"name of a folder", [&](Files& f) { f[1].name = folder.path().filename(); },
       "cannot be opened"},
      {"another name", [&](Files& f) { f[1].name = outside.filename(); },
       "is about another file than " + outside.string()},
      {"device", [](Files& f) { f[1].generation.device ^= 1; }, another},
      {"inode", [](Files& f) { f[1].generation.inode ^= 1; }, another},
      {"size", [](Files& f) { f[1].generation.size ^= 1; }, another},
      {"no size", [](Files& f) { f[1].generation.size = 0; }, another},
      {"huge size", [](Files& f) { f[1].generation.size = ~std::uint64_t{0}; }, cannot_be},
      {"mtime", [](Files& f) { f[1].generation.mtime_ns ^= 1; }, another},
      {"ctime", [](Files& f) { f[1].generation.ctime_ns ^= 1; }, another},
      {"base", [](Files& f) { f[1].base += 4096; }, another},
      {"base within the file before", [](Files& f) { f[1].base = f[0].base + 1; }, cannot_be},
      {"base within the first", [](Files& f) { f[0].base = 1; }, cannot_be},
      {"base beyond", [](Files& f) { f[1].base = ~std::uint64_t{0} - 1; }, cannot_be},
      {"order", [](Files& f) { std::swap(f[0].name, f[1].name); }, "is about another file than "},
      {"one twice", [](Files& f) { f.push_back(f.back()); }, cannot_be},
      {"too many", [](Files& f) { f.resize(65537, f.front()); }, cannot_be},
  };
  for (const Case& wrong : cases) {
    CAPTURE(wrong.what);
    Forgery forgery(place);
    REQUIRE(forgery.description.others.size() == 2);
    wrong.change(forgery.description.others);
    plant(place, forgery.forged());
    const Checkpoint checkpoint = opened(path, sharing_unverified());
    CHECK(describe_set(checkpoint) == expected);
    CHECK(checkpoint.info().catalog == CatalogSource::published);
    CHECK(checkpoint.info().catalog_reason.find(wrong.reason) != std::string::npos);
    CHECK(test::read_file(place) == good);
  }
  CHECK(source_of(path) == CatalogSource::attached);
}

// Only the index says how many there are, and it is not read.
TEST_CASE_FIXTURE(SetFixture, "a forged list of sound files answers nothing that is not there") {
  const fs::path path = index();
  opened(path);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  Forgery none(place);
  none.description.others.clear();
  plant(place, none.forged());
  const Checkpoint alone = opened(path, sharing_unverified());
  CHECK_FAILS(alone.get("b"), ErrorCode::corrupt,
              "the index names other files than those that were opened");
  plant(place, good);
  Forgery less(place);
  less.description.others.pop_back();
  plant(place, less.forged());
  {
    const Checkpoint checkpoint = opened(path, sharing_unverified());
    REQUIRE(checkpoint.info().catalog == CatalogSource::attached);
    CHECK(checkpoint.source_count() == 2);
    CHECK(checkpoint.get("b").has_value());
    CHECK_FALSE(checkpoint.find("c").has_value());
    CHECK(checkpoint.catalog_was_damaged());
    CHECK_FAILS(checkpoint.get("c"), ErrorCode::corrupt,
                "the index names other files than those that were opened");
    CHECK(files().empty());
  }
  plant(place, good);
  Forgery more(place);
  more.description.others.push_back(more.description.others.back());
  more.description.others.back().base = 3 * 2097152;
  plant(place, more.forged());
  const Checkpoint checkpoint = opened(path, sharing_unverified());
  REQUIRE(checkpoint.info().catalog == CatalogSource::attached);
  CHECK(checkpoint.source_count() == 4);
  CHECK(checkpoint.get("c").has_value());
  CHECK_FAILS(checkpoint.load_root(), ErrorCode::corrupt,
              "the index names other files than those that were opened");
  // Where the headers are compared, that is found at once.
  OpenOptions options = sharing();
  options.verify = Verify::headers;
  const Checkpoint healed = opened(path, options);
  CHECK(healed.info().catalog == CatalogSource::published);
  CHECK(healed.source_count() == 3);
  CHECK(test::read_file(place) == good);
}

TEST_CASE_FIXTURE(SetFixture, "numbers that lead out of the files of a set are healed") {
  const fs::path path = index();
  const std::string expected = describe_set(parsed(path));
  opened(path);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  constexpr std::uint64_t large_page = 2097152;
  struct Case {
    std::string what;
    std::function<void(Forgery&)> change;
  };
  const std::vector<Case> cases = {
      {"file of a storage", [](Forgery& f) { f.storage(0).source = 3; }},
      {"another file of a storage", [](Forgery& f) { f.storage(0).source = 2; }},
      {"the index as file of a storage", [](Forgery& f) { f.storage(0).source = 0; }},
      {"any file of a storage", [](Forgery& f) { f.storage(0).source = 0xFFFFFFFF; }},
      {"position between two files",
       [](Forgery& f) {
         f.storage(0).position = 2 * large_page - 64;
         f.entry(0).position = 2 * large_page - 64;
       }},
      {"position behind the last",
       [](Forgery& f) {
         f.storage(0).position = 3 * large_page;
         f.entry(0).position = 3 * large_page;
       }},
      {"position in another file than its storage",
       [](Forgery& f) { f.entry(0).position = 2 * large_page; }},
      {"bytes across the end of a file", [](Forgery& f) { f.storage(0).nbytes = large_page; }},
  };
  for (const Case& wild : cases) {
    CAPTURE(wild.what);
    Forgery forgery(place);
    wild.change(forgery);
    plant(place, forgery.forged());
    const Checkpoint checkpoint = opened(path, sharing_unverified());
    CHECK(checkpoint.info().catalog == CatalogSource::attached);
    CHECK(describe_set(checkpoint) == expected);
    CHECK(checkpoint.catalog_was_damaged());
    CHECK(test::read_file(place) == good);
  }
}

TEST_CASE_FIXTURE(SetFixture, "with headers compared, a forged catalog of a set is refused") {
  const fs::path path = index();
  opened(path);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  OpenOptions options = sharing();
  options.verify = Verify::headers;
  CHECK(source_of(path, options) == CatalogSource::attached);
  Forgery forgery(place);
  forgery.storage(0).position -= 1;
  forgery.entry(0).position -= 1;
  plant(place, forgery.forged());
  const Checkpoint checkpoint = opened(path, options);
  CHECK(checkpoint.info().catalog == CatalogSource::published);
  CHECK(checkpoint.info().catalog_reason ==
        "storage \"b\" of 4 bytes does not lie where the catalog has it");
  CHECK(describe_set(checkpoint) == describe_set(parsed(path)));
  CHECK(test::read_file(place) == good);
}

TEST_CASE_FIXTURE(SetFixture, "a flipped bit of a set's catalog is refused or healed" *
                                  doctest::test_suite("exhaustive")) {
  const fs::path path = index();
  const std::string expected = describe_set(parsed(path));
  opened(path);
  const fs::path place = block();
  const std::string good = test::read_file(place);
  for (std::size_t i = 0; i < good.size(); i += 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
    plant(place, bad);
    const Checkpoint checkpoint = opened(path, sharing_unverified());
    if (describe_set(checkpoint) != expected) FAIL("byte " << i);
    const bool attached = checkpoint.info().catalog == CatalogSource::attached;
    if (attached != checkpoint.catalog_was_damaged()) FAIL("byte " << i);
  }
}

TEST_CASE_FIXTURE(SetFixture, "an index that was rewritten in place and names more is not parsed") {
  const fs::path path = index();
  opened(path);
  const Checkpoint attached = opened(path, sharing_unverified());
  REQUIRE(attached.info().catalog == CatalogSource::attached);
  const Checkpoint own = parsed(path);
  std::string more = R"({"weight_map":{"a":"1","b":"2","c":"3"}})";
  more.resize(fs::file_size(path), ' ');
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << more;
  const std::string why = "the index names other files than those that were opened";
  CHECK_FAILS(attached.verify_headers(), ErrorCode::corrupt, why);
  CHECK_FAILS(own.verify_headers(), ErrorCode::corrupt, why);
  CHECK_FAILS(attached.load_root(), ErrorCode::corrupt, why);
}

// Sealed memory.

TEST_CASE_FIXTURE(SetFixture, "the catalog of a set is passed on as sealed memory") {
  const fs::path path = index();
  const std::string expected = describe_set(parsed(path));
  const int descriptor = parsed(path).share_catalog().value();
  const Result<Checkpoint> attached = Checkpoint::attach(path, descriptor);
  REQUIRE_OK(attached);
  CHECK(attached->info().catalog == CatalogSource::attached);
  CHECK(describe_set(*attached) == expected);
  const int again = Checkpoint::attach(path, descriptor).value().share_catalog().value();
  const Result<Checkpoint> third = Checkpoint::attach(folder.path(), again);
  REQUIRE_OK(third);
  CHECK(third->source_count() == 3);
  CHECK(describe_tensors(*third) == describe_tensors(*attached));
  close(again);
  CHECK_FALSE(fs::exists(shared));

  const int file_descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  CHECK_FAILS(Checkpoint::attach_descriptor(file_descriptor, descriptor),
              ErrorCode::invalid_argument, "is opened by its path");
  close(file_descriptor);
  test::replace(file(two), safetensors({{"c", "CCC"}, {"none", ""}}));
  CHECK_FAILS(Checkpoint::attach(path, descriptor), ErrorCode::invalid_argument,
              "is about another file than " + file(two).string());
  fs::remove(file(two));
  CHECK_FAILS(Checkpoint::attach(path, descriptor), ErrorCode::invalid_argument,
              "lists a file that cannot be opened");
  CHECK_FAILS(Checkpoint::attach(file(one), descriptor), ErrorCode::invalid_argument,
              "is about another file");
  close(descriptor);
}

TEST_CASE_FIXTURE(SetFixture, "a catalog of a folder is not that of its first shard alone") {
  for (const auto& [path, first] :
       {std::pair(shards_without_index(), one),
        std::pair(torch_shards(), std::string("pytorch_model-00001-of-00002.bin"))}) {
    const int descriptor = parsed(path).share_catalog().value();
    CHECK(Checkpoint::attach(path, descriptor).has_value());
    CHECK_FAILS(Checkpoint::attach(file(first), descriptor), ErrorCode::invalid_argument,
                "the shared catalog is about 2 files, and there are 1");
    close(descriptor);
    fs::remove(file(one));
    fs::remove(file(two));
  }
}

// The list by itself.

TEST_CASE("a list of files is read back, and none that was changed is the same") {
  const std::vector<catalog::ListedFile> files = {{"x/a", {1, 2, 3, 4, 5}, 2097152},
                                                  {"b", {6, 7, 8, 9, 10}, 4194304}};
  std::vector<std::byte> list(catalog::file_list_bytes(files));
  REQUIRE(list.size() == 2 * 56 + 4);
  catalog::write_file_list(files, list.data());
  const auto describe = [&] {
    std::string text;
    const auto read = catalog::read_file_list(list, 2, 100);
    if (!read) return text;
    for (const catalog::ListedFile& file : *read)
      text += file.name + " " + std::to_string(file.generation.device) + " " +
              std::to_string(file.generation.inode) + " " + std::to_string(file.generation.size) +
              " " + std::to_string(file.generation.mtime_ns) + " " +
              std::to_string(file.generation.ctime_ns) + " " + std::to_string(file.base) + "\n";
    return text;
  };
  const std::string good = "x/a 1 2 3 4 5 2097152\nb 6 7 8 9 10 4194304\n";
  CHECK(describe() == good);
  for (std::size_t bit = 0; bit < list.size() * 8; ++bit) {
    const auto flip = [&] { list[bit / 8] ^= std::byte(1 << bit % 8); };
    flip();
    if (describe() == good) FAIL("bit " << bit);
    flip();
  }
}

TEST_CASE("a list of files that is not as long as it says, or too long, is refused") {
  const std::vector<catalog::ListedFile> files = {{"a", {1, 2, 3, 4, 5}, 2097152}};
  std::vector<std::byte> list(catalog::file_list_bytes(files));
  catalog::write_file_list(files, list.data());
  CHECK_FAILS(catalog::read_file_list(list, 0, 1), ErrorCode::corrupt, "more than its names");
  CHECK_FAILS(catalog::read_file_list(list, 2, 1), ErrorCode::corrupt, "is truncated");
  CHECK_FAILS(catalog::read_file_list(list, ~std::uint64_t{0}, 1), ErrorCode::corrupt,
              "is truncated");
  CHECK_FAILS(catalog::read_file_list(std::span(list).first(list.size() - 1), 1, 1),
              ErrorCode::corrupt, "a name that is truncated");
  list.push_back(std::byte{'x'});
  CHECK_FAILS(catalog::read_file_list(list, 1, 1), ErrorCode::corrupt, "more than its names");

  std::vector<catalog::ListedFile> many(65536, files.front());
  CHECK(catalog::check_file_list(many).has_value());
  many.push_back(files.front());
  CHECK_FAILS(catalog::check_file_list(many), ErrorCode::corrupt, "is too long");
  many.assign(4096, files.front());
  for (catalog::ListedFile& file : many) file.name.assign(4040, 'x');
  CHECK(catalog::check_file_list(many).has_value());
  for (catalog::ListedFile& file : many) file.name += 'x';
  CHECK_FAILS(catalog::check_file_list(many), ErrorCode::corrupt, "is too long");
}
