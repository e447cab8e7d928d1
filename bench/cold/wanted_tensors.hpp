// Which tensors a benchmark reads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/cold/results.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::bench {

// Those that every engine can hand out as they lie in the file: contiguous, of this machine's byte
// order, not empty, with a name of their own that is UTF-8. In file order.
std::vector<NamedTensor> eligible_tensors(const Checkpoint& checkpoint);

// The tensors of these names. Fails with not_found for one that is not there.
Result<std::vector<NamedTensor>> wanted_tensors(const Checkpoint& checkpoint,
                                                const std::vector<std::string>& names);

std::uint64_t total_bytes(std::span<const NamedTensor> tensors) noexcept;

// The first of at least 8 MiB, or else the largest. Precondition: not empty.
const NamedTensor& usual_named_tensor(std::span<const NamedTensor> tensors) noexcept;

// Their names in this order, with `named` moved to the front.
std::vector<std::string> consumer_order(std::span<const NamedTensor> tensors, Order order,
                                        const std::string& named);

}  // namespace weightmap::cli::bench
