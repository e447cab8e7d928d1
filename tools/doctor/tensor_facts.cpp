#include "tools/doctor/tensor_facts.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

namespace weightmap::cli::doctor {
namespace {

void add(std::uint64_t& sum, std::uint64_t bytes) noexcept {
  sum += std::min(bytes, std::numeric_limits<std::uint64_t>::max() - sum);
}

bool is_converted(DType dtype) noexcept {
  using enum DType;
  return dtype == float64 || dtype == float32 || dtype == float16 || dtype == bfloat16;
}

bool is_misaligned(const NamedTensor& tensor) noexcept {
  const DType dtype = tensor.view.dtype();
  if (is_blocked(dtype)) return false;
  const std::size_t alignment = std::min<std::size_t>(element_size(dtype), 8);
  return alignment > 1 && tensor.file_offset % alignment != 0;
}

}  // namespace

TensorFacts tensor_facts(const Checkpoint& checkpoint, std::optional<DType> wanted) {
  TensorFacts facts;
  std::set<std::tuple<std::size_t, std::uint64_t, std::uint64_t, DType>> seen;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    const DType dtype = tensor.view.dtype();
    const std::uint64_t bytes = tensor.view.stored_bytes().size();
    if (!seen.emplace(tensor.source, tensor.file_offset, bytes, dtype).second) continue;
    add(facts.bytes[dtype], bytes);
    if (wanted && *wanted != dtype && is_converted(dtype))
      add(facts.converted_bytes, bytes / element_size(dtype) * element_size(*wanted));
    if (tensor.view.is_foreign_byte_order()) {
      ++facts.foreign;
      add(facts.foreign_bytes, bytes);
    } else if (!tensor.is_copied && is_misaligned(tensor)) {
      ++facts.misaligned;
      add(facts.misaligned_bytes, bytes);
    }
  }
  return facts;
}

}  // namespace weightmap::cli::doctor
