// TorchScript archives: two pickles that become one tree, and code that says what attributes are.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/formats/torch/pickle_text.hpp"
#include "tests/support/archive_builder.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/named_tensor.hpp"

namespace weightmap {
namespace {

using namespace test;
using namespace std::string_literals;

std::string tensor_in(const std::string& key) {
  Tensor tensor;
  tensor.key = unicode(key);
  return tensor.text();
}

// An object of class __torch__.M with these attributes.
std::string module_of(const std::string& attributes, const std::string& name = "M") {
  return global("__torch__", name) + ")\x81" + attributes + "b";
}

struct Script {
  std::string data = "\x80\x02" + module_of(dict({{unicode("w"), tensor_in("0")}})) + ".";
  std::string constants = "\x80\x02).";
  std::string code = "class M(Module):\n  __parameters__ = [\"w\", ]\n  __buffers__ = []\n";
  std::vector<std::string> storages = {std::string(64, 'd')};
  std::vector<std::string> constant_storages;
  std::string version = "3\n";

  Result<Checkpoint> open(const OpenOptions& options = {}) const {
    test::ArchiveBuilder builder;
    for (std::size_t i = 0; i < storages.size(); ++i)
      builder.add("m/data/" + std::to_string(i), storages[i]);
    builder.add("m/data.pkl", data).add("m/code/__torch__.py", code);
    for (std::size_t i = 0; i < constant_storages.size(); ++i)
      builder.add("m/constants/" + std::to_string(i), constant_storages[i]);
    builder.add("m/constants.pkl", constants).add("m/version", version);
    const test::TemporaryFolder folder;
    return Checkpoint::open(folder.write("model.pt", std::span<const std::byte>(builder.finish())),
                            options);
  }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("names the tensors of a module by its attributes") {
  const Checkpoint opened = Checkpoint::open(test::data / "torchscript.pt").value();
  CHECK(opened.info().format == Format::torchscript);
  CHECK(names_of(opened) == Names{"linear.weight", "linear.bias"});
  const NamedTensor bias = opened.get("linear.bias").value();
  CHECK(bias.is_parameter);
  CHECK_FALSE(bias.is_buffer);
  CHECK(bias.view.shape()[0] == 2);
  REQUIRE_OK(verify_headers(opened));
}

TEST_CASE("constants are numbered and have storages of their own") {
  Script script;
  script.constants = "\x80\x02" + tensor_in("0") + tensor_in("1") + "\x86.";
  script.constant_storages = {std::string(64, 'c'), std::string(64, 'e')};
  const Checkpoint opened = script.open().value();
  CHECK(names_of(opened) == Names{"w", "constants.0", "constants.1"});
  const auto first_byte = [&](std::string_view name) {
    return static_cast<char>(opened.get(name)->view.bytes()[0]);
  };
  CHECK(first_byte("w") == 'd');
  CHECK(first_byte("constants.0") == 'c');
  CHECK(first_byte("constants.1") == 'e');
  CHECK(opened.get("constants.1")->storage == "constants/1");
  CHECK_FALSE(opened.get("constants.1")->is_parameter);
  REQUIRE_OK(verify_headers(opened));
  CHECK(verify_crc(opened).faults.empty());
}

TEST_CASE("code tells parameters from buffers and plain attributes") {
  Script script;
  script.data = "\x80\x02" +
                module_of(dict({{unicode("w"), tensor_in("0")},
                                {unicode("running"), tensor_in("1")},
                                {unicode("plain"), tensor_in("2")}})) +
                ".";
  script.storages.resize(3, std::string(64, '\0'));
  script.code =
      "class Other(Module):\n  __parameters__ = [\"plain\", ]\n"
      "class M(Module):\n  __parameters__ = [\"w\", ]\n  __buffers__ = [\"running\", ]\n"
      "  def forward(self):\n    return 1\n";
  const Checkpoint opened = script.open().value();
  const auto roles = [&](std::string_view name) {
    const NamedTensor tensor = opened.get(name).value();
    return std::pair(tensor.is_parameter, tensor.is_buffer);
  };
  CHECK(roles("w") == std::pair(true, false));
  CHECK(roles("running") == std::pair(false, true));
  CHECK(roles("plain") == std::pair(false, false));
}

TEST_CASE("refuses a script pickle that stops before its record ends") {
  Script script;
  script.data = "\x80\x02N.N.";
  CHECK_FAILS(script.open(), ErrorCode::corrupt,
              "data.pkl: the pickle stops 2 bytes before its end");
  script = Script();
  script.constants += "N.";
  CHECK_FAILS(script.open(), ErrorCode::corrupt,
              "constants.pkl: the pickle stops 2 bytes before its end");
}

TEST_CASE("the ids of a memo count from zero in constants.pkl, too") {
  Script script;
  script.data = "\x80\x04" + module_of(dict({{unicode("w"), tensor_in("0")}})) + "\x94.";
  script.constants = "\x80\x04" + tensor_in("0") + "\x94h\0\x86."s;
  script.constant_storages = {std::string(64, 'c')};
  const Checkpoint opened = script.open().value();
  CHECK(names_of(opened) == Names{"w", "constants.0", "constants.1"});
  CHECK(opened.get("constants.1")->storage == "constants/0");
}

TEST_CASE("refuses code that inflates beyond the limit for records") {
  const Script script;
  OpenOptions options{.limits = {.record_bytes = script.code.size() - 1}};
  CHECK_FAILS(script.open(options), ErrorCode::limit_exceeded, "__torch__.py");
  ++options.limits.record_bytes;
  REQUIRE_OK(script.open(options));
}

TEST_CASE("a module reads the same whatever the order of its records") {
  const Script script;
  test::ArchiveBuilder builder;
  builder.add("m/version", "3\n").add("m/constants.pkl", script.constants);
  builder.add("m/code/__torch__.py", script.code).add("m/data.pkl", script.data);
  builder.add("m/data/0", script.storages[0]).finish();
  const test::TemporaryFolder folder;
  const Result<Checkpoint> other =
      Checkpoint::open(folder.write("model.pt", std::span<const std::byte>(builder.bytes())));
  const Result<Checkpoint> usual = script.open();
  REQUIRE_OK(other);
  REQUIRE_OK(usual);
  CHECK(names_of(*other) == names_of(*usual));
  CHECK(other->get("w")->view.bytes()[0] == usual->get("w")->view.bytes()[0]);
}

}  // namespace weightmap
