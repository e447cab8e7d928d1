// Arrays of numpy, from the bytes that numpy 2 and 1 pickle them as.
#include "runtime/formats/torch/numpy_array.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/pickle/parse.hpp"

using namespace weightmap;
using namespace std::string_literals;

namespace {

const std::string content = "\x00\x00\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00"s;
const std::string shape = "K\x02K\x03\x86";

std::string dtype(const std::string& name = "i2", const std::string& order = "<") {
  return "cnumpy\ndtype\nX"s + static_cast<char>(name.size()) + "\0\0\0"s + name +
         "\x89\x88\x87R(K\x03X\x01\x00\x00\x00"s + order +
         "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"s;
}
std::string binary(const std::string& bytes) {
  return "C"s + static_cast<char>(bytes.size()) + bytes;
}
std::string array(const std::string& dims, const std::string& type, const std::string& order,
                  const std::string& bytes, const std::string& module = "numpy._core.multiarray") {
  return "\x80\x03"
         "c" +
         module +
         "\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
         "C\x01"
         "b\x87R(K\x01"s +
         dims + type + order + bytes + "tb.";
}

struct Parsed {
  explicit Parsed(const std::string& text) {
    std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
    bytes::Buffer copy(text.size(), memory);
    std::memcpy(copy.data(), text.data(), text.size());
    const std::span<const std::byte> view = copy.span();
    auto result = pickle::parse(std::move(copy), view, 0, {1 << 20, 100}, memory);
    REQUIRE_MESSAGE(result.has_value(), (result ? "" : result.error().message));
    tree = std::move(*result);
  }
  std::optional<torch::NumpyArray> array() const {
    return torch::numpy_array({tree.get(), tree->root()});
  }
  std::unique_ptr<value::Tree> tree;
};

void check(const std::string& text, const std::vector<std::int64_t>& strides) {
  const torch::NumpyArray found = Parsed(text).array().value();
  CHECK(found.dtype == DType::int16);
  CHECK(found.shape == std::vector<std::int64_t>{2, 3});
  CHECK(found.strides == strides);
  CHECK(found.position == text.find(content));
  CHECK(found.nbytes == 12);
}

bool is_array(const std::string& text) { return Parsed(text).array().has_value(); }

}  // namespace

TEST_CASE("finds the elements of an array in C and in Fortran order") {
  check(array(shape, dtype(), "\x89", binary(content)), {3, 1});
  check(array(shape, dtype(), "\x88", binary(content)), {1, 2});
  check(array(shape, dtype(), "I00\n", binary(content)), {3, 1});
  check(array(shape, dtype(), "I1\n", binary(content)), {1, 2});
  check(array(shape, dtype(), "\x89", binary(content), "numpy.core.multiarray"), {3, 1});
}

TEST_CASE("finds the elements of an array of protocol 5") {
  const auto text = [](const std::string& order) {
    return "\x80\x05"
           "cnumpy._core.numeric\n_frombuffer\n(\x96\x0c\x00\x00\x00\x00\x00\x00\x00"s +
           content + dtype() + shape + "\x8c\x01" + order + "tR.";
  };
  check(text("C"), {3, 1});
  check(text("F"), {1, 2});
  CHECK(!is_array(text("K")));
}

TEST_CASE("knows the types that torch has as well") {
  for (const auto& [name, dtype_of_name] :
       {std::pair{"b1", DType::boolean}, {"u1", DType::uint8}, {"i1", DType::int8}}) {
    const auto found =
        Parsed(array("K\x0c\x85", dtype(name, "|"), "\x89", binary(content))).array().value();
    CHECK(found.dtype == dtype_of_name);
  }
  CHECK(Parsed(array("K\x03\x85", dtype("f4"), "\x89", binary(content))).array()->dtype ==
        DType::float32);
  CHECK(Parsed(array("K\x06\x85", dtype("f2", "="), "\x89", binary(content))).array()->dtype ==
        DType::float16);
}

TEST_CASE("finds arrays without elements and without dimensions") {
  const auto empty = Parsed(array("K\x00K\x03\x86"s, dtype(), "\x89", binary(""))).array();
  REQUIRE(empty.has_value());
  CHECK(empty->nbytes == 0);
  const auto scalar = Parsed(array(")", dtype("i8"), "\x89", binary("12345678"))).array();
  REQUIRE(scalar.has_value());
  CHECK(scalar->shape.empty());
  CHECK(scalar->strides.empty());
}

TEST_CASE("tells an array whose bytes are spelled as text from one in the pickle") {
  const auto bytes_of = [](const std::string& spelled) {
    const Parsed parsed(array("K\x03\x85", dtype("f4"), "\x89", spelled));
    const auto found = parsed.array().value();
    CHECK(!found.is_in_pickle);
    return std::string(parsed.tree->text(found.position, found.nbytes));
  };
  const std::string latin1 = "X\x06\x00\x00\x00latin1\x86R"s;
  CHECK(bytes_of("c_codecs\nencode\nX\x0c\x00\x00\x00"s + content + latin1) == content);
  CHECK(bytes_of("c_codecs\nencode\nX\x0e\x00\x00\x00\xc3\xbf\xc2\x80 12345678 "s + latin1) ==
        "\xff\x80 12345678 ");
  CHECK(bytes_of("S'\\xff\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'\n") ==
        "\xff\0\0\0\0\0\0\0\0\0\0\0"s);
  CHECK(Parsed(array("K\x03\x85", dtype("f4"), "\x89", binary(content))).array()->is_in_pickle);
  // Not Latin-1, another encoding, and text alone.
  CHECK(
      !is_array(array("K\x03\x85", dtype("f4"), "\x89",
                      "c_codecs\nencode\nX\x0e\x00\x00\x00\xc4\x80\xc2\x80 12345678 "s + latin1)));
  CHECK(!is_array(
      array("K\x03\x85", dtype("f4"), "\x89",
            "c_codecs\nencode\nX\x0c\x00\x00\x00"s + content + "X\x03\x00\x00\x00zip\x86R"s)));
}

TEST_CASE("leaves what only looks like an array as an object") {
  const std::string good = array(shape, dtype(), "\x89", binary(content));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  CHECK(is_array(good));
  CHECK(!is_array(with("cnumpy\nndarray", "cnumpy\nmatrix")));
  CHECK(!is_array(with("_reconstruct", "scalar")));
  CHECK(!is_array(with("numpy._core.", "other._core.")));
  CHECK(
      !is_array(with("\x89"
                     "C\x0c" +
                         content + "tb.",
                     "\x89t0.")));  // no state
  CHECK(
      !is_array(with("\x89"
                     "C",
                     "NC")));              // no order
  CHECK(!is_array(with("tb.", "tb]a.")));  // an element
  CHECK(!is_array("N."));
}
