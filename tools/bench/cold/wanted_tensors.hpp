// Selects the tensors that a benchmark reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/cold/results.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli::bench {

// Returns the tensors that every engine can return unchanged: contiguous, of this machine's byte
// order, not empty, with a unique UTF-8 name. In file order.
std::vector<NamedTensor> eligible_tensors(const Checkpoint& checkpoint);

// Returns the tensors of these names. Fails with not_found for an unknown one.
Result<std::vector<NamedTensor>> wanted_tensors(const Checkpoint& checkpoint,
                                                const std::vector<std::string>& names);

std::uint64_t total_bytes(std::span<const NamedTensor> tensors) noexcept;

// Returns the first of at least 8 MiB, otherwise the largest. Precondition: not empty.
const NamedTensor& usual_named_tensor(std::span<const NamedTensor> tensors) noexcept;

// Returns their names in this order, with `named` moved to the front.
std::vector<std::string> consumer_order(std::span<const NamedTensor> tensors, Order order,
                                        const std::string& named);

// Returns the sum, modulo 2^64, of the bytes as little-endian 8-byte words, which proves that all
// engines read the same; zeros complete the last word. It runs at the speed of memory. Sums of
// tensors add up in any order.
std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace weightmap::cli::bench
