// Receives a file in shared memory.
#pragma once

#include "mmap/memory/memory_to_fill.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/fetch/destination.hpp"

namespace weightmap {

class IntoMemory final : public Destination {
 public:
  // The memory, which has the size of the file, must outlive this.
  explicit IntoMemory(mmap::MemoryToFill& memory) noexcept : memory_(memory) {}

  // Fresh pages cost as much as to receive what goes there.
  bool prepare(ByteRange range) override {
    const Result<bool> allocated = memory_.allocate(range.offset, range.length);
    if (!allocated || !*allocated) return false;  // memory_for() will say why
    memory_.fault_in(range.offset, range.length);
    return true;
  }
  Result<std::optional<std::span<std::byte>>> memory_for(ByteRange range) override {
    TRY(memory_.allocate(range.offset, range.length));
    return memory_.bytes().subspan(range.offset, range.length);
  }
  Result<void> keep(ByteRange, std::span<std::byte>) override { return {}; }

 private:
  mmap::MemoryToFill& memory_;
};

}  // namespace weightmap
