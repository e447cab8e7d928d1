#include "runtime/checkpoint/inflated_storages.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mmap/memory/memory_to_fill.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/go_on.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/zip/crc32.hpp"
#include "runtime/base/zip/deflate.hpp"
#include "runtime/system/memory/sealed_memory.hpp"
#include "runtime/system/unique_fd.hpp"

namespace weightmap {
namespace {

using format::CompressedStorage;
using State = Checkpoint::State;

constexpr const char* memory_label = "weightmap:inflated";

tl::unexpected<Error> about(const CompressedStorage& storage, Error error) {
  error.message.insert(0, "record " + bytes::quote(storage.record) + ": ");
  error.file_offset = storage.file_offset;
  return tl::unexpected<Error>(std::move(error));
}

Result<void> inflate(const os::File& file, const CompressedStorage& storage,
                     std::span<std::byte> out) {
  if (storage.decoded.data() != nullptr) {
    std::ranges::copy(storage.decoded, out.begin());
    return {};
  }
  std::vector<std::byte> stored(static_cast<std::size_t>(storage.stored_bytes));
  TRY(file.read(storage.file_offset, stored));
  if (Result<void> inflated = zip::inflate(stored, out); !inflated)
    return about(storage, std::move(inflated.error()));
  const std::uint32_t sum = storage.crc32 == 0 ? 0 : zip::crc32(out);
  if (sum == storage.crc32) return {};
  return failure(ErrorCode::corrupt,
                 "record " + bytes::quote(storage.record) + zip::crc_mismatch(sum, storage.crc32),
                 storage.file_offset);
}

// Writes would reach the pages of both kinds of mapping but not the file.
Result<void> check_not_written_to(const OpenOptions& options) {
  if (!*options.writable || *options.sharing != Sharing::shared) return {};
  return failure(ErrorCode::unsupported,
                 "has compressed storages, which are copied, so that writes to them would not "
                 "reach the file; it is opened writable with sharing=private only");
}

Result<void> check_can_inflate(const State& state) {
  if (state.view_memory == ViewMemory::mapped) return check_not_written_to(state.options);
  const CompressedStorage& first = state.content().compressed.front();
  const std::string why = state.is_in_memory()
                              ? "it is copied behind the mapping of a file, and this is memory; " +
                                    std::string(first.advice())
                              : "all of it would have to be read to open the checkpoint; stage or "
                                "fetch it";
  return failure(ErrorCode::unsupported, first.description() + ": " + why, first.file_offset);
}

Result<void> check_none_is_compressed(std::span<const CompressedStorage> compressed) {
  if (compressed.empty()) return {};
  const CompressedStorage& first = compressed.front();
  return failure(ErrorCode::unsupported,
                 first.description() +
                     ", so it would have to be copied, which zero_copy_only forbids; " +
                     first.advice(),
                 first.file_offset);
}

Result<void> check_byte_order(const State& state) {
  constexpr std::string_view native = std::endian::native == std::endian::big ? "big" : "little";
  const std::string_view stored = state.content().facts.byteorder;
  if (stored == native) return {};
  TRY_ASSIGN(const catalog::Catalog* const catalog, state.placed());
  for (const catalog::Entry& entry : catalog->entries())
    if ((entry.flags & TensorView::foreign_order) != 0)
      return failure(ErrorCode::unsupported,
                     "tensor " + bytes::quote(catalog->name(entry)) + " is " + std::string(stored) +
                         "-endian, so it would have to be copied, which zero_copy_only forbids");
  return {};
}

// An empty file cannot be mapped.
std::uint64_t inflated_bytes(const State& state) {
  const CompressedStorage& last = state.content().compressed.back();
  return std::max<std::uint64_t>(last.position + last.nbytes - state.sources.next_base(), 1);
}

// For tensors whose bytes are not asked for: a file of holes.
Result<os::File> reserve_place(const State& state) {
  TRY_ASSIGN(const os::UniqueFd holes, os::make_memfd(inflated_bytes(state), memory_label));
  return os::File::from_descriptor(holes.get());
}

Result<os::File> inflate_all(State& state) {
  TRY(check_can_inflate(state));
  const std::span<const CompressedStorage> compressed = state.content().compressed;
  const std::uint64_t base = state.sources.next_base();
  const std::uint64_t length = inflated_bytes(state);
  TRY_ASSIGN(mmap::WriteOnceMemory memory, mmap::WriteOnceMemory::make(length, memory_label));
  for (const CompressedStorage& storage : compressed) {
    TRY(inflate(state.sources.front().file, storage,
                memory.bytes().subspan(storage.position - base, storage.nbytes)));
    state.stats.bytes_copied += storage.nbytes;
    TRY(go_on(state.options.progress, storage.position + storage.nbytes - base, length));
  }
  state.stats.storages_copied = compressed.size();
  return std::move(memory).seal();
}

}  // namespace

Result<void> check_zero_copy(const State& state) {
  if (!*state.options.zero_copy_only) return {};
  TRY(check_none_is_compressed(state.content().compressed));
  return check_byte_order(state);
}

Result<void> inflate_storages(State& state) {
  if (state.content().compressed.empty()) return {};
  const auto began = std::chrono::steady_clock::now();
  TRY_ASSIGN(os::File content,
             state.view_memory == ViewMemory::unused ? reserve_place(state) : inflate_all(state));
  const Generation generation = content.generation();
  TRY(state.sources.add({std::move(content),
                         {{}, generation, generation.size, 0, true},
                         state.sources.front().shown_name}));
  state.stats.copying = std::chrono::steady_clock::now() - began;
  return {};
}

}  // namespace weightmap
