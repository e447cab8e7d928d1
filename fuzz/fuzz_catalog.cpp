// A catalog of a small checkpoint with any changes, and with sums that are right all the same: as
// somebody would make it on purpose. It is refused, or found damaged when it is used, or all that
// it says lies within the file.
//
// The input is changes, { u32 offset | u8 length | bytes }, to what stands from the catalog's block
// on; the first byte says whether the sums are left as they were.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fuzz/look.hpp"
#include "fuzz/look_checkpoint.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/require.hpp"
#include "fuzz/target.hpp"
#include "runtime/shared_catalog/published.hpp"
#include "tests/support/archive_builder.hpp"

namespace {

using namespace weightmap;
using test::Bytes;

// {"a": tensor, "b": [tensor, ...], ...} with more shapes than have room near the header.
std::string pickle_of(std::size_t tensors, std::string& names) {
  std::string made = "\x80\x02}(";
  const auto text = [&made](std::string_view of) {
    made += 'X';
    for (int i = 0; i < 4; ++i) made += static_cast<char>(of.size() >> (8 * i));
    made += of;
  };
  const auto number = [&made](std::size_t of) {
    made += 'M';
    made += static_cast<char>(of);
    made += static_cast<char>(of >> 8);
  };
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::string name = "layer." + std::to_string(i);
    names += name;
    text(name);
    const bool is_nested = i % 3 == 0;
    if (is_nested) made += "](";
    made += "ctorch._utils\n_rebuild_tensor_v2\n((";
    text("storage");
    made += "ctorch\nFloatStorage\n";
    text(std::to_string(i));
    text("cpu");
    number(64);
    made += "tQK";
    made += static_cast<char>(i % 4);
    number(i + 1);
    number(1);
    number(1);
    made += '\x87';
    for (int stride = 0; stride < 3; ++stride) number(1);
    made +=
        "\x87\x89"
        "ccollections\nOrderedDict\n)RtR";
    if (is_nested) made += "e";
  }
  return made + "u.";
}

Bytes make_checkpoint() {
  constexpr std::size_t tensors = 20;
  std::string names;
  test::ArchiveBuilder builder;
  builder.add("archive/data.pkl", pickle_of(tensors, names)).add("archive/byteorder", "little");
  for (std::size_t i = 0; i < tensors; ++i)
    builder.add("archive/data/" + std::to_string(i), std::string(256, static_cast<char>(i)));
  return builder.add("archive/version", "3\n").finish();
}

// The checkpoint, and its catalog as an open of it published it.
class Fixture {
 public:
  Fixture() : file_(make_checkpoint()) {
    // A file that was changed a moment ago is not believed to stay as it is.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const Result<Checkpoint> opened = Checkpoint::open_descriptor(file_.descriptor());
    fuzz::require(opened.has_value(), opened ? "" : to_string(opened.error()));
    const Result<int> shared = opened->share_catalog();
    fuzz::require(shared.has_value(), "no catalog");
    struct stat status {};
    ::fstat(*shared, &status);
    catalog_.resize(static_cast<std::size_t>(status.st_size));
    fuzz::require(::pread(*shared, catalog_.data(), catalog_.size(), 0) == status.st_size,
                  "the catalog cannot be read");
    ::close(*shared);
    const Result<catalog::Summary> summary = catalog::summarize(catalog_);
    fuzz::require(summary.has_value(), "the catalog is not one");
    description_ = summary->description;
    const auto magic = std::as_bytes(std::span(&catalog::Header::magic_number, 1));
    block_ = static_cast<std::size_t>(
        std::search(catalog_.begin(), catalog_.end(), magic.begin(), magic.end()) -
        catalog_.begin());
    fuzz::require(catalog_.size() - block_ > sizeof header_, "the block is not found");
    std::memcpy(&header_, catalog_.data() + block_, sizeof header_);
    fuzz::require(block_ + header_.block_bytes == catalog_.size(), "the block is not found");
  }

  int descriptor() const { return file_.descriptor(); }
  const Bytes& catalog() const { return catalog_; }
  std::size_t block() const { return block_; }

  // With the sums of what stands in the block now.
  void sum_again(Bytes& catalog) const {
    const std::span<const std::byte> block = std::span<const std::byte>(catalog).subspan(block_);
    const std::vector<std::byte> preamble =
        catalog::make_preamble(description_, catalog::Catalog(header_, block));
    std::copy(preamble.begin(), preamble.end(), catalog.begin());
  }

 private:
  fuzz::MemoryFile file_;
  Bytes catalog_;
  std::size_t block_ = 0;
  catalog::Header header_;  // of the block as it was
  catalog::Description description_;
};

// False if the input is at its end.
bool change(std::span<const std::byte>& input, std::span<std::byte> block) {
  if (input.size() < 5) return false;
  std::uint32_t offset;
  std::memcpy(&offset, input.data(), sizeof offset);
  const auto length =
      std::min<std::size_t>(std::to_integer<std::size_t>(input[4]), input.size() - 5);
  const std::span<const std::byte> bytes = input.subspan(5, length);
  input = input.subspan(5 + length);
  const std::span<std::byte> place = block.subspan(offset % block.size());
  std::copy_n(bytes.begin(), std::min(length, place.size()), place.begin());
  return true;
}

void check(std::span<const std::byte> input) {
  static const Fixture fixture;
  Bytes catalog = fixture.catalog();
  const bool keeps_sums = !input.empty() && input[0] == std::byte{1};
  if (!input.empty()) input = input.subspan(1);
  while (change(input, std::span(catalog).subspan(fixture.block()))) {
  }
  if (!keeps_sums) fixture.sum_again(catalog);
  fuzz::MemoryFile sealed(catalog);
  sealed.seal();
  const Result<Checkpoint> attached =
      Checkpoint::attach_descriptor(fixture.descriptor(), sealed.descriptor());
  if (!attached)
    return fuzz::require(!attached.error().message.empty(), "a refusal without a word");
  for (const char* const name : {"layer.1", "layer.3.0", "layer.18.0", "layer.", "", "nothing"})
    if (const std::optional<TensorView> found = attached->find(name))
      fuzz::look_at(found->stored_bytes());
  (void)attached->get("layer.20");
  fuzz::look_at_tensors(*attached, fuzz::Names::may_lead_anywhere);
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
