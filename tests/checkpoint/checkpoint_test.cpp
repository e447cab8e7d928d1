// The whole path on files that a real torch wrote (tests/data), on damaged copies of them, and on
// files that are something else.
#include "weightmap/checkpoint.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ranges>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/open_files.hpp"
#include "tests/support/progress.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/texts.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/half.hpp"

using namespace weightmap;
using namespace weightmap::test;
namespace fs = std::filesystem;

namespace {

// A file that is gone after the test.
struct TemporaryFile {
  explicit TemporaryFile(const std::string& text) : path(folder.write("file", text)) {}
  void write(const std::string& text) const { folder.write("file", text); }

  test::TemporaryFolder folder;
  fs::path path;
};

std::vector<std::byte> elements(const TensorView& view) {
  std::vector<std::byte> out(view.nbytes());
  REQUIRE(view.gather(out).has_value());
  return out;
}

// Everything that a checkpoint says about its tensors, and optionally their bytes.
std::string describe(const Checkpoint& checkpoint, bool with_bytes) {
  std::string text;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    text += std::string(tensor.name) + " " + std::string(to_string(tensor.view.dtype())) + " @" +
            std::to_string(tensor.file_offset) + " s" + std::string(tensor.storage);
    for (std::int64_t dim : tensor.view.shape()) text += " " + std::to_string(dim);
    for (std::int64_t dim : tensor.view.strides()) text += " /" + std::to_string(dim);
    text += "\n";
    if (!with_bytes) continue;
    const std::span<const std::byte> bytes = tensor.view.bytes();
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return text;
}

std::string path_text(const std::vector<PathPart>& path) {
  nlohmann::json parts = nlohmann::json::array();
  for (const PathPart& part : path) {
    if (part.is_integer())
      parts.push_back(part.integer());
    else
      parts.push_back(part.key());
  }
  return parts.dump();
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", std::to_integer<unsigned>(byte));
    text += digits;
  }
  return text;
}

}  // namespace

TEST_CASE("says of every fixture what torch said when it wrote it") {
  std::ifstream file(data / "manifest.json");
  const nlohmann::json manifest = nlohmann::json::parse(file);
  std::size_t tensors_compared = 0;
  std::size_t bytes_compared = 0;
  for (const auto& entry : manifest["files"].items()) {
    const std::string& name = entry.key();  // no structured binding: CAPTURE is a lambda
    const nlohmann::json& expected = entry.value();
    if (!expected.contains("tensors")) continue;
    CAPTURE(name);
    const Result<Checkpoint> checkpoint = Checkpoint::open(data / name);
    if (!checkpoint) {
      CHECK_MESSAGE(expected.contains("error"), to_string(checkpoint.error()));
      continue;
    }
    REQUIRE(checkpoint->tensors().size() == expected["tensors"].size());
    for (const NamedTensor& tensor : checkpoint->tensors()) {
      const nlohmann::json& want = expected["tensors"][tensor.index];
      CAPTURE(tensor.name);
      CHECK(tensor.name == want["name"].get<std::string>());
      CHECK(path_text(checkpoint->path(tensor.index)) == want["path"].dump());
      CHECK(to_string(tensor.view.dtype()) == want["dtype"].get<std::string>());
      CHECK(list(tensor.view.shape()) == want["shape"].get<std::vector<std::int64_t>>());
      CHECK(list(tensor.view.strides()) == want["strides"].get<std::vector<std::int64_t>>());
      CHECK(tensor.storage == want["storage"].get<std::string>());
      CHECK(tensor.storage_offset == want["storage_offset"].get<std::int64_t>());
      CHECK(tensor.file_offset == want["file_offset"].get<std::uint64_t>());
      CHECK(tensor.view.nbytes() == want["nbytes"].get<std::uint64_t>());
      CHECK(tensor.view.is_contiguous() == want["contiguous"].get<bool>());
      CHECK(tensor.requires_grad == want["requires_grad"].get<bool>());
      CHECK(tensor.location == want["location"].get<std::string>());
      ++tensors_compared;
      if (!want.contains("hex") || tensor.view.is_conjugate() || tensor.view.is_negative())
        continue;
      CHECK(hex(elements(tensor.view)) == want["hex"].get<std::string>());
      ++bytes_compared;
    }
  }
  CHECK(tensors_compared > 150);
  CHECK(bytes_compared > 50);
}

TEST_CASE("reads one local header of a genuine file, in one read of a small one") {
  const OpenOptions options{.verify = Verify::chain};
  const Checkpoint checkpoint = opened(data / "state_dict.pt", options);
  const OpenStats& stats = checkpoint.stats();
  CHECK(stats.strategy == OffsetStrategy::calculated);
  CHECK(stats.local_headers_read == 1);
  CHECK(stats.reads == 1);
  CHECK(stats.bytes_read == fs::file_size(data / "state_dict.pt"));
  CHECK(stats.local_headers_verified == 0);
  CHECK(stats.storages_calculated == Backing(checkpoint).storage_count());
}

TEST_CASE("compares every offset with its header when the environment says so") {
  REQUIRE_MESSAGE(std::getenv("WEIGHTMAP_VERIFY") != nullptr, "run through ctest");
  const Checkpoint checkpoint = opened(data / "state_dict.pt");
  CHECK(checkpoint.stats().local_headers_verified == Backing(checkpoint).storage_count());
  CHECK(checkpoint.stats().local_headers_read == 1);
}

TEST_CASE("hands out views into the mapping, aligned as the file is") {
  const Checkpoint checkpoint = opened(data / "state_dict.pt");
  const std::span<const std::byte> mapping = checkpoint.mapping();
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    if (tensor.view.numel() == 0) continue;
    CHECK(tensor.view.data() == mapping.data() + tensor.file_offset);
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.view.data()) % 64 ==
          static_cast<std::uintptr_t>(tensor.storage_offset) * element_size(tensor.view.dtype()) %
              64);
  }
}

TEST_CASE("finds by name what it lists, and nothing else") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  std::size_t found = 0;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    const std::optional<TensorView> view = checkpoint.find(tensor.name);
    REQUIRE(view.has_value());
    CHECK(view->data() == tensor.view.data());
    CHECK(checkpoint.get_path(checkpoint.path(tensor.index))->view.data() == tensor.view.data());
    CHECK(Backing(checkpoint).storage(tensor.storage_index).key == tensor.storage);
    ++found;
  }
  CHECK(found == checkpoint.tensors().size());
  CHECK(!checkpoint.find("no such tensor"));
  CHECK(!checkpoint.find(""));
  CHECK_FAILS(checkpoint.get("no such tensor"), ErrorCode::not_found,
              "has no tensor \"no such tensor\"");
}

static_assert(std::ranges::random_access_range<TensorRange>);
static_assert(std::ranges::sized_range<TensorRange>);
static_assert(std::ranges::view<TensorRange> && std::ranges::borrowed_range<TensorRange>);

TEST_CASE("the tensors are a range for the algorithms of the standard library") {
  const Checkpoint checkpoint = opened(data / "state_dict.pt");
  const auto steps = std::ranges::find(checkpoint.tensors(), "steps", &NamedTensor::name);
  REQUIRE(steps != checkpoint.tensors().end());
  CHECK((*steps).view.dtype() == DType::int64);
  CHECK(std::ranges::count(checkpoint.tensors(), std::size_t{2},
                           [](const NamedTensor& tensor) { return tensor.view.rank(); }) == 5);
}

TEST_CASE("says whether there is a tensor of a name, and which names are like it") {
  const Checkpoint checkpoint = opened(data / "state_dict.pt");
  CHECK(checkpoint.contains("layers.0.weight"));
  CHECK(!checkpoint.contains("layers.0.wieght"));
  CHECK(opened(data / "colliding_names.pt").contains("a.b"));
  const auto message = [&](std::string_view name) { return checkpoint.get(name).error().message; };
  CHECK(message("step") == "has no tensor \"step\"; did you mean \"steps\"?");
  CHECK(message("layers.0.wieght") ==
        "has no tensor \"layers.0.wieght\"; did you mean \"layers.0.weight\", "
        "\"layers.1.weight\" or \"layers.0.bias\"?");
  CHECK(message("zzzz") == "has no tensor \"zzzz\"");
}

TEST_CASE("names tensor and file where elements are of another type") {
  const Checkpoint checkpoint = opened(data / "dtypes.pt");
  const auto error = checkpoint.get("float16")->as<float>().error();
  CHECK(to_string(error) == (data / "dtypes.pt").string() +
                                ": tensor \"float16\": float16 reads as weightmap::float16 "
                                "(half.hpp) or std::uint16_t, not as float");
  CHECK(checkpoint.get("float16")->as<float16>()->size() == 5);
}

TEST_CASE("a shared tensor keeps its checkpoint, and the shape of a slice") {
  SharedTensor weight;
  CHECK(weight->numel() == 0);
  CHECK(weight.checkpoint() == nullptr);
  std::weak_ptr<const Checkpoint> watched;
  {
    const auto checkpoint = Checkpoint::open_shared(data / "views.pt").value();
    watched = checkpoint;
    weight = SharedTensor::get(checkpoint, "base").value();
    CHECK_FAILS(SharedTensor::get(checkpoint, "bse"), ErrorCode::not_found, "did you mean");
  }
  CHECK(weight->as<float>()->back() == 23.0f);
  weight = SharedTensor(weight.checkpoint(), weight->narrow(0, 1, 2).value());
  const SharedTensor copy = weight;
  weight = {};
  CHECK(!watched.expired());
  CHECK(copy->shape()[0] == 2);
  CHECK((*copy).as<float>()->front() == 6.0f);
  CHECK(std::vector{copy}.at(0)->numel() == 12);
}

TEST_CASE("a shared tensor that is the last lets go of the file") {
  auto checkpoint = Checkpoint::open_shared(data / "views.pt").value();
  const std::weak_ptr<const Checkpoint> watched = checkpoint;
  SharedTensor weight = SharedTensor::get(std::move(checkpoint), "base").value();
  CHECK(!watched.expired());
  weight = {};
  CHECK(watched.expired());
  CHECK_FAILS(Checkpoint::open_shared(data / "nothing.pt"), ErrorCode::io, "cannot open the file");
}

TEST_CASE("refuses an ambiguous name with both paths and finds each by its path") {
  const Checkpoint checkpoint = opened(data / "colliding_names.pt");
  CHECK(!checkpoint.find("a.b"));
  CHECK_FAILS(checkpoint.get("a.b"), ErrorCode::invalid_argument, "[\"a.b\"] and [\"a\", \"b\"]");
  const auto flat = checkpoint.get_path({"a.b"});
  const auto nested = checkpoint.get_path({"a", "b"});
  REQUIRE(flat.has_value());
  REQUIRE(nested.has_value());
  CHECK(flat->view.data() != nested->view.data());
  CHECK(flat->name == "a.b");
  CHECK(nested->name == "a.b");
  CHECK_FAILS(checkpoint.get_path({"a", 0}), ErrorCode::not_found,
              "has no tensor at the path [\"a\", 0]");
}

TEST_CASE("knows which tensor a value of the tree is") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  const Value root = checkpoint.root();
  const auto weight = checkpoint.tensor(*root.find("model")->find("0.weight"));
  REQUIRE(weight.has_value());
  CHECK(weight->name == "model.0.weight");
  CHECK(!checkpoint.tensor(root).has_value());
  CHECK(!checkpoint.tensor(*root.find("model")).has_value());
  CHECK(!checkpoint.tensor(*root.find("epoch")).has_value());

  const Checkpoint wrapped = opened(data / "parameters.pt");
  std::size_t parameters = 0;
  for (const auto& [key, value] : wrapped.root().items()) {
    const auto tensor = wrapped.tensor(value);
    if (!tensor) continue;
    CHECK(tensor->name == *key.string());
    parameters += tensor->is_parameter ? 1 : 0;
  }
  CHECK(parameters > 0);
}

TEST_CASE("lists storages that were saved without a tensor") {
  const Checkpoint checkpoint = opened(data / "bare_storages.pt");
  CHECK(checkpoint.tensors().size() == 1);
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i)
    sizes.push_back(Backing(checkpoint).storage(i).nbytes);
  CHECK(sizes == std::vector<std::uint64_t>{8, 3, 16});
}

TEST_CASE("gives writable memory beside a read-only mapping, which writes do not reach") {
  const TemporaryFile file(read_file(data / "tensor_root.pt"));
  const Checkpoint checkpoint = opened(file.path);
  const auto memory = Backing(checkpoint).copy_on_write().value();
  CHECK(memory.data() != checkpoint.mapping().data());
  CHECK(memory.size() == checkpoint.mapping().size());
  CHECK(Backing(checkpoint).copy_on_write()->data() == memory.data());
  const NamedTensor tensor = checkpoint.tensors()[0];
  const std::byte before = *tensor.view.data();
  memory[tensor.file_offset] = ~before;
  CHECK(*tensor.view.data() == before);
  CHECK(read_file(file.path) == read_file(data / "tensor_root.pt"));

  const OpenOptions writable{.sharing = Sharing::private_, .writable = true};
  const Checkpoint own = opened(file.path, writable);
  CHECK(Backing(own).copy_on_write()->data() == own.mapping().data());
}

TEST_CASE("lends memory to write to, or the mapping, as the open and the call say") {
  using enum CopyOnWrite;
  const struct {
    CopyOnWrite opened;
    std::uint64_t largest_storage;
    std::optional<CopyOnWrite> called;
    bool is_copy;
  } rows[] = {
      {on, 1, {}, true},    {on, small_storage, {}, true},        {on, 1, off, false},
      {off, 1, {}, false},  {on, small_storage - 1, small, true}, {off, 1, on, true},
      {small, 1, {}, true}, {on, small_storage, small, false},    {small, small_storage, {}, false},
  };
  for (const auto& row : rows) {
    CAPTURE(&row - rows);
    const Checkpoint checkpoint = opened(data / "tensor_root.pt", {.copy_on_write = row.opened});
    const Backing backing(checkpoint);
    const auto lent = (row.called ? backing.lend(row.largest_storage, *row.called)
                                  : backing.lend(row.largest_storage))
                          .value();
    const std::byte* const copies = backing.copy_on_write()->data();
    CHECK(lent.data() == (row.is_copy ? copies : checkpoint.mapping().data()));
    CHECK(lent.size() == checkpoint.mapping().size());
  }
}

TEST_CASE("lends the mapping of a checkpoint that was opened writable, and none that is not") {
  const TemporaryFile file(read_file(data / "tensor_root.pt"));
  for (const Sharing sharing : {Sharing::shared, Sharing::private_}) {
    const Checkpoint checkpoint = opened(
        file.path, {.sharing = sharing, .writable = true, .copy_on_write = CopyOnWrite::off});
    CHECK(Backing(checkpoint).lend(small_storage)->data() == checkpoint.mapping().data());
    CHECK(Backing(checkpoint).lend(1, CopyOnWrite::on)->data() == checkpoint.mapping().data());
    CHECK_FAILS(Backing(checkpoint).lend(1, CopyOnWrite::off), ErrorCode::invalid_argument,
                "the checkpoint was opened writable, so it has no read-only memory to lend");
  }
}

TEST_CASE("refuses writable memory of a file that was written to, not of one that was replaced") {
  const TemporaryFile file(read_file(data / "tensor_root.pt"));
  const Checkpoint checkpoint = opened(file.path);
  const Checkpoint other = opened(file.path);
  fs::path moved = file.path;
  moved += ".moved";
  fs::rename(file.path, moved);  // changes the ctime, as replacing the file would
  CHECK(Backing(checkpoint).copy_on_write().has_value());
  fs::rename(moved, file.path);
  fs::last_write_time(file.path, fs::last_write_time(file.path) + std::chrono::seconds(1));
  CHECK_FAILS(Backing(other).copy_on_write(), ErrorCode::io,
              "the file changed since it was opened");
}

TEST_CASE("stays valid when it is moved") {
  Checkpoint first = opened(data / "state_dict.pt");
  const NamedTensor tensor = *first.tensors().begin();
  const Checkpoint second = std::move(first);
  CHECK(second.find(tensor.name)->data() == tensor.view.data());
  CHECK(!elements(tensor.view).empty());
}

TEST_CASE("opens big-endian files and hands their data out only through gather()") {
  const Checkpoint checkpoint = opened(data / "big_endian.pt");
  CHECK(checkpoint.info().byteorder == "big");
  std::size_t foreign = 0;
  for (const NamedTensor& tensor : checkpoint.tensors())
    foreign += tensor.view.is_foreign_byte_order() && tensor.view.data() == nullptr;
  CHECK(foreign > 0);
}

TEST_CASE("assumes the byte order it is told where the file has none") {
  const Checkpoint assumed = opened(data / "no_byteorder.pt");
  CHECK(assumed.info().byteorder_assumed);
  CHECK(assumed.info().byteorder == "little");
  OpenOptions big;
  big.missing_byte_order = ByteOrder::big;
  const Checkpoint told = opened(data / "no_byteorder.pt", big);
  CHECK(told.info().byteorder == "big");
  const Checkpoint recorded = opened(data / "state_dict.pt", big);
  CHECK(recorded.info().byteorder == "little");
  CHECK(!recorded.info().byteorder_assumed);
}

TEST_CASE("writes through a private mapping leave the file alone, through a shared one reach it") {
  const std::string before = read_file(data / "state_dict.pt");
  const TemporaryFile copy(before);
  {
    Checkpoint own = opened(copy.path, {.sharing = Sharing::private_, .writable = true});
    const TensorView view = (*own.tensors().begin()).view;
    const auto bytes = own.writable_bytes(view).value();
    bytes[0] ^= std::byte{0xFF};
    CHECK(view.data()[0] == bytes[0]);
    CHECK(read_file(copy.path) == before);
  }
  Checkpoint shared = opened(copy.path, {.writable = true});
  const NamedTensor tensor = *shared.tensors().begin();
  (*shared.writable_bytes(tensor.view))[0] ^= std::byte{0xFF};
  std::string expected = before;
  expected[tensor.file_offset] = static_cast<char>(~expected[tensor.file_offset]);
  CHECK(read_file(copy.path) == expected);
}

TEST_CASE("refuses to write unless it was opened writable, or outside the mapping") {
  Checkpoint readable = opened(data / "state_dict.pt");
  CHECK_FAILS(readable.writable_bytes((*readable.tensors().begin()).view),
              ErrorCode::invalid_argument, "not opened writable");
  const OpenOptions options{.sharing = Sharing::private_, .writable = true};
  Checkpoint writable = opened(data / "state_dict.pt", options);
  CHECK_FAILS(writable.writable_bytes((*readable.tensors().begin()).view),
              ErrorCode::invalid_argument, "not one of this checkpoint");
}

TEST_CASE("a check of the sums is cancelled, and an open that makes one or brings pages in") {
  const fs::path path = data / "state_dict.pt";
  const CrcReport report = verify_crc(opened(path), test::stop);
  CHECK(report.cancelled);
  CHECK(report.faults.empty());
  CHECK(report.storages_checked == 0);
  OpenOptions options{.progress = test::stop};
  CHECK(Checkpoint::open(path, options).has_value());  // has nothing long to do
  options.verify = Verify::crc;
  CHECK_FAILS(Checkpoint::open(path, options), ErrorCode::cancelled,
              "the check of its checksums was cancelled");
  options.verify = Verify::chain;
  options.populate = true;
  const std::string size = std::to_string(fs::file_size(path));
  CHECK_FAILS(Checkpoint::open(path, options), ErrorCode::cancelled,
              "was cancelled after " + size + " of " + size + " bytes");
}

TEST_CASE("verifies headers and sums, and names the storage that differs") {
  const std::string good = read_file(data / "state_dict.pt");
  TemporaryFile copy(good);
  const Checkpoint checkpoint = opened(copy.path);
  CHECK(verify_headers(checkpoint).has_value());
  std::uint64_t last_done = 0, last_total = 0;
  const CrcReport sound = verify_crc(checkpoint, [&](std::uint64_t done, std::uint64_t total) {
    last_done = done;
    last_total = total;
    return true;
  });
  CHECK(sound.faults.empty());
  CHECK(sound.storages_checked == Backing(checkpoint).storage_count());
  CHECK(last_done == last_total);
  CHECK(last_total == sound.bytes);
  const CrcReport without = verify_crc(opened(data / "no_crc.pt"));
  CHECK(without.faults.empty());
  CHECK(without.storages_without_crc > 0);

  const NamedStorage victim = Backing(checkpoint).storage(1);
  std::string bad = good;
  bad[victim.payload_offset] = static_cast<char>(bad[victim.payload_offset] ^ 1);
  copy.write(bad);
  const CrcReport damaged = verify_crc(checkpoint);
  REQUIRE(damaged.faults.size() == 1);
  CHECK(damaged.faults[0].message.find("data/" + std::string(victim.key) + "\"") !=
        std::string::npos);
  CHECK(damaged.faults[0].file_offset == victim.payload_offset);
  const OpenOptions options{.verify = Verify::crc};
  CHECK_FAILS(Checkpoint::open(copy.path, options), ErrorCode::corrupt, "CRC-32");
  CHECK(Checkpoint::open(copy.path).has_value());
}

TEST_CASE("gives an error for every truncation of a file" * doctest::test_suite("exhaustive")) {
  const std::string good = read_file(data / "views.pt");
  TemporaryFile copy(good);
  for (std::size_t length = 0; length < good.size(); ++length) {
    copy.write(good.substr(0, length));
    const Result<Checkpoint> checkpoint = Checkpoint::open(copy.path);
    REQUIRE_MESSAGE(!checkpoint.has_value(), length);
    CHECK(!checkpoint.error().message.empty());
    CHECK(checkpoint.error().file == copy.path.string());
  }
}

TEST_CASE("gives an error or the right bytes for flips of every byte" *
          doctest::test_suite("exhaustive")) {
  const OpenOptions summed{.verify = Verify::crc};
  const OpenOptions chained{.verify = Verify::chain};
  for (const char* name : {"views.pt", "old_order.pt"}) {
    const std::string good = read_file(data / name);
    TemporaryFile copy(good);
    const std::string said = describe(opened(copy.path, chained), false);
    const std::string said_with_bytes = describe(opened(copy.path, summed), true);
    std::size_t opened_damaged = 0;
    // Of the second file, whose records have another order, some.
    const std::size_t step = name == std::string_view("views.pt") ? 1 : 5;
    for (std::size_t at = 0; at < good.size(); at += step) {
      // One bit, or all of them.
      const int pattern = at % 2 == 0 ? 1 << (at / 2 % 8) : 0xFF;
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ pattern);
      copy.write(bad);
      CAPTURE(name);
      CAPTURE(at);
      // With sums compared, nothing but the right bytes may come out.
      if (const auto checkpoint = Checkpoint::open(copy.path, summed)) {
        CHECK(describe(*checkpoint, true) == said_with_bytes);
        ++opened_damaged;
      }
      // Without, the bytes of a storage are what the file holds, but in the right place.
      if (const auto checkpoint = Checkpoint::open(copy.path, chained))
        CHECK(describe(*checkpoint, false) == said);
    }
    CHECK(opened_damaged > 0);
    CHECK(opened_damaged < good.size());
  }
}

TEST_CASE("tells what a stranger is, and leaves nothing open or mapped") {
  for (const auto& [name, code, words] :
       {std::tuple{"lfs_pointer.pt", ErrorCode::not_a_checkpoint, "Git LFS pointer"},
        {"page.pt", ErrorCode::not_a_checkpoint, "web page (HTML)"},
        {"compressed.pt.gz", ErrorCode::not_a_checkpoint, "gzip"},
        {"archive.7z", ErrorCode::not_a_checkpoint, "7z"},
        {"archive.tar", ErrorCode::not_a_checkpoint, "tar archive"},
        {"documents.zip", ErrorCode::not_a_checkpoint, "without the record data.pkl"},
        {"truncated.pt", ErrorCode::corrupt, "is truncated"},
        {"empty.pt", ErrorCode::not_a_checkpoint, "empty"}}) {
    const fs::path path = data / "strangers" / name;
    CAPTURE(path);
    CHECK_FAILS(Checkpoint::open(path), code, words);
    CHECK(mappings(fs::canonical(path)) == 0);
    CHECK(open_descriptors(fs::canonical(path)) == 0);
  }
  CHECK_FAILS(Checkpoint::open(data / "missing.pt"), ErrorCode::io, "No such file");
  CHECK_FAILS(Checkpoint::open(data / "strangers"), ErrorCode::invalid_argument,
              "is a folder of several checkpoints");
}

TEST_CASE("tells a flatbuffer of the lite interpreter by the name at its byte 4") {
  const std::string head("\x18\0\0\0PTMF", 8);
  for (const std::size_t more : {0u, 300u}) {
    const TemporaryFile file(head + std::string(more, '\0'));
    CHECK_FAILS(Checkpoint::open(file.path), ErrorCode::not_a_checkpoint,
                "is a module for the lite interpreter of torch mobile, as a flatbuffer");
  }
  const TemporaryFile other(head.substr(1));
  CHECK_FAILS(Checkpoint::open(other.path), ErrorCode::not_a_checkpoint, "not a torch checkpoint");
}

TEST_CASE("is read by many threads at once") {
  const Checkpoint checkpoint = opened(data / "training.pt");
  std::vector<std::thread> threads;
  std::vector<std::size_t> found(8);
  for (std::size_t& count : found)
    threads.emplace_back([&checkpoint, &count] {
      for (const NamedTensor& tensor : checkpoint.tensors()) {
        std::vector<std::byte> out(tensor.view.nbytes());
        count += checkpoint.find(tensor.name).has_value() && tensor.view.gather(out).has_value();
      }
      count += verify_crc(checkpoint).faults.empty();
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t count : found) CHECK(count == checkpoint.tensors().size() + 1);
}

TEST_CASE("logs one line for an open, through the caller's function only") {
  std::vector<std::string> lines;
  OpenOptions options;
  options.log = [&lines](std::string_view line) { lines.emplace_back(line); };
  opened(data / "state_dict.pt", options);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("offsets calculated, 1 read of ") != std::string::npos);
}

TEST_CASE("refuses what its limits do not allow, naming the limit") {
  const auto plain = opened(data / "state_dict.pt");
  const std::uint64_t pickle_bytes = plain.info().pickle_bytes;
  const struct {
    const char* name;
    Limits limits;
    const char* file;
    const char* words;  // nullptr: it is allowed
  } rows[] = {
      {"a pickle that another tool compressed",
       {.record_bytes = 100},
       "rezipped_deflated.pt",
       "data.pkl has"},
      {"which is not asked of others", {.record_bytes = 100}, "state_dict.pt", nullptr},
      {"a pickle", {.pickle_bytes = 100}, "state_dict.pt", "the limit is 100"},
      {"a pickle as long as the limit", {.pickle_bytes = pickle_bytes}, "state_dict.pt", nullptr},
      {"and one byte longer", {.pickle_bytes = pickle_bytes - 1}, "state_dict.pt", "the limit is "},
      {"a directory", {.directory_bytes = 100}, "state_dict.pt", "the limit is 100"},
      {"tensors", {.tensors = 1}, "state_dict.pt", "more than 1 tensors"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    const auto checkpoint = Checkpoint::open(data / row.file, {.limits = row.limits});
    if (row.words == nullptr)
      REQUIRE_OK(checkpoint);
    else
      CHECK_FAILS(checkpoint, ErrorCode::limit_exceeded, row.words);
  }
}
