// From pickles to tensors and to the catalog: what torch writes, and what it never would.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/pickle/parse.hpp"
#include "runtime/formats/torch/globals.hpp"
#include "runtime/formats/torch/harmful_names.hpp"
#include "runtime/formats/torch/make_catalog.hpp"
#include "runtime/formats/torch/names.hpp"
#include "runtime/formats/torch/tree_walk.hpp"
#include "tests/formats/torch/pickle_text.hpp"
#include "tests/support/failures.hpp"
#include "weightmap/tensor_view.hpp"

using namespace weightmap;
using namespace std::string_literals;
using namespace weightmap::test;
using catalog::Catalog;
using catalog::Entry;

namespace {

constexpr std::uint64_t file_offset = 64;

struct Read {
  std::unique_ptr<value::Tree> tree;
  torch::TensorTable table;
};

Result<Read> read(const std::string& text, const Limits& limits = {}) {
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  bytes::Buffer copy(text.size(), memory);
  std::memcpy(copy.data(), text.data(), text.size());
  const std::span<const std::byte> view = copy.span();
  auto tree =
      pickle::parse(std::move(copy), view, file_offset, {std::uint64_t{64} << 20, 1000}, memory);
  REQUIRE_MESSAGE(tree.has_value(), (tree ? "" : tree.error().message));
  if (Result<bool> named = torch::check_globals(**tree, file_offset, {}); !named)
    return tl::unexpected<Error>(named.error());
  auto table = torch::read_tensors(**tree, {file_offset, limits}, memory);
  if (!table) return tl::unexpected<Error>(table.error());
  return Read{std::move(*tree), std::move(*table)};
}

// Every storage is `storage_bytes` long and lies at offset 4096 * (number + 1).
Result<Catalog> catalog_of(const std::string& text, std::uint64_t storage_bytes = 64,
                           bool foreign = false) {
  const Result<Read> made = read(text);
  if (!made) return tl::unexpected<Error>(made.error());
  std::vector<zip::StorageExtent> extents;
  for (std::size_t i = 0; i < made->table.storages.storages().size(); ++i)
    extents.push_back({4096 * (i + 1), storage_bytes, 0, 0});
  return torch::make_catalog({*made->tree, made->table, extents, foreign, file_offset},
                             *std::pmr::new_delete_resource());
}

Error refused(const std::string& text) {
  const Result<Catalog> made = catalog_of(text);
  REQUIRE(!made.has_value());
  return made.error();
}

std::string name_list(const Catalog& catalog) {
  std::string text;
  for (const Entry& entry : catalog.entries()) text += std::string(catalog.name(entry)) + " ";
  return text;
}

bool mentions(const Error& error, std::string_view text) {
  return error.message.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("reads a tensor of version 2") {
  Tensor tensor;
  tensor.offset = integer(3);
  tensor.sizes = tuple({2, 3});
  tensor.strides = tuple({3, 1});
  tensor.requires_grad = "\x88";
  const Catalog made = catalog_of(named(tensor.text())).value();
  REQUIRE(made.size() == 1);
  const Entry& entry = made[0];
  CHECK(made.name(entry) == "w");
  CHECK(entry.dtype == DType::float32);
  CHECK(entry.rank == 2);
  CHECK(made.dims(entry)[0] == 2);
  CHECK(made.dims(entry)[1] == 3);
  CHECK(made.dims(entry)[2] == 3);
  CHECK(made.dims(entry)[3] == 1);
  CHECK(entry.storage_offset == 3);
  CHECK(entry.position == 4096 + 12);
  CHECK(entry.extent == 24);
  CHECK(entry.flags == Entry::requires_grad);
  CHECK(made.location(entry) == "cpu");
}

TEST_CASE("reads a tensor of version 1, and takes the dtype of version 3 from its last argument") {
  Tensor tensor;
  CHECK(catalog_of(named(global("torch._utils", "_rebuild_tensor") + "(" + tensor.storage() +
                         tensor.offset + tensor.sizes + tensor.strides + "tR"))
            ->size() == 1);
  tensor.function = global("torch._utils", "_rebuild_tensor_v3");
  tensor.storage_type = global("torch.storage", "UntypedStorage");
  tensor.numel = integer(64);
  tensor.extra = global("torch", "uint32");
  const Catalog made = catalog_of(named(tensor.text())).value();
  CHECK(made[0].dtype == DType::uint32);
  CHECK(made[0].extent == 64);
}

TEST_CASE("knows every storage type") {
  for (const auto& [name, dtype] : {std::pair{"DoubleStorage", DType::float64},
                                    {"FloatStorage", DType::float32},
                                    {"HalfStorage", DType::float16},
                                    {"BFloat16Storage", DType::bfloat16},
                                    {"LongStorage", DType::int64},
                                    {"IntStorage", DType::int32},
                                    {"ShortStorage", DType::int16},
                                    {"CharStorage", DType::int8},
                                    {"ByteStorage", DType::uint8},
                                    {"BoolStorage", DType::boolean},
                                    {"ComplexDoubleStorage", DType::complex128},
                                    {"ComplexFloatStorage", DType::complex64},
                                    {"QInt8Storage", DType::qint8},
                                    {"QUInt8Storage", DType::quint8},
                                    {"QInt32Storage", DType::qint32},
                                    {"QUInt4x2Storage", DType::quint4x2},
                                    {"QUInt2x4Storage", DType::quint2x4}}) {
    CHECK(torch::storage_type("torch", name)->dtype == dtype);
    CHECK(torch::storage_type("torch.cuda", name)->dtype == dtype);
  }
  CHECK(torch::storage_type("torch.storage", "UntypedStorage")->untyped);
  CHECK(!torch::storage_type("torch", "Floatstorage"));
  CHECK(!torch::storage_type("Torch", "FloatStorage"));
  CHECK(!torch::storage_type("torch", "UntypedStorage"));
}

TEST_CASE("joins names over dicts, lists and integer keys, in file order") {
  const Tensor tensor;
  const std::string text =
      dict({{unicode("model"), dict({{unicode("a.b"), tensor.text()}})},
            {unicode("list"), "](" + tensor.text() + "N" + tensor.text() + "e"},
            {unicode("state"), dict({{"K\x07", dict({{unicode("step"), tensor.text()}})}})}}) +
      ".";
  const Catalog made = catalog_of(text).value();
  CHECK(name_list(made) == "model.a.b list.0 list.2 state.7.step ");
  std::string path;
  made.visit_path(made[3], [&](const Catalog::PathText& part) {
    path += std::string(part.text) + (part.is_integer ? "#" : "|");
  });
  CHECK(path == "state|7#step|");
  CHECK(made.path_length(made[0]) == 2);
}

TEST_CASE("reads a checkpoint that is one tensor") {
  const Catalog made = catalog_of(Tensor{}.text() + ".").value();
  REQUIRE(made.size() == 1);
  CHECK(made.name(made[0]).empty());
  CHECK(made.path_length(made[0]) == 0);
}

TEST_CASE("looks into unknown objects, their arguments, items and state") {
  const Tensor tensor;
  const std::string text = global("my.code", "Net") + ")\x81" +
                           dict({{unicode("_parameters"), dict({{unicode("w"), tensor.text()}})}}) +
                           "b.";
  CHECK(name_list(*catalog_of(text)) == "_parameters.w ");
  CHECK(name_list(*catalog_of(global("a", "b") + "N" + tensor.text() + "\x86R.")) == "1 ");
}

TEST_CASE("lists tensors that are keys of a dict, or lie in keys, by the kind of the key") {
  Tensor other;
  other.key = unicode("1");
  const std::string pair = "(" + Tensor{}.text() + unicode("a") + "t";
  const auto names = [](const std::string& text) {
    const Catalog made = catalog_of(text).value();
    return name_list(made) + std::to_string(made.storages().size());
  };
  CHECK(names(dict({{Tensor{}.text(), "K\1"}}) + ".") == "<key> 1");
  CHECK(names(dict({{Tensor{}.text(), other.text()}}) + ".") == "<key> <key> 2");
  CHECK(names(dict({{pair, "K\1"}}) + ".") == "<tuple>.0 1");
  CHECK(names(dict({{pair, other.text()}}) + ".") == "<tuple>.0 <tuple> 2");
  CHECK(names(dict({{"(" + Tensor{}.text() + "\x91", "N"}}) + ".") == "<key>.0 1");
  CHECK(names(global("collections", "OrderedDict") + ")R(" + Tensor{}.text() + other.text() +
              "u.") == "<key> <key> 2");
  CHECK(names(dict({{unicode("a"), dict({{global("my", "Key") + "(" + pair + "tR", "N"}})}}) +
              ".") == "a.<key>.0.0 1");
  const std::string bare = "(" + unicode("storage") + global("torch", "FloatStorage") +
                           unicode("0") + unicode("cpu") + integer(16) + "tQ";
  CHECK(names(dict({{bare, "N"}}) + ".") == "1");
  CHECK(names(dict({{integer(1), "N"}, {Tensor{}.text(), "N"}, {unicode("z"), other.text()}}) +
              ".") == "<key> z 2");
}

TEST_CASE("reads parameters through their wrapper") {
  const Tensor tensor;
  const std::string text =
      global("torch._utils", "_rebuild_parameter") + tensor.text() + "\x88" + no_hooks + "\x87R";
  const Catalog made = catalog_of(named(text)).value();
  CHECK((made[0].flags & Entry::parameter) != 0);
  CHECK((made[0].flags & Entry::requires_grad) != 0);
}

TEST_CASE("reads tensors with attributes through _rebuild_from_type_v2, and their attributes") {
  const Tensor tensor;
  const std::string text = global("torch._tensor", "_rebuild_from_type_v2") + "(" +
                           tensor.function + global("torch", "Tensor") + tensor.arguments() +
                           dict({{unicode("scale"), tensor.text()}}) + "tR";
  CHECK(name_list(*catalog_of(named(text))) == "w w.3.scale ");
}

TEST_CASE("takes a parameter's state that repeats its data, and lists no tensor for that") {
  const Tensor tensor;
  const auto parameter = [](const std::string& held, const std::string& state) {
    return named(global("torch._utils", "_rebuild_parameter_with_state") + "(" + held + "\x88" +
                 no_hooks + state + "tR");
  };
  const auto with_data = [](const std::string& data, const std::string& grad = "\x88") {
    return dict({{unicode("scale"), Tensor().text()},
                 {unicode("data"), data},
                 {unicode("requires_grad"), grad}});
  };
  CHECK(name_list(*catalog_of(
            parameter(tensor.text(), dict({{unicode("data"), tensor.text()}})))) == "w ");
  Tensor other = tensor;
  other.key = unicode("7");
  const std::string beside = dict({{unicode("scale"), other.text()},
                                   {unicode("data"), tensor.text()},
                                   {unicode("requires_grad"), "\x88"}});
  CHECK(name_list(*catalog_of(parameter(tensor.text(), beside))) == "w w.3.scale ");
  const auto is_refused = [&](const std::string& text, const std::string& name) {
    return mentions(refused(text), "sets \"" + name + "\" of a tensor after making it");
  };
  CHECK(is_refused(parameter(tensor.text(), with_data(tensor.text(), "\x89")), "requires_grad"));
  Tensor shifted = tensor;
  shifted.offset = integer(1);
  Tensor turned = tensor;
  turned.strides = tuple({1, 4});
  Tensor retyped = tensor;
  retyped.storage_type = global("torch", "IntStorage");
  retyped.key = unicode("8");
  for (const std::string& data : {other.text(), shifted.text(), turned.text(), retyped.text(),
                                  std::string("N"), no_hooks, "(" + tensor.text() + "t"}) {
    CAPTURE(data);
    CHECK(is_refused(parameter(tensor.text(), with_data(data)), "data"));
  }
  // Data that has data of its own is not followed, and what is no plain tensor has none to compare.
  const std::string deep = global("torch._utils", "_rebuild_parameter_with_state") + "(" +
                           tensor.text() + "\x88" + no_hooks + with_data(tensor.text()) + "tR";
  CHECK(is_refused(parameter(tensor.text(), with_data(deep)), "data"));
  CHECK(is_refused(parameter(no_hooks, with_data(tensor.text())), "data"));
}

TEST_CASE("refuses a state that replaces what a tensor is") {
  const Tensor tensor;
  Tensor other = tensor;
  other.key = unicode("7");
  const auto of_type = [&](const std::string& state) {
    return named(global("torch._tensor", "_rebuild_from_type_v2") + "(" + tensor.function +
                 global("torch", "Tensor") + tensor.arguments() + state + "tR");
  };
  const auto parameter = [&](const std::string& state) {
    return named(global("torch._utils", "_rebuild_parameter_with_state") + "(" + tensor.text() +
                 "\x88" + no_hooks + state + "tR");
  };
  std::vector<const char*> names = {"data",  "grad",  "_grad",   "requires_grad", "retains_grad",
                                    "names", "real",  "imag",    "grad_fn",       "_grad_fn",
                                    "shape", "dtype", "is_leaf", "device",        "_cdata"};
  names.insert(names.end(),
               {"T", "__class__", "__dict__", "_backward_hooks", "_post_accumulate_grad_hooks"});
  for (const char* name : names) {
    CAPTURE(name);
    const std::string state = dict({{unicode("a"), "N"}, {unicode(name), other.text()}});
    for (const std::string& text :
         {of_type(state), parameter(state), of_type(state + "N\x86"), of_type("N" + state + "\x86"),
          of_type(global("collections", "OrderedDict") + ")R(" + unicode(name) + "Nu")}) {
      const Error error = refused(text);
      CHECK(error.code == ErrorCode::unsafe_pickle);
      CHECK(mentions(error, "sets \"" + std::string(name) + "\" of a tensor after making it"));
    }
  }
}

TEST_CASE("takes negation and conjugation from the names in the metadata, as torch does") {
  Tensor tensor;
  tensor.storage_type = global("torch", "ComplexFloatStorage");
  tensor.numel = integer(8);
  tensor.sizes = tuple({2, 4});
  tensor.extra = dict({{unicode("neg"), "\x89"}});
  CHECK(catalog_of(named(tensor.text())).value()[0].flags == TensorView::negative);
  tensor.extra = dict({{unicode("conj"), "\x88"}});
  CHECK(catalog_of(named(tensor.text())).value()[0].flags == TensorView::conjugate);
  tensor.extra = global("collections", "OrderedDict") + ")R";
  CHECK(refused(named(tensor.text())).code == ErrorCode::corrupt);
  tensor.extra = "N";
  CHECK(catalog_of(named(tensor.text())).value()[0].flags == 0);
}

TEST_CASE("takes only torch.Size for a torch.Size") {
  Tensor tensor;
  tensor.sizes = global("torch", "Size") + tuple({4, 4}) + "\x85R";
  CHECK(catalog_of(named(tensor.text()))->size() == 1);
  tensor.sizes = global("my", "Size") + tuple({4, 4}) + "\x85R";
  CHECK(refused(named(tensor.text())).code == ErrorCode::corrupt);
}

TEST_CASE("refuses a key that comes twice in one dict") {
  const std::string w = Tensor{}.text();
  const auto check = [](const std::string& text, const char* key) {
    CHECK_FAILS(catalog_of(text + "."), ErrorCode::corrupt,
                std::string("the key ") + key + " is in one dict twice");
  };
  check(dict({{unicode("w"), w}, {unicode("w"), w}}), "\"w\"");
  check(dict({{unicode("w"), w}, {unicode("w"), "N"}}), "\"w\"");
  check(dict({{unicode("w"), "N"}, {unicode("a"), w}, {unicode("w"), w}}), "\"w\"");
  check(
      dict({{unicode("m"), dict({{unicode("a"), w}})}, {unicode("m"), dict({{unicode("b"), w}})}}),
      "\"m\"");
  check(dict({{"K\x01", w}, {"\x88", w}}), "True");
  check(dict({{"\x88", w}, {"K\x01", w}}), "True");
  check(dict({{"K\x02", w}, {"G\x40"s + std::string(7, '\0'), w}}), "2");
  check(dict({{"K\x00"s, w}, {"\x89", w}}), "False");
  check(dict({{"K\x01", w}, {"\x8a\x09\x01\0\0\0\0\0\0\0\0"s, w}}), "1");
  const std::string large = "\x8a\x09\x01\0\0\0\0\0\0\0\x01"s;
  check(dict({{large, w}, {large, w}}), "that is an integer of 9 bytes");
  check(dict({{"N", w}, {"N", w}}), "None");
  check(global("collections", "OrderedDict") + ")R(" + unicode("w") + w + unicode("w") + w + "u",
        "\"w\"");
}

TEST_CASE("accepts equal names in different containers and unequal keys of one name") {
  const std::string w = Tensor{}.text();
  // An OrderedDict's items and its attributes; "1" and 1; 1 and 1.5.
  CHECK(catalog_of(global("collections", "OrderedDict") + ")R(" + unicode("w") + w + "u" +
                   dict({{unicode("w"), w}}) + "b.")
            ->size() == 2);
  CHECK(catalog_of(dict({{unicode("1"), w}, {"K\x01", w}}) + ".")->size() == 2);
  CHECK(catalog_of(dict({{"G\x3f\xf8"s + std::string(6, '\0'), w}, {"K\x01", w}}) + ".")->size() ==
        2);
  CHECK(catalog_of(dict({{unicode("a.b"), w}, {unicode("a"), dict({{unicode("b"), w}})}}) + ".")
            ->size() == 2);
}

TEST_CASE("numbers storages by first reference, whatever their keys") {
  std::vector<std::pair<std::string, std::string>> items;
  for (const char* key : {"7", "140301", "0", "x y", "140301", "007", "7"}) {
    Tensor tensor;
    tensor.key = unicode(key);
    items.emplace_back(unicode(std::string("t") + std::to_string(items.size())), tensor.text());
  }
  const Read made = read(dict(items) + ".").value();
  std::string keys;
  for (const auto& storage : made.table.storages.storages()) keys += std::string(storage.key) + " ";
  CHECK(keys == "7 140301 0 x y 007 ");
  CHECK(made.table.storages.cache_hits() == 2);
}

TEST_CASE("marks multi-byte tensors of the other byte order") {
  Tensor bytes;
  bytes.storage_type = global("torch", "ByteStorage");
  const auto flags = [](const Tensor& tensor) {
    return catalog_of(named(tensor.text()), 64, true).value()[0].flags;
  };
  CHECK(flags(Tensor{}) == TensorView::foreign_order);
  CHECK(flags(bytes) == 0);
}

TEST_CASE("refuses one key with two types unless it holds nothing") {
  Tensor other;
  other.storage_type = global("torch", "IntStorage");
  const auto both = [&](const Tensor& a, const Tensor& b) {
    return catalog_of(dict({{unicode("a"), a.text()}, {unicode("b"), b.text()}}) + ".");
  };
  const Result<Catalog> made = both(Tensor{}, other);
  REQUIRE(!made.has_value());
  CHECK(made.error().code == ErrorCode::corrupt);
  CHECK(
      mentions(made.error(), "storage data/0 is of int32 here and of float32 where it was first"));
  Tensor untyped;
  untyped.storage_type = global("torch.storage", "UntypedStorage");
  untyped.numel = integer(64);
  CHECK(!both(Tensor{}, untyped).has_value());
  Tensor bytes = untyped;
  bytes.storage_type = global("torch", "ByteStorage");
  CHECK(both(bytes, untyped).has_value());
  Tensor empty;
  empty.numel = integer(0);
  empty.sizes = tuple({0});
  empty.strides = tuple({1});
  Tensor empty_integers = empty;
  empty_integers.storage_type = global("torch", "IntStorage");
  CHECK(both(empty, empty_integers).has_value());
}

TEST_CASE("refuses rebuild functions with too few or too many arguments") {
  for (const char* name : {"_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter",
                           "_rebuild_parameter_with_state", "_rebuild_qtensor",
                           "_rebuild_device_tensor_from_cpu_tensor", "_rebuild_tensor"}) {
    CHECK(refused(named(global("torch._utils", name) + ")R")).code == ErrorCode::corrupt);
    CHECK(refused(named(global("torch._utils", name) + "(NNNNNNNNNtR")).code == ErrorCode::corrupt);
  }
  CHECK(refused(named(global("torch._tensor", "_rebuild_from_type_v2") + ")R")).code ==
        ErrorCode::corrupt);
}

TEST_CASE("refuses names that can do nothing but harm wherever they stand, and says which") {
  for (const torch::HarmfulNames& harmful : torch::harmful_names) {
    const std::string module(harmful.module);
    std::istringstream names(harmful.names.empty() ? "any.name" : std::string(harmful.names));
    for (std::string name; names >> name;) {
      CAPTURE(module);
      CAPTURE(name);
      const Error called = refused(named(global(module, name) + unicode("id") + "\x85R"));
      CHECK(called.code == ErrorCode::unsafe_pickle);
      CHECK(mentions(called, module + "." + name));
      CHECK(refused(named(global(module, name))).code == ErrorCode::unsafe_pickle);
    }
  }
  CHECK(refused("\x80\x04]q\x01\x8c\x02os\x8c\x06system\x93\x86.").code ==
        ErrorCode::unsafe_pickle);
}

TEST_CASE("the documentation lists every name that is refused") {
  std::ifstream file(WEIGHTMAP_TEST_DATA "/../../docs/refused-names.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const torch::HarmfulNames& harmful : torch::harmful_names) {
    const std::string module = "`" + std::string(harmful.module) + "`";
    const std::size_t row = text.find(harmful.names.empty() ? module : "| " + module + " |");
    REQUIRE_MESSAGE(row != std::string::npos, module);
    const std::string line = text.substr(row, text.find('\n', row) - row);
    std::istringstream names{std::string(harmful.names)};
    for (std::string name; names >> name;)
      CHECK_MESSAGE(line.find("`" + name + "`") != std::string::npos, module, name);
  }
}

TEST_CASE("refuses harmful names by what Python 2 called them") {
  for (const auto& named : {std::pair{"__builtin__", "eval"},
                            {"__builtin__", "__import__"},
                            {"__builtin__", "intern"},
                            {"StringIO", "open"},
                            {"cPickle", "loads"},
                            {"commands", "Popen"},
                            {"urllib", "urlretrieve"}})
    CHECK_MESSAGE(torch::is_harmful(named.first, named.second), named.first, ".", named.second);
  CHECK(!torch::is_harmful("__builtin__", "set"));
  CHECK(!torch::is_harmful("repr", "Repr"));
}

TEST_CASE("judges a global by torch's list, by what is allowed, and by whether it can only harm") {
  using enum GlobalVerdict;
  CHECK(torch::judge("collections", "OrderedDict", {}) == torch_safe);
  CHECK(torch::judge("__builtin__", "set", {}) == torch_safe);
  CHECK(torch::judge("torch", "float8_e4m3fn", {}) == torch_safe);
  CHECK(torch::judge("builtins", "range", {}) == unknown);
  CHECK(torch::judge("__builtin__", "xrange", {"builtins.range"}) == allowed);
  CHECK(torch::judge("__builtin__", "xrange", {"__builtin__.xrange"}) == unknown);
  CHECK(torch::judge("my.package", "Outer.Inner", {"my.package.Outer.Inner"}) == allowed);
  CHECK(torch::judge("os", "system", {"os.system"}) == harmful);
  CHECK(torch::judge("numpy._core.multiarray", "_reconstruct", {}) == plain_data);
  CHECK(torch::judge("__builtin__", "bytes", {}) == plain_data);
  CHECK(torch::judge("collections", "defaultdict", {}) == plain_data);
  CHECK(torch::judge("__builtin__", "float", {}) == plain_data);
  CHECK(torch::judge("builtins", "type", {}) == unknown);
  CHECK(torch::judge("numpy", "dtype", {"numpy.dtype"}) == allowed);
  CHECK(torch::judge("numpy", "load", {}) != plain_data);
}

TEST_CASE("refuses each name that attacks have been seen with") {
  for (const auto& harmful : {std::pair{"os", "system"},
                              {"posix", "system"},
                              {"nt", "system"},
                              {"sys", "exit"},
                              {"subprocess", "Popen"},
                              {"builtins", "eval"},
                              {"builtins", "exec"},
                              {"builtins", "compile"},
                              {"builtins", "open"},
                              {"builtins", "__import__"},
                              {"__builtin__", "eval"},
                              {"importlib", "import_module"},
                              {"ctypes", "CDLL"},
                              {"pty", "spawn"},
                              {"socket", "create_connection"},
                              {"runpy", "_run_code"},
                              {"pip", "main"},
                              {"pip._internal", "main"},
                              {"torch.hub", "load"},
                              {"torch", "load"},
                              {"torch", "compile"},
                              {"torch.serialization", "load"},
                              {"torch.storage", "_load_from_bytes"},
                              {"torch.jit", "load"},
                              {"torch.utils.bottleneck.__main__", "run_prof"},
                              {"torch.utils.collect_env", "run"},
                              {"torch._inductor.codecache", "compile_file"},
                              {"torch._dynamo.guards", "GuardBuilder.get"},
                              {"operator", "methodcaller"}})
    CHECK_MESSAGE(torch::is_harmful(harmful.first, harmful.second), harmful.second);
}

TEST_CASE("lists a checkpoint that names what could not do harm by itself") {
  for (const auto& [module, name] : {std::pair{"types", "SimpleNamespace"},
                                     {"code", "Config"},
                                     {"trace", "Trace"},
                                     {"http.model", "Net"},
                                     {"platform", "Settings"},
                                     {"profile", "Profile"},
                                     {"commands", "Command"},
                                     {"signal", "SIGTERM"},
                                     {"inspect", "Parameter"},
                                     {"threading", "Event"},
                                     {"requests.models", "Response"},
                                     {"multiprocessing.context", "Value"},
                                     {"builtins", "dict"},
                                     {"torch.jit", "ScriptModule"},
                                     {"ospath", "join"},
                                     {"torchload", "load"}}) {
    const std::string object =
        global(module, name) + ")\x81" + dict({{unicode("a"), "K\x01"}}) + "b";
    const Catalog made =
        catalog_of(dict({{unicode("w"), Tensor{}.text()}, {unicode("c"), object}}) + ".").value();
    CHECK(name_list(made) == "w ");
  }
}

TEST_CASE("lists a checkpoint with nested classes and bound methods, as protocol 2 spells them") {
  const std::string outer = "c__main__\nOuter\nq\x01";
  const std::string inner = "c__builtin__\ngetattr\nq\0"s + outer + unicode("Inner") + "\x86R";
  const std::string deeper = "c__builtin__\ngetattr\n" + inner + unicode("Deeper") + "\x86R";
  const std::string method = "c__builtin__\ngetattr\n" + global("__main__", "Outer") + ")\x81" +
                             unicode("forward") + "\x86R";
  for (const std::string& object :
       {inner, inner + ")\x81", inner + ")\x81" + dict({{unicode("a"), "K\1"}}) + "b",
        inner + "(K\1tR", deeper + ")\x81", method}) {
    const Catalog made =
        catalog_of(dict({{unicode("w"), Tensor{}.text()}, {unicode("c"), object}}) + ".").value();
    CHECK(name_list(made) == "w ");
  }
  const std::string with_tensor = inner + ")\x81" + dict({{unicode("a"), Tensor{}.text()}}) + "b";
  CHECK(name_list(catalog_of(dict({{unicode("c"), with_tensor}}) + ".").value()) == "c.a ");
}

namespace {

std::string put(int id) {  // BINPUT below 256
  return "q" + std::string(1, static_cast<char>(id));
}
std::string get(int id) { return "h" + std::string(1, static_cast<char>(id)); }
std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}
std::string wide(int id) {  // operand of LONG_BINPUT and LONG_BINGET
  return {static_cast<char>(id), static_cast<char>(id >> 8), '\0', '\0'};
}
std::string metadata(int items) {
  return "}(" + repeated(std::string("X\1\0\0\0aN", 7), items) + "u";
}

}  // namespace

TEST_CASE("keeps no path for containers that lead to no tensor") {
  // Lists of a thousand times the list before: a million visits of nothing.
  std::string lists = "]" + put(0);
  for (int i = 1; i < 3; ++i) lists += "]" + put(i) + "(" + repeated(get(i - 1), 1000) + "e";
  const Read made = read("(" + lists + Tensor{}.text() + "t.").value();
  CHECK(made.table.tensors.size() == 1);
  CHECK(made.table.paths.size() == 1);
}

TEST_CASE("lists the tensors of a list that was first met inside itself") {
  // a = [b, tensor], b = [a]: within a, b leads to no tensor. Then b by itself.
  const std::string text =
      "(]" + put(0) + "(]" + put(1) + get(0) + "a" + Tensor{}.text() + "e" + get(1) + "t.";
  CHECK(name_list(*catalog_of(text)) == "0.1 1.0.1 ");
}

TEST_CASE("refuses tensors in an argument of a call that was filled after the call") {
  // b = [], o = Thing(b), b.append(tensor): what Thing saw was empty.
  const std::string call = "cmy\nThing\n" + get(1) + "\x85R";
  const std::string late = "(]" + put(1) + "0" + call + get(1) + Tensor{}.text() + "at.";
  CHECK_FAILS(catalog_of(late), ErrorCode::unsupported,
              "puts tensors into an argument of a call after the call");
  // The same in a list that is the argument, and in the argument of a call around it.
  const std::string nested =
      "(]" + put(1) + "0cmy\nThing\n]" + get(1) + "a\x85R" + get(1) + Tensor{}.text() + "at.";
  CHECK(refused(nested).code == ErrorCode::unsupported);
  // Without tensors nothing is listed that was not there.
  CHECK(name_list(*catalog_of("(]" + put(1) + "0" + call + get(1) + "Na" + Tensor{}.text() +
                              "t.")) == "2 ");
}

TEST_CASE("refuses a state that is changed after it was set, which copies it") {
  const std::string object = "cmy\nThing\n)R";
  const std::string key = std::string("X\x01\0\0\0", 5) + "y";
  const std::string later = get(1) + key + Tensor{}.text() + "s0";
  const std::string why = "changes the state of an object after it was set";
  CHECK_FAILS(catalog_of(object + "}" + put(1) + "b" + later + "."), ErrorCode::unsupported, why);
  CHECK(mentions(refused(object + "}" + put(1) + "N\x86" + "b" + later + "."), why));
  // An item that is written over, of a tensor by a number.
  const std::string first = key + Tensor{}.text() + "s";
  CHECK(
      mentions(refused(object + "}" + put(1) + first + "b" + get(1) + key + "K\x01" + "s0."), why));
  // A list in the state is the same list later.
  CHECK(name_list(*catalog_of(object + "}" + key + "]" + put(2) + "sb" + get(2) + Tensor{}.text() +
                              "a0.")) == "y.0 ");
}

TEST_CASE("lists the tensors of an object that holds the list that it lies in") {
  // b = [Thing(b), tensor], which is filled after the call as every cycle is; then Thing again.
  const std::string text = "(]" + put(1) + "cmy\nThing\n" + get(1) + "\x85R" + put(2) + "a" +
                           get(1) + Tensor{}.text() + "a0" + get(2) + "t.";
  CHECK(name_list(*catalog_of(text)) == "0.1 1.0.1 ");
}

TEST_CASE("counts the paths of tensors into what the tables may take") {
  // A tensor in 500 lists in one another, all of which are reached 1000 times.
  std::string lists = "]r" + wide(0) + Tensor{}.text() + "a";
  for (int i = 1; i < 500; ++i) lists += "]r" + wide(i) + "j" + wide(i - 1) + "a";
  Limits limits;
  limits.base_memory = std::uint64_t{4} << 20;
  const Result<Read> made =
      read("(" + lists + "](" + repeated("j" + wide(499), 1000) + "et.", limits);
  REQUIRE(!made.has_value());
  CHECK(made.error().code == ErrorCode::limit_exceeded);
  CHECK(mentions(made.error(), "more memory"));
}

TEST_CASE("looks through the metadata of a tensor once, however often it is mentioned") {
  Tensor tensor;
  tensor.extra = metadata(20000);
  const Result<Read> made =
      read("](" + tensor.text() + put(2) + repeated(get(2), 20000) + "e.", Limits{});
  REQUIRE(made.has_value());
  CHECK(made->table.tensors.size() == 20001);
}

TEST_CASE("gives up on metadata that very many tensors share") {
  Tensor tensor;
  tensor.extra = get(2);
  const std::string text = "(" + metadata(20000) + put(2) + repeated(tensor.text(), 1000) + "t.";
  CHECK(refused(text).code == ErrorCode::limit_exceeded);
}

TEST_CASE("refuses lists that were put into one another before they were filled") {
  // Each is empty, so of depth 1, when it goes into the one before it.
  std::string deep = "(]r" + wide(0);
  for (int i = 1; i < 1001; ++i) deep += "j" + wide(i - 1) + "]r" + wide(i) + "a";
  CHECK_FAILS(catalog_of(deep + "t."), ErrorCode::limit_exceeded,
              "nests deeper than 1000 containers");
}

TEST_CASE("walks the attributes of attributes without recursion") {
  // Each tensor's state holds the tensor before it.
  const Tensor tensor;
  std::string inner = tensor.text();
  for (int i = 0; i < 200; ++i)
    inner = global("torch._tensor", "_rebuild_from_type_v2") + "(" + tensor.function +
            global("torch", "Tensor") + tensor.arguments() + dict({{unicode("a"), inner}}) + "tR";
  CHECK(catalog_of(named(inner))->size() == 201);
}

TEST_CASE("takes tensors and dimensions up to the limits, and not one more") {
  const std::string two =
      dict({{unicode("a"), Tensor{}.text()}, {unicode("b"), Tensor{}.text()}}) + ".";
  CHECK_FAILS(read(two, {.tensors = 1}), ErrorCode::limit_exceeded, "");
  CHECK(read(two, {.tensors = 2}).has_value());
  const std::string matrix = named(Tensor{}.text());
  CHECK_FAILS(read(matrix, {.rank = 1}), ErrorCode::limit_exceeded, "2 dimensions, the limit is 1");
  CHECK(read(matrix, {.rank = 2}).has_value());
}

TEST_CASE("cuts and escapes names from the file in messages") {
  Tensor tensor;
  tensor.offset = integer(100);
  const Error error =
      refused(dict({{unicode("\x1b[31m" + std::string(70000, 'x')), tensor.text()}}) + ".");
  CHECK(error.message.find('\x1b') == std::string::npos);
  CHECK(error.message.size() < 600);
}

TEST_CASE("says which argument of a tensor is none") {
  const auto told = [](auto change) {
    Tensor tensor;
    change(tensor);
    return refused(named(tensor.text())).message;
  };
  CHECK(told([](Tensor& of) { of.offset = integer(-1); }).find("storage offset is -1, expected") !=
        std::string::npos);
  CHECK(told([](Tensor& of) { of.numel = integer(-1); }).find("has -1 elements of 4 bytes") !=
        std::string::npos);
  CHECK(told([](Tensor& of) {
          of.numel = integer(-1);
          of.storage_type = global("torch", "ByteStorage");
        }).find("has -1 elements of 1 byte") != std::string::npos);
  CHECK(told([](Tensor& of) { of.extra = "NNN"; }).find("with 9 arguments, expected 6 to 8") !=
        std::string::npos);
}

TEST_CASE("refuses a state that is set on what a rebuild function made") {
  const std::string state = "}(" + unicode("x") + integer(1) + "ub";
  const Error error = refused(named(Tensor().text() + state));
  CHECK(error.code == ErrorCode::unsafe_pickle);
  CHECK(mentions(error, "changes a tensor made by torch._utils._rebuild_tensor_v2"));
}
