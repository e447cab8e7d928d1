// Where the parts of a unit are: in the files, in a slot, and in the mapping.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/checkpoint/state.hpp"
#include "weightmap/on_demand.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

struct PlacedPart {
  std::uint64_t position;  // in the mapping
  std::uint64_t bytes;
  std::uint64_t in_slot;  // offset of the first byte
  // The place in the slot agrees with that in the file in its last bits, and the pages there are
  // this part's alone: it can be read past the page cache without a copy.
  bool is_congruent;
};

struct PlacedUnit {
  std::vector<PlacedPart> parts;
  std::uint64_t bytes = 0;       // of all parts
  std::uint64_t slot_bytes = 0;  // whole pages
  bool can_be_mapped = true;     // joined parts follow one another in the file
};

// Fails as ResidentSet::of() does for one unit.
Result<PlacedUnit> place_unit(const Checkpoint& checkpoint, const Unit& unit);

// A read of whole pages of a file that fills a part of a slot.
struct SlotRead {
  const SourceFile* source;
  ByteRange pages;  // of the file; may end behind it
  // What is wanted of them, and where it goes.
  std::uint64_t skipped;  // bytes, from the first page
  std::uint64_t bytes;
  std::uint64_t in_slot;
  bool is_congruent;  // the pages can be read into the slot as they are
};

// Returns the reads that fill a slot, a MiB each at most; or those that bring the unit into the
// page cache, cut where a large page ends.
enum class ReadTarget : std::uint8_t { slot, page_cache };
std::vector<SlotRead> reads_of(const Sources& sources, const PlacedUnit& unit, ReadTarget target);
inline constexpr std::uint64_t most_bytes_a_read = std::uint64_t{1} << 20;

}  // namespace weightmap
