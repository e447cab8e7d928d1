#include "runtime/formats/npz/parse_npy.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/formats/format/own_storages.hpp"
#include "runtime/formats/npz/array_header.hpp"
#include "runtime/formats/npz/listed_array.hpp"

namespace weightmap::npz {
namespace {

Result<ArrayHeader> read_array_header(format::Input& input, const OpenOptions& options) {
  const std::uint64_t size = input.file->size();
  TRY_ASSIGN(const std::span<const std::byte> front,
             input.cache->bytes(0, std::min<std::uint64_t>(size, preamble_bytes)));
  TRY_ASSIGN(const std::uint64_t length, header_length(front));
  if (length > size)
    return failure(ErrorCode::corrupt,
                   "is truncated: the header of the array has " + bytes::counted(length, "byte") +
                       ", the file " + std::to_string(size),
                   size);
  constexpr std::uint32_t most_dims = 64;  // of numpy
  TRY_ASSIGN(const std::span<const std::byte> header, input.cache->bytes(0, length));
  TRY_ASSIGN(ArrayHeader read, read_header(header, std::min(options.limits.rank, most_dims)));
  if (read.foreign_type.empty()) return read;
  return failure(ErrorCode::unsupported, "the field \"descr\" " + read.foreign_reason);
}

}  // namespace

Result<format::Parsed> parse_npy(format::Input& input, const OpenOptions& options, OpenStats& stats,
                                 std::pmr::memory_resource& memory) {
  format::Parsed parsed(memory);
  TRY_ASSIGN(const ArrayHeader header, read_array_header(input, options));
  format::TensorList list(memory);
  TRY_ASSIGN(format::ListedTensor tensor, list_array("arr_0", header, options, list));
  const std::uint64_t nbytes = tensor.end;
  const std::uint64_t found = input.file->size() - header.length;
  if (nbytes > found)
    return failure(ErrorCode::corrupt,
                   "is truncated: the field \"shape\" says " + bytes::counted(nbytes, "byte") +
                       " behind the header, the file has " + std::to_string(found) +
                       "; the download or copy is incomplete",
                   input.file->size());
  list.data_begin = header.length;
  list.tensors.push_back(tensor);
  TRY_ASSIGN(parsed.catalog, format::make_catalog(list, memory));
  TRY_ASSIGN(parsed.tree, value::empty_dict(memory));
  CheckpointInfo& facts = parsed.facts;
  facts.format = Format::npy;
  facts.byteorder = "little";
  facts.names_torch_safe_only = true;  // it names none
  facts.storage_alignment = format::common_alignment(parsed.catalog);
  facts.pickle_bytes = header.length;
  facts.unread_bytes = found - nbytes;
  ++stats.storages_by_directory;
  stats.strategy = OffsetStrategy::directory;
  input.release(stats);
  return parsed;
}

}  // namespace weightmap::npz
