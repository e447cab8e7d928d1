// SHA-256 (FIPS 180-4), which people compare files with. In the tree because no library that the
// wheels have has one; with the processor's instructions where it has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weightmap::bytes {

class Sha256 {
 public:
  using Digest = std::array<std::byte, 32>;

  // `portable`: without special instructions, for tests.
  explicit Sha256(bool portable = false) noexcept;
  void add(std::span<const std::byte> bytes) noexcept;
  // Of all that was added. Once, and nothing is added after it.
  Digest digest() noexcept;

 private:
  using State = std::array<std::uint32_t, 8>;
  static constexpr std::size_t block = 64;

  void (*mix_)(State&, const std::byte*, std::size_t blocks);
  State state_;
  std::array<std::byte, block> begun_ = {};  // a block that is not whole
  std::uint64_t length_ = 0;
};

// 64 lower-case digits, as sha256sum prints them.
std::string to_hex(const Sha256::Digest& digest);
// Of 64 digits of either case; nullopt for other texts.
std::optional<Sha256::Digest> parse_sha256(std::string_view hex) noexcept;

}  // namespace weightmap::bytes
