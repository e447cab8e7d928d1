// Receives a file in a few buffers, and writes it to the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "mmap/reservation.hpp"
#include "runtime/services/fetch/destination.hpp"
#include "runtime/services/fetch/part_file.hpp"

namespace weightmap {

class IntoFile final : public Destination {
 public:
  // The part must outlive this. No range is longer than `chunk_bytes`.
  IntoFile(PartFile& part, std::uint64_t chunk_bytes);

  bool prepare(ByteRange) override { return false; }
  Result<std::optional<std::span<std::byte>>> memory_for(ByteRange range) override;
  Result<void> keep(ByteRange range, std::span<std::byte> bytes) override {
    return part_.write(range.offset, bytes);
  }
  void take_back(ByteRange range, std::span<std::byte> bytes) override;
  Result<void> settle() override { return part_.settle(); }

 private:
  Result<std::byte*> take_buffer();

  PartFile& part_;
  const std::size_t buffer_bytes_;
  const std::size_t most_buffers_;
  std::mutex mutex_;                        // protects the following members
  std::vector<mmap::Reservation> buffers_;  // all
  std::vector<std::byte*> free_;            // those that are not in use
};

}  // namespace weightmap
