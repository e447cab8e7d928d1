#include "runtime/formats/torch/legacy_views.hpp"

#include <optional>
#include <string>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/counted.hpp"
#include "runtime/base/bytes/escape.hpp"

namespace weightmap::torch {
namespace {

// Returns the number of elements from the first to the last one inclusive; nullopt on overflow. The
// catalog refuses negative sizes and strides.
std::optional<std::int64_t> reach_of(const TensorSpec& spec) noexcept {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < spec.rank; ++i) {
    const std::int64_t size = spec.dims[i];
    std::int64_t step = 0;
    if (size == 0) return 0;
    if (size < 0 || spec.dims[spec.rank + i] < 0 ||
        !bytes::checked_mul(size - 1, spec.dims[spec.rank + i], &step) ||
        !bytes::checked_add(last, step, &last))
      return std::nullopt;
  }
  if (!bytes::checked_add<std::int64_t>(last, 1, &last)) return std::nullopt;
  return last;
}

bool contains(std::int64_t size, std::int64_t offset, std::int64_t length) noexcept {
  return size >= 0 && offset >= 0 && length >= 0 &&
         bytes::contains(static_cast<std::uint64_t>(size), static_cast<std::uint64_t>(offset),
                         static_cast<std::uint64_t>(length));
}

}  // namespace

Result<LegacyViews::View> LegacyViews::view(const Value& field, std::uint32_t storage,
                                            std::int64_t numel, std::uint64_t file_offset) {
  if (field.is_none()) return View{storage, 0, numel};
  const bool is_triple = field.kind() == Value::Kind::tuple && field.size() == 3;
  const std::optional<std::string_view> key = is_triple ? field[0].string() : std::nullopt;
  const std::optional<std::int64_t> offset = is_triple ? field[1].integer() : std::nullopt;
  const std::optional<std::int64_t> size = is_triple ? field[2].integer() : std::nullopt;
  if (!key || !offset || !size)
    return failure(ErrorCode::corrupt,
                   "the last field of a storage reference is neither None nor a key, an offset "
                   "and a size",
                   file_offset);
  if (!contains(numel, *offset, *size))
    return failure(ErrorCode::corrupt,
                   "view " + bytes::quote(*key) + " of " +
                       bytes::counted(static_cast<std::uint64_t>(*size), "element") +
                       " from element " + std::to_string(*offset) + " leaves its storage of " +
                       std::to_string(numel),
                   file_offset);
  const View found{storage, *offset, *size};
  const View& known = views_.try_emplace(*key, found).first->second;
  if (known.storage != storage || known.offset != *offset || known.size != *size)
    return failure(ErrorCode::corrupt,
                   "view " + bytes::quote(*key) +
                       " is another part of a storage here than where it was first referred to",
                   file_offset);
  return found;
}

Result<void> LegacyViews::place(const View& view, TensorSpec& spec, std::uint64_t file_offset) {
  const std::optional<std::int64_t> reach = reach_of(spec);
  const bool is_empty = reach == 0;
  if ((!reach || !contains(view.size, spec.storage_offset, *reach)) && !is_empty)
    return failure(ErrorCode::corrupt,
                   "a tensor leaves the view of " +
                       bytes::counted(static_cast<std::uint64_t>(view.size), "element") +
                       " that it lies in",
                   file_offset);
  if (!bytes::checked_add(spec.storage_offset, view.offset, &spec.storage_offset))
    return failure(ErrorCode::corrupt, "a tensor's storage offset does not fit 64 bits",
                   file_offset);
  return {};
}

Result<void> LegacyViews::check_keys(const StorageTable& storages,
                                     std::uint64_t file_offset) const {
  if (views_.empty()) return {};
  for (const zip::StorageRequest& storage : storages.storages())
    if (views_.contains(storage.key))
      return failure(ErrorCode::corrupt,
                     "key " + bytes::quote(storage.key) + " is that of a storage and of a view",
                     file_offset);
  return {};
}

}  // namespace weightmap::torch
