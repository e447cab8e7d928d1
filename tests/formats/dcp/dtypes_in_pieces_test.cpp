// Every dtype, in one piece and divided along each dimension, through every way to its elements.
// python/tests/test_dtypes_in_pieces.py goes on with what stands on these.
#include <doctest/doctest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/formats/gguf/tensor_types.hpp"
#include "runtime/formats/safetensors/element_types.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/dcp_builder.hpp"
#include "tests/support/gguf_builder.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/checkpoint_writer.hpp"
#include "weightmap/chunks.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::Sizes;
using test::TemporaryFolder;

namespace {

// [4, 2, 8] elements, or [4, 2] rows of two blocks where a block has more than four.
Sizes shape_of(DType dtype) {
  return {4, 2, std::max<std::int64_t>(8, 2 * block_of(dtype).elements)};
}

// No two neighbours of any width are alike, nor are two rows.
std::string all_bytes(DType dtype) {
  std::string bytes(bytes_of(dtype, static_cast<std::uint64_t>(8 * shape_of(dtype)[2])), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>((i * 7 + i / 251) % 251);
  return bytes;
}

// A half of the whole along `dim`, or all of it.
struct Part {
  Sizes offsets{0, 0, 0};
  Sizes sizes;
  std::string bytes;
};

Part part_of(DType dtype, const Sizes& begin, const Sizes& sizes) {
  const std::string whole = all_bytes(dtype);
  const std::size_t row = whole.size() / 8;
  const auto in_row = [&](std::int64_t elements) {
    return bytes_of(dtype, static_cast<std::uint64_t>(elements));
  };
  Part part{begin, sizes, {}};
  for (std::int64_t i = begin[0]; i < begin[0] + sizes[0]; ++i)
    for (std::int64_t j = begin[1]; j < begin[1] + sizes[1]; ++j)
      part.bytes += whole.substr(static_cast<std::size_t>(2 * i + j) * row + in_row(begin[2]),
                                 in_row(sizes[2]));
  return part;
}

std::vector<Part> parts_of(DType dtype, std::optional<std::size_t> divided) {
  Sizes sizes = shape_of(dtype);
  if (!divided) return {part_of(dtype, {0, 0, 0}, sizes)};
  sizes[*divided] /= 2;
  Sizes second{0, 0, 0};
  second[*divided] = sizes[*divided];
  return {part_of(dtype, {0, 0, 0}, sizes), part_of(dtype, second, sizes)};
}

std::string list_of(const Sizes& values) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return "[" + text + "]";
}

void write_safetensors_shards(const TemporaryFolder& folder, const safetensors::ElementType& type,
                              const std::vector<Part>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Sizes counted = parts[i].sizes;
    if (type.bits == 4) counted[2] *= 2;  // the format counts single ones
    std::string header = R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"w\":{\"saved_offsets\":)" +
                         list_of(parts[i].offsets) + R"(}}"},"w":{"dtype":")" +
                         std::string(type.name) + R"(","shape":)" + list_of(counted) +
                         R"(,"data_offsets":[0,)" + std::to_string(parts[i].bytes.size()) + "]}}";
    folder.write("shard-0000" + std::to_string(i + 1) + "-model-00001-of-00001.safetensors",
                 test::framed(header, parts[i].bytes));
  }
}

// What torch.save writes of a tensor of any dtype of torch.
std::string item_of(const TemporaryFolder& scratch, DType dtype, const Part& part) {
  CheckpointWriter writer;
  const std::size_t storage =
      writer.add_storage(RecordContent::bytes(std::as_bytes(std::span(part.bytes))));
  const Sizes strides{part.sizes[1] * part.sizes[2], part.sizes[2], 1};
  const Value tensor =
      writer.tensor(storage, {.dtype = dtype, .sizes = part.sizes, .strides = strides});
  REQUIRE_OK(std::move(writer).write(tensor, scratch.path() / "item"));
  return test::read_file(scratch.path() / "item");
}

void write_distcp(const TemporaryFolder& folder, DType dtype, const std::vector<Part>& parts) {
  const TemporaryFolder scratch;
  test::DcpFolder made;
  std::vector<std::string> chunks;
  for (const Part& part : parts) {
    made.put("w", part.offsets, item_of(scratch, dtype, part));
    chunks.push_back(test::chunk(part.offsets, part.sizes));
  }
  made.tensors.emplace_back(test::unicode("w"),
                            test::tensor_metadata(shape_of(dtype), chunks,
                                                  test::properties(std::string(to_string(dtype)))));
  made.write(folder);
}

void write_gguf(const TemporaryFolder& folder, DType dtype) {
  std::int32_t number = 0;
  while (gguf::tensor_type(number) != dtype) ++number;
  const Sizes shape = shape_of(dtype);
  folder.write("w.gguf", test::GgufBuilder()
                             .tensor("w", {shape[2], shape[1], shape[0]}, number, all_bytes(dtype))
                             .file());
}

// False where there is no format that divides a tensor of this dtype.
bool write(const TemporaryFolder& folder, DType dtype, std::optional<std::size_t> divided) {
  if (is_opaque(dtype)) return false;  // of numpy's files alone, which have no pieces
  const std::vector<Part> parts = parts_of(dtype, divided);
  if (const safetensors::ElementType* const type = safetensors::type_of(dtype))
    write_safetensors_shards(folder, *type, parts);
  else if (!is_blocked(dtype))
    write_distcp(folder, dtype, parts);
  else if (!divided)
    write_gguf(folder, dtype);
  else
    return false;
  return true;
}

using Answer = Result<std::string>;  // the bytes of the whole

Answer gathered(const Checkpoint& checkpoint, const TensorView& view) {
  std::string bytes(view.nbytes(), '?');
  Result<void> done = checkpoint.gather(view, std::as_writable_bytes(std::span(bytes)));
  if (!done) return tl::unexpected<Error>(std::move(done.error()));
  std::string mapped(view.nbytes(), '?');
  REQUIRE_OK(view.gather(std::as_writable_bytes(std::span(mapped))));
  CHECK(mapped == bytes);
  return bytes;
}

Answer by_view(const Checkpoint& checkpoint, DType dtype) {
  const Result<TensorSlice> view = view_of(checkpoint, "w", {{0, 0, 0}, shape_of(dtype)});
  if (!view) return tl::unexpected<Error>(view.error());
  return gathered(checkpoint, *view);
}

// What the pieces have, as they are or as bits, each put where it belongs.
template <class Take>
Answer by_pieces(const Checkpoint& checkpoint, DType dtype, const Take& take) {
  std::string whole(all_bytes(dtype).size(), '?');
  const Result<std::vector<TensorPiece>> found = pieces(checkpoint, "w");
  if (!found) return tl::unexpected<Error>(found.error());
  for (const TensorPiece& piece : *found) {
    const TensorView& view = piece.view;
    const Result<TensorSlice> taken = take(view);
    if (!taken) return tl::unexpected<Error>(taken.error());
    Answer bytes = gathered(checkpoint, *taken);
    if (!bytes) return bytes;
    const Sizes sizes(view.shape().begin(), view.shape().end());
    CHECK(*bytes == part_of(dtype, piece.offsets, sizes).bytes);
    const std::size_t row = bytes_of(dtype, static_cast<std::uint64_t>(sizes[2]));
    for (std::int64_t i = 0; i < sizes[0]; ++i)
      for (std::int64_t j = 0; j < sizes[1]; ++j)
        whole.replace(static_cast<std::size_t>(2 * (piece.offsets[0] + i) + piece.offsets[1] + j) *
                              (whole.size() / 8) +
                          bytes_of(dtype, static_cast<std::uint64_t>(piece.offsets[2])),
                      row, bytes->substr(static_cast<std::size_t>(i * sizes[1] + j) * row, row));
  }
  return whole;
}

Answer by_bits(const Checkpoint& checkpoint, DType dtype) {
  return by_pieces(checkpoint, dtype, [](const TensorView& view) { return view.bits(); });
}
Answer by_pieces_as_they_are(const Checkpoint& checkpoint, DType dtype) {
  return by_pieces(checkpoint, dtype, [](const TensorView& view) { return TensorSlice::of(view); });
}

Answer by_gather(const Checkpoint& checkpoint, DType dtype) {
  std::string bytes(all_bytes(dtype).size(), '?');
  Result<void> done = gather(checkpoint, "w", {}, std::as_writable_bytes(std::span(bytes)));
  if (!done) return tl::unexpected<Error>(std::move(done.error()));
  // A part that reaches into each half, whichever way they lie.
  const std::int64_t unit = block_of(dtype).elements;
  const Sizes begin{1, 0, unit == 1 ? 3 : 0};
  const Sizes sizes{2, 2, unit == 1 ? 2 : 2 * unit};
  const Part part = part_of(dtype, begin, sizes);
  std::string some(part.bytes.size(), '?');
  REQUIRE_OK(gather(checkpoint, "w", Box{begin, sizes}, std::as_writable_bytes(std::span(some))));
  CHECK(some == part.bytes);
  return bytes;
}

Answer by_content(const Checkpoint& checkpoint, DType) {
  const Result<RecordContent> content = content_of(checkpoint, "w");
  if (!content) return tl::unexpected<Error>(content.error());
  std::string bytes;
  REQUIRE_OK(content->produce()([&](std::span<const std::byte> some) -> Result<void> {
    bytes.append(reinterpret_cast<const char*>(some.data()), some.size());
    return {};
  }));
  return bytes;
}

struct Way {
  const char* name;
  Answer (*answer)(const Checkpoint&, DType);
};
constexpr std::array ways = {Way{"view", by_view}, Way{"bits", by_bits}, Way{"gather", by_gather},
                             Way{"pieces", by_pieces_as_they_are}, Way{"content", by_content}};

// Why there is no answer; empty where there must be one.
std::string refusal(std::string_view way, DType dtype, bool is_divided) {
  if (way == "view" && is_divided)
    return "tensor \"w\" lies in 2 pieces; pieces() gives them, gather() copies them into one";
  if (way == "bits" && dtype == DType::complex128) return "complex128 is wider than any integer";
  return {};
}

}  // namespace

TEST_CASE("each way to the elements gives those of the file, or says why not") {
  std::map<std::string, int> given, refused;
  for (std::size_t i = 0; i < dtype_count; ++i)
    for (std::optional<std::size_t> divided : {std::optional<std::size_t>(), {0}, {1}, {2}}) {
      const auto dtype = static_cast<DType>(i);
      CAPTURE(to_string(dtype));
      CAPTURE(divided.value_or(9));
      const TemporaryFolder folder;
      if (!write(folder, dtype, divided)) continue;
      const Checkpoint checkpoint =
          Checkpoint::open(std::filesystem::exists(folder.path() / "w.gguf")
                               ? folder.path() / "w.gguf"
                               : folder.path())
              .value();
      for (const Way& way : ways) {
        CAPTURE(way.name);
        const std::string why = refusal(way.name, dtype, divided.has_value());
        const Answer answer = way.answer(checkpoint, dtype);
        ++(answer ? given : refused)[way.name];
        REQUIRE(answer.has_value() == why.empty());
        if (answer) {
          CHECK(*answer == all_bytes(dtype));
        } else {
          CHECK(answer.error().message == why);
        }
      }
    }
  // docs/reliability.md has the sums.
  std::string counts;
  for (const Way& way : ways)
    counts += way.name + " "s + std::to_string(given[way.name]) + "+" +
              std::to_string(refused[way.name]) + "; ";
  CHECK(counts == "view 75+144; bits 215+4; gather 219+0; pieces 219+0; content 219+0; ");
}
