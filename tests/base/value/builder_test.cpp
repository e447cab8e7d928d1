// Trees that are built by hand, read back through the public cursor.
#include "runtime/base/value/builder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory_resource>
#include <optional>
#include <ranges>
#include <string>

using namespace weightmap;
using value::Builder;
using value::Cell;
using Kind = Value::Kind;

namespace {

constexpr value::BuildLimits roomy{std::uint64_t{1} << 20, 1000};

Builder builder(const value::BuildLimits& limits = roomy) {
  return Builder(*std::pmr::new_delete_resource(), limits);
}

// Keeps a tree that must fit its limits.
struct Built {
  Built(Builder build, const Cell& root) : tree(std::move(build).finish(root).value()) {}
  Value root() const { return {tree.get(), tree->root()}; }
  std::unique_ptr<value::Tree> tree;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("builds scalars") {
  Builder build = builder();
  const std::array<std::byte, 9> wide{std::byte{1}, {}, {}, {}, {}, {}, {}, {}, std::byte{2}};
  const std::array cells{build.none(),
                         build.boolean(true),
                         build.integer(-7),
                         build.big_integer(wide),
                         build.real(0.5),
                         build.string("h\xc3\xa9"),
                         build.string(""),
                         build.bytes(bytes_of("ab")),
                         build.byte_array(bytes_of("cde"))};
  const Cell root = build.tuple(cells);
  const Built built(std::move(build), root);
  const Value values = built.root();
  REQUIRE(values.kind() == Kind::tuple);
  REQUIRE(values.size() == 9);
  CHECK(values[0].is_none());
  CHECK(values[1].boolean() == true);
  CHECK(values[2].integer() == -7);
  REQUIRE(values[3].kind() == Kind::big_integer);
  CHECK(values[3].big_integer()->size() == 9);
  CHECK((*values[3].big_integer())[8] == std::byte{2});
  CHECK(values[4].real() == 0.5);
  CHECK(values[5].string() == "h\xc3\xa9");
  CHECK(values[6].string() == "");
  REQUIRE(values[7].kind() == Kind::bytes);
  CHECK(values[7].bytes()->size() == 2);
  REQUIRE(values[8].kind() == Kind::byte_array);
  CHECK((*values[8].bytes())[2] == std::byte{'e'});
}

TEST_CASE("builds containers") {
  Builder build = builder();
  const std::array numbers{build.integer(1), build.integer(2)};
  const std::array items{build.string("k"), build.integer(5), build.string("k"), build.integer(6)};
  const std::array cells{build.tuple({}),    build.list(numbers),       build.list({}),
                         build.set(numbers), build.frozen_set(numbers), build.dict(items),
                         build.dict({})};
  const Cell root = build.list(cells);
  const Built built(std::move(build), root);
  const Value values = built.root();
  REQUIRE(values.size() == 7);
  CHECK(values[0].kind() == Kind::tuple);
  CHECK(values[0].size() == 0);
  CHECK(values[1].kind() == Kind::list);
  CHECK(values[1][1].integer() == 2);
  CHECK(values[2].kind() == Kind::list);
  CHECK(values[2].size() == 0);
  CHECK(values[3].kind() == Kind::set);
  CHECK(values[3].size() == 2);
  CHECK(values[4].kind() == Kind::frozen_set);
  CHECK((*values[4].elements().begin()).integer() == 1);
  CHECK(values[5].item_count() == 2);
  CHECK(values[5].find("k")->integer() == 6);
  CHECK(values[6].kind() == Kind::dict);
  CHECK(values[6].item_count() == 0);
}

static_assert(std::ranges::forward_range<Value::Range<Value::Iterator>>);
static_assert(std::ranges::view<Value::Range<Value::Iterator>>);
static_assert(std::ranges::forward_range<Value::Range<Value::ItemIterator>>);
static_assert(std::ranges::view<Value::Range<Value::ItemIterator>>);

TEST_CASE("elements and items are ranges for the algorithms of the standard library") {
  Builder build = builder();
  const std::array numbers{build.integer(5), build.integer(6), build.integer(6)};
  const std::array items{build.string("a"), build.integer(7), build.string("b"), build.integer(8)};
  const std::array cells{build.list(numbers), build.dict(items)};
  const Cell root = build.list(cells);
  const Built built(std::move(build), root);
  const Value list = built.root()[0];
  CHECK(std::ranges::count(list.elements(), std::optional<std::int64_t>(6), &Value::integer) == 2);
  const auto item = std::ranges::find_if(built.root()[1].items(), [](const auto& key_and_value) {
    return key_and_value.first.string() == "b";
  });
  CHECK((*item).second.integer() == 8);
}

TEST_CASE("builds calls, classes, states and persistent ids") {
  Builder build = builder();
  const Cell type = build.global("my.module", "Thing");
  const std::array arguments{build.integer(1)};
  const std::array elements{build.integer(2)};
  const std::array items{build.string("k"), build.integer(3)};
  const Cell object = build.object({.callable = type,
                                    .arguments = build.tuple(arguments),
                                    .elements = elements,
                                    .items = items,
                                    .state = build.string("state"),
                                    .is_new_object = true});
  const Cell plain = build.object({.callable = type, .arguments = build.tuple({})});
  const std::array cells{object, plain, build.persistent_id(build.string("id"))};
  const Cell root = build.tuple(cells);
  const Built built(std::move(build), root);
  const Value made = built.root()[0];
  REQUIRE(made.kind() == Kind::object);
  CHECK(made.callable().module() == "my.module");
  CHECK(made.callable().name() == "Thing");
  CHECK(made.arguments()[0].integer() == 1);
  CHECK(made[0].integer() == 2);
  CHECK(made.find("k")->integer() == 3);
  CHECK(made.state()->string() == "state");
  CHECK(made.is_new_object());
  const Value empty = built.root()[1];
  CHECK(!empty.state());
  CHECK(!empty.is_new_object());
  CHECK(empty.size() == 0);
  CHECK(empty.position() != made.position());
  CHECK(built.root()[2].kind() == Kind::persistent_id);
  CHECK(built.root()[2].persistent_id().string() == "id");
  CHECK(built.tree->globals().size() == 1);
}

TEST_CASE("a packed call reads as the call that it stands for") {
  Builder build = builder();
  const Cell hooks = build.global("collections", "OrderedDict");
  const value::PackedHeader* const header =
      build.packed_header({.ids = {},
                           .callable = build.global("torch._utils", "_rebuild_tensor_v3"),
                           .tag = build.string("storage"),
                           .type = build.global("torch.storage", "UntypedStorage"),
                           .location = build.string("cpu"),
                           .hooks_callable = hooks,
                           .extra = build.global("torch", "float8_e5m2")});
  const Cell key = build.string("17");
  const std::array<std::int64_t, 2> sizes{2, 3}, strides{3, 1};
  const auto call = [&](std::span<const std::int64_t> of, bool requires_grad) {
    return build.packed(
        {header, key, 6, 4, of, std::span(strides).first(of.size()), requires_grad});
  };
  const std::array calls{call(sizes, true).value(), call({}, false).value()};
  const Cell root = build.list(calls);
  const Built built(std::move(build), root);
  CHECK(built.tree->packed_count() == 2);
  const Value tensor = built.root()[0];
  CHECK(tensor.kind() == Kind::object);
  CHECK_FALSE(tensor.is_new_object());
  CHECK_FALSE(tensor.state());
  CHECK(tensor.callable().name() == "_rebuild_tensor_v3");
  const Value arguments = tensor.arguments();
  REQUIRE(arguments.size() == 7);
  const Value id = arguments[0].persistent_id();
  REQUIRE(id.size() == 5);
  CHECK(id[0].string() == "storage");
  CHECK(id[1].name() == "UntypedStorage");
  CHECK(id[2].string() == "17");
  CHECK(id[3].string() == "cpu");
  CHECK(id[4].integer() == 6);
  CHECK(arguments[1].integer() == 4);
  REQUIRE(arguments[2].size() == 2);
  CHECK(arguments[2][1].integer() == 3);
  REQUIRE(arguments[3].size() == 2);
  CHECK(arguments[3][0].integer() == 3);
  CHECK(arguments[4].boolean() == true);
  CHECK(arguments[5].callable().name() == "OrderedDict");
  CHECK(arguments[6].name() == "float8_e5m2");
  const Value scalar = built.root()[1];
  CHECK(scalar.arguments()[2].size() == 0);
  CHECK(scalar.arguments()[4].boolean() == false);
  CHECK(scalar.position() != tensor.position());
  CHECK(scalar.arguments()[0].persistent_id()[2].is_same_as(id[2]));
}

TEST_CASE("has no packed call for more than sixteen dimensions") {
  Builder build = builder();
  const value::PackedHeader* const header = build.packed_header({});
  const Cell key = build.string("0");
  const std::array<std::int64_t, 17> dims{};
  const std::span<const std::int64_t> all(dims);
  CHECK(build.packed({header, key, 0, 0, all.first(16), all.first(16), false}));
  CHECK_FALSE(build.packed({header, key, 0, 0, all, all.first(16), false}));
  CHECK_FALSE(build.packed({header, key, 0, 0, all.first(16), all, false}));
  CHECK(build.check());
}

TEST_CASE("packed calls count as four levels, and for the budget") {
  for (const std::uint32_t depth : {4u, 3u}) {
    Builder build = builder({std::uint64_t{1} << 20, depth});
    const value::PackedHeader* const header = build.packed_header({});
    build.packed({header, build.string("0"), 0, 0, {}, {}, false});
    const bool fits = build.check().has_value();
    CHECK(fits == (depth == 4));
  }
  Builder build = builder({4096, 1000});
  const value::PackedHeader* const header = build.packed_header({});
  for (int i = 0; i < 200; ++i) build.packed({header, build.string("0"), 0, 0, {}, {}, false});
  const Result<void> checked = build.check();
  REQUIRE_FALSE(checked.has_value());
  CHECK(checked.error().message ==
        "the value tree needs more memory than its budget of 4096 bytes");
}

TEST_CASE("keeps a cell that is used twice as one value") {
  Builder build = builder();
  const Cell list = build.list({});
  const std::array cells{list, list, build.list({})};
  const Cell root = build.tuple(cells);
  const Built built(std::move(build), root);
  CHECK(built.root()[0].is_same_as(built.root()[1]));
  CHECK(built.root()[0].hash() == built.root()[1].hash());
  CHECK(!built.root()[0].is_same_as(built.root()[2]));
}

TEST_CASE("refuses to build more than the budget allows") {
  Builder build = builder({20000, 1000});
  const Cell root = build.string(std::string(30000, 'x'));
  CHECK(value::kind_of(root) == Kind::none);
  const auto tree = std::move(build).finish(root);
  REQUIRE(!tree.has_value());
  CHECK(tree.error().code == ErrorCode::limit_exceeded);
  CHECK(tree.error().message == "the value tree needs more memory than its budget of 20000 bytes");
}

TEST_CASE("refuses to nest deeper than the limit") {
  Builder build = builder({std::uint64_t{1} << 20, 3});
  Cell root = build.none();
  for (int depth = 0; depth < 4; ++depth) root = build.list({&root, 1});
  const auto tree = std::move(build).finish(root);
  REQUIRE(!tree.has_value());
  CHECK(tree.error().code == ErrorCode::limit_exceeded);
  CHECK(tree.error().message == "the value tree nests deeper than 3 containers");
}
