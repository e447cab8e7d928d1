// Assertions about Results.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "weightmap/result.hpp"

// The result is an error of this code whose message contains this text. A failure prints the
// result's expression, so that each of many in one test has a name.
#define CHECK_FAILS(result, expected_code, text)                           \
  do {                                                                     \
    INFO(#result);                                                         \
    const auto& checked = (result);                                        \
    REQUIRE_FALSE(checked.has_value());                                    \
    CHECK_MESSAGE(checked.error().code == (expected_code),                 \
                  std::string(to_string(checked.error().code)));           \
    CHECK_MESSAGE(checked.error().message.find(text) != std::string::npos, \
                  checked.error().message);                                \
  } while (false)

// And it names this file.
#define CHECK_FAILS_IN(result, expected_code, text, path) \
  do {                                                    \
    const auto& failed_one = (result);                    \
    INFO(#result);                                        \
    CHECK_FAILS(failed_one, expected_code, text);         \
    CHECK(failed_one.error().file == (path));             \
  } while (false)

// The result has a value; its error is shown if not.
#define REQUIRE_OK(result) \
  REQUIRE_MESSAGE((result).has_value(), ((result).has_value() ? "" : (result).error().message))
