#include "runtime/base/zip/deflate.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <string>

#include "runtime/base/bytes/checked.hpp"

namespace weightmap::zip {
namespace {

constexpr int best = 9;  // the level of torch's small records

struct FreeCompressor {
  void operator()(libdeflate_compressor* compressor) const noexcept {
    libdeflate_free_compressor(compressor);
  }
};

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* decompressor) const noexcept {
    libdeflate_free_decompressor(decompressor);
  }
};
using Decompressor = std::unique_ptr<libdeflate_decompressor, FreeDecompressor>;

tl::unexpected<Error> cannot_inflate(const std::string& why) {
  return failure(ErrorCode::corrupt, "the compressed data " + why);
}

Decompressor make_decompressor() {
  Decompressor made(libdeflate_alloc_decompressor());
  if (!made) throw std::bad_alloc();
  return made;
}

auto decompress_of(Wrapping wrapping) noexcept {
  return wrapping == Wrapping::gzip   ? libdeflate_gzip_decompress_ex
         : wrapping == Wrapping::zlib ? libdeflate_zlib_decompress_ex
                                      : libdeflate_deflate_decompress_ex;
}

// A block that is stored as it is has at most this many bytes.
constexpr std::size_t most_at_once = 65535;

}  // namespace

std::vector<std::byte> deflate(std::span<const std::byte> content) {
  const std::unique_ptr<libdeflate_compressor, FreeCompressor> compressor(
      libdeflate_alloc_compressor(best));
  if (!compressor) throw std::bad_alloc();
  std::vector<std::byte> compressed(content.empty() ? 0 : content.size() - 1);
  // Returns 0 if the result does not fit.
  compressed.resize(libdeflate_deflate_compress(compressor.get(), content.data(), content.size(),
                                                compressed.data(), compressed.size()));
  return compressed;
}

std::uint64_t max_inflated_size(std::uint64_t compressed_size) noexcept {
  // A match of 258 bytes takes at least two bits, one for its length and one for its distance.
  constexpr std::uint64_t bytes_per_byte = 258 * 8 / 2;
  std::uint64_t most = 0;
  if (!bytes::checked_mul(compressed_size, bytes_per_byte, &most))
    return std::numeric_limits<std::uint64_t>::max();
  return most;
}

Result<void> inflate(std::span<const std::byte> compressed, std::span<std::byte> out) {
  const Decompressor decompressor = make_decompressor();
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

std::optional<std::vector<std::byte>> inflate_head(std::span<const std::byte> compressed,
                                                   Wrapping wrapping) {
  // libdeflate stops at the first block or match that does not fit, with all before it in place.
  std::vector<std::byte> out(inflated_head_bytes + most_at_once);
  const Decompressor decompressor = make_decompressor();
  const auto run = decompress_of(wrapping);
  std::size_t used = 0;
  std::size_t produced = 0;
  const libdeflate_result result = run(decompressor.get(), compressed.data(), compressed.size(),
                                       out.data(), out.size(), &used, &produced);
  if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
    produced = inflated_head_bytes;
  else if (result != LIBDEFLATE_SUCCESS)
    return std::nullopt;
  out.resize(std::min(produced, inflated_head_bytes));
  return out;
}

Result<std::vector<std::byte>> inflate_all(std::span<const std::byte> compressed, Wrapping wrapping,
                                           std::uint64_t max_bytes) {
  const Decompressor decompressor = make_decompressor();
  const auto run = decompress_of(wrapping);
  std::vector<std::byte> out(
      std::min({max_bytes, max_inflated_size(compressed.size()), std::uint64_t{1} << 20}));
  std::size_t filled = 0;
  while (!compressed.empty()) {
    std::size_t used = 0;
    std::size_t produced = 0;
    const libdeflate_result result =
        run(decompressor.get(), compressed.data(), compressed.size(), out.data() + filled,
            out.size() - filled, &used, &produced);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
      if (out.size() >= max_bytes)
        return failure(ErrorCode::limit_exceeded,
                       "its content has more than " + std::to_string(max_bytes) + " bytes");
      out.resize(std::min(max_bytes, 2 * std::uint64_t{out.size()}));
      continue;
    }
    // Zeros fill up blocks of a tape.
    if (result != LIBDEFLATE_SUCCESS && filled > 0 &&
        std::ranges::all_of(compressed, [](std::byte b) { return b == std::byte{0}; }))
      break;
    if (result != LIBDEFLATE_SUCCESS) return cannot_inflate("is damaged or ends early");
    compressed = compressed.subspan(used);
    filled += produced;
  }
  out.resize(filled);
  return out;
}

}  // namespace weightmap::zip
