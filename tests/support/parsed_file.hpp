// Files in memory for the parser of a format, and the tensors that it finds, as text.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/formats/format/format.hpp"

namespace weightmap::test {

// The n-th byte of the data is n, modulo 251.
inline std::string data_of(std::size_t bytes) {
  std::string data(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i % 251);
  return data;
}

using Parser = Result<format::Parsed> (*)(format::Input&, const OpenOptions&, OpenStats&,
                                          std::pmr::memory_resource&);

// A file in memory of just its length, behind which a sanitizer would see a read.
template <Parser parse>
class ParsedFile {
 public:
  explicit ParsedFile(const std::string& content, const Limits& limits = {})
      : content_(std::as_bytes(std::span(content)).begin(),
                 std::as_bytes(std::span(content)).end()),
        source_(content_),
        input_(source_, 0, source_.size(), *std::pmr::new_delete_resource()) {
    Result<format::Parsed> result =
        parse(input_, {.limits = limits}, stats, *std::pmr::new_delete_resource());
    if (result)
      parsed.emplace(std::move(*result));
    else
      error = std::move(result.error());
  }
  Value root() const {
    REQUIRE_MESSAGE(parsed.has_value(), error.message);
    return Value(parsed->tree.get(), parsed->tree->root());
  }
  // "name: float32 [2, 3] at 64, 24 bytes; ..." with offsets from this byte of the file on.
  std::string tensors(std::uint64_t from = 0) const {
    REQUIRE_MESSAGE(parsed.has_value(), error.message);
    const catalog::Catalog& catalog = parsed->catalog;
    std::string text;
    for (const catalog::Entry& entry : catalog.entries()) {
      const catalog::StorageEntry& storage = catalog.storages()[entry.storage];
      CHECK(catalog.text(storage.key) == catalog.name(entry));
      CHECK(storage.nbytes == entry.nbytes);
      text += (text.empty() ? "" : "; ") + std::string(catalog.name(entry)) + ": " +
              std::string(to_string(entry.dtype)) + " [";
      for (std::size_t i = 0; i < entry.rank; ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(catalog.dims(entry)[i]);
      text += "] at " + std::to_string(storage.position - from) + ", " +
              std::to_string(entry.nbytes) + " bytes";
    }
    return text;
  }

  std::optional<format::Parsed> parsed;
  Error error;
  OpenStats stats;

 private:
  std::vector<std::byte> content_;
  bytes::MemorySource source_;
  format::Input input_;
};

}  // namespace weightmap::test
