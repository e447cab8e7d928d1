#include <bit>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/bytes/buffer.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/pickle/parse.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/format/own_storages.hpp"
#include "runtime/formats/torch/globals.hpp"
#include "runtime/formats/torch/make_catalog.hpp"
#include "runtime/formats/torch/parse.hpp"
#include "runtime/formats/torch/repeated_keys.hpp"
#include "runtime/formats/torch/tree_walk.hpp"

namespace weightmap::torch {
namespace {

using format::Input;
using format::Parsed;

Result<std::unique_ptr<value::Tree>> read_tree(Input& input, const Limits& limits,
                                               std::pmr::memory_resource& memory) {
  const std::uint64_t size = input.file->size();
  if (size > limits.pickle_bytes)
    return failure(ErrorCode::limit_exceeded,
                   "is a pickle of " + std::to_string(size) + " bytes, and the limit is " +
                       std::to_string(limits.pickle_bytes) + " (pickle_bytes)");
  bytes::Buffer content(static_cast<std::size_t>(size), memory);
  const std::span<const std::byte> pickle = std::as_const(content).span();
  TRY(input.cache->copy(0, content.span()));
  const pickle::ParseLimits parse_limits{
      .budget_bytes = limits.base_memory + 5 * size, .depth = limits.depth, .has_raw_arrays = true};
  TRY_ASSIGN(auto tree, pickle::parse(std::move(content), pickle, 0, parse_limits, memory));
  const std::uint64_t end = tree->pickle().size();
  if (end == size) return tree;
  return failure(ErrorCode::unsupported,
                 "has " + bytes::counted(size - end, "byte") +
                     " behind the pickle, such as another one, which would not be read; load all "
                     "of it with the program that wrote it, and save it as one object",
                 end);
}

// joblib before 0.10 wrote each array to a file of its own, which an object of this class names.
Result<void> check_has_arrays(const value::Tree& tree) {
  for (const value::Global* global : tree.globals())
    if (global->module.ends_with("joblib.numpy_pickle") && global->name.ends_with("NDArrayWrapper"))
      return failure(ErrorCode::unsupported,
                     "is a pickle of joblib before 0.10, whose arrays lie in files of their own "
                     "beside it, FILE_01.npy and so on; open those, or load it with joblib and "
                     "save it again",
                     global->position);
  return {};
}

// Gives the elements that are spelled as text a place behind the file.
Result<void> place_decoded(Parsed& parsed, TensorTable& table, std::uint64_t base,
                           const Limits& limits) {
  constexpr std::uint64_t alignment = 64;
  std::uint64_t copied = 0;
  for (ArrayExtent& array : table.arrays) {
    if (parsed.tree->is_in_pickle(array.position)) continue;
    std::uint64_t end = 0;
    if (!bytes::checked_add(copied, array.nbytes, &copied) || copied > limits.copied_bytes ||
        !bytes::checked_add(base, array.nbytes, &end) ||
        !bytes::checked_add(end, alignment - 1, &end))
      return failure(ErrorCode::limit_exceeded,
                     "the arrays that are spelled as text become more than " +
                         bytes::counted(limits.copied_bytes, "byte") + " (copied_bytes) in memory",
                     array.object);
    array.copied = base;
    parsed.compressed.push_back(
        {.file_offset = array.object,
         .position = base,
         .nbytes = array.nbytes,
         .decoded = std::as_bytes(std::span(parsed.tree->text(array.position, array.nbytes)))});
    base = end / alignment * alignment;
  }
  return {};
}

Result<void> list_arrays(Parsed& parsed, const Input& input, const Limits& limits,
                         std::uint32_t first_mark, std::pmr::memory_resource& memory) {
  std::pmr::monotonic_buffer_resource tables(&memory);
  TRY_ASSIGN(TensorTable table,
             read_tensors(*parsed.tree, {.file_offset = 0, .limits = limits, .arrays = Arrays::all},
                          tables, first_mark));
  if (!table.storages.storages().empty())
    return failure(ErrorCode::unsupported,
                   "is a pickle that refers to storages of torch, which lie in another file");
  parsed.compressed.clear();
  TRY(place_decoded(parsed, table, input.copies_base, limits));
  TRY_ASSIGN(parsed.catalog, make_catalog({*parsed.tree, table, {}, false, 0}, memory));
  keep_nodes(table, parsed.nodes);
  parsed.composed = std::move(table.composed);
  return {};
}

}  // namespace

Result<Parsed> parse_pickle(Input& input, const OpenOptions& options, OpenStats& stats,
                            std::pmr::memory_resource& memory) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  Parsed parsed(memory);
  TRY_ASSIGN(parsed.tree, read_tree(input, options.limits, memory));
  input.release(stats);
  TRY_ASSIGN(parsed.facts.names_torch_safe_only, check_globals(*parsed.tree, 0, options));
  TRY(check_has_arrays(*parsed.tree));
  const Clock::time_point read = Clock::now();
  stats.pickle = read - began;
  Result<void> listed = list_arrays(parsed, input, options.limits, 0, memory);
  if (!listed && is_key_twice(listed.error())) {
    TRY_ASSIGN(parsed.facts.duplicate_keys,
               drop_repeated_keys(*parsed.tree, {.file_offset = 0, .limits = options.limits}));
    listed = list_arrays(parsed, input, options.limits, mark_after_repeated_keys, memory);
  }
  TRY(listed);
  stats.catalog = Clock::now() - read;
  CheckpointInfo& facts = parsed.facts;
  facts.format = Format::pickle;
  facts.byteorder = std::endian::native == std::endian::little ? "little" : "big";
  facts.storage_alignment = format::common_alignment(parsed.catalog);
  facts.pickle_bytes = parsed.tree->pickle().size();
  return parsed;
}

}  // namespace weightmap::torch
