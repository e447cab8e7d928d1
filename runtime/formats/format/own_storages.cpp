#include "runtime/formats/format/own_storages.hpp"

#include <bit>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/repeated.hpp"
#include "runtime/base/catalog/builder.hpp"
#include "runtime/base/try.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::format {
namespace {

constexpr std::string_view location = "cpu";

[[gnu::cold]] Result<void> check_names(const TensorList& list) {
  std::vector<bytes::Named> names;
  for (const ListedTensor& tensor : list.tensors) names.push_back({tensor.name, tensor.position});
  const bytes::Named* const again = bytes::find_repeated(names);
  if (again == nullptr) return {};
  return failure(ErrorCode::corrupt, "the file has tensor " + bytes::quote(again->text) + " twice",
                 again->position);
}

catalog::Counts count(const TensorList& list) {
  catalog::Counts counts{};
  for (const ListedTensor& tensor : list.tensors) {
    if (!tensor.is_viewable) continue;
    ++counts.tensors;
    counts.dims += 2 * std::uint64_t{tensor.rank};
    counts.string_bytes += tensor.name.size();
  }
  counts.storages = counts.tensors;
  counts.locations = 1;
  counts.string_bytes += location.size();
  return counts;
}

}  // namespace

Result<catalog::Catalog> make_catalog(const TensorList& list, std::pmr::memory_resource& memory) {
  const catalog::Counts counts = count(list);
  TRY(catalog::check_counts(counts));
  catalog::CatalogBuilder builder(counts, memory);
  builder.add_location(location);
  const bool is_big_endian = std::endian::native == std::endian::big;
  const std::uint8_t flags = list.is_big_endian != is_big_endian ? TensorView::foreign_order : 0;
  std::uint32_t number = 0;
  for (const ListedTensor& tensor : list.tensors) {
    if (!tensor.is_viewable) continue;
    const catalog::Text name = builder.add_text(tensor.name);
    builder.add_storage(name, list.data_begin + tensor.begin, tensor.end - tensor.begin,
                        tensor.crc32, tensor.source);
    const catalog::TensorInput input{name,
                                     {catalog::Path::is_name, 1},
                                     list.dims.data() + tensor.first_dim,
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
  // The catalog has the names of its own tensors only.
  if (builder.has_ambiguous_names() || counts.tensors != list.tensors.size())
    TRY(check_names(list));
  return std::move(builder).finish();
}

std::uint64_t common_alignment(const catalog::Catalog& catalog) {
  constexpr std::uint64_t page = 4096;
  std::uint64_t bits = page;
  for (const catalog::StorageEntry& storage : catalog.storages())
    if (storage.nbytes != 0) bits |= storage.position;
  return bits & -bits;
}

}  // namespace weightmap::format
