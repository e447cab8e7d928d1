#include "weightmap/result.hpp"

#include <doctest/doctest.h>

#include <exception>
#include <sstream>
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

// As the examples in the public headers have it.
Result<std::string> passed_on(const Result<int>& number) {
  if (!number) return tl::unexpected(number.error());
  return std::to_string(*number);
}

TEST_CASE("an error is passed on, and written to a stream") {
  const Result<int> failed = failure(ErrorCode::corrupt, "is truncated", 4096);
  const Result<std::string> passed = passed_on(failed);
  REQUIRE_FALSE(passed.has_value());
  std::ostringstream text;
  text << passed.error();
  CHECK(text.str() == "is truncated (at byte 4096)");
  CHECK(passed_on(5).value() == "5");
}
