// Parts of tensors that lie in chunks: as pieces, as one view, as a copy.
#include "weightmap/chunks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/dcp_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

using namespace weightmap;
using namespace std::string_literals;
using test::DcpFolder;
using test::opened;
using test::Sizes;
using test::TemporaryFolder;

namespace {

Checkpoint opened(const DcpFolder& made) {
  const TemporaryFolder folder;  // what is mapped stays
  made.write(folder);
  return test::opened(folder.path());
}

// abcd
// efgh   in a grid of chunks: two rows and one, three columns and one.
// ijkl
DcpFolder grid() {
  return DcpFolder()
      .add("g", {3, 4},
           {{{2, 3}, {1, 1}, "l", "__1_0.distcp"},
            {{0, 0}, {2, 3}, "abcefg"},
            {{2, 0}, {1, 3}, "ijk"},
            {{0, 3}, {2, 1}, "dh", "__1_0.distcp"}},
           test::uint8_elements)
      .add("w", {3, 4}, {{{0, 0}, {3, 4}, "abcdefghijkl"}}, test::uint8_elements)
      .add("t", {4, 2},
           {{{0, 0}, {2, 2}, "acbd", "__0_0.distcp", {1, 2}},
            {{2, 0}, {2, 2}, "efgh", "__1_0.distcp"}},
           test::uint8_elements)
      .add("s", {}, {{{}, {}, "x"}}, test::uint8_elements)
      .add("e", {0, 3}, {{{0, 0}, {0, 3}, ""}}, test::uint8_elements);
}

Result<std::string> part(const Checkpoint& checkpoint, std::string_view name,
                         const std::optional<Box>& box, std::size_t nbytes) {
  std::string bytes(nbytes, '?');
  Result<void> done = gather(checkpoint, name, box, std::as_writable_bytes(std::span(bytes)));
  if (!done) return tl::unexpected<Error>(std::move(done.error()));
  return bytes;
}
std::string elements(const Checkpoint& checkpoint, const TensorSlice& slice) {
  const TensorView& view = slice;
  std::string bytes(view.nbytes(), '?');
  REQUIRE_OK(checkpoint.gather(view, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}
// Each as its offsets and its elements.
std::vector<std::pair<Sizes, std::string>> all_pieces(const Checkpoint& checkpoint,
                                                      std::string_view name,
                                                      const std::optional<Box>& box = {}) {
  const std::vector<TensorPiece> found = pieces(checkpoint, name, box).value();
  std::vector<std::pair<Sizes, std::string>> all;
  for (const TensorPiece& piece : found)
    all.emplace_back(piece.offsets, elements(checkpoint, piece.view));
  return all;
}

using Pieces = std::vector<std::pair<Sizes, std::string>>;

struct Grid {
  Checkpoint checkpoint = opened(grid());
};

}  // namespace

TEST_CASE_FIXTURE(Grid, "what a tensor is before anything of it is read") {
  const WholeTensor chunked = whole_tensor(checkpoint, "g").value();
  CHECK(chunked.dtype == DType::uint8);
  CHECK(chunked.sizes == Sizes{3, 4});
  CHECK(chunked.first_piece == 0);
  CHECK(chunked.piece_count == 4);
  const WholeTensor ordinary = whole_tensor(checkpoint, "w").value();
  CHECK(ordinary.sizes == Sizes{3, 4});
  CHECK(ordinary.first_piece == 4);
  CHECK(ordinary.piece_count == 1);
  CHECK_FAILS(whole_tensor(checkpoint, "nothing"), ErrorCode::not_found, "\"nothing\"");
  // Which is itself a tensor.
  const WholeTensor one = whole_tensor(checkpoint, "g[0:2, 3:4]").value();
  CHECK(one.sizes == Sizes{2, 1});
}

TEST_CASE_FIXTURE(Grid, "pieces come in row-major order, clipped to the box") {
  CHECK(all_pieces(checkpoint, "g") ==
        Pieces{{{0, 0}, "abcefg"}, {{0, 3}, "dh"}, {{2, 0}, "ijk"}, {{2, 3}, "l"}});
  CHECK(all_pieces(checkpoint, "g", Box{{1, 2}, {2, 2}}) ==
        Pieces{{{1, 2}, "g"}, {{1, 3}, "h"}, {{2, 2}, "k"}, {{2, 3}, "l"}});
  CHECK(all_pieces(checkpoint, "g", Box{{1, 0}, {1, 4}}) == Pieces{{{1, 0}, "efg"}, {{1, 3}, "h"}});
  CHECK(all_pieces(checkpoint, "g", Box{{0, 3}, {3, 1}}) == Pieces{{{0, 3}, "dh"}, {{2, 3}, "l"}});
  CHECK(all_pieces(checkpoint, "w") == Pieces{{{0, 0}, "abcdefghijkl"}});
  CHECK(all_pieces(checkpoint, "w", Box{{1, 1}, {2, 2}}) == Pieces{{{1, 1}, "fgjk"}});
  CHECK(all_pieces(checkpoint, "s") == Pieces{{{}, "x"}});
  CHECK(all_pieces(checkpoint, "s", Box{}) == Pieces{{{}, "x"}});
  CHECK(all_pieces(checkpoint, "e").empty());
  CHECK(all_pieces(checkpoint, "g", Box{{3, 0}, {0, 4}}).empty());
  const std::vector<TensorPiece> found = pieces(checkpoint, "g", Box{{2, 0}, {1, 4}}).value();
  CHECK(found.at(0).tensor == 2);
  CHECK(checkpoint.tensors()[found.at(1).tensor].name == "g[2:3, 3:4]");
}

TEST_CASE_FIXTURE(Grid, "a part that one chunk has is a view of it") {
  const TensorSlice view = view_of(checkpoint, "g", {{1, 1}, {1, 2}}).value();
  CHECK(elements(checkpoint, view) == "fg");
  const TensorView& shown = view;
  CHECK(std::ranges::equal(shown.shape(), Sizes{1, 2}));
  CHECK(std::ranges::equal(shown.strides(), Sizes{3, 1}));
  const std::span<const std::byte> mapping = checkpoint.mapping();
  CHECK(shown.stored_bytes().data() >= mapping.data());
  CHECK(shown.stored_bytes().data() < mapping.data() + mapping.size());
  const TensorSlice column = view_of(checkpoint, "w", {{0, 2}, {3, 1}}).value();
  CHECK(elements(checkpoint, column) == "cgk");
  const TensorSlice scalar = view_of(checkpoint, "s", {}).value();
  CHECK(elements(checkpoint, scalar) == "x");
}

TEST_CASE_FIXTURE(Grid, "a part in several chunks is no view, and the error says what it is") {
  CHECK_FAILS(view_of(checkpoint, "g", {{1, 0}, {1, 4}}), ErrorCode::unsupported,
              "tensor \"g\" lies in 2 pieces; pieces() gives them, gather() copies them into one");
  CHECK_FAILS(view_of(checkpoint, "g", {{0, 0}, {3, 4}}), ErrorCode::unsupported, "4 pieces");
}

TEST_CASE_FIXTURE(Grid, "an empty part is an empty view, and copies nothing") {
  for (const Box& box : {Box{{0, 0}, {0, 4}}, Box{{3, 4}, {0, 0}}, Box{{1, 1}, {2, 0}}}) {
    const TensorSlice view = view_of(checkpoint, "g", box).value();
    const TensorView& shown = view;
    CHECK(std::ranges::equal(shown.shape(), box.sizes));
    CHECK(shown.dtype() == DType::uint8);
    CHECK(shown.nbytes() == 0);
    CHECK(part(checkpoint, "g", box, 0) == ""s);
  }
  CHECK(part(checkpoint, "e", {}, 0) == ""s);
}

TEST_CASE_FIXTURE(Grid, "a box that leaves the tensor") {
  constexpr std::int64_t most = INT64_MAX;
  for (const Box& box :
       {Box{{0, 0}, {4, 4}}, Box{{3, 0}, {1, 4}}, Box{{-1, 0}, {2, 4}}, Box{{0, 0}, {3, -1}},
        Box{{0}, {3}}, Box{{}, {}}, Box{{0, 0, 0}, {1, 1, 1}}, Box{{most, 0}, {most, 4}},
        Box{{0, 0}, {3}}, Box{{4, 0}, {0, 4}}})
    for (const char* name : {"g", "w"}) {
      const std::string words = "tensor \""s + name + "\": the part from ";
      CHECK_FAILS(pieces(checkpoint, name, box), ErrorCode::invalid_argument, words);
      CHECK_FAILS(view_of(checkpoint, name, box), ErrorCode::invalid_argument, "shape [3, 4]");
      CHECK_FAILS(part(checkpoint, name, box, 0), ErrorCode::invalid_argument, words);
    }
  CHECK_FAILS(pieces(checkpoint, "s", Box{{0}, {1}}), ErrorCode::invalid_argument, "shape []");
}

TEST_CASE_FIXTURE(Grid, "a copy has the part row-major, whatever lies where") {
  for (const char* name : {"g", "w"}) {
    CHECK(part(checkpoint, name, {}, 12) == "abcdefghijkl"s);
    CHECK(part(checkpoint, name, Box{{1, 0}, {1, 4}}, 4) == "efgh"s);
    CHECK(part(checkpoint, name, Box{{0, 1}, {3, 1}}, 3) == "bfj"s);
    CHECK(part(checkpoint, name, Box{{0, 3}, {3, 1}}, 3) == "dhl"s);
    CHECK(part(checkpoint, name, Box{{1, 2}, {2, 2}}, 4) == "ghkl"s);
    CHECK(part(checkpoint, name, Box{{0, 2}, {3, 2}}, 6) == "cdghkl"s);
    CHECK(part(checkpoint, name, Box{{2, 3}, {1, 1}}, 1) == "l"s);
  }
  CHECK(part(checkpoint, "s", {}, 1) == "x"s);
  CHECK(part(checkpoint, "t", {}, 8) == "abcdefgh"s);  // of which one chunk is transposed
  CHECK(part(checkpoint, "t", Box{{1, 1}, {2, 1}}, 2) == "df"s);
}

TEST_CASE_FIXTURE(Grid, "the buffer of a copy is just as long as the part") {
  for (const std::size_t length : std::vector<std::size_t>{0, 3, 5})
    CHECK_FAILS(
        part(checkpoint, "g", Box{{1, 0}, {1, 4}}, length), ErrorCode::invalid_argument,
        "tensor \"g\": the buffer has " + std::to_string(length) + " bytes, the part needs 4");
}

TEST_CASE("elements of any width, and of more dimensions than two") {
  const std::vector<test::ElementType> types{{"uint8", "ByteStorage", 1},
                                             {"bfloat16", "BFloat16Storage", 2},
                                             {"float32", "FloatStorage", 4},
                                             {"int64", "LongStorage", 8},
                                             {"complex128", "ComplexDoubleStorage", 16}};
  for (const test::ElementType& type : types) {
    const auto wide = [&](const std::string& text) {
      std::string bytes;
      for (const char c : text)
        for (std::size_t i = 0; i < type.bytes; ++i)
          bytes += static_cast<char>(c + static_cast<char>(i));
      return bytes;
    };
    const Checkpoint checkpoint = opened(DcpFolder().add("w", {2, 2, 3},
                                                         {{{0, 0, 0}, {2, 1, 3}, wide("abcghi")},
                                                          {{0, 1, 0}, {2, 1, 2}, wide("dejk")},
                                                          {{0, 1, 2}, {2, 1, 1}, wide("fl")}},
                                                         type));
    CHECK(part(checkpoint, "w", {}, 12 * type.bytes) == wide("abcdefghijkl"));
    CHECK(part(checkpoint, "w", Box{{0, 0, 1}, {2, 2, 2}}, 8 * type.bytes) == wide("bcefhikl"));
    CHECK(part(checkpoint, "w", Box{{1, 0, 0}, {1, 2, 3}}, 6 * type.bytes) == wide("ghijkl"));
  }
}

TEST_CASE("a tensor of more dimensions than can be sliced is copied as a whole") {
  const Sizes sizes{1, 2, 1, 1, 1, 1, 1, 1, 2};
  const Checkpoint checkpoint =
      opened(DcpFolder().add("one", sizes, {{Sizes(9, 0), sizes, "abcd"}}, test::uint8_elements));
  CHECK(part(checkpoint, "one", {}, 4) == "abcd"s);
  CHECK(part(checkpoint, "one", Box{Sizes(9, 0), sizes}, 4) == "abcd"s);
  CHECK_FAILS(part(checkpoint, "one", Box{Sizes(9, 0), Sizes(9, 1)}, 1),
              ErrorCode::invalid_argument,
              "tensor \"one\": a tensor of rank 9 cannot be sliced; the highest rank is 8");
}

TEST_CASE("parts of more than a mebibyte are copied some rows at a time") {
  // Columns that do not lie together in the copy: 3 x 700 x 1001 and 3 x 700 x 500.
  constexpr std::int64_t planes = 3, rows = 700, left = 1001, right = 500;
  const auto element = [](std::int64_t plane, std::int64_t row, std::int64_t column) {
    return static_cast<char>((plane * 7919 + row * 131 + column * 7) % 251);
  };
  const auto block = [&](std::int64_t from, std::int64_t count) {
    std::string bytes;
    for (std::int64_t plane = 0; plane < planes; ++plane)
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = from; column < from + count; ++column)
          bytes += element(plane, row, column);
    return bytes;
  };
  const Checkpoint checkpoint = opened(
      DcpFolder().add("w", {planes, rows, left + right},
                      {{{0, 0, 0}, {planes, rows, left}, block(0, left)},
                       {{0, 0, left}, {planes, rows, right}, block(left, right), "__1_0.distcp"}},
                      test::uint8_elements));
  CHECK(part(checkpoint, "w", {}, planes * rows * (left + right)) == block(0, left + right));
  CHECK(part(checkpoint, "w", Box{{0, 0, 1}, {planes, rows, 1400}}, planes * rows * 1400) ==
        block(1, 1400));
}

TEST_CASE("one row of more than a mebibyte is copied in parts") {
  constexpr std::int64_t wide = (std::int64_t{1} << 20) + 5;
  const std::string first(wide, 'a'), second(wide, 'b');
  const Checkpoint checkpoint = opened(DcpFolder().add(
      "w", {2, wide + 1}, {{{0, 0}, {2, wide}, first + second}, {{0, wide}, {2, 1}, "xy"}},
      test::uint8_elements));
  CHECK(part(checkpoint, "w", {}, 2 * wide + 2) == first + "x" + second + "y");
}
