#include "tools/bench/cold/wanted_tensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "runtime/base/try.hpp"
#include "tools/support/json_out.hpp"

// Sanitizer runtimes are not initialised when the clone is chosen.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

namespace weightmap::cli::bench {
namespace {

constexpr std::uint64_t large = std::uint64_t{8} << 20;

bool is_utf8(std::string_view text) {
  try {
    [[maybe_unused]] const std::string quoted = Json(text).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

bool is_eligible(const Checkpoint& checkpoint, const NamedTensor& tensor) {
  const TensorView& view = tensor.view;
  return !tensor.is_copied && view.is_contiguous() && !view.is_foreign_byte_order() &&
         !view.is_conjugate() && !view.is_negative() && view.nbytes() > 0 &&
         checkpoint.find(tensor.name) && is_utf8(tensor.name);
}

// std::shuffle's order depends on the standard library.
void shuffle(std::vector<std::string>& names) {
  std::mt19937 random(7);
  for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random() % i]);
}

std::uint64_t little_endian(std::uint64_t word) noexcept {
  return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

// Uses the processor's widest vectors, as the libraries of other engines do. clang takes the
// attribute at the first declaration only.
WIDE std::uint64_t wide_checksum(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t lanes = 32;
  std::uint64_t sums[lanes] = {};
  std::uint64_t words[lanes] = {};
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= sizeof words; at += sizeof words, left -= sizeof words) {
    std::memcpy(words, at, sizeof words);
    for (std::size_t i = 0; i < lanes; ++i) sums[i] += little_endian(words[i]);
  }
  std::memset(words, 0, sizeof words);
  if (left > 0) std::memcpy(words, at, left);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < lanes; ++i) sum += sums[i] + little_endian(words[i]);
  return sum;
}

}  // namespace

std::vector<NamedTensor> eligible_tensors(const Checkpoint& checkpoint) {
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& tensor : checkpoint.tensors())
    if (is_eligible(checkpoint, tensor)) tensors.push_back(tensor);
  return tensors;
}

Result<std::vector<NamedTensor>> wanted_tensors(const Checkpoint& checkpoint,
                                                const std::vector<std::string>& names) {
  std::vector<NamedTensor> tensors;
  tensors.reserve(names.size());
  for (const std::string& name : names) {
    TRY_ASSIGN(const NamedTensor tensor, checkpoint.get(name));
    tensors.push_back(tensor);
  }
  if (tensors.empty()) return failure(ErrorCode::invalid_argument, "no tensor is named");
  return tensors;
}

std::uint64_t total_bytes(std::span<const NamedTensor> tensors) noexcept {
  std::uint64_t bytes = 0;
  for (const NamedTensor& tensor : tensors) bytes += tensor.view.nbytes();
  return bytes;
}

const NamedTensor& usual_named_tensor(std::span<const NamedTensor> tensors) noexcept {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [](const auto& tensor) { return tensor.view.nbytes() >= large; });
  if (found != tensors.end()) return *found;
  return *std::max_element(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.view.nbytes() < b.view.nbytes();
  });
}

std::vector<std::string> consumer_order(std::span<const NamedTensor> tensors, Order order,
                                        const std::string& named) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : tensors) names.emplace_back(tensor.name);
  if (order == Order::random) shuffle(names);
  const auto first = std::find(names.begin(), names.end(), named);
  std::rotate(names.begin(), first, first == names.end() ? first : first + 1);
  return names;
}

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept { return wide_checksum(bytes); }

}  // namespace weightmap::cli::bench
