// Trees that are built by hand, read back through the public cursor.
#include "runtime/base/value/builder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory_resource>
#include <optional>
#include <ranges>
#include <string>

#include "tests/support/failures.hpp"

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

}  // namespace

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
  CHECK_FAILS(build.check(), ErrorCode::limit_exceeded,
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

TEST_CASE("refuses to build more than the budget allows, or to nest deeper than the limit") {
  Builder build = builder({20000, 1000});
  const Cell root = build.string(std::string(30000, 'x'));
  CHECK(value::kind_of(root) == Kind::none);
  CHECK_FAILS(std::move(build).finish(root), ErrorCode::limit_exceeded,
              "the value tree needs more memory than its budget of 20000 bytes");
  Builder deep = builder({std::uint64_t{1} << 20, 3});
  Cell nested = deep.none();
  for (int depth = 0; depth < 4; ++depth) nested = deep.list({&nested, 1});
  CHECK_FAILS(std::move(deep).finish(nested), ErrorCode::limit_exceeded,
              "the value tree nests deeper than 3 containers");
}
