#include "mmap/closed_range.hpp"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <span>

#include "runtime/system/page_size.hpp"
#include "runtime/system/process/standard_error.hpp"

namespace weightmap::mmap {

#ifdef NDEBUG

void close(Mapping /*mapping*/, std::string_view /*name*/) noexcept {}
void abort_if_closed(std::uintptr_t /*address*/) noexcept {}

#else

namespace {

// Addresses that are reserved, and what to say of an access to them.
struct ClosedRange {
  std::atomic<bool> is_changing{false};  // nobody waits for it, so a fork may happen meanwhile
  std::atomic<std::uintptr_t> first{0};
  std::atomic<std::size_t> size{0};  // whole pages; 0: free
  std::array<char, 512> text{};
  std::size_t text_size = 0;

  void give_back() noexcept {
    if (const std::size_t reserved = size.exchange(0); reserved != 0)
      ::munmap(reinterpret_cast<void*>(first.load()), reserved);
  }
  void take(std::span<const std::byte> range, std::string_view name) noexcept {
    const std::size_t wanted = os::whole_pages(range.size());
    void* const at = const_cast<std::byte*>(range.data());
    void* const got =
        ::mmap(at, wanted, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED) return;  // another thread has them already
    if (got != at) {                // before Linux 4.17
      ::munmap(got, wanted);
      return;
    }
    text_size = 0;
    add("weightmap: a tensor of ");
    add(name.substr(0, 256));
    add(" is used after its Checkpoint was destroyed: keep that for as long as its views, or hold "
        "a SharedTensor\n");
    first = reinterpret_cast<std::uintptr_t>(at);
    size = wanted;
  }

 private:
  void add(std::string_view part) noexcept {
    for (const char c : part) text[text_size++] = c;
  }
};

constinit std::array<ClosedRange, 64> closed_ranges;
constinit std::atomic<std::size_t> closed_count{0};

void keep_closed(std::span<const std::byte> range, std::string_view name) noexcept {
  if (range.empty() || !Guard::watch_accesses()) return;
  ClosedRange& oldest = closed_ranges[closed_count++ % closed_ranges.size()];
  if (oldest.is_changing.exchange(true)) return;
  oldest.give_back();
  oldest.take(range, name);
  oldest.is_changing = false;
}

}  // namespace

void close(Mapping mapping, std::string_view name) noexcept {
  const std::span<const std::byte> range = mapping.bytes();
  mapping = {};
  keep_closed(range, name);
}

void abort_if_closed(std::uintptr_t address) noexcept {
  for (const ClosedRange& closed : closed_ranges) {
    if (address < closed.first || address - closed.first >= closed.size) continue;
    os::write_standard_error({closed.text.data(), closed.text_size});
    std::abort();
  }
}

#endif

}  // namespace weightmap::mmap
