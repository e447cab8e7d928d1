// Archives as torch before 2.1 laid them out, and storages that were deflated by hand.
#include <doctest/doctest.h>

#include <string>

#include "runtime/base/zip/deflate.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {
namespace {

using test::Bytes;

std::string text(const std::string& value) {
  const std::uint32_t length = static_cast<std::uint32_t>(value.size());
  return "X" + std::string(reinterpret_cast<const char*>(&length), 4) + value;
}

// {"w": a tensor of so many uint8}
std::string pickle(const std::string& key, std::uint32_t numel) {
  const std::string count = "J" + std::string(reinterpret_cast<const char*>(&numel), 4);
  return std::string("\x80\x02") + "}(" + text("w") + "ctorch._utils\n_rebuild_tensor_v2\n((" +
         text("storage") + "ctorch\nByteStorage\n" + text(key) + text("cpu") + count + "tQK" +
         std::string(1, '\0') + count + "\x85K\x01\x85\x89" + "ccollections\nOrderedDict\n)RtRu.";
}

class Opened {
 public:
  Result<Checkpoint> operator()(test::ArchiveBuilder& builder, const OpenOptions& options = {}) {
    const std::span<const std::byte> bytes(builder.bytes());
    return Checkpoint::open(folder_.write("model.pt", bytes), options);
  }

 private:
  test::TemporaryFolder folder_;
};

// An archive whose one storage, of `size` zeros, is deflated.
test::ArchiveBuilder deflated(std::uint32_t size) {
  test::ArchiveBuilder builder;
  builder.add("archive/data.pkl", pickle("0", size));
  builder.add_stored_as("archive/data/0", zip::deflate(Bytes(size)), size, zip::Method::deflated,
                        0);
  builder.add("archive/version", "3\n");
  builder.finish();
  return builder;
}

}  // namespace

TEST_CASE_FIXTURE(Opened, "opens archives as torch 1.4 and 1.5 laid them out") {
  for (const char* version : {"1\n", "2\n", "3\n"}) {
    test::ArchiveBuilder builder;
    builder.add("archive/version", version);
    builder.add("archive/data.pkl", pickle("94052342342784", 3));
    builder.add("archive/data/94052342342784", "abc");
    builder.finish();
    const Checkpoint checkpoint = (*this)(builder).value();
    CHECK(checkpoint.get("w")->view.bytes()[2] == std::byte{'c'});
    CHECK(checkpoint.info().version == static_cast<std::uint64_t>(version[0] - '0'));
    CHECK(checkpoint.info().byteorder_assumed);
  }
}

TEST_CASE_FIXTURE(Opened, "refuses storages that grow too much, at the limits and beyond") {
  constexpr std::uint32_t size = 100000;
  test::ArchiveBuilder builder = deflated(size);
  const std::uint64_t stored = builder.place(1).stored_size;
  OpenOptions options{.limits = {.copied_bytes = size}};
  REQUIRE_OK((*this)(builder, options));
  options.limits.copied_bytes = size - 1;
  CHECK_FAILS((*this)(builder, options), ErrorCode::limit_exceeded,
              "become more than 99999 bytes (copied_bytes) in memory");
  options = {};
  options.limits.record_bytes = size - 1;
  options.limits.copied_ratio = size / stored + 1;
  REQUIRE_OK((*this)(builder, options));
  options.limits.copied_ratio = size / stored;
  CHECK_FAILS((*this)(builder, options), ErrorCode::limit_exceeded, "(copied_ratio) in memory");
  options.limits.record_bytes = size;
  REQUIRE_OK((*this)(builder, options));
}

}  // namespace weightmap
