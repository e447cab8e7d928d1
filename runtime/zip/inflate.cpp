#include "runtime/zip/inflate.hpp"

#include <libdeflate.h>

#include <limits>
#include <memory>
#include <new>
#include <string>

#include "runtime/bytes/checked.hpp"

namespace weightmap::zip {
namespace {

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* decompressor) const noexcept {
    libdeflate_free_decompressor(decompressor);
  }
};
using Decompressor = std::unique_ptr<libdeflate_decompressor, FreeDecompressor>;

tl::unexpected<Error> cannot_inflate(const std::string& why) {
  return failure(ErrorCode::corrupt, "the compressed data " + why);
}

}  // namespace

std::uint64_t max_inflated_size(std::uint64_t compressed_size) noexcept {
  // A match of 258 bytes takes at least two bits, one for its length and one for its distance.
  constexpr std::uint64_t bytes_per_byte = 258 * 8 / 2;
  std::uint64_t most = 0;
  if (!bytes::checked_mul(compressed_size, bytes_per_byte, &most))
    return std::numeric_limits<std::uint64_t>::max();
  return most;
}

Result<void> inflate(std::span<const std::byte> compressed, std::span<std::byte> out) {
  const Decompressor decompressor(libdeflate_alloc_decompressor());
  if (!decompressor) throw std::bad_alloc();
  std::byte nothing{};
  std::size_t used = 0;
  std::size_t produced = 0;
  const libdeflate_result result = libdeflate_deflate_decompress_ex(
      decompressor.get(), compressed.data(), compressed.size(), out.empty() ? &nothing : out.data(),
      out.size(), &used, &produced);
  const std::string expected = std::to_string(out.size()) + " bytes";
  if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
    return cannot_inflate("inflates to more than the " + expected + " that the directory declares");
  if (result != LIBDEFLATE_SUCCESS) return cannot_inflate("is damaged or ends early");
  if (produced != out.size())
    return cannot_inflate("inflates to " + std::to_string(produced) + " bytes, expected " +
                          expected);
  if (used != compressed.size())
    return cannot_inflate("ends " + std::to_string(compressed.size() - used) +
                          " bytes before the record does");
  return {};
}

}  // namespace weightmap::zip
