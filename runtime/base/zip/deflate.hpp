// Raw deflate, as zip stores it, both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::zip {

// Returns the compressed bytes; empty if compression does not save space.
std::vector<std::byte> deflate(std::span<const std::byte> content);

// Returns the maximum inflated size of `compressed_size` bytes: deflate spends at least one bit on
// 129 bytes. Saturates. It exposes impossible sizes before memory is allocated.
std::uint64_t max_inflated_size(std::uint64_t compressed_size) noexcept;

// Fills `out` exactly. Fails with corrupt if the stream is damaged, yields fewer or more bytes, or
// ends before `compressed` does. Never writes beyond `out`.
Result<void> inflate(std::span<const std::byte> compressed, std::span<std::byte> out);

// How a stream of deflate is wrapped: not at all, as in a zip archive, or as gzip or zlib do.
enum class Wrapping : std::uint8_t { none, gzip, zlib };

// The most bytes that inflate_head() can tell.
inline constexpr std::size_t inflated_head_bytes = 1024;

// Returns the first inflated bytes, inflated_head_bytes of them unless there are fewer. nullopt if
// `compressed`, which may be the beginning of a stream, is damaged or too short to tell.
std::optional<std::vector<std::byte>> inflate_head(std::span<const std::byte> compressed,
                                                   Wrapping wrapping);

// Inflates all members of a file. Fails with corrupt if it is damaged or ends early, with
// limit_exceeded if the content is longer than `max_bytes`.
Result<std::vector<std::byte>> inflate_all(std::span<const std::byte> compressed, Wrapping wrapping,
                                           std::uint64_t max_bytes);

}  // namespace weightmap::zip
