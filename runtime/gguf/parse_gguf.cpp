#include "runtime/gguf/parse_gguf.hpp"

#include <bit>
#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/catalog/builder.hpp"
#include "runtime/gguf/header.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::gguf {
namespace {

using catalog::Catalog;
using catalog::CatalogBuilder;
using format::Parsed;
using Clock = std::chrono::steady_clock;

// Two tensors of one name are two ways to read the file.
[[gnu::cold]] tl::unexpected<Error> refuse_repeated(const Header& header) {
  std::vector<Named> names;
  for (const HeaderTensor& tensor : header.tensors) names.push_back({tensor.name, tensor.position});
  const Named& again = *find_repeated(names);
  return failure(ErrorCode::corrupt, "the file has tensor " + bytes::quote(again.text) + " twice",
                 again.position);
}

Result<Catalog> make_catalog(const Header& header, std::pmr::memory_resource& memory) {
  constexpr std::string_view location = "cpu";
  catalog::Counts counts{};
  counts.tensors = counts.storages = header.tensors.size();
  counts.dims = header.dims.size();
  counts.locations = 1;
  counts.string_bytes = location.size();
  for (const HeaderTensor& tensor : header.tensors) counts.string_bytes += tensor.name.size();
  if (counts.dims > std::numeric_limits<std::uint32_t>::max())
    return failure(ErrorCode::limit_exceeded,
                   "the shapes of the tensors need more than a catalog can address");
  CatalogBuilder builder(counts, memory);
  builder.add_location(location);
  const bool is_big_endian = std::endian::native == std::endian::big;
  const std::uint8_t flags = header.is_big_endian != is_big_endian ? TensorView::foreign_order : 0;
  std::uint32_t number = 0;
  for (const HeaderTensor& tensor : header.tensors) {
    const catalog::Text name = builder.add_text(tensor.name);
    builder.add_storage(name, header.data_begin + tensor.begin, tensor.nbytes, 0);
    const catalog::TensorInput input{name,
                                     {catalog::Path::is_name, 1},
                                     header.dims.data() + tensor.first_dim,
                                     0,
                                     number++,
                                     0,
                                     tensor.dtype,
                                     tensor.rank,
                                     flags};
    if (!builder.add_tensor(input))
      return failure(ErrorCode::corrupt,
                     "tensor " + bytes::quote(tensor.name) + " " + builder.explain(input),
                     tensor.position);
  }
  if (builder.has_ambiguous_names()) return refuse_repeated(header);
  return std::move(builder).finish();
}

}  // namespace

Result<Parsed> parse(std::span<format::Input> files, const OpenOptions& options, OpenStats& stats,
                     std::pmr::memory_resource& memory) {
  format::Input& input = files.front();
  const Clock::time_point began = Clock::now();
  Header header(memory);
  TRY(read_header(header, *input.windows, options.limits, memory));
  const Clock::time_point was_read = Clock::now();
  Parsed parsed(memory);
  TRY_ASSIGN(parsed.catalog, make_catalog(header, memory));
  input.release(stats);
  parsed.tree = std::move(header.metadata.tree);
  parsed.split = header.metadata.split;
  parsed.facts.format = "gguf";
  parsed.facts.version = header.version;
  parsed.facts.byteorder = header.is_big_endian ? "big" : "little";
  parsed.facts.names_torch_safe_only = true;  // it names none
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
