#include "runtime/base/bytes/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/base/bytes/number.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__AARCH64EL__) && (!defined(__clang__) || __clang_major__ >= 16)
// Before 16 clang has these instructions only in files that are compiled for them altogether.
#define WEIGHTMAP_HAS_ARM_SHA256
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

namespace weightmap::bytes {
namespace {

using State = std::array<std::uint32_t, 8>;

constexpr std::size_t block_bytes = 64;
// The processor reads memory ahead by itself, too little for bytes that are in none of its caches:
// summing those takes half as long again without this.
[[maybe_unused]] constexpr std::size_t blocks_ahead = 64;
constexpr State first_state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
alignas(16) constexpr std::array<std::uint32_t, 64> constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::byte* bytes) noexcept {
  std::uint32_t number = 0;
  for (int i = 0; i < 4; ++i) number = number << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  return number;
}

void mix_block(State& state, const std::byte* block) noexcept {
  std::array<std::uint32_t, 64> words;
  for (std::size_t i = 0; i < 16; ++i) words[i] = big_endian(block + 4 * i);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = words[i - 15];
    const std::uint32_t b = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + words[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t sum = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                              ((e & f) ^ (~e & g)) + constants[i] + words[i];
    const std::uint32_t other =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + sum;
    d = c, c = b, b = a, a = sum + other;
  }
  const State mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += mixed[i];
}

void mix_portably(State& state, const std::byte* bytes, std::size_t blocks) {
  for (; blocks != 0; --blocks, bytes += block_bytes) mix_block(state, bytes);
}

#if defined(__x86_64__)

bool has_instructions() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_sse = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_SSE4_1) != 0;
  return has_sse && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

// The instructions want the state as ABEF and CDGH, and mix two rounds each.
__attribute__((target("sha,sse4.1,ssse3"))) void mix_by_instructions(State& state,
                                                                     const std::byte* bytes,
                                                                     std::size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* const stored = reinterpret_cast<__m128i*>(state.data());
  const auto* const round_constants = reinterpret_cast<const __m128i*>(constants.data());
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(stored), 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(stored + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; blocks != 0; --blocks, bytes += block_bytes) {
    __builtin_prefetch(bytes + std::min(blocks, blocks_ahead) * block_bytes);
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i words[4];
    for (int i = 0; i < 4; ++i)
      words[i] =
          _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + i), swap);
    for (int i = 0; i < 16; ++i) {
      __m128i& four = words[i & 3];
      const __m128i last = words[(i + 3) & 3];
      const __m128i sum = _mm_add_epi32(four, _mm_load_si128(round_constants + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
      const __m128i seven_before = _mm_alignr_epi8(last, words[(i + 2) & 3], 4);
      four = _mm_sha256msg1_epu32(four, words[(i + 1) & 3]);
      four = _mm_sha256msg2_epu32(_mm_add_epi32(four, seven_before), last);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(stored, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(stored + 1, _mm_alignr_epi8(dchg, feba, 8));
}

#elif defined(WEIGHTMAP_HAS_ARM_SHA256)

bool has_instructions() noexcept { return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0; }

// The instructions mix four rounds each.
__attribute__((target("+crypto"))) void mix_by_instructions(State& state, const std::byte* bytes,
                                                            std::size_t blocks) {
  uint32x4_t abcd = vld1q_u32(state.data());
  uint32x4_t efgh = vld1q_u32(state.data() + 4);
  for (; blocks != 0; --blocks, bytes += block_bytes) {
    const uint32x4_t abcd_before = abcd;
    const uint32x4_t efgh_before = efgh;
    uint32x4_t words[4];
    for (int i = 0; i < 4; ++i)
      words[i] = vreinterpretq_u32_u8(
          vrev32q_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(bytes) + 16 * i)));
    for (int i = 0; i < 16; ++i) {
      uint32x4_t& four = words[i & 3];
      const uint32x4_t sum = vaddq_u32(four, vld1q_u32(constants.data() + 4 * i));
      const uint32x4_t abcd_here = abcd;
      abcd = vsha256hq_u32(abcd, efgh, sum);
      efgh = vsha256h2q_u32(efgh, abcd_here, sum);
      four = vsha256su1q_u32(vsha256su0q_u32(four, words[(i + 1) & 3]), words[(i + 2) & 3],
                             words[(i + 3) & 3]);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state.data(), abcd);
  vst1q_u32(state.data() + 4, efgh);
}

#else

bool has_instructions() noexcept { return false; }
constexpr auto mix_by_instructions = mix_portably;

#endif

}  // namespace

Sha256::Sha256(bool portable) noexcept
    : mix_(portable || !has_instructions() ? mix_portably : mix_by_instructions),
      state_(first_state) {}

void Sha256::add(std::span<const std::byte> bytes) noexcept {
  const std::size_t begun = length_ % block;
  length_ += bytes.size();
  if (begun != 0) {
    const std::size_t taken = std::min(block - begun, bytes.size());
    std::copy_n(bytes.begin(), taken, begun_.begin() + begun);
    bytes = bytes.subspan(taken);
    if (begun + taken < block) return;
    mix_(state_, begun_.data(), 1);
  }
  mix_(state_, bytes.data(), bytes.size() / block);
  std::ranges::copy(bytes.last(bytes.size() % block), begun_.begin());
}

Sha256::Digest Sha256::digest() noexcept {
  const std::uint64_t bits = 8 * length_;
  std::array<std::byte, 2 * block> padding = {std::byte{0x80}};
  const std::size_t zeros = (2 * block - 8 - length_ % block - 1) % block;
  for (std::size_t i = 0; i < 8; ++i) padding[1 + zeros + i] = std::byte(bits >> (56 - 8 * i));
  add(std::span(padding).first(1 + zeros + 8));
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = std::byte(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

std::string to_hex(const Sha256::Digest& digest) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : digest) {
    text += digits[std::to_integer<std::size_t>(byte >> 4)];
    text += digits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

std::optional<Sha256::Digest> parse_sha256(std::string_view hex) noexcept {
  Sha256::Digest digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const std::optional<std::uint64_t> byte = number(hex.substr(2 * i, 2), 16);
    if (!byte) return std::nullopt;
    digest[i] = std::byte(*byte);
  }
  return digest;
}

}  // namespace weightmap::bytes
