#include "runtime/inspect/whole.hpp"

#include <memory_resource>

#include "runtime/checkpoint/formats.hpp"
#include "runtime/format/format.hpp"

namespace weightmap {

std::optional<Error> find_damage(const os::File& file, const std::filesystem::path& path,
                                 const OpenOptions& options) {
  std::pmr::monotonic_buffer_resource memory;
  OpenStats stats;
  format::Input input(file, 0, file.size(), memory);
  const Result<const FormatRow*> known = format_of(input, path, options.limits, stats);
  if (!known || (*known)->parse == nullptr) return std::nullopt;
  const FormatRow* row = *known;
  Result<format::Parsed> parsed = parse_file(row, input, options, stats, memory);
  if (parsed) return std::nullopt;
  const bool has_no_pickles =
      row->kind == format::Kind::safetensors || row->kind == format::Kind::gguf;
  if (!has_no_pickles && parsed.error().code != ErrorCode::corrupt) return std::nullopt;
  return std::move(parsed.error());
}

}  // namespace weightmap
