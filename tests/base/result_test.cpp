#include "weightmap/result.hpp"

#include <doctest/doctest.h>

#include <exception>
#include <string>

using namespace weightmap;

TEST_CASE("says what is wrong in what() of the exception that value() throws") {
  const Result<int> failed = tl::unexpected<Error>(
      Error{ErrorCode::corrupt, "record \"data/0\" is truncated", 4096, "model.pt"});
  std::string what;
  try {
    (void)failed.value();
  } catch (const std::exception& error) {
    what = error.what();
  }
  CHECK(what == "model.pt: record \"data/0\" is truncated (at byte 4096)");
}

TEST_CASE("transforms a value, also into none") {
  int seen = 0;
  const Result<int> five = 5;
  CHECK(five.transform([](int value) { return value + 1; }).value() == 6);
  const Result<void> none = five.transform([&](int value) { seen = value; });
  CHECK(none.has_value());
  CHECK(seen == 5);
}
