// Names and paths that lead to values which are not tensors.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/support/checkpoints.hpp"
#include "weightmap/value.hpp"

using namespace weightmap;

namespace {

Checkpoint opened(const char* name) { return test::opened(test::data / name); }

}  // namespace

TEST_CASE("finds a value by its name") {
  const Checkpoint checkpoint = opened("training.pt");
  const Value root = checkpoint.root();
  CHECK(find_value(root, "epoch")->value.integer() == 2);
  CHECK(find_value(root, "scheduler.gamma")->value.real() == 0.1);
  CHECK(find_value(root, "history.1.1.1")->value.string() == "nested");
  CHECK(find_value(root, "optimizer.param_groups.0.betas.1")->value.real() == 0.999);
  const std::vector<PathPart> path = find_value(root, "optimizer.param_groups.0.betas.1")->path;
  CHECK(path == std::vector<PathPart>{"optimizer", "param_groups", 0, "betas", 1});
  CHECK(name_of(path) == "optimizer.param_groups.0.betas.1");
}

TEST_CASE("finds what is below a key that has dots itself, and the attributes of an object") {
  const Checkpoint checkpoint = opened("training.pt");
  CHECK(find_value(checkpoint.root(), "model.0.weight")->path ==
        std::vector<PathPart>{"model", "0.weight"});
  CHECK(find_value(checkpoint.root(), "model._metadata.0.version")->value.integer() == 1);
}

TEST_CASE("finds nothing where the keys lead nowhere") {
  const Checkpoint checkpoint = opened("training.pt");
  const Value root = checkpoint.root();
  for (const char* name : {"", ".", "epoch.", ".epoch", "epoch.0", "epochs", "epo", "history.2",
                           "history.-1", "scheduler..gamma"})
    CHECK_MESSAGE(!find_value(root, name), name);
  CHECK(!find_value(root, std::string(5000, 'x')));
}

TEST_CASE("finds a value by its path, where an integer is not its text") {
  const Checkpoint checkpoint = opened("int_keys.pt");
  const Value root = checkpoint.root();
  CHECK(find_value(root, std::array<PathPart, 1>{0})->position() !=
        find_value(root, std::array<PathPart, 1>{"0"})->position());
  CHECK(!find_value(root, std::array<PathPart, 1>{"-5"}));
  CHECK(find_value(root, std::array<PathPart, 1>{-5}));
  CHECK(find_value(root, std::span<const PathPart>())->is_same_as(root));
}

TEST_CASE("says what Python would call a type") {
  const Checkpoint checkpoint = opened("training.pt");
  const auto type = [&](const char* name) {
    return type_name_of(find_value(checkpoint.root(), name)->value);
  };
  CHECK(type("epoch") == "int");
  CHECK(type("big") == "int");
  CHECK(type("best_loss") == "float");
  CHECK(type("name") == "str");
  CHECK(type("finished") == "bool");
  CHECK(type("resumed_from") == "None");
  CHECK(type("model") == "collections.OrderedDict");
  CHECK(type("history") == "list");
  CHECK(type("raw") == "bytes");
  CHECK(type("dtype") == "torch.bfloat16");
}
