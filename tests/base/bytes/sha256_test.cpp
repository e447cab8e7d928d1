#include "runtime/base/bytes/sha256.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using weightmap::bytes::parse_sha256;
using weightmap::bytes::Sha256;
using weightmap::bytes::to_hex;

namespace {

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = std::byte((i * 7 + 3) & 255);
  return bytes;
}

// Added in steps of this many bytes.
std::string sum_of(std::span<const std::byte> bytes, std::size_t step, bool portable) {
  Sha256 sum(portable);
  while (!bytes.empty()) {
    const std::size_t next = std::min(step, bytes.size());
    sum.add(bytes.first(next));
    bytes = bytes.subspan(next);
  }
  return to_hex(sum.digest());
}

struct Known {
  std::size_t length;
  const char* sum;  // by sha256sum
};
constexpr Known known[] = {
    {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {1, "084fed08b978af4d7d196a7446a86b58009e636b611db16211b65a9aadff29c5"},
    {55, "e7313d333c272e639f790978283f9eb392e843d0f29b7016828bb1daa4aac70b"},
    {56, "4324d65f3c103567f5589c710bc08f8523f929a9272e3af36fc968e52abc6c27"},
    {63, "81c80242132f230c3bd41b3e63bbcff16107339549214a99614ff26664625055"},
    {64, "39e3d7b6b5d075d37d053ad89b24b41bef4f3c29760c84447cab3f3be1882241"},
    {65, "aacca6ff74fdbb296d165a45cecfa04e5127bc008770fbbdd48006f2d2fae95e"},
    {119, "9ce7368e4daf32341631b492e80359dc9f594b48453cd0dd5bf0b19279cc177e"},
    {120, "7836b787757e95e58b3ca5aec90b1b004e8deba1e50e9675af9cabf1a13a04b5"},
    {128, "d2742f1f4ac6bb7ca2b239ee18402ba8b3f9f8e652d2a72973c2b9ba11c08cf6"},
    {1000, "1e9bc38cbf860b9ec31918b065f9b52476c549a782e0e7990bed8ce3868d2371"},
    {100000, "d96bab6a55ee326ba206dd4a85a6e95e14360d7fabbf448f03e689c24382b7d0"}};

}  // namespace

TEST_CASE("sums are those of sha256sum, in whatever steps, with and without instructions") {
  for (const Known& each : known)
    for (const std::size_t step : {1u, 7u, 64u, 100u, 4096u, 1u << 20})
      for (const bool portable : {false, true})
        CHECK(sum_of(some_bytes(each.length), step, portable) == each.sum);
}

TEST_CASE("the example of FIPS 180-4") {
  const std::string text = "abc";
  CHECK(sum_of(std::as_bytes(std::span(text)), 3, false) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("only 64 hexadecimal digits are a sum") {
  const std::string good(64, 'a');
  REQUIRE(parse_sha256(std::string(64, 'A')));
  CHECK(to_hex(*parse_sha256(std::string(64, 'A'))) == good);
  CHECK_FALSE(parse_sha256(""));
  CHECK_FALSE(parse_sha256(good.substr(1)));
  CHECK_FALSE(parse_sha256(good + "a"));
  CHECK_FALSE(parse_sha256(good.substr(1) + "g"));
}
