#include "runtime/services/inspect/whole.hpp"

#include <memory_resource>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/checkpoint/formats.hpp"
#include "runtime/formats/format/format.hpp"
#include "runtime/system/write/in_place.hpp"

namespace weightmap {

namespace {

// See unwritten_storages().
void look_for_holes(const os::File* file, std::uint64_t begin, const format::Parsed& parsed,
                    Wholeness& into) {
  const std::optional<ReservedStorages>& reserved = parsed.facts.reserved;
  for (const catalog::StorageEntry& storage : parsed.catalog.storages()) {
    const std::string_view key = parsed.catalog.text(storage.key);
    os::Holes holes;
    if (file != nullptr && storage.crc32 == 0 && !reserved)
      holes = os::find_holes(*file, begin + storage.position, storage.nbytes);
    into.hole_bytes += holes.bytes;
    if (into.damage || !(reserved ? reserved->is_unwritten(key) : holes.is_unwritten)) continue;
    into.damage =
        Error{ErrorCode::corrupt,
              "storage " + bytes::quote(key) + " of " + bytes::counted(storage.nbytes, "byte") +
                  " was never written (weightmap verify names them all)",
              storage.position,
              {}};
  }
}

}  // namespace

Wholeness look_for_damage(const bytes::ByteSource& content, const os::File* file,
                          std::uint64_t begin, const std::filesystem::path& path,
                          const OpenOptions& options) {
  std::pmr::monotonic_buffer_resource memory;
  OpenStats stats;
  format::Input input(content, 0, content.size(), memory);
  Wholeness made;
  const Result<const FormatRow*> known = format_of(input, path, options.limits, stats);
  if (!known || (*known)->parse == nullptr) return made;
  const FormatRow* row = *known;
  Result<format::Parsed> parsed = parse_file(row, input, options, stats, memory);
  if (parsed) {
    made.unread_bytes = parsed->facts.unread_bytes;
    look_for_holes(file, begin, *parsed, made);
    return made;
  }
  const bool has_no_pickles =
      row->kind == format::Kind::safetensors || row->kind == format::Kind::gguf;
  if (has_no_pickles || parsed.error().code == ErrorCode::corrupt)
    made.damage = std::move(parsed.error());
  return made;
}

}  // namespace weightmap
