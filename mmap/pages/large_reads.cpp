#include "mmap/pages/large_reads.hpp"

#include "mmap/pages/page_table.hpp"
#include "mmap/populate.hpp"
#include "runtime/bytes/checked.hpp"

namespace weightmap::os {
namespace {

constexpr std::size_t page = 4096;

}  // namespace

bool reads_large_pages(const Mapping& mapping, std::uint64_t offset) {
  if (!mapping.huge_pages() || !bytes::contains(mapping.bytes().size(), offset, large_read))
    return false;
  const std::span<const std::byte> whole = mapping.bytes().subspan(offset, large_read);
  void* const address = const_cast<std::byte*>(whole.data());
  ::madvise(address, large_read, MADV_RANDOM);
  const bool touched = ::madvise(address, page, MADV_POPULATE_READ) == 0;
  ::madvise(address, large_read, MADV_NORMAL);
  if (!touched) return false;
  const Result<MappedPages> mapped = MappedPages::of(whole);
  return mapped && mapped->bytes(0, large_read).resident == large_read;
}

}  // namespace weightmap::os
