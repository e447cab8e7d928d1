#include "runtime/formats/gguf/parse_gguf.hpp"

#include <chrono>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/formats/gguf/header.hpp"

namespace weightmap::gguf {

Result<format::Parsed> parse(format::Input& input, const OpenOptions& options, OpenStats& stats,
                             std::pmr::memory_resource& memory) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  Header header(memory);
  TRY(read_header(header, *input.cache, options.limits, memory));
  const Clock::time_point was_read = Clock::now();
  format::Parsed parsed(memory);
  TRY_ASSIGN(parsed.catalog, format::make_catalog(header, memory));
  input.release(stats);
  parsed.tree = std::move(header.metadata.tree);
  parsed.split = header.metadata.split;
  parsed.facts.format = Format::gguf;
  parsed.facts.version = header.version;
  parsed.facts.byteorder = header.is_big_endian ? "big" : "little";
  parsed.facts.names_torch_safe_only = true;  // the file names no globals
  parsed.facts.storage_alignment = header.metadata.alignment;
  parsed.facts.pickle_bytes = header.end;
  parsed.facts.unread_bytes = header.unread_bytes;
  stats.storages_by_directory += parsed.catalog.size();
  if (parsed.catalog.size() != 0) stats.strategy = OffsetStrategy::directory;
  stats.pickle += was_read - began;
  stats.catalog += Clock::now() - was_read;
  return parsed;
}

}  // namespace weightmap::gguf
