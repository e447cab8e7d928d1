// Legacy streams, written by hand byte for byte, damaged copies of them, and one that torch wrote.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::data;
using test::opened;

namespace {

std::string raw(std::uint64_t value, std::size_t width = 8) {
  return {reinterpret_cast<const char*>(&value), width};
}
std::string text(const std::string& value) { return "X" + raw(value.size(), 4) + value; }
std::string number(int value) { return "K" + raw(static_cast<std::uint64_t>(value), 1); }
std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
std::string floats(std::initializer_list<float> values) {
  std::string bytes;
  for (float value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}

constexpr char proto[] = "\x80\x02";

std::string id(const std::string& key, int numel, const std::string& view = "N") {
  return "(" + text("storage") + global("torch", "FloatStorage") + text(key) + text("cpu") +
         number(numel) + view + "tQ";
}

std::string tensor(const std::string& storage, int offset, int size) {
  return global("torch._utils", "_rebuild_tensor_v2") + "(" + storage + number(offset) +
         number(size) + "\x85" + number(1) + "\x85\x89" + global("collections", "OrderedDict") +
         ")RtR";
}

// {"a": three floats of storage "7", "b": the last one of them, "c": two of storage "8"}
struct Stream {
  std::string magic = proto + "\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19."s;
  std::string version = proto + "M\xe9\x03."s;
  std::string machine = proto + "}("s + text("little_endian") + "\x88u.";
  std::string object = proto + "}("s + text("a") + tensor(id("7", 3), 0, 3) + text("b") +
                       tensor(id("7", 3), 2, 1) + text("c") + tensor(id("8", 2), 0, 2) + "u.";
  std::string keys = proto + "]("s + text("7") + text("8") + "e.";
  std::string storages = raw(3) + floats({1, 2, 3}) + raw(2) + floats({4, 5});

  std::string head() const { return magic + version + machine + object + keys; }
  std::string bytes() const { return head() + storages; }
};

class Opened {
 public:
  Result<Checkpoint> operator()(const std::string& bytes, const OpenOptions& options = {}) {
    return Checkpoint::open(folder_.write("legacy.pt", bytes), options);
  }
  Result<Checkpoint> operator()(const Stream& stream, const OpenOptions& options = {}) {
    return (*this)(stream.bytes(), options);
  }

 private:
  test::TemporaryFolder folder_;
};

std::vector<float> values(const Checkpoint& checkpoint, std::string_view name) {
  const TensorView view = checkpoint.get(name).value().view;
  std::vector<float> out(view.numel());
  REQUIRE_OK(view.gather(std::as_writable_bytes(std::span(out))));
  return out;
}

using Floats = std::vector<float>;

}  // namespace

TEST_CASE_FIXTURE(Opened, "reads a legacy stream") {
  const Stream stream;
  const Checkpoint checkpoint = (*this)(stream).value();
  CHECK(values(checkpoint, "a") == Floats{1, 2, 3});
  CHECK(values(checkpoint, "b") == Floats{3});
  CHECK(values(checkpoint, "c") == Floats{4, 5});
  CHECK(checkpoint.get("b")->file_offset == stream.head().size() + 8 + 8);
  CHECK(checkpoint.get("b")->storage == "7");
  CHECK(checkpoint.get("c")->file_offset == stream.head().size() + 8 + 12 + 8);
  CHECK(Backing(checkpoint).storage_count() == 2);
  CHECK(checkpoint.info().format == Format::torch_legacy);
  CHECK(checkpoint.info().version == 1001);
  CHECK(checkpoint.info().byteorder == "little");
  CHECK(checkpoint.info().unread_bytes == 0);
  CHECK(checkpoint.stats().reads == 1);
  CHECK(checkpoint.stats().strategy == OffsetStrategy::headers);
  CHECK(checkpoint.stats().storages_by_header == 2);
  CHECK(checkpoint.get("a")->is_zero_copy());
  REQUIRE_OK(verify_headers(checkpoint));
  CHECK(verify_crc(checkpoint).storages_without_crc == 2);
}

TEST_CASE_FIXTURE(Opened, "gives out elements of a legacy stream where they are aligned") {
  Stream stream;
  stream.machine = proto + "}("s + text(std::string(16, 'x')) + "\x88u.";
  for (std::size_t more = 0; more < 4; ++more) {
    stream.machine = proto + "}("s + text(std::string(more, 'x')) + "\x88u.";
    const Checkpoint checkpoint = (*this)(stream).value();
    const bool is_aligned = stream.head().size() % 4 == 0;
    CHECK(checkpoint.get("a")->as<float>().has_value() == is_aligned);
    if (!is_aligned)
      CHECK_FAILS(checkpoint.get("a")->as<float>(), ErrorCode::invalid_argument,
                  "not a multiple of 4; gather() copies it");
    CHECK(values(checkpoint, "a") == Floats{1, 2, 3});
  }
}

TEST_CASE_FIXTURE(Opened, "reads the first of several streams in a file, and says what is left") {
  const Stream stream;
  const Checkpoint checkpoint = (*this)(stream.bytes() + stream.bytes()).value();
  CHECK(checkpoint.tensors().size() == 3);
  CHECK(checkpoint.info().unread_bytes == stream.bytes().size());
}

TEST_CASE_FIXTURE(Opened, "reads a large object of a legacy stream in pieces") {
  Stream stream;
  const std::string large(300000, 'x');
  stream.object = proto + "}("s + text("large") + text(large) + text("a") +
                  tensor(id("7", 3), 0, 3) + text("c") + tensor(id("8", 2), 0, 2) + "u.";
  const Checkpoint checkpoint = (*this)(stream).value();
  CHECK(values(checkpoint, "c") == Floats{4, 5});
  CHECK(checkpoint.root().find("large")->string() == large);
  const OpenOptions options{.limits = {.pickle_bytes = 300000}};
  CHECK_FAILS((*this)(stream, options), ErrorCode::limit_exceeded,
              "the object: it has more than 300000 bytes");
}

TEST_CASE_FIXTURE(Opened, "takes a part of a storage for what it is") {
  Stream stream;
  const std::string view = "(" + text("9") + number(1) + number(2) + "t";
  stream.object = proto + "}("s + text("a") + tensor(id("7", 3, view), 1, 1) + text("c") +
                  tensor(id("8", 2), 0, 2) + "u.";
  const Checkpoint checkpoint = (*this)(stream).value();
  CHECK(values(checkpoint, "a") == Floats{3});
  CHECK(checkpoint.get("a")->storage_offset == 2);
}

TEST_CASE_FIXTURE(Opened, "of two items of a legacy stream with one key the last counts") {
  Stream stream;
  stream.object = proto + "}("s + text("a") + tensor(id("7", 3), 0, 3) + text("a") +
                  tensor(id("7", 3), 1, 2) + text("c") + tensor(id("8", 2), 0, 2) + "u.";
  const Checkpoint checkpoint = (*this)(stream).value();
  CHECK(values(checkpoint, "a") == Floats{2, 3});
  CHECK(values(checkpoint, "c") == Floats{4, 5});
  CHECK(checkpoint.info().duplicate_keys == 1);
  CHECK(checkpoint.stats().storages_by_header == 2);
}

TEST_CASE_FIXTURE(Opened, "says of a legacy stream that ends in its object that it is truncated") {
  const std::string cut = Stream{}.head().substr(0, 80);
  const Result<Checkpoint> opened = (*this)(cut);
  CHECK_FAILS(opened, ErrorCode::corrupt,
              "the file is truncated, it ends within this part; the download or copy is "
              "incomplete");
  CHECK(opened.error().file_offset == 80);
}

TEST_CASE_FIXTURE(Opened, "a legacy stream cut at any length is an error") {
  const std::string whole = Stream{}.bytes();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK_FALSE((*this)(whole.substr(0, length)).has_value());
  }
}

TEST_CASE_FIXTURE(Opened, "a legacy stream with any byte changed is an error, or is read") {
  const std::string whole = Stream{}.bytes();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int flip : {1, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      const Result<Checkpoint> checkpoint = (*this)(damaged);
      refused += checkpoint ? 0 : 1;
      if (!checkpoint) continue;
      for (const NamedTensor& found : checkpoint->tensors()) {
        std::vector<std::byte> out(found.view.nbytes());
        REQUIRE_OK(found.view.gather(out));
      }
    }
  CHECK(refused > whole.size());
}

TEST_CASE("has no records to be read as an archive") {
  CHECK_FAILS(ArchiveReader::open(data / "legacy" / "dict.pt"), ErrorCode::not_a_checkpoint, "");
}
