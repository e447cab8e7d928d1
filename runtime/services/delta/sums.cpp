#include "runtime/services/delta/sums.hpp"

#include <libdeflate.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#ifdef WEIGHTMAP_HAS_BLAKE3
#include <blake3.h>
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/base/words.hpp"

namespace weightmap {
namespace {

constexpr std::string_view sum_words[] = {"xxh3-128", "blake3", "adler32"};

}  // namespace

std::string_view to_string(TensorSum sum) noexcept { return word_of(sum, sum_words); }

bool has_blake3() noexcept {
#ifdef WEIGHTMAP_HAS_BLAKE3
  return true;
#else
  return false;
#endif
}

}  // namespace weightmap

namespace weightmap::delta {
namespace {

constexpr std::size_t digits_of[] = {32, 64, 8};

std::string hex(std::span<const unsigned char> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) (text += digits[byte >> 4]) += digits[byte & 15];
  return text;
}

}  // namespace

std::optional<TensorSum> sum_named(std::string_view word) noexcept {
  const auto* const found = std::ranges::find(sum_words, word);
  if (found == std::end(sum_words)) return std::nullopt;
  return static_cast<TensorSum>(found - sum_words);
}

Result<void> check_available(TensorSum sum) {
  if (sum != TensorSum::blake3 || has_blake3()) return {};
  return failure(ErrorCode::unsupported,
                 "this build has no BLAKE3: it needs libblake3-dev, or the C sources in "
                 "librust-blake3-dev");
}

bool is_sum(TensorSum sum, std::string_view text) noexcept {
  return text.size() == digits_of[static_cast<std::size_t>(sum)] &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

struct RunningSum::State {
  // XXH3_state_t is aligned by more than `new` may know.
  struct FreeXxh3 {
    void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
  };

  TensorSum sum;
  std::unique_ptr<XXH3_state_t, FreeXxh3> xxh3 = {};
#ifdef WEIGHTMAP_HAS_BLAKE3
  blake3_hasher blake3 = {};
#endif
  std::uint32_t adler32 = 1;
};

RunningSum::RunningSum(TensorSum sum) : state_(std::make_unique<State>(State{.sum = sum})) {
  if (sum == TensorSum::xxh3_128) {
    state_->xxh3.reset(XXH3_createState());
    if (state_->xxh3 == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(state_->xxh3.get());
  }
#ifdef WEIGHTMAP_HAS_BLAKE3
  if (sum == TensorSum::blake3) blake3_hasher_init(&state_->blake3);
#endif
}

RunningSum::RunningSum(RunningSum&&) noexcept = default;
RunningSum& RunningSum::operator=(RunningSum&&) noexcept = default;
RunningSum::~RunningSum() = default;

void RunningSum::add(std::span<const std::byte> bytes) noexcept {
  switch (state_->sum) {
    case TensorSum::xxh3_128:
      XXH3_128bits_update(state_->xxh3.get(), bytes.data(), bytes.size());
      break;
    case TensorSum::blake3:
#ifdef WEIGHTMAP_HAS_BLAKE3
      blake3_hasher_update(&state_->blake3, bytes.data(), bytes.size());
#endif
      break;
    case TensorSum::adler32:
      state_->adler32 = libdeflate_adler32(state_->adler32, bytes.data(), bytes.size());
      break;
  }
}

std::string RunningSum::text() const {
  switch (state_->sum) {
    case TensorSum::xxh3_128: {
      XXH128_canonical_t digest;  // big-endian, as hexdigest() shows it
      XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state_->xxh3.get()));
      return hex(digest.digest);
    }
    case TensorSum::blake3: {
#ifdef WEIGHTMAP_HAS_BLAKE3
      std::array<unsigned char, BLAKE3_OUT_LEN> digest;
      blake3_hasher_finalize(&state_->blake3, digest.data(), digest.size());
      return hex(digest);
#else
      return {};
#endif
    }
    case TensorSum::adler32:
      break;
  }
  const std::uint32_t value = state_->adler32;
  return hex(std::array{static_cast<unsigned char>(value >> 24),
                        static_cast<unsigned char>(value >> 16),
                        static_cast<unsigned char>(value >> 8), static_cast<unsigned char>(value)});
}

}  // namespace weightmap::delta
