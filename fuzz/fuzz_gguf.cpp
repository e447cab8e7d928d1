// Parses any bytes as a GGUF file: refused, or its tensors equal those of another reader, and lie
// one after another in the file.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/look.hpp"
#include "fuzz/look_checkpoint.hpp"
#include "fuzz/target.hpp"
#include "runtime/formats/gguf/parse_gguf.hpp"

namespace {

using namespace weightmap;

// Trusts its input, which consists of accepted files only.
class Plain {
 public:
  Plain(std::span<const std::byte> content, bool is_big)
      : content_(content), is_swapped_(is_big != (std::endian::native == std::endian::big)) {}

  std::uint64_t number(std::size_t size) {
    std::vector<std::byte> bytes(size);
    std::memcpy(bytes.data(), content_.data() + at, size);
    if (is_swapped_) std::reverse(bytes.begin(), bytes.end());
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data(), size);
    at += size;
    return value;
  }
  std::string_view text() {
    const std::uint64_t length = number(8);
    at += length;
    return {reinterpret_cast<const char*>(content_.data() + at - length), length};
  }
  // Skips consecutive values of one type: arrays are pushed, not entered.
  void skip_values(std::uint64_t type, std::uint64_t count) {
    constexpr std::uint64_t string = 8;
    constexpr std::uint64_t array = 9;
    constexpr std::size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    std::vector<std::pair<std::uint64_t, std::uint64_t>> left{{type, count}};
    while (!left.empty()) {
      auto& [kind, rest] = left.back();
      if (rest == 0) {
        left.pop_back();
      } else if (kind == array) {
        --rest;
        const std::uint64_t element = number(4);
        left.emplace_back(element, number(8));
      } else if (kind == string) {
        --rest;
        text();
      } else {
        at += rest * sizes[kind];
        rest = 0;
      }
    }
  }

  std::size_t at = 0;

 private:
  std::span<const std::byte> content_;
  bool is_swapped_;
};

void check_tensor(Plain& plain, const catalog::Catalog& catalog, const catalog::Entry& entry,
                  std::uint64_t data_begin) {
  fuzz::require(plain.text() == catalog.name(entry), "a tensor has another name");
  const std::uint64_t rank = plain.number(4);
  fuzz::require(rank == entry.rank, "a tensor has another rank");
  const std::int64_t* const dims = catalog.dims(entry);
  std::int64_t stride = 1;
  for (std::size_t i = rank; i-- > 0;) {
    const auto size = static_cast<std::int64_t>(plain.number(8));
    fuzz::require(dims[i] == size, "a tensor has another shape");
    fuzz::require(dims[rank + i] == stride, "a tensor is not contiguous");
    stride *= std::max<std::int64_t>(1, size);
  }
  plain.number(4);
  const catalog::StorageEntry& storage = catalog.storages()[entry.storage];
  fuzz::require(storage.position == data_begin + plain.number(8), "a tensor lies elsewhere");
  fuzz::require(storage.nbytes == entry.nbytes, "a tensor is not all of its storage");
}

void check_catalog(const format::Parsed& parsed, std::span<const std::byte> content) {
  Plain plain(content, parsed.facts.byteorder == "big");
  plain.at = 4;
  fuzz::require(plain.number(4) == parsed.facts.version, "the file has another version");
  fuzz::require(plain.number(8) == parsed.catalog.size(), "the file has more or fewer tensors");
  const std::uint64_t pairs = plain.number(8);
  for (std::uint64_t i = 0; i < pairs; ++i) {
    plain.text();
    plain.skip_values(plain.number(4), 1);
  }
  const std::uint64_t alignment = parsed.facts.storage_alignment;
  const auto padded = [alignment](std::uint64_t size) {
    return (size + alignment - 1) / alignment * alignment;
  };
  const std::uint64_t data_begin = padded(parsed.facts.pickle_bytes);
  std::uint64_t end = data_begin;
  for (const catalog::Entry& entry : parsed.catalog.entries()) {
    const catalog::StorageEntry& storage = parsed.catalog.storages()[entry.storage];
    check_tensor(plain, parsed.catalog, entry, data_begin);
    fuzz::require(storage.position == padded(end), "tensors do not follow one another");
    end = storage.position + storage.nbytes;
    fuzz::require(end <= content.size(), "a tensor leaves the file");
    fuzz::require(&parsed.catalog[parsed.catalog.find(parsed.catalog.name(entry))] == &entry,
                  "a tensor is not found by its name");
  }
  fuzz::require(plain.at == parsed.facts.pickle_bytes, "the header ends elsewhere");
}

void check(std::span<const std::byte> content) {
  const OpenOptions options = fuzz::small_limits();
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  const bytes::MemorySource source(content);
  format::Input input(source, 0, content.size(), memory);
  OpenStats stats;
  const Result<format::Parsed> parsed = gguf::parse(input, options, stats, memory);
  if (parsed) {
    check_catalog(*parsed, content);
    return fuzz::look_at(Value(parsed->tree.get(), parsed->tree->root()));
  }
  fuzz::check_refusal(parsed.error(), content.size());
  fuzz::require(parsed.error().file_offset != Error::no_offset, "an error at no byte");
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
