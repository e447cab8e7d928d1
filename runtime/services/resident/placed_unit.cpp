#include "runtime/services/resident/placed_unit.hpp"

#include <algorithm>
#include <string>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/round_up.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/rows/row_table.hpp"
#include "runtime/system/page_size.hpp"

namespace weightmap {
namespace {

// So that whole pages of it, and the parts of it, fit 64 bits.
constexpr std::uint64_t most_bytes_a_unit = std::uint64_t{1} << 62;

tl::unexpected<Error> wrong_part(const Unit& unit, const std::string& why) {
  return failure(ErrorCode::invalid_argument, "unit " + bytes::quote(unit.name) + ": " + why);
}

Result<ByteRange> range_of(const Checkpoint& checkpoint, const Unit& unit, const UnitPart& part) {
  if (!part.index) return RowTable::range_of_whole(checkpoint, part.tensor);
  TRY_ASSIGN(const RowTable table, RowTable::of(checkpoint, part.tensor));
  if (*part.index >= 0 && *part.index < table.rows()) return table.range_of(*part.index);
  return wrong_part(unit, "there is no slice " + std::to_string(*part.index) + " of " +
                              bytes::quote(part.tensor) + ", which has " +
                              std::to_string(table.rows()));
}

bool is_joined(const Unit& unit, std::size_t part) {
  return part < unit.parts.size() && unit.parts[part].is_joined;
}

}  // namespace

Result<PlacedUnit> place_unit(const Checkpoint& checkpoint, const Unit& unit) {
  if (unit.parts.empty()) return wrong_part(unit, "has no parts");
  if (unit.parts.front().is_joined) return wrong_part(unit, "its first part is joined to none");
  const Sources& sources = Checkpoint::Access::state(checkpoint).sources;
  PlacedUnit placed;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < unit.parts.size(); ++i) {
    TRY_ASSIGN(ByteRange range, range_of(checkpoint, unit, unit.parts[i]));
    const bool joined = unit.parts[i].is_joined;
    if (joined && range.length == 0)  // is anywhere
      range.offset = placed.parts.back().position + placed.parts.back().bytes;
    const std::uint64_t offset = range.offset - sources.at(range.offset).base();
    const bool congruent =
        !joined && !is_joined(unit, i + 1) && offset % unit_alignment == 0 && range.length != 0;
    if (joined) {
      const PlacedPart& before = placed.parts.back();
      placed.can_be_mapped &= before.position + before.bytes == range.offset;
    } else if (congruent) {
      end = os::whole_pages(end) + offset % os::page_bytes();
    } else {
      // The last page of a congruent part is overwritten by what the file has behind it.
      const bool ends_page = !placed.parts.empty() && placed.parts.back().is_congruent;
      end = ends_page ? os::whole_pages(end) : bytes::round_up(end, unit_alignment);
    }
    placed.parts.push_back({range.offset, range.length, end, congruent});
    if (!bytes::checked_add(end, range.length, &end) || end > most_bytes_a_unit)
      return wrong_part(unit, "its bytes do not fit an address space");
    placed.bytes += range.length;
  }
  placed.slot_bytes = os::whole_pages(std::max<std::uint64_t>(end, 1));
  return placed;
}

std::vector<SlotRead> reads_of(const Sources& sources, const PlacedUnit& unit, ReadTarget target) {
  std::vector<SlotRead> reads;
  const std::uint64_t page = os::page_bytes();
  for (const PlacedPart& part : unit.parts) {
    const SourceFile& source = sources.at(part.position);
    const std::uint64_t begin = part.position - source.base(), end = begin + part.bytes;
    for (std::uint64_t at = begin; at < end;) {
      const std::uint64_t first = at / page * page;
      const std::uint64_t stop =
          std::min(end, target == ReadTarget::slot ? first + most_bytes_a_read
                                                   : (at / os::large_page + 1) * os::large_page);
      reads.push_back({&source,
                       {first, os::whole_pages(stop - first)},
                       at - first,
                       stop - at,
                       part.in_slot + (at - begin),
                       part.is_congruent});
      at = stop;
    }
  }
  return reads;
}

}  // namespace weightmap
