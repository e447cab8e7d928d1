// Checks any sizes, strides, offset and type over a storage of some bytes: an accepted tensor lies
// within the storage, and a refused one does not.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <memory_resource>
#include <vector>

#include "fuzz/look.hpp"
#include "fuzz/target.hpp"
#include "runtime/base/catalog/builder.hpp"
#include "weightmap/tensor_view.hpp"

namespace {

using namespace weightmap;
__extension__ typedef __int128 Wide;

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t most_gathered = std::uint64_t{1} << 16;

struct Described {
  DType dtype;
  std::uint8_t flags;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset;
};

std::int64_t dimension(FuzzedDataProvider& input) {
  switch (input.ConsumeIntegralInRange(0, 7)) {
    case 0:
      return input.ConsumeIntegral<std::int64_t>();
    case 1:
      return input.PickValueInArray<std::int64_t>(
          {0, -1, most, most - 1, most / 2, most / 2 + 1, 1ll << 32, 1ll << 31, (1ll << 61) + 1});
    default:
      return input.ConsumeIntegralInRange<std::int64_t>(0, 9);
  }
}

Described describe(FuzzedDataProvider& input) {
  Described made;
  made.dtype = static_cast<DType>(
      input.ConsumeIntegralInRange<std::uint8_t>(0, static_cast<std::uint8_t>(dtype_count - 1)));
  made.flags = input.ConsumeIntegralInRange<std::uint8_t>(0, 7);
  const auto rank = input.ConsumeIntegralInRange<std::size_t>(0, 6);
  for (std::size_t i = 0; i < rank; ++i) made.sizes.push_back(dimension(input));
  for (std::size_t i = 0; i < rank; ++i) made.strides.push_back(dimension(input));
  made.offset = dimension(input);
  return made;
}

// Computes in 128 bits, where no product of two numbers overflows; all values beyond `far` are
// alike.
constexpr Wide far = Wide{1} << 100;

bool has_whole_blocks(const Described& tensor, std::int64_t elements) {
  if (tensor.offset != 0 || tensor.sizes.empty()) return false;
  if (tensor.sizes.back() % elements != 0 || tensor.strides.back() != 1) return false;
  return std::all_of(tensor.strides.begin(), tensor.strides.end() - 1,
                     [elements](std::int64_t stride) { return stride % elements == 0; });
}

bool lies_within(const Described& tensor, std::uint64_t nbytes) {
  Wide count = 1;
  Wide last = tensor.offset;
  bool is_empty = false;
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    if (tensor.sizes[i] < 0 || tensor.strides[i] < 0) return false;
    if (tensor.sizes[i] == 0) is_empty = true;
    if (tensor.sizes[i] != 0 && last < far)
      last += std::min(far, Wide{tensor.sizes[i] - 1} * tensor.strides[i]);
    if (count <= most) count *= tensor.sizes[i];
  }
  if (tensor.offset < 0) return false;
  if (is_empty) return true;
  const Block block = block_of(tensor.dtype);
  if (is_blocked(tensor.dtype) && !has_whole_blocks(tensor, block.elements)) return false;
  return count <= most && count / block.elements <= most / block.bytes &&
         (last + 1) / block.elements * block.bytes <= static_cast<Wide>(nbytes);
}

// Returns the same view with blocks as elements.
Described in_blocks(Described tensor) {
  const std::int64_t elements = block_of(tensor.dtype).elements;
  if (elements == 1) return tensor;
  tensor.sizes.back() /= elements;
  std::for_each(tensor.strides.begin(), tensor.strides.end() - 1,
                [elements](std::int64_t& stride) { stride /= elements; });
  return tensor;
}

// Returns the elements, or blocks, one by one.
std::vector<std::byte> elements_of(const Described& described, const std::byte* storage) {
  const Described tensor = in_blocks(described);
  const std::size_t element = block_of(tensor.dtype).bytes;
  std::vector<std::byte> gathered;
  std::vector<std::int64_t> at(tensor.sizes.size(), 0);
  for (;;) {
    std::int64_t position = tensor.offset;
    for (std::size_t i = 0; i < at.size(); ++i) position += at[i] * tensor.strides[i];
    const std::byte* from = storage + static_cast<std::size_t>(position) * element;
    gathered.insert(gathered.end(), from, from + element);
    std::size_t i = at.size();
    while (i > 0 && ++at[i - 1] == tensor.sizes[i - 1]) at[--i] = 0;
    if (i == 0) return gathered;
  }
}

// The bits of a blocked dtype are the bytes of all blocks, whatever their order.
void check_bits(const TensorView& view) {
  if (!is_blocked(view.dtype())) return;
  const auto bits = view.bits();
  if (!bits) return fuzz::require(view.numel() == 0, "blocks have no bits");
  fuzz::require(bits->nbytes() == view.nbytes(), "bits have other bytes than their blocks");
  std::vector<std::byte> gathered(view.nbytes());
  fuzz::require(bits->gather(gathered).has_value(), "bits are not gathered");
}

void check_view(const Described& tensor, const catalog::Catalog& catalog,
                const std::byte* storage) {
  const catalog::Entry& entry = catalog[0];
  const TensorView view(entry.dtype, entry.rank, catalog.dims(entry), storage + entry.position,
                        entry.extent, entry.flags & 7u);
  fuzz::look_at(view.stored_bytes());
  fuzz::require(view.nbytes() == entry.nbytes, "a view has other bytes than its entry");
  (void)view.is_contiguous();
  if (view.nbytes() > most_gathered) return;
  std::vector<std::byte> gathered(view.nbytes());
  const bool is_gathered = view.gather(gathered).has_value();
  const bool is_refused = view.is_conjugate() || view.is_negative() ||
                          (is_blocked(view.dtype()) && view.is_foreign_byte_order());
  fuzz::require(is_gathered != is_refused, "a view is gathered that must not be, or is not");
  check_bits(view);
  if (!is_gathered || view.nbytes() == 0 || view.is_foreign_byte_order()) return;
  fuzz::require(gathered == elements_of(tensor, storage), "a view gathers other elements");
}

void check(std::span<const std::byte> bytes) {
  FuzzedDataProvider input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const Described tensor = describe(input);
  const std::vector<std::uint8_t> content = input.ConsumeRemainingBytes<std::uint8_t>();
  // Exactly as large as the storage, on the heap.
  const auto storage = std::make_unique<std::byte[]>(content.size());
  std::transform(content.begin(), content.end(), storage.get(),
                 [](std::uint8_t byte) { return std::byte{byte}; });

  catalog::Counts counts;
  counts.tensors = counts.storages = counts.locations = 1;
  counts.dims = 2 * tensor.sizes.size();
  counts.string_bytes = 10;
  catalog::CatalogBuilder builder(counts, *std::pmr::new_delete_resource());
  builder.add_location("cpu");
  builder.add_storage("0", 0, content.size(), 0);
  std::vector<std::int64_t> dims = tensor.sizes;
  dims.insert(dims.end(), tensor.strides.begin(), tensor.strides.end());
  const catalog::TensorInput described{builder.add_text("weight"),
                                       {catalog::Path::is_name, 1},
                                       dims.data(),
                                       tensor.offset,
                                       0,
                                       0,
                                       tensor.dtype,
                                       static_cast<std::uint8_t>(tensor.sizes.size()),
                                       tensor.flags};
  const bool is_added = builder.add_tensor(described);
  fuzz::require(
      is_added == lies_within(tensor, content.size()),
      is_added ? "a view beyond its storage is taken in" : "a view within its storage is refused");
  if (!is_added) return fuzz::require(!builder.explain(described).empty(), "no explanation");
  check_view(tensor, std::move(builder).finish(), storage.get());
}

}  // namespace

WEIGHTMAP_FUZZ_TARGET(check)
