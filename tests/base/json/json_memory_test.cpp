// How much memory reading JSON takes. It has an operator new of its own, which counts.
#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory_resource>
#include <new>
#include <string>
#include <utility>

#include "runtime/base/json/json_tree.hpp"
#include "tests/support/failures.hpp"

using namespace weightmap;

namespace {

// Of all memory that is asked for by new.
std::size_t live_bytes = 0;
std::size_t peak_bytes = 0;

void* counted_new(void* made) {
  if (made == nullptr) throw std::bad_alloc();
  live_bytes += malloc_usable_size(made);
  peak_bytes = std::max(peak_bytes, live_bytes);
  return made;
}
void counted_delete(void* made) noexcept {
  live_bytes -= malloc_usable_size(made);
  std::free(made);
}

}  // namespace

void* operator new(std::size_t size) { return counted_new(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto step = static_cast<std::size_t>(alignment);
  return counted_new(std::aligned_alloc(step, (size + step - 1) / step * step));
}
void operator delete(void* made) noexcept { counted_delete(made); }
void operator delete(void* made, std::size_t) noexcept { counted_delete(made); }
void operator delete(void* made, std::align_val_t) noexcept { counted_delete(made); }
void operator delete(void* made, std::size_t, std::align_val_t) noexcept { counted_delete(made); }

TEST_CASE("holds little besides the tree while containers are open") {
  std::string numbers = "[";
  std::string keys = "{";
  for (int i = 0; i < 70000; ++i) {
    numbers += "1,";
    keys += '"' + std::to_string(i) + "\":1,";
  }
  for (const std::string& text : {numbers + "1]", keys + "\"k\":1}"}) {
    CAPTURE(text.size());
    const std::size_t budget = 64 * 1024 + 12 * text.size();
    const std::size_t before = live_bytes;
    peak_bytes = before;
    {
      value::Builder build(*std::pmr::new_delete_resource(), {budget, 100});
      const value::Cell cell = json::add_document(build, text).value();
      CHECK(std::move(build).finish(cell).has_value());
    }
    CHECK(peak_bytes - before <= budget + 2 * text.size());
  }
}
