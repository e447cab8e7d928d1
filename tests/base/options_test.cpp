#include "weightmap/options.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

using namespace weightmap;

namespace {

// Sets one variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  ~Variable() { before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1); }

 private:
  const char* name_;
  std::string before_;
};

}  // namespace

TEST_CASE("takes the built-in defaults where nobody says anything") {
  const Variable verify("WEIGHTMAP_VERIFY", "");
  const OpenOptions options = default_open_options().value();
  CHECK(options.sharing == Sharing::shared);
  CHECK(options.writable == false);
  CHECK(options.verify == Verify::chain);
  CHECK(options.missing_byte_order == ByteOrder::little);
  CHECK(options.populate == false);
  CHECK(options.no_reserve == false);
  CHECK(options.locked == false);
  CHECK(options.huge_pages == true);
  CHECK(options.protection == Protection::map);
}

TEST_CASE("lets the environment replace a default and a call replace the environment") {
  const Variable verify("WEIGHTMAP_VERIFY", "crc");
  const Variable sharing("WEIGHTMAP_SHARING", "private");
  const Variable order("WEIGHTMAP_BYTEORDER", "big");
  const Variable huge("WEIGHTMAP_HUGEPAGES", "0");
  OpenOptions call;
  call.sharing = Sharing::shared;
  const OpenOptions options = with_defaults(call).value();
  CHECK(options.verify == Verify::crc);
  CHECK(options.sharing == Sharing::shared);
  CHECK(options.missing_byte_order == ByteOrder::big);
  CHECK(options.huge_pages == false);
  CHECK(default_open_options()->sharing == Sharing::private_);
}

TEST_CASE("refuses a variable that holds another word, naming it and the words") {
  const Variable verify("WEIGHTMAP_VERIFY", "full");
  const Error error = default_open_options().error();
  CHECK(error.code == ErrorCode::invalid_argument);
  CHECK(error.message == "environment variable WEIGHTMAP_VERIFY must be chain or headers or crc");
  OpenOptions call;
  call.verify = Verify::chain;
  CHECK(with_defaults(call).has_value());
}

TEST_CASE("refuses protection=copy and says what makes a copy") {
  const Variable protection("WEIGHTMAP_PROTECTION", "copy");
  const Error error = default_open_options().error();
  CHECK(error.code == ErrorCode::invalid_argument);
  CHECK(error.message ==
        "environment variable WEIGHTMAP_PROTECTION must be map or guard or snapshot (a copy in "
        "memory is made by `weightmap stage`, or stage() in a program)");
}

TEST_CASE("refuses a limit of depth that a node cannot count to") {
  OpenOptions call;
  call.limits.depth = 65535;
  CHECK(with_defaults(call).has_value());
  call.limits.depth = 65536;
  const auto refused = with_defaults(call);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == ErrorCode::invalid_argument);
  CHECK(refused.error().message ==
        "limits.depth is 65536, the largest that can be counted is 65535");
}

TEST_CASE("says each option in the words of the environment") {
  CHECK(to_string(Sharing::private_) == "private");
  CHECK(to_string(Verify::headers) == "headers");
  CHECK(to_string(ByteOrder::native) == "native");
}
