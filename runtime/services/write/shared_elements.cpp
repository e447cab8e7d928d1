#include "runtime/services/write/shared_elements.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"

namespace weightmap {
namespace {

std::span<const std::byte> origin_of(const SafetensorsTensor& tensor) noexcept {
  return tensor.origin.empty() ? tensor.content.memory() : tensor.origin;
}

// Orders tensors so that those with identical elements are equal.
struct ByElements {
  bool operator()(const SafetensorsTensor* a, const SafetensorsTensor* b) const noexcept {
    const std::byte* const a_begin = origin_of(*a).data();
    const std::byte* const b_begin = origin_of(*b).data();
    if (a_begin != b_begin) return std::less<>()(a_begin, b_begin);
    return std::tie(a->dtype, a->shape, a->strides) < std::tie(b->dtype, b->shape, b->strides);
  }
};

std::string both(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  return "the tensors " + bytes::quote(a.name) + " and " + bytes::quote(b.name);
}

// Compares each tensor, in the order of first bytes, with the earlier one that ends last. Tensors
// that are not contiguous are excluded, since they may interleave and are copied anyway.
Result<void> check_overlap(const std::vector<SafetensorsTensor>& tensors) {
  std::vector<const SafetensorsTensor*> sorted;
  for (const SafetensorsTensor& tensor : tensors)
    if (!origin_of(tensor).empty() && tensor.strides.empty()) sorted.push_back(&tensor);
  std::ranges::sort(sorted, std::less<>(), [](const SafetensorsTensor* tensor) {
    return std::pair(origin_of(*tensor).data(), origin_of(*tensor).size());
  });
  const SafetensorsTensor* last = nullptr;
  const std::byte* end = nullptr;
  for (const SafetensorsTensor* tensor : sorted) {
    const std::span<const std::byte> origin = origin_of(*tensor);
    if (last != nullptr && std::less<>()(origin.data(), end))
      return failure(ErrorCode::invalid_argument,
                     both(*last, *tensor) +
                         " share a part of their elements, which safetensors cannot say; ask for "
                         "shared=copy to have both written");
    if (last == nullptr || std::less<>()(end, origin.data() + origin.size()))
      std::tie(last, end) = std::pair(tensor, origin.data() + origin.size());
  }
  return {};
}

}  // namespace

Result<void> settle_shared(std::vector<SafetensorsTensor>& tensors, SharedElements how,
                           std::vector<SafetensorsReport::Dropped>& dropped) {
  if (how == SharedElements::copy) return {};
  std::map<const SafetensorsTensor*, bool, ByElements> known;
  std::vector<bool> is_kept(tensors.size(), true);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (origin_of(tensors[i]).empty()) continue;
    const auto [first, is_new] = known.emplace(&tensors[i], true);
    if (is_new) continue;
    if (how == SharedElements::refuse)
      return failure(ErrorCode::invalid_argument,
                     both(*first->first, tensors[i]) +
                         " share their elements, which safetensors cannot say; ask for shared=drop "
                         "to have the second named in the metadata only, or for shared=copy to "
                         "have both written");
    dropped.push_back({tensors[i].name, first->first->name});
    is_kept[i] = false;
  }
  std::vector<SafetensorsTensor> kept;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (is_kept[i]) kept.push_back(std::move(tensors[i]));
  tensors = std::move(kept);
  return check_overlap(tensors);
}

}  // namespace weightmap
