// Remote checkpoints of which only the metadata is read.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "tests/mmap/bus_child.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/byte_store.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/dcp_builder.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/sanitizer.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/variable.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/inspect.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {
namespace {

using namespace test;

// Whatever the environment says.
const OpenOptions chain{.verify = Verify::chain};

Result<Checkpoint> open_of(ByteStore& store, const std::string& file,
                           const OpenOptions& options = chain) {
  return open_metadata(std::make_unique<StoreSource>(store, file), options);
}

Checkpoint opened_of(ByteStore& store, const std::string& file) {
  return open_of(store, file).value();
}

void check_same(const Checkpoint& remote, const Checkpoint& local) {
  REQUIRE(remote.tensors().size() == local.tensors().size());
  for (std::size_t i = 0; i < local.tensors().size(); ++i) {
    const NamedTensor a = remote.tensors()[i];
    const NamedTensor b = local.tensors()[i];
    REQUIRE(a.name == b.name);
    REQUIRE(a.file_offset == b.file_offset);
    REQUIRE(a.source == b.source);
    REQUIRE(a.view.dtype() == b.view.dtype());
    REQUIRE(std::ranges::equal(a.view.shape(), b.view.shape()));
    REQUIRE(std::ranges::equal(a.view.strides(), b.view.strides()));
    REQUIRE(remote.path(i) == local.path(i));
  }
  CHECK(Backing(remote).storage_count() == Backing(local).storage_count());
  CHECK(remote.source_count() == local.source_count());
  CHECK(remote.info().format == local.info().format);
  CHECK(remote.info().pickle_bytes == local.info().pickle_bytes);
  CHECK(remote.info().tensor_bytes == local.info().tensor_bytes);
  CHECK(remote.info().file_bytes == local.info().file_bytes);
  CHECK(remote.info().unsupported == local.info().unsupported);
}

void check_same_bytes(const Checkpoint& remote, const Checkpoint& local) {
  for (std::size_t i = 0; i < local.tensors().size(); ++i) {
    const TensorView a = remote.tensors()[i].view;
    const TensorView b = local.tensors()[i].view;
    std::vector<std::byte> fetched(static_cast<std::size_t>(a.nbytes()));
    std::vector<std::byte> read(fetched.size());
    const Result<void> ok = local.gather(b, read);
    const Result<void> same = remote.gather(a, fetched);
    REQUIRE(same.has_value() == ok.has_value());
    if (ok)
      CHECK(fetched == read);
    else
      CHECK(same.error().message == ok.error().message);
  }
}

// A store with all files of a folder.
void put_folder(ByteStore& store, const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      store.put(entry.path().lexically_relative(test::data).native(),
                test::read_file(entry.path()));
}

bool is_of_several(const std::filesystem::path& path) {
  return path.native().find("/dcp/") != std::string::npos;
}

TEST_CASE("files of all formats say what they say when they are local") {
  std::size_t opened = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test::data)) {
    if (!entry.is_regular_file() || is_of_several(entry.path())) continue;
    const std::string name = entry.path().lexically_relative(test::data).native();
    INFO(name);
    ByteStore store;
    store.put(name, test::read_file(entry.path()));
    const Result<Checkpoint> local = Checkpoint::open(entry.path(), chain);
    const Result<Checkpoint> remote = open_of(store, name);
    if (local && local->source_count() > 1) {  // compressed, see below
      const bool is_text = name.find("python2_") != std::string::npos;
      CHECK_FAILS(remote, ErrorCode::unsupported, is_text ? "is spelled as text" : "is compressed");
      continue;
    }
    REQUIRE(remote.has_value() == local.has_value());
    if (!local) {
      CHECK(remote.error().code == local.error().code);
      CHECK(remote.error().message == local.error().message);
      CHECK(remote.error().file_offset == local.error().file_offset);
      CHECK(remote.error().file == "https://host/" + name);
      continue;
    }
    ++opened;
    check_same(*remote, *local);
    check_same_bytes(*remote, *local);
  }
  CHECK(opened >= 50);
}

TEST_CASE("pieces of torch.distributed.checkpoint are found beside its metadata") {
  for (const char* const folder : {"dcp/default", "dcp/threads", "dcp/per_item"}) {
    INFO(std::string(folder));
    ByteStore store;
    put_folder(store, test::data / folder);
    const Checkpoint remote = opened_of(store, std::string(folder) + "/.metadata");
    const Checkpoint local = test::opened(test::data / folder, chain);
    check_same(remote, local);
    check_same_bytes(remote, local);
  }
}

TEST_CASE("refuses the metadata of one rank, whose others cannot be listed") {
  ByteStore store;
  put_folder(store, test::data / "dcp/per_rank");
  CHECK_FAILS(open_of(store, "dcp/per_rank/__0.metadata"), ErrorCode::unsupported,
              "is the metadata of one rank");
  CHECK(store.requests().size() <= 2);
}

TEST_CASE("refuses compressed storages, naming the first") {
  ByteStore store;
  store.put("a.npz", test::read_file(test::data / "npz/deflated.npz"));
  CHECK_FAILS_IN(open_of(store, "a.npz"), ErrorCode::unsupported,
                 "is compressed: all of it would have to be read", "https://host/a.npz");
}

// `count` tensors of 256 bytes.
Tensors many(std::size_t count) {
  Tensors tensors;
  for (std::size_t i = 0; i < count; ++i)
    tensors.emplace_back("model.layers." + std::to_string(i) + ".self_attn.q_proj.weight",
                         std::string(256, static_cast<char>('a' + i % 26)));
  return tensors;
}

std::string gguf(const Tensors& tensors) {
  test::GgufBuilder builder;
  for (const auto& [name, bytes] : tensors)
    builder.tensor(name, {static_cast<std::int64_t>(bytes.size()) / 4}, 0, bytes);
  return builder.file();
}

void check_few_requests(const std::string& file, std::string content, std::size_t count,
                        std::size_t most) {
  INFO(file << " of " << count << " tensors");
  ByteStore store;
  const std::uint64_t size = content.size();
  store.put(file, std::move(content));
  const Checkpoint remote = opened_of(store, file);
  CHECK(remote.tensors().size() == count);
  CHECK(store.requests().size() <= most);
  CHECK(store.bytes() <= size + 655'360);  // nothing twice but the ends of a short file
}

TEST_CASE("a few requests get the metadata of many tensors" * doctest::test_suite("exhaustive")) {
  for (const std::size_t count : {10u, 1'000u, 10'000u, 100'000u}) {
    if (test::under_sanitizer && count > 10'000) continue;
    const Tensors tensors = many(count);
    const std::size_t steps = count == 100'000 ? 2 : 1;
    check_few_requests("model.pt", test::torch_zip(tensors), count, 2 + steps);
    check_few_requests("model.safetensors", test::safetensors(tensors), count, 1 + steps);
    check_few_requests("model.gguf", gguf(tensors), count, 1 + steps);
  }
}

constexpr std::size_t scattered = 20;
const std::string one_megabyte(1'000'000, 'a');

// Opens a file whose metadata is beside each of its tensors.
void check_few_rounds(ByteStore& store, const std::string& file, std::uint64_t most) {
  const Checkpoint remote = opened_of(store, file);
  CHECK(remote.tensors().size() == scattered);
  CHECK(store.rounds <= most);
  CHECK(store.bytes() < 8'000'000);
}

TEST_CASE("the headers of the arrays of an npz file are read together") {
  test::ArchiveBuilder builder;
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000,), }\n";
  const std::string preamble = "\x93NUMPY" + std::string{1, 0, static_cast<char>(header.size()), 0};
  for (std::size_t i = 0; i < scattered; ++i)
    builder.add_plain(std::to_string(i) + ".npy", preamble + header + one_megabyte);
  builder.finish();
  ByteStore store;
  store.put("a.npz",
            {reinterpret_cast<const char*>(builder.bytes().data()), builder.bytes().size()});
  check_few_rounds(store, "a.npz", 3);
}

TEST_CASE("the counts in a legacy stream are read together") {
  const std::string proto = "\x80\x02";
  const auto text = [](const std::string& value) {
    return "X" + std::string{static_cast<char>(value.size()), 0, 0, 0} + value;
  };
  const std::string bytes_of_number = "\x40\x42\x0f";  // of 1000000
  const std::string number = "J" + bytes_of_number + std::string(1, '\0');
  const std::string count = bytes_of_number + std::string(5, '\0');
  std::string object = proto + "}(", keys = proto + "](", storages;
  for (std::size_t i = 0; i < scattered; ++i) {
    const std::string key = std::to_string(i);
    object += text(key) + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") +
              "ctorch\nByteStorage\n" + text(key) + text("cpu") + number + "NtQK" +
              std::string(1, '\0') + number +
              "\x85K\x01\x85\x89"
              "ccollections\nOrderedDict\n)RtR";
    keys += text(key);
    storages += count + one_megabyte;
  }
  const std::string magic("\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 13);
  ByteStore store;
  store.put("a.bin", proto + magic + proto + "M\xe9\x03." + proto + "}." + object + "u." + keys +
                         "e." + storages);
  check_few_rounds(store, "a.bin", 3);
}

TEST_CASE("the items of torch.distributed.checkpoint are read together") {
  test::DcpFolder folder;
  for (std::size_t i = 0; i < scattered; ++i)
    folder.add(std::to_string(i), {1'000'000}, {{{0}, {1'000'000}, one_megabyte}},
               test::uint8_elements);
  ByteStore store;
  for (const auto& [file, content] : folder.files) store.put(file, content);
  store.put(".metadata", folder.metadata());
  check_few_rounds(store, ".metadata", 4);
}

TEST_CASE(
    "the first requests are both ends of a file, or its head if its name tells that it is there") {
  ByteStore store;
  store.put("model.pt", test::torch_zip({{"a", std::string(3'000'000, 'a')}}));
  const std::uint64_t size = store.content("model.pt").size();
  opened_of(store, "model.pt");
  CHECK(store.requests() == std::vector<ByteStore::Request>{{"model.pt", 0, 1048576},
                                                            {"model.pt", size - 655360, 655360}});
  store.clear_requests();
  store.put("a.safetensors", test::safetensors({{"a", std::string(3'000'000, 'a')}}));
  opened_of(store, "a.safetensors");
  CHECK(store.requests() == std::vector<ByteStore::Request>{{"a.safetensors", 0, 1048576}});
}

void put_set(ByteStore& store) {
  store.put("m/model.safetensors.index.json",
            test::index_of(
                {{"a", "one.safetensors"}, {"b", "two.safetensors"}, {"c", "two.safetensors"}}));
  store.put("m/one.safetensors", test::safetensors({{"a", "aaaa"}}));
  store.put("m/two.safetensors", test::safetensors({{"b", "bb"}, {"c", "cccccc"}}));
}

TEST_CASE("shards are found beside their index") {
  ByteStore store;
  put_set(store);
  const Checkpoint remote = opened_of(store, "m/model.safetensors.index.json");
  CHECK(store.requests().size() == 3);
  REQUIRE(remote.tensors().size() == 3);
  CHECK(remote.source(2).path == "https://host/m/two.safetensors");
  const std::vector<std::byte> c = gathered(remote, remote.find("c").value());
  CHECK(std::string(reinterpret_cast<const char*>(c.data()), c.size()) == "cccccc");
}

TEST_CASE("a missing shard is named, and the index that names it") {
  ByteStore store;
  put_set(store);
  store.forget("m/two.safetensors");
  CHECK_FAILS_IN(
      open_of(store, "m/model.safetensors.index.json"), ErrorCode::io,
      "HTTP 404 Not Found; the index https://host/m/model.safetensors.index.json names it",
      "https://host/m/two.safetensors");
}

TEST_CASE("a split is found by one of its files, which is not read twice") {
  ByteStore store;
  const auto part = [](std::uint16_t number, const char* name) {
    test::GgufBuilder builder;
    builder.split(number, 2, 2).tensor(name, {4}, 0, std::string(16, 'x'));
    return builder.file();
  };
  store.put("m/a-00001-of-00002.gguf", part(0, "one"));
  store.put("m/a-00002-of-00002.gguf", part(1, "two"));
  const Checkpoint remote = opened_of(store, "m/a-00002-of-00002.gguf");
  CHECK(remote.tensors().size() == 2);
  CHECK(remote.source(0).path == "https://host/m/a-00001-of-00002.gguf");
  CHECK(store.requests().size() == 2);
}

// Fails each of the requests of an open in turn.
void check_failures(ByteStore& store, const std::string& file) {
  store.clear_requests();
  opened_of(store, file);
  const std::size_t requests = store.requests().size();
  for (std::size_t number = 0; number < requests; ++number) {
    INFO(file << ", request " << number);
    store.fail_from(number);
    const Result<Checkpoint> remote = open_of(store, file);
    CHECK_FAILS(remote, ErrorCode::io, "HTTP 503 Slow Down");
    CHECK(remote.error().file.starts_with("https://host/"));
  }
  store.fail_from(ByteStore::never);
  CHECK(open_of(store, file).has_value());
}

TEST_CASE("each failed request is an error that names the file" *
          doctest::test_suite("exhaustive")) {
  ByteStore store;
  store.put("model.pt", test::torch_zip(many(20'000)));
  store.put("model.gguf", gguf(many(20'000)));
  put_set(store);
  for (const char* const file : {"model.pt", "model.gguf", "m/model.safetensors.index.json"})
    check_failures(store, file);
}

TEST_CASE("a source that ends a read early is an error") {
  ByteStore store;
  store.put("model.gguf", gguf(many(20'000)));
  store.ends_early = true;
  CHECK_FAILS_IN(open_of(store, "model.gguf"), ErrorCode::io,
                 "its source ended a read before all bytes had arrived", "https://host/model.gguf");
}

TEST_CASE("an empty file is none") {
  ByteStore store;
  store.put("model.pt", "");
  CHECK_FAILS_IN(open_of(store, "model.pt"), ErrorCode::not_a_checkpoint, "is empty",
                 "https://host/model.pt");
}

void check_like_local(const std::filesystem::path& path, const std::string& content) {
  ByteStore store;
  store.put(path.filename().native(), content);
  std::ofstream(path, std::ios::binary) << content;
  const Result<Checkpoint> local = Checkpoint::open(path, chain);
  const Result<Checkpoint> remote = open_of(store, path.filename());
  REQUIRE(remote.has_value() == local.has_value());
  if (local) return check_same(*remote, *local);
  CHECK(remote.error().code == local.error().code);
  CHECK(remote.error().message == local.error().message);
}

TEST_CASE("truncated and damaged files are refused as local ones" *
          doctest::test_suite("exhaustive")) {
  const test::TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"a.pt", test::read_file(test::data / "state_dict.pt")},
      {"a.safetensors", test::safetensors({{"a", "aaaa"}, {"b", "bb"}})},
      {"a.gguf", gguf({{"a", "aaaa"}})},
  };
  for (const auto& file : files) {
    const std::string& name = file.first;
    const std::string& content = file.second;
    const std::size_t step = content.size() / 61 + 1;
    for (std::size_t at = 1; at < content.size(); at += step) {
      INFO(name << " at " << at);
      check_like_local(folder.path() / name, content.substr(0, at));
      std::string damaged = content;
      damaged[at] = static_cast<char>(~damaged[at]);
      check_like_local(folder.path() / name, damaged);
    }
  }
}

// Two tensors of 3 and 2 MB, the second of which is neither in the head nor in the tail.
class Opened {
 public:
  Opened() {
    store.put("m.safetensors", test::safetensors({{"a", std::string(3'000'000, 'a')},
                                                  {"b", std::string(2'000'000, 'b')}}));
    checkpoint.emplace(opened_of(store, "m.safetensors"));
    store.clear_requests();
  }
  TensorView a() const { return checkpoint->find("a").value(); }
  TensorView b() const { return checkpoint->find("b").value(); }
  std::uint64_t offset_of(std::string_view name) const {
    return checkpoint->get(name).value().file_offset;
  }

  ByteStore store;
  std::optional<Checkpoint> checkpoint;
};

TEST_CASE_FIXTURE(Opened, "gather() fetches exactly its bytes, each time") {
  const std::vector<ByteStore::Request> wanted = {{"m.safetensors", offset_of("b"), 2'000'000}};
  CHECK(gathered(*checkpoint, b()) == std::vector<std::byte>(2'000'000, std::byte{'b'}));
  CHECK(store.requests() == wanted);
  store.clear_requests();
  CHECK(gathered(*checkpoint, b()) == std::vector<std::byte>(2'000'000, std::byte{'b'}));
  CHECK(store.requests() == wanted);
}

TEST_CASE_FIXTURE(Opened, "gather() does not fetch what came with the metadata") {
  CHECK(gathered(*checkpoint, a()) == std::vector<std::byte>(3'000'000, std::byte{'a'}));
  CHECK(store.requests() ==
        std::vector<ByteStore::Request>{{"m.safetensors", 1048576, offset_of("b") - 1048576}});
}

TEST_CASE_FIXTURE(Opened, "copy_bytes() fetches a part") {
  const TensorSlice part = TensorSlice::of(b()).value().narrow(0, 1'000'000, 10).value();
  std::vector<std::byte> bytes(10);
  REQUIRE_OK(Backing(*checkpoint).copy_bytes(part, bytes));
  CHECK(store.requests() ==
        std::vector<ByteStore::Request>{{"m.safetensors", offset_of("b") + 1'000'000, 10}});
}

TEST_CASE_FIXTURE(Opened, "a failed gather() names tensor and file") {
  store.fail_from(0);
  std::vector<std::byte> bytes(2'000'000);
  CHECK_FAILS_IN(checkpoint->gather(b(), bytes), ErrorCode::io, "tensor \"b\": HTTP 503 Slow Down",
                 "https://host/m.safetensors");
}

TEST_CASE_FIXTURE(Opened, "a forked child does not use the connections of its parent") {
  CHECK(test::in_child([this] {
          std::vector<std::byte> bytes(2'000'000);
          const Result<void> gathered = checkpoint->gather(b(), bytes);
          return !gathered && gathered.error().code == ErrorCode::unsupported ? 0 : 1;
        }) == "exit 0");
}

TEST_CASE_FIXTURE(Opened, "the memory of views cannot be read") {
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  // A system call that reads it tells so without a signal.
  CHECK(::write(pipe[1], b().bytes().data(), 1) == -1);
  CHECK(errno == EFAULT);
  CHECK(checkpoint->mapping().size() == store.content("m.safetensors").size());
  for (const int descriptor : {null, pipe[0], pipe[1]}) ::close(descriptor);
}

TEST_CASE_FIXTURE(Opened, "paths are the name of the source, and the state is current") {
  const std::vector<std::filesystem::path> name = {"https://host/m.safetensors"};
  CHECK(Backing(*checkpoint).opened_paths() == name);
  CHECK(checkpoint->source(0).path == name.front());
  CHECK(checkpoint->source(0).bytes == store.content("m.safetensors").size());
  CHECK(checkpoint->state() == CheckpointState::current);
  CHECK(checkpoint->is_current());
  Backing(*checkpoint).tell_refused_writes();
  CHECK(store.requests().empty());
}

constexpr const char* no_memory = "only its metadata was read, so its tensors have no memory";

TEST_CASE_FIXTURE(Opened, "refuses what needs the memory of tensors") {
  constexpr ErrorCode code = ErrorCode::unsupported;
  CHECK_FAILS(Backing(*checkpoint).lend(1), code, no_memory);
  CHECK_FAILS(Backing(*checkpoint).lend(1, CopyOnWrite::off), code, no_memory);
  CHECK_FAILS(Backing(*checkpoint).copy_on_write(), code, no_memory);
  CHECK_FAILS(checkpoint->writable_bytes(b()), code, no_memory);
  CHECK_FAILS_IN(checkpoint->demand(b()), code, no_memory, "https://host/m.safetensors");
  CHECK_FAILS(Warmer::start(*checkpoint), code, no_memory);
  CHECK_FAILS(residency(*checkpoint), code, no_memory);
  CHECK_FAILS(check_unchanged(*checkpoint, b()), code, no_memory);
  const CrcReport report = verify_crc(*checkpoint);
  REQUIRE(report.faults.size() == 1);
  CHECK(report.faults.front().code == code);
  CHECK(report.faults.front().message.starts_with(no_memory));
  CHECK(report.storages_checked == 0);
  CHECK_FAILS_IN(checkpoint->reopen(), code, "is remote: it is opened again by a new source",
                 "https://host/m.safetensors");
}

TEST_CASE("refuses options that need all bytes, before any request") {
  const struct {
    OpenOptions options;
    const char* words;
  } rows[] = {{{.writable = true}, "writable needs all bytes"},
              {{.populate = true}, "populate needs all bytes"},
              {{.locked = true}, "locked needs all bytes"},
              {{.verify = Verify::crc}, "verify=crc needs all bytes"}};
  for (const auto& row : rows) {
    CAPTURE(row.words);
    ByteStore store;
    store.put("m.safetensors", test::safetensors({{"a", "a"}}));
    CHECK_FAILS(open_of(store, "m.safetensors", row.options), ErrorCode::unsupported, row.words);
    CHECK(store.requests().empty());
  }
}

TEST_CASE("what the environment wishes for local files is without effect") {
  const test::Variable populate("WEIGHTMAP_POPULATE", "1"), writable("WEIGHTMAP_WRITABLE", "1"),
      locked("WEIGHTMAP_LOCKED", "1");
  ByteStore store;
  store.put("m.safetensors", test::safetensors({{"a", "a"}}));
  const auto of_store = opened_of(store, "m.safetensors");
  CHECK_FALSE(of_store.info().writable);
}

TEST_CASE("verify=headers reads the headers of records that are not there yet") {
  ByteStore store;
  Tensors tensors;
  for (int i = 0; i < 10; ++i) tensors.emplace_back(std::to_string(i), std::string(1'000'000, 'a'));
  store.put("model.pt", test::torch_zip(tensors));
  const OpenOptions options{.verify = Verify::headers};
  const Checkpoint remote = open_of(store, "model.pt", options).value();
  CHECK(remote.stats().local_headers_verified == 10);
  CHECK(store.requests().size() > 2);
  CHECK(store.bytes() < store.content("model.pt").size());
}

}  // namespace
}  // namespace weightmap
