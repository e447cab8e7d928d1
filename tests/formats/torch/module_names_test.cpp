// Names of the tensors of pickled modules: those of state_dict().
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/formats/torch/pickle_text.hpp"
#include "tests/support/checkpoints.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/value.hpp"

namespace weightmap {
namespace {

using namespace test;
using namespace std::string_literals;
using Items = std::vector<std::pair<std::string, std::string>>;
using Names = std::vector<std::string>;

// A tensor of `numel` floats from `offset` on in a storage of 16.
std::string tensor(int storage, int offset = 0, int numel = 4) {
  test::Tensor made;
  made.key = unicode(std::to_string(storage));
  made.offset = integer(offset);
  made.sizes = test::tuple({numel});
  made.strides = test::tuple({1});
  return made.text();
}
std::string put(const std::string& value, char id) { return value + "q" + id; }
std::string get(char id) { return "h"s + id; }
std::string set_of(const std::string& text) {
  return global("__builtin__", "set") + "]" + unicode(text) + "a\x85R";
}

struct Module {
  Items parameters, buffers, modules, attributes;
  std::string non_persistent = global("__builtin__", "set") + "]\x85R";

  std::string text() const {
    Items state = {{unicode("training"), "\x88"},
                   {unicode("_modules"), of(modules)},  // not in the order of state_dict()
                   {unicode("_non_persistent_buffers_set"), non_persistent}};
    state.push_back({unicode("_buffers"), of(buffers)});
    state.push_back({unicode("_parameters"), of(parameters)});
    state.insert(state.end(), attributes.begin(), attributes.end());
    return global("my", "Module") + ")\x81" + dict(state) + "b";
  }
  static std::string of(const Items& items) {
    return items.empty() ? "}"
                         : global("collections", "OrderedDict") + ")R" + dict(items).substr(1);
  }
};

Checkpoint open(const std::string& value) {
  return test::open_pickle("\x80\x02" + value + ".",
                           std::vector<std::string>(4, std::string(64, '\0')))
      .value();
}

Module linear(int weight, int bias) {
  return {{{unicode("weight"), tensor(weight)}, {unicode("bias"), tensor(bias)}}, {}, {}, {}};
}

}  // namespace

TEST_CASE("a module's tensors are named as by state_dict(), in its order") {
  Module net;
  net.parameters = {{unicode("scale"), tensor(0)}, {unicode("none"), "N"}};
  net.buffers = {{unicode("mean"), tensor(1)}};
  net.modules = {{unicode("head"), linear(2, 3).text()}, {unicode("gone"), "N"}};
  CHECK(names_of(open(net.text())) == Names{"scale", "mean", "head.weight", "head.bias"});
  const Checkpoint in_dict = open(dict({{unicode("model"), net.text()}}));
  CHECK(names_of(in_dict) ==
        Names{"model.scale", "model.mean", "model.head.weight", "model.head.bias"});
  CHECK(!in_dict.tensors()[0].is_buffer);
  CHECK(in_dict.tensors()[1].is_buffer);
}

TEST_CASE("a module's tensors are found by the path of their names and by their raw place") {
  Module net;
  net.modules = {{unicode("head"), linear(2, 3).text()}};
  const Checkpoint opened = open(dict({{unicode("model"), net.text()}}));
  const std::vector<PathPart> named = {PathPart("model"), PathPart("head"), PathPart("bias")};
  CHECK(opened.path(1) == named);
  const std::vector<PathPart> raw = {PathPart("model"), PathPart("_modules"), PathPart("head"),
                                     PathPart("_parameters"), PathPart("bias")};
  REQUIRE_OK(opened.get_path(named));
  REQUIRE_OK(opened.get_path(raw));
  CHECK(opened.get_path(raw)->index == 1);
  CHECK(opened.get_path(raw)->view.data() == opened.get_path(named)->view.data());
  CHECK(find_value(opened.root(), "model.head.bias")->path == named);
  CHECK(find_value(opened.root(), named)->is_same_as(*find_value(opened.root(), raw)));
}

TEST_CASE("a GraphModule of torch.fx, whose dict is an argument of a call, is named likewise") {
  Module net = linear(0, 1);
  net.modules = {{unicode("head"), linear(2, 3).text()}};
  const std::string state = net.text().substr(global("my", "Module").size() + 2);
  const auto call = [&](const std::string& function) {
    return dict(
        {{unicode("model"), global("torch.fx.graph_module", function) + "(" +
                                state.substr(0, state.size() - 1) + unicode("code") + "tR"}});
  };
  for (const char* function : {"reduce_graph_module", "reduce_package_graph_module"}) {
    const Checkpoint opened = open(call(function));
    CHECK(names_of(opened) ==
          Names{"model.weight", "model.bias", "model.head.weight", "model.head.bias"});
    const std::vector<PathPart> named = {PathPart("model"), PathPart("head"), PathPart("bias")};
    const std::vector<PathPart> raw = {PathPart("model"), PathPart("_modules"), PathPart("head"),
                                       PathPart("_parameters"), PathPart("bias")};
    CHECK(opened.path(3) == named);
    CHECK(opened.get_path(raw)->index == 3);
    CHECK(find_value(opened.root(), named)->is_same_as(*find_value(opened.root(), raw)));
  }
}

TEST_CASE("a buffer that is not persistent is not listed, but has its bytes") {
  Module net;
  net.buffers = {{unicode("mean"), tensor(0)}, {unicode("cache"), tensor(1)}};
  net.non_persistent = set_of("cache");
  const Checkpoint opened = open(net.text());
  CHECK(names_of(opened) == Names{"mean"});
  CHECK(!opened.contains("cache"));
  const Value value = find_value(opened.root(), std::vector{PathPart("cache")}).value();
  REQUIRE(opened.tensor(value));
  CHECK(opened.tensor(value)->storage == "1");
  CHECK(opened.get_path(std::vector{PathPart("_buffers"), PathPart("cache")})->storage == "1");
}

TEST_CASE("an attribute that is or overlaps with a tensor of the module is not listed again") {
  Module net;
  net.parameters = {{unicode("w"), put(tensor(0, 4), '\x41')}};
  net.attributes = {{unicode("_flat_weights"), "](" + get('\x41') + tensor(0, 6) + "e"},
                    {unicode("apart"), tensor(0, 12)},
                    {unicode("other"), put(tensor(1), '\x42')},
                    {unicode("again"), get('\x42')}};
  CHECK(names_of(open(net.text())) == Names{"w", "apart", "other"});
}

TEST_CASE("an attribute of a module is not listed again where a later one has its tensor") {
  Module net;
  Module first;
  first.attributes = {{unicode("friends"), "](" + put(linear(0, 1).text(), '\x41') + "e"}};
  net.modules = {{unicode("a"), first.text()}, {unicode("b"), get('\x41')}};
  CHECK(names_of(open(net.text())) == Names{"b.weight", "b.bias"});
}

TEST_CASE("tied weights are listed under each name, as by state_dict()") {
  Module net;
  net.modules = {{unicode("a"), put(linear(0, 1).text(), '\x41')}, {unicode("b"), get('\x41')}};
  CHECK(names_of(open(net.text())) == Names{"a.weight", "a.bias", "b.weight", "b.bias"});
}

TEST_CASE("composed tensors keep their parts when others are not listed") {
  const std::string coo = global("torch._utils", "_rebuild_sparse_tensor") + "(" +
                          global("torch.serialization", "_get_layout") +
                          unicode("torch.sparse_coo") + "\x85R(" + tensor(1) + tensor(2) +
                          global("torch", "Size") + test::tuple({5, 6}) + "\x85R\x88ttR";
  Module net;
  net.buffers = {{unicode("cache"), tensor(0)}, {unicode("sparse"), put(coo, '\x41')}};
  net.non_persistent = set_of("cache");
  net.attributes = {{unicode("same"), get('\x41')}};
  const Checkpoint opened = open(net.text());
  CHECK(names_of(opened) == Names{"sparse.1.0", "sparse.1.1"});
  REQUIRE(composed_tensors(opened).size() == 1);
  const ComposedTensor& composed = composed_tensors(opened)[0];
  CHECK(composed.name == "sparse");
  CHECK(composed.is_buffer);
  CHECK((composed.first_part == 0 && composed.part_count == 2));
}

TEST_CASE("an object without all of a module's dicts is named by its attributes") {
  const std::string object = global("my", "Thing") + ")\x81" +
                             dict({{unicode("_parameters"), dict({{unicode("w"), tensor(0)}})},
                                   {unicode("_modules"), "}"}}) +
                             "b";
  CHECK(names_of(open(object)) == Names{"_parameters.w"});
}

}  // namespace weightmap
