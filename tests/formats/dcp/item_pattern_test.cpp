// Items that are proven by comparison with another one: the verdict is that of an item alone.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "runtime/base/try.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/dcp_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using test::DcpFolder;
using test::TemporaryFolder;

namespace {

const std::string alone_file = "__1_0.distcp";

// An item that torch wrote, of 3 x 6 floats.
std::string item_of_torch() {
  return test::read_file(test::data / "dcp" / "per_item" / "__0_0.distcp");
}
// The place of its tensor, whose bytes begin with 0.0 and 1.0.
std::size_t elements_in(const std::string& item) {
  return item.find(std::string("\0\0\0\0\0\0\x80\x3f", 8));
}

void add(DcpFolder& made, const std::string& name, const std::string& item,
         const std::string& file) {
  made.put(name, {0, 0}, item, file);
  made.tensors.emplace_back(
      test::unicode(name),
      test::tensor_metadata({3, 6}, {test::chunk({0, 0}, {3, 6})}, test::properties("float32")));
}

// Opens "w" alone, or behind a proven item, and proves it.
Result<Checkpoint> open_item(const std::string& item, bool is_alone,
                             Verify verify = Verify::chain) {
  DcpFolder made;
  if (!is_alone) add(made, "v", item_of_torch(), "__0_0.distcp");
  add(made, "w", item, alone_file);
  const TemporaryFolder folder;
  made.write(folder);
  const OpenOptions options{.verify = verify};
  TRY_ASSIGN(Checkpoint opened, Checkpoint::open(folder.path(), options));
  for (const std::size_t each : match_tensors(opened, "*"))
    TRY(opened.get(tensor_name(opened, each)));
  return opened;
}

// Says what was opened, or why not.
std::string verdict(const Result<Checkpoint>& opened) {
  if (!opened) return opened.error().message + " at " + std::to_string(opened.error().file_offset);
  const NamedTensor tensor = opened->get("w").value();
  std::string said = std::to_string(tensor.file_offset) + ", " +
                     std::to_string(verify_crc(*opened).faults.size()) + " faults, strides";
  for (const std::int64_t stride : tensor.view.strides()) said += " " + std::to_string(stride);
  std::string elements(tensor.view.nbytes(), '\0');
  REQUIRE_OK(opened->gather(tensor.view, std::as_writable_bytes(std::span(elements))));
  return said + " " + elements;
}

}  // namespace

TEST_CASE("an item with other elements is read by the pattern of the first") {
  std::string item = item_of_torch();
  item[elements_in(item)] = 'x';
  const Result<Checkpoint> opened = open_item(item, false, Verify::headers);
  REQUIRE_OK(opened);
  CHECK(opened->stats().verify_reads == 1);
  CHECK(verdict(opened) == verdict(open_item(item, true)));
}

TEST_CASE("an item with a flipped byte has the verdict that it has alone") {
  const std::string item = item_of_torch();
  for (std::size_t at = 0; at < item.size(); at += 3) {
    CAPTURE(at);
    std::string flipped = item;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    CHECK(verdict(open_item(flipped, false)) == verdict(open_item(flipped, true)));
  }
}

TEST_CASE("an item whose elements look like an end of the archive is refused") {
  std::string item = item_of_torch();
  const std::size_t at = elements_in(item);
  std::string end("PK\5\6", 4);
  end.resize(22);
  const std::size_t comment = item.size() - at - end.size();
  end[20] = static_cast<char>(comment & 0xFF);
  end[21] = static_cast<char>(comment >> 8);
  item.replace(at, end.size(), end);
  CHECK_FAILS(open_item(item, false), ErrorCode::corrupt, "the archive has two end records");
}
