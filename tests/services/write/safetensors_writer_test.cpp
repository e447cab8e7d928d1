#include "weightmap/safetensors_writer.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {
namespace {

namespace fs = std::filesystem;
using test::data;
using test::opened;
using test::read_file;
using test::TemporaryFolder;

constexpr std::array<std::int32_t, 4> four = {1, 2, 3, 4};

SafetensorsTensor tensor_of(std::string name, std::vector<std::int64_t> shape,
                            DType dtype = DType::float32) {
  std::uint64_t bytes = block_of(dtype).bytes;
  for (const std::int64_t dim : shape) bytes *= static_cast<std::uint64_t>(dim);
  return {.name = std::move(name),
          .dtype = dtype,
          .shape = std::move(shape),
          .content = RecordContent::zeros(bytes)};
}

SafetensorsTensor over(std::string name, std::span<const std::int32_t> values) {
  return {.name = std::move(name),
          .dtype = DType::int32,
          .shape = {static_cast<std::int64_t>(values.size())},
          .content = RecordContent::bytes(std::as_bytes(values))};
}

std::vector<SafetensorsTensor> listed(std::initializer_list<SafetensorsTensor> tensors) {
  return tensors;
}

struct Folder : TemporaryFolder {
  fs::path file = path() / "model.safetensors";

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path()))
      found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  Result<SafetensorsReport> write(std::vector<SafetensorsTensor> tensors,
                                  const SafetensorsOptions& options = {},
                                  const SafetensorsMetadata& metadata = {}) const {
    return write_safetensors(std::move(tensors), metadata, file, options);
  }
  std::string text(std::vector<SafetensorsTensor> tensors,
                   const SafetensorsMetadata& metadata = {}) const {
    REQUIRE_OK(write(std::move(tensors), {}, metadata));
    return read_file(file);
  }
  std::string header(std::vector<SafetensorsTensor> tensors,
                     const SafetensorsMetadata& metadata = {}) const {
    std::string all = text(std::move(tensors), metadata);
    std::uint64_t length = 0;
    std::memcpy(&length, all.data(), sizeof length);
    all = all.substr(sizeof length, length);
    return all.substr(0, all.find_last_not_of(' ') + 1);
  }
  void refuses(std::vector<SafetensorsTensor> tensors, ErrorCode code, std::string_view words,
               const SafetensorsOptions& options = {},
               const SafetensorsMetadata& metadata = {}) const {
    const Result<SafetensorsReport> refused = write(std::move(tensors), options, metadata);
    CHECK_FAILS(refused, code, words);
    CHECK(refused.error().file == file.native());
    CHECK(names().empty());
  }
};

TEST_SUITE("safetensors writer") {
  TEST_CASE_FIXTURE(Folder, "a small file, byte for byte") {
    SafetensorsTensor tensor = over("t", four);
    tensor.shape = {2, 2};
    const std::string expected = std::string("\x78\0\0\0\0\0\0\0", 8) +
                                 R"({"t":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})" +
                                 std::string(63, ' ') +
                                 std::string("\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0", 16);
    CHECK(text({tensor}) == expected);
  }

  TEST_CASE_FIXTURE(Folder, "no tensors") {
    CHECK(text({}) == std::string("\x38\0\0\0\0\0\0\0{}", 10) + std::string(54, ' '));
  }

  TEST_CASE_FIXTURE(Folder,
                    "metadata stays in its order, and text is escaped as little as can be") {
    CHECK(header({tensor_of("q\"\\\n\x01\xc3\xa9", {0})},
                 {{"z", "1"}, {"a", "\t/\x7f"}, {"", "\xf0\x9f\x98\x80"}}) ==
          "{\"__metadata__\":{\"z\":\"1\",\"a\":\"\\t/\x7f\",\"\":\"\xf0\x9f\x98\x80\"},"
          "\"q\\\"\\\\\\n\\u0001\xc3\xa9\":{\"dtype\":\"F32\",\"shape\":[0],"
          "\"data_offsets\":[0,0]}}");
  }

  TEST_CASE_FIXTURE(Folder, "every type of the format") {
    const std::vector<std::pair<DType, std::string>> names = {
        {DType::boolean, "BOOL"},
        {DType::uint8, "U8"},
        {DType::int8, "I8"},
        {DType::float8_e5m2, "F8_E5M2"},
        {DType::float8_e4m3fn, "F8_E4M3"},
        {DType::float8_e8m0fnu, "F8_E8M0"},
        {DType::float8_e4m3fnuz, "F8_E4M3FNUZ"},
        {DType::float8_e5m2fnuz, "F8_E5M2FNUZ"},
        {DType::int16, "I16"},
        {DType::uint16, "U16"},
        {DType::float16, "F16"},
        {DType::bfloat16, "BF16"},
        {DType::int32, "I32"},
        {DType::uint32, "U32"},
        {DType::float32, "F32"},
        {DType::complex64, "C64"},
        {DType::float64, "F64"},
        {DType::int64, "I64"},
        {DType::uint64, "U64"}};
    for (const auto& [dtype, name] : names)
      CHECK(header({tensor_of("t", {}, dtype)}) == R"({"t":{"dtype":")" + name +
                                                       R"(","shape":[],"data_offsets":[0,)" +
                                                       std::to_string(element_size(dtype)) + "]}}");
  }

  TEST_CASE_FIXTURE(Folder, "packed elements are counted one by one") {
    CHECK(header({tensor_of("t", {2, 3}, DType::float4_e2m1fn_x2)}) ==
          R"({"t":{"dtype":"F4","shape":[2,6],"data_offsets":[0,6]}})");
  }

  TEST_CASE_FIXTURE(Folder, "four elements of six bits in three bytes") {
    const SafetensorsTensor tensor{.name = "t",
                                   .dtype = DType::float6_e3m2,
                                   .shape = {2, 8},
                                   .content = RecordContent::zeros(12)};
    CHECK(header({tensor}) == R"({"t":{"dtype":"F6_E3M2","shape":[2,8],"data_offsets":[0,12]}})");
    const Checkpoint checkpoint = opened(file);
    const TensorView view = *checkpoint.find("t");
    CHECK(view.dtype() == DType::float6_e3m2);
    REQUIRE_OK(write({SafetensorsTensor::of("u", view).value()}));
    CHECK(opened(file).contains("u"));
  }

  TEST_CASE_FIXTURE(Folder, "all are aligned, without holes") {
    const std::vector<SafetensorsTensor> tensors =
        listed({tensor_of("byte", {1}, DType::uint8), tensor_of("b", {32}),
                tensor_of("wide", {3}, DType::float64), tensor_of("a", {16}),
                tensor_of("half.b", {5}, DType::float16), tensor_of("none", {0}),
                tensor_of("half.a", {7}, DType::bfloat16), tensor_of("single", {1})});
    REQUIRE_OK(write(tensors));
    const Checkpoint checkpoint = opened(file);
    std::vector<std::string> order;
    std::uint64_t end = 0;
    for (const NamedTensor& tensor : checkpoint.tensors()) {
      INFO(tensor.name);
      if (end == 0) end = tensor.file_offset;
      CHECK(tensor.file_offset == end);
      end += tensor.view.nbytes();
      order.emplace_back(tensor.name);
      const std::uint64_t alignment =
          tensor.view.nbytes() % 64 == 0 ? 64 : element_size(tensor.view.dtype());
      CHECK(tensor.file_offset % alignment == 0);
    }
    CHECK(order ==
          std::vector<std::string>{"b", "a", "none", "wide", "single", "half.a", "half.b", "byte"});
    CHECK(end == fs::file_size(file));
  }

  TEST_CASE_FIXTURE(Folder, "equal input gives equal bytes, whatever the contents come from") {
    const auto produced = [](const RecordContent::Take& take) -> Result<void> {
      for (const std::int32_t& value : four)
        if (Result<void> ok = take(std::as_bytes(std::span(&value, 1))); !ok) return ok;
      return {};
    };
    const std::string first =
        text({over("a", four), tensor_of("z", {64})}, {{"k", "v"}, {"b", ""}});
    SafetensorsTensor parts = over("a", four);
    parts.content = RecordContent::produced(16, produced);
    CHECK(text({parts, tensor_of("z", {64})}, {{"k", "v"}, {"b", ""}}) == first);
    std::vector<std::byte> zeros(256);
    SafetensorsTensor memory = tensor_of("z", {64});
    memory.content = RecordContent::bytes(zeros);
    CHECK(text({over("a", four), memory}, {{"k", "v"}, {"b", ""}}) == first);
  }

  TEST_CASE_FIXTURE(Folder, "large contents pass through, and are told of") {
    std::vector<std::int32_t> values(6'000'000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
    std::vector<std::uint64_t> told;
    const auto progress = [&](std::uint64_t done, std::uint64_t all) {
      CHECK(all == 24'000'016);
      told.push_back(done);
      return true;
    };
    const Result<SafetensorsReport> report =
        write({over("t", values), over("u", four)}, {.progress = progress});
    REQUIRE_OK(report);
    CHECK(told.size() >= 6);
    CHECK(told.back() == 24'000'016);
    CHECK(report->tensor_bytes == 24'000'016);
    CHECK(report->bytes == fs::file_size(file));
    const Checkpoint checkpoint = opened(file);
    CHECK(std::ranges::equal(*checkpoint.find("t")->as<std::int32_t>(), values));
  }

  TEST_CASE_FIXTURE(Folder, "who says stop stops it, and nothing is left") {
    std::vector<std::int32_t> values(2'000'000);
    refuses({over("t", values)}, ErrorCode::cancelled, "the writing was stopped",
            {.progress = [](std::uint64_t, std::uint64_t) { return false; }});
  }

  TEST_CASE_FIXTURE(Folder, "views of every kind") {
    const Checkpoint views = opened(data / "views.pt");
    const Checkpoint big = opened(data / "big_endian.pt");
    for (const Checkpoint* source : {&views, &big}) {
      std::vector<SafetensorsTensor> tensors;
      for (const NamedTensor& tensor : source->tensors()) {
        Result<SafetensorsTensor> made =
            SafetensorsTensor::of(std::string(tensor.name), tensor.view);
        REQUIRE_OK(made);
        tensors.push_back(std::move(*made));
      }
      REQUIRE_OK(write(tensors, {.shared = SharedElements::copy}));
      const Checkpoint written = opened(file);
      CHECK(written.tensors().size() == source->tensors().size());
      for (const NamedTensor& tensor : source->tensors()) {
        INFO(tensor.name);
        const TensorView copy = *written.find(tensor.name);
        std::vector<std::byte> expected(tensor.view.nbytes());
        REQUIRE_OK(tensor.view.gather(expected));
        CHECK(std::ranges::equal(copy.shape(), tensor.view.shape()));
        CHECK(copy.dtype() == tensor.view.dtype());
        CHECK(std::ranges::equal(copy.bytes(), expected));
      }
    }
  }

  TEST_CASE("a view whose stored values are not its own is refused") {
    const Checkpoint lazy = opened(data / "conjugate.pt");
    for (const NamedTensor& tensor : lazy.tensors())
      if (tensor.view.is_conjugate())
        CHECK_FAILS(SafetensorsTensor::of("z", tensor.view), ErrorCode::unsupported,
                    "the tensor \"z\": ");
  }

  TEST_CASE_FIXTURE(Folder, "the mode is that of the umask, or of the file that is replaced") {
    const mode_t before = ::umask(027);
    REQUIRE_OK(write({over("t", four)}));
    ::umask(before);
    struct stat found {};
    REQUIRE(::stat(file.c_str(), &found) == 0);
    CHECK((found.st_mode & 0777) == 0640);
    REQUIRE(::chmod(file.c_str(), 0604) == 0);
    REQUIRE_OK(write({over("t", four)}));
    REQUIRE(::stat(file.c_str(), &found) == 0);
    CHECK((found.st_mode & 0777) == 0604);
  }

  // --- refusals ---------------------------------------------------------------------------------

  TEST_CASE_FIXTURE(Folder, "refuses what no reader takes, and leaves nothing") {
    const auto shaped = [](std::vector<std::int64_t> shape) {
      SafetensorsTensor tensor = over("t", four);
      tensor.shape = std::move(shape);
      return tensor;
    };
    const auto produced = [](const RecordContent::Produce& produce) {
      SafetensorsTensor tensor = tensor_of("t", {4});
      tensor.content = RecordContent::produced(16, produce);
      return tensor;
    };
    const auto giving = [&](std::size_t bytes) {
      return produced(
          [bytes](const RecordContent::Take& take) { return take(std::vector<std::byte>(bytes)); });
    };
    const auto broken = [](const RecordContent::Take&) -> Result<void> {
      return tl::unexpected<Error>(Error{ErrorCode::corrupt, "is broken"});
    };
    const auto of_six_bits = [](std::vector<std::int64_t> shape) {
      return SafetensorsTensor{.name = "t", .dtype = DType::float6_e2m3, .shape = std::move(shape)};
    };
    const char* const no_whole_bytes =
        "the tensor \"t\" has elements of float6_e2m3 that do not fill whole bytes";
    struct Row {
      std::vector<SafetensorsTensor> tensors;
      const char* words;
      ErrorCode code = ErrorCode::invalid_argument;
      SafetensorsMetadata metadata = {};
    };
    const std::vector<Row> rows{
        {{over("__metadata__", four)},
         "the tensor \"__metadata__\" has the name that the format keeps"},
        {{over("t", four), tensor_of("t", {1})}, "there are two tensors called \"t\""},
        {{over("a\xff", four)}, "the tensor \"a\\xFF\" has a name that is not UTF-8"},
        {{over("\xed\xa0\x80", four)}, "not UTF-8"},  // a surrogate
        {{tensor_of("t", {}, DType::float4_e2m1fn_x2)}, "is a scalar of float4_e2m1fn_x2"},
        {{of_six_bits({})}, no_whole_bytes},
        {{of_six_bits({3})}, no_whole_bytes},
        {{of_six_bits({2, 3})}, no_whole_bytes},
        {{shaped({5})}, "the tensor \"t\" has 16 bytes, and its shape needs 20"},
        {{shaped({-4})}, "has a negative dimension"},
        // Readers multiply in this order, and find no room for the product.
        {{shaped({std::int64_t{1} << 62, 4, 0})}, "more elements than can be counted"},
        {{giving(12)}, "the tensor \"t\" was announced with 16 bytes and got 12"},
        {{giving(20)}, "with 16 bytes and got more"},
        {{produced(broken)}, "the tensor \"t\": is broken", ErrorCode::corrupt},
        {{}, "the metadata \"k\" is not UTF-8", ErrorCode::invalid_argument, {{"k", "\xff"}}},
        {{}, "the metadata \"\\xC3\" is not UTF-8", ErrorCode::invalid_argument, {{"\xc3", "v"}}},
        {{},
         "the metadata has \"k\" twice",
         ErrorCode::invalid_argument,
         {{"k", "1"}, {"k", "1"}}}};
    for (const Row& row : rows) {
      CAPTURE(std::string(row.words));
      refuses(row.tensors, row.code, row.words, {}, row.metadata);
    }
  }

  TEST_CASE_FIXTURE(Folder, "refuses types that the format has not") {
    using enum DType;
    for (const DType dtype : {complex128, complex32, qint8, quint8, qint32, quint4x2, quint2x4,
                              bits8, bits1x8, bits16, uint4, int4, uint1, int7, q4_K, mxfp4})
      refuses({tensor_of("t", {4}, dtype)}, ErrorCode::unsupported,
              "the tensor \"t\" is of " + std::string(to_string(dtype)) +
                  ", which safetensors has not");
  }

  TEST_CASE_FIXTURE(Folder, "refuses a header that no reader takes") {
    refuses({}, ErrorCode::limit_exceeded, "more than 100000000 bytes", {},
            {{"k", std::string(100'000'000, 'x')}});
    // The largest that is padded to a multiple of 64 behind its length.
    const std::string most(99'999'992 - std::string_view(R"({"__metadata__":{"k":""}})").size(),
                           'x');
    CHECK(text({}, {{"k", most}}).size() == 100'000'000);
    const Checkpoint checkpoint = opened(file);
    CHECK(checkpoint.tensors().empty());
  }

  // --- shared elements --------------------------------------------------------------------------

  TEST_CASE_FIXTURE(Folder, "tensors that are the same elements are refused, both by name") {
    refuses({over("b", four), over("a", four)}, ErrorCode::invalid_argument,
            "the tensors \"b\" and \"a\" share their elements");
  }

  TEST_CASE_FIXTURE(Folder, "or the second is dropped and named in the metadata") {
    const Result<SafetensorsReport> report =
        write({over("b", four), over("a", four), over("c", four)}, {.shared = SharedElements::drop},
              {{"format", "pt"}});
    REQUIRE_OK(report);
    REQUIRE(report->dropped.size() == 2);
    CHECK(report->dropped[0].name == "a");
    CHECK(report->dropped[0].kept == "b");
    CHECK(read_file(file).substr(8, 59) ==
          R"({"__metadata__":{"format":"pt","a":"b","c":"b"},"b":{"dtype)");
  }

  TEST_CASE_FIXTURE(Folder, "or each is written") {
    const Result<SafetensorsReport> report =
        write({over("b", four), over("a", four)}, {.shared = SharedElements::copy});
    REQUIRE_OK(report);
    CHECK(report->tensor_bytes == 32);
    CHECK(report->dropped.empty());
  }

  TEST_CASE_FIXTURE(Folder, "what shares a part can only be copied") {
    const std::span<const std::int32_t> all(four);
    for (const SharedElements how : {SharedElements::refuse, SharedElements::drop})
      refuses({over("end", all.last(3)), over("begin", all.first(2))}, ErrorCode::invalid_argument,
              "the tensors \"begin\" and \"end\" share a part of their elements", {.shared = how});
    SafetensorsTensor square = over("square", four);
    square.shape = {2, 2};
    refuses({over("line", four), square}, ErrorCode::invalid_argument, "share a part");
    REQUIRE_OK(write({over("begin", all.first(2)), over("end", all.last(2))}));
    REQUIRE_OK(write({over("line", four), square}, {.shared = SharedElements::copy}));
  }

  TEST_CASE_FIXTURE(Folder, "a dropped name must not be one of the metadata already") {
    refuses({over("b", four), over("a", four)}, ErrorCode::invalid_argument,
            "the metadata has \"a\" twice", {.shared = SharedElements::drop}, {{"a", ""}});
  }

  // --- sets -------------------------------------------------------------------------------------

  TEST_CASE_FIXTURE(Folder, "a set and its index") {
    const Result<SafetensorsReport> report =
        write({tensor_of("\xc3\xa9", {2}), tensor_of("a", {1}), tensor_of("large", {5}),
               tensor_of("b", {3}), tensor_of("none", {0})},
              {.max_file_bytes = 12}, {{"format", "pt"}});
    REQUIRE_OK(report);
    const std::vector<std::string> expected = {
        "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors", "model.safetensors.index.json"};
    CHECK(names() == expected);
    REQUIRE(report->files.size() == 4);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(report->files[i].path == path() / expected[i]);
      CHECK(report->files[i].bytes == fs::file_size(path() / expected[i]));
      bytes += report->files[i].bytes;
    }
    CHECK(report->bytes == bytes);
    CHECK(report->has_index);
    CHECK(report->tensor_bytes == 44);
    CHECK(read_file(path() / expected[3]) == R"({
  "metadata": {
    "total_size": 44
  },
  "weight_map": {
    "a": "model-00002-of-00003.safetensors",
    "b": "model-00003-of-00003.safetensors",
    "large": "model-00001-of-00003.safetensors",
    "none": "model-00003-of-00003.safetensors",
    "\u00e9": "model-00002-of-00003.safetensors"
  }
}
)");
    const Checkpoint checkpoint = opened(path());
    CHECK(checkpoint.tensors().size() == 5);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(read_file(path() / expected[i]).substr(8, 33) ==
            R"({"__metadata__":{"format":"pt"},")");
  }

  TEST_CASE_FIXTURE(Folder, "no file of a set is empty, also if its first tensor is too large") {
    const Result<SafetensorsReport> report =
        write({tensor_of("large", {5}), tensor_of("b", {3})}, {.max_file_bytes = 12});
    REQUIRE_OK(report);
    CHECK(names() == std::vector<std::string>{"model-00001-of-00002.safetensors",
                                              "model-00002-of-00002.safetensors",
                                              "model.safetensors.index.json"});
  }

  TEST_CASE_FIXTURE(Folder, "what fits one file is one, without an index") {
    const Result<SafetensorsReport> report = write({over("t", four)}, {.max_file_bytes = 16});
    REQUIRE_OK(report);
    CHECK(names() == std::vector<std::string>{"model.safetensors"});
    CHECK(!report->has_index);
    CHECK(report->files.size() == 1);
  }

  TEST_CASE_FIXTURE(Folder, "one file has an index where that is wanted") {
    const Result<SafetensorsReport> report = write({over("t", four)}, {.always_index = true});
    REQUIRE_OK(report);
    CHECK(names() == std::vector<std::string>{"model-00001-of-00001.safetensors",
                                              "model.safetensors.index.json"});
    CHECK(report->has_index);
    const Checkpoint checkpoint = opened(path() / "model.safetensors.index.json");
    CHECK(checkpoint.tensors().size() == 1);
  }

  TEST_CASE_FIXTURE(Folder, "a set needs a name that ends as its files do") {
    const Result<SafetensorsReport> refused =
        write_safetensors({over("t", four)}, {}, path() / "model.bin", {.max_file_bytes = 16});
    CHECK_FAILS(refused, ErrorCode::invalid_argument, "must end in .safetensors");
    CHECK(names().empty());
    REQUIRE_OK(write_safetensors({over("t", four)}, {}, path() / "model.bin"));
  }

  TEST_CASE_FIXTURE(Folder, "a set that cannot be written leaves nothing") {
    SafetensorsTensor broken = tensor_of("t", {4});
    broken.content = RecordContent::produced(16, [](const RecordContent::Take&) -> Result<void> {
      return tl::unexpected<Error>(Error{ErrorCode::io, "is gone"});
    });
    const Result<SafetensorsReport> refused =
        write({tensor_of("a", {4}), broken, tensor_of("b", {4})}, {.max_file_bytes = 16});
    CHECK_FAILS(refused, ErrorCode::io, "the tensor \"t\": is gone");
    CHECK(refused.error().file == (path() / "model-00002-of-00003.safetensors").native());
    CHECK(names().empty());
  }

  TEST_CASE_FIXTURE(Folder, "a set takes its new names back if one cannot be had") {
    TemporaryFolder::write("model-00001-of-00003.safetensors", std::string_view("old"));
    const fs::path third = path() / "model-00003-of-00003.safetensors";
    SafetensorsTensor late = tensor_of("t", {4});
    late.content = RecordContent::produced(16, [&](const RecordContent::Take& take) {
      fs::create_directory(third);
      return take(std::vector<std::byte>(16));
    });
    const Result<SafetensorsReport> refused =
        write({tensor_of("a", {4}), tensor_of("b", {4}), late}, {.max_file_bytes = 16});
    CHECK_FAILS(refused, ErrorCode::io, "");
    CHECK(refused.error().file == third.native());
    // The first had a file, of which the new one is the successor.
    CHECK(names() == std::vector<std::string>{"model-00001-of-00003.safetensors",
                                              "model-00003-of-00003.safetensors"});
    CHECK(read_file(path() / "model-00001-of-00003.safetensors").size() == 80);
  }

  TEST_CASE_FIXTURE(Folder, "a set replaces one of as many files") {
    for (const std::int32_t value : {1, 2}) {
      const std::array<std::int32_t, 2> values = {value, value};
      const std::span<const std::int32_t> all(values);
      REQUIRE_OK(write({over("a", all.first(1)), over("b", all.last(1))}, {.max_file_bytes = 4}));
      CHECK(names().size() == 3);
      const Checkpoint checkpoint = opened(path());
      CHECK((*checkpoint.find("b")->as<std::int32_t>())[0] == value);
    }
  }

  TEST_CASE_FIXTURE(Folder, "a file may replace the one that its tensors come from") {
    REQUIRE_OK(write({over("t", four)}));
    const Checkpoint checkpoint = opened(file);
    REQUIRE_OK(write({SafetensorsTensor::of("u", *checkpoint.find("t")).value()}));
    const Checkpoint renamed = opened(file);
    CHECK((*renamed.find("u")->as<std::int32_t>())[3] == 4);
  }
}

}  // namespace
}  // namespace weightmap
