// Quantized, sparse, nested and meta tensors and subclasses: what is said of them, and what of
// their calls no reader could use.
#include <doctest/doctest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tests/formats/torch/pickle_text.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/named_tensor.hpp"

namespace weightmap {
namespace {

using namespace test;
using Form = ComposedTensor::Form;
using namespace std::string_literals;

const std::string a_tensor = Tensor().text();
const std::string no = "\x89";

std::string call(const std::string& function, const std::string& arguments) {
  return global("torch._utils", function) + "(" + arguments + "tR";
}
std::string layout(const std::string& name) {
  return global("torch.serialization", "_get_layout") + unicode(name) + "\x85R";
}
std::string size(const std::vector<std::int64_t>& dims) {
  return global("torch", "Size") + tuple(dims) + "\x85R";
}

Result<Checkpoint> open_with(const std::string& value) {
  return test::open_pickle("\x80\x02" + test::named(value), {std::string(64, '\0')});
}

// What is said of the one composed tensor, which is called "w".
ComposedTensor composed_of(const std::string& value) {
  const Checkpoint opened = open_with(value).value();
  const std::span<const ComposedTensor> composed = composed_tensors(opened);
  REQUIRE(composed.size() == 1);
  CHECK(composed[0].name == "w");
  return composed[0];
}

using Dims = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a quantized tensor has a scale and a zero point") {
  const std::string half = "G\x3f\xe0\0\0\0\0\0\0"s;
  const ComposedTensor composed = composed_of(
      call("_rebuild_qtensor", Tensor().storage() + integer(0) + tuple({4, 4}) + tuple({4, 1}) +
                                   "(" + global("torch", "per_tensor_affine") + half + integer(3) +
                                   "t" + no + test::no_hooks));
  CHECK(composed.form == Form::quantized);
  CHECK(composed.scale == 0.5);
  CHECK(composed.zero_point == 3);
  CHECK(composed.sizes == Dims{4, 4});
  CHECK(composed.strides == Dims{4, 1});
  CHECK((composed.first_part == 0 && composed.part_count == 1));
}

TEST_CASE("a tensor that is quantized by channels has its scales for parts") {
  const auto quantized = [](std::int64_t axis) {
    return call("_rebuild_qtensor", Tensor().storage() + integer(0) + tuple({4, 4}) +
                                        tuple({4, 1}) + "(" +
                                        global("torch", "per_channel_affine") + a_tensor +
                                        a_tensor + integer(axis) + "t" + no + test::no_hooks);
  };
  const ComposedTensor composed = composed_of(quantized(1));
  CHECK(composed.form == Form::per_channel);
  CHECK(composed.axis == 1);
  CHECK(composed.part_count == 3);
  CHECK_FAILS(open_with(quantized(2)), ErrorCode::corrupt, "quantized along axis 2 of 2");
  CHECK_FAILS(open_with(quantized(-1)), ErrorCode::corrupt, "quantized along axis -1 of 2");
}

TEST_CASE("a sparse tensor has indices and values for parts") {
  const ComposedTensor composed =
      composed_of(call("_rebuild_sparse_tensor", layout("torch.sparse_coo") + "(" + a_tensor +
                                                     a_tensor + size({5, 6}) + "\x88t"));
  CHECK(composed.form == Form::sparse_coo);
  CHECK(composed.sizes == Dims{5, 6});
  CHECK(composed.is_coalesced == true);
  CHECK(composed.part_count == 2);
}

TEST_CASE("a compressed sparse tensor has three parts, in each layout") {
  for (const auto& [name, form] : {std::pair{"torch.sparse_csr", Form::sparse_csr},
                                   {"torch.sparse_csc", Form::sparse_csc},
                                   {"torch.sparse_bsr", Form::sparse_bsr},
                                   {"torch.sparse_bsc", Form::sparse_bsc}}) {
    const ComposedTensor composed =
        composed_of(call("_rebuild_sparse_tensor",
                         layout(name) + "(" + a_tensor + a_tensor + a_tensor + size({5, 6}) + "t"));
    CHECK(composed.form == form);
    CHECK(composed.part_count == 3);
  }
}

TEST_CASE("a tensor that is a parameter is one composed tensor, as it is without") {
  const std::string sparse =
      call("_rebuild_sparse_tensor",
           layout("torch.sparse_coo") + "(" + a_tensor + a_tensor + size({5, 6}) + "\x88t");
  const std::string meta = call("_rebuild_meta_tensor_no_storage",
                                global("torch", "float32") + tuple({3, 4}) + tuple({4, 1}) + no);
  for (const auto& [tensor, parts] : {std::pair{sparse, 2u}, {meta, 0u}}) {
    const std::string parameter = call("_rebuild_parameter", tensor + "\x88" + test::no_hooks);
    const std::string with_state =
        call("_rebuild_parameter_with_state", tensor + "\x88" + test::no_hooks + "}");
    for (const std::string& wrapped : {parameter, with_state}) {
      const ComposedTensor composed = composed_of(wrapped);
      CHECK(composed.is_parameter);
      CHECK(composed.requires_grad);
      CHECK(composed.part_count == parts);
    }
  }
}

TEST_CASE("TorchScript's form of a sparse tensor is understood") {
  const ComposedTensor composed =
      composed_of(call("_rebuild_sparse_tensor", integer(2) + tuple({3, 3}) + "\x88" + a_tensor +
                                                     a_tensor + a_tensor + test::no_hooks));
  CHECK(composed.form == Form::sparse_csr);
  CHECK(composed.requires_grad);
  CHECK(composed.sizes == Dims{3, 3});
}

TEST_CASE("of a layout that is not known nothing is said") {
  const Checkpoint opened =
      open_with(call("_rebuild_sparse_tensor", layout("torch.later") + "(" + a_tensor + "t"))
          .value();
  CHECK(composed_tensors(opened).empty());
  CHECK(opened.tensors().size() == 1);
}

TEST_CASE("a jagged tensor has the parts of its arguments, which its state repeats") {
  const std::string values = "q\x41", offsets = "q\x42";
  const std::string arguments = test::dict({{unicode("values"), a_tensor + values},
                                            {unicode("offsets"), a_tensor + offsets},
                                            {unicode("lengths"), "N"},
                                            {unicode("requires_grad"), "\x88"}}) +
                                "\x85";
  const std::string state =
      test::dict({{unicode("_values"), "h\x41"}, {unicode("_offsets"), "h\x42"}});
  const std::string jagged = global("torch._tensor", "_rebuild_from_type_v2") + "(" +
                             global("torch.nested._internal.nested_tensor", "_rebuild_njt") +
                             global("torch.nested._internal.nested_tensor", "NestedTensor") +
                             arguments + state + "tR";
  const Checkpoint opened = open_with(jagged).value();
  REQUIRE(opened.tensors().size() == 2);
  CHECK(opened.tensors()[0].name == "w.2.0.values");
  CHECK(opened.tensors()[1].name == "w.2.0.offsets");
  const ComposedTensor composed = composed_of(jagged);
  CHECK(composed.form == Form::nested);
  CHECK(composed.requires_grad);
  CHECK(composed.part_count == 2);
}

TEST_CASE("a nested tensor has four parts") {
  CHECK(composed_of(call("_rebuild_nested_tensor", a_tensor + a_tensor + a_tensor + a_tensor))
            .part_count == 4);
  CHECK_FAILS(open_with(call("_rebuild_nested_tensor", a_tensor)), ErrorCode::corrupt,
              "_rebuild_nested_tensor has 1 argument, expected four tensors");
  CHECK_FAILS(open_with(call("_rebuild_nested_tensor", a_tensor + "NNN")), ErrorCode::corrupt,
              "expected four tensors");
}

TEST_CASE("a meta tensor has no parts, and is listed under each of its names") {
  const std::string meta = call("_rebuild_meta_tensor_no_storage",
                                global("torch", "float16") + tuple({3, 4}) + tuple({4, 1}) + no);
  const ComposedTensor composed = composed_of(meta);
  CHECK(composed.form == Form::meta);
  CHECK(composed.dtype == DType::float16);
  CHECK(composed.sizes == Dims{3, 4});
  CHECK(composed.part_count == 0);
  const Checkpoint twice =
      open_with("}(" + unicode("a") + meta + "q\x01" + unicode("b") + "h\x01u").value();
  REQUIRE(composed_tensors(twice).size() == 2);
  CHECK(composed_tensors(twice)[1].name == "w.b");
}

TEST_CASE("a subclass is called by its class, and has what its state holds for parts") {
  const std::string wrapper = "(" + global("my.module", "Scaled") + global("torch", "float32") +
                              tuple({4, 4}) + tuple({4, 1}) + integer(0) + layout("torch.strided") +
                              global("torch", "device") + unicode("cpu") + "\x85R" + no + "t";
  const std::string value = global("torch._tensor", "_rebuild_from_type_v2") + "(" +
                            global("torch._utils", "_rebuild_wrapper_subclass") +
                            global("my.module", "Scaled") + wrapper + "}" + unicode("inner") +
                            a_tensor + "stR";
  const ComposedTensor composed = composed_of(value);
  CHECK(composed.form == Form::subclass);
  CHECK(composed.type == "my.module.Scaled");
  CHECK(composed.device == "cpu");
  CHECK(composed.part_count == 1);
  CHECK_FAILS(open_with(call("_rebuild_wrapper_subclass", "NN")), ErrorCode::corrupt,
              "_rebuild_wrapper_subclass has 2 arguments");
}

TEST_CASE("a tensor that is made of an array for a device says which") {
  const ComposedTensor composed =
      composed_of(call("_rebuild_device_tensor_from_numpy",
                       "N" + global("torch", "bfloat16") + unicode("xla:0") + "\x88"));
  CHECK(composed.form == Form::from_array);
  CHECK(composed.dtype == DType::bfloat16);
  CHECK(composed.device == "xla:0");
  CHECK(composed.requires_grad);
  CHECK_FAILS(open_with(call("_rebuild_device_tensor_from_numpy", "N")), ErrorCode::corrupt,
              "_rebuild_device_tensor_from_numpy has 1 argument");
}

TEST_CASE("an array whose elements stand in the pickle is a tensor over its bytes") {
  const std::string array =
      "cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
      "C\x01"
      "b\x87R(K\x01K\x02K\x03\x86"
      "cnumpy\ndtype\nX\x02\x00\x00\x00i2\x89\x88\x87R(K\x03X\x01\x00\x00\x00<NNN"
      "J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
      "C\x0c\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0btb"s;
  const std::string pickle =
      "\x80\x03" + test::dict({{unicode("a"), array + "q\x01"}, {unicode("b"), "h\x01"}}) + ".";
  const test::TemporaryFolder folder;
  const test::Bytes archive = test::archive_of(pickle, {});
  const std::filesystem::path path = folder.write("model.pt", std::span<const std::byte>(archive));
  const Checkpoint opened = Checkpoint::open(path).value();
  REQUIRE(opened.tensors().size() == 2);
  CHECK(Backing(opened).storage_count() == 1);
  for (const char* name : {"a", "b"}) {
    const NamedTensor tensor = opened.get(name).value();
    CHECK(tensor.view.dtype() == DType::int16);
    CHECK((tensor.view.shape()[0] == 2 && tensor.view.shape()[1] == 3));
    CHECK(static_cast<int>(tensor.view.bytes()[11]) == 11);
    CHECK(tensor.storage.starts_with("data.pkl/"));
    CHECK(static_cast<int>(archive[tensor.file_offset + 1]) == 1);
  }
  REQUIRE_OK(verify_headers(opened));
  CHECK(verify_crc(opened).faults.empty());
  const OpenOptions options{.limits = {.rank = 1}};
  CHECK_FAILS(Checkpoint::open(path, options), ErrorCode::limit_exceeded,
              "tensor \"a\": an array has 2 dimensions, the limit is 1");
}

}  // namespace weightmap
