// Which authorities TLS trusts, and what a message says of them.
#include "remote/ca_bundle.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "tests/support/temporary_file.hpp"
#include "tests/support/variable.hpp"

using namespace weightmap;
using remote::ca_bundle;
using remote::describe_ca_bundle;
using test::Variable;

namespace {

// Nothing that whoever runs the test has set.
struct NoVariables {
  Variable curl{"CURL_CA_BUNDLE"};
  Variable openssl{"SSL_CERT_FILE"};
};

constexpr std::array<const char*, 2> nowhere = {"/no/such/bundle.crt", "/nor/this.pem"};

}  // namespace

TEST_CASE("CURL_CA_BUNDLE comes before SSL_CERT_FILE, and both before the system's places") {
  const NoVariables none;
  const std::array<const char*, 1> system = {"/dev/null"};
  none.openssl.set("/own.pem");
  CHECK(ca_bundle(system) == "/own.pem");
  none.curl.set("/curls.pem");
  CHECK(ca_bundle(system) == "/curls.pem");
}

TEST_CASE("an empty variable names no bundle") {
  const NoVariables none;
  none.curl.set("");
  none.openssl.set("");
  CHECK(ca_bundle(nowhere).empty());
}

TEST_CASE("the system's bundle is the first that can be read") {
  const NoVariables none;
  const test::TemporaryFolder folder;
  const std::string first = folder.write("first.pem", "");
  const std::string second = folder.write("second.pem", "");
  const std::array<const char*, 3> places = {nowhere[0], first.c_str(), second.c_str()};
  CHECK(ca_bundle(places) == first);
}

TEST_CASE("a message names the bundle, or all places that have none, and the variable") {
  const NoVariables none;
  CHECK(describe_ca_bundle(nowhere) ==
        "no file with the certificates of trusted authorities was found (/no/such/bundle.crt, "
        "/nor/this.pem): set SSL_CERT_FILE");
  none.openssl.set("/own.pem");
  CHECK(describe_ca_bundle(nowhere) ==
        "trusted are the authorities in /own.pem: set SSL_CERT_FILE for another file");
}
