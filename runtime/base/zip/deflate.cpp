#include "runtime/base/zip/deflate.hpp"

#include <libdeflate.h>

#include <memory>
#include <new>

namespace weightmap::zip {
namespace {

constexpr int best = 9;  // the level of torch's small records

struct FreeCompressor {
  void operator()(libdeflate_compressor* compressor) const noexcept {
    libdeflate_free_compressor(compressor);
  }
};

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

}  // namespace weightmap::zip
