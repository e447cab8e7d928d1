#include "fuzz/look_checkpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fuzz/look.hpp"
#include "fuzz/target.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/named_tensor.hpp"

namespace weightmap::fuzz {
namespace {

constexpr std::uint64_t most_gathered = std::uint64_t{1} << 20;

void look_at_view(const Checkpoint& checkpoint, const TensorView& view) {
  const std::span<const std::byte> whole = checkpoint.mapping();
  const std::span<const std::byte> bytes = view.stored_bytes();
  const bool is_inside =
      bytes.empty() ||
      (bytes.data() >= whole.data() && bytes.size() <= whole.size() &&
       static_cast<std::size_t>(bytes.data() - whole.data()) <= whole.size() - bytes.size());
  require(is_inside, "a tensor lies outside the file");
  look_at(bytes);
}

void gather_both_ways(const Checkpoint& checkpoint, const TensorView& view) {
  if (view.nbytes() > most_gathered) return;
  std::vector<std::byte> mapped(view.nbytes());
  std::vector<std::byte> read(view.nbytes());
  if (!view.gather(mapped)) return;
  const Result<void> gathered = checkpoint.gather(view, read);
  require(gathered.has_value(), "a tensor that its view gathers cannot be read");
  require(mapped == read, "a tensor has other bytes where it is read than where it is mapped");
}

void look_at_tensor(const Checkpoint& checkpoint, const NamedTensor& tensor) {
  look_at_text(tensor.name);
  look_at_text(tensor.location);
  look_at_text(to_string(tensor.view.dtype()));
  look_at(std::as_bytes(tensor.view.shape()));
  look_at(std::as_bytes(tensor.view.strides()));
  require(checkpoint.contains(tensor.name), "a tensor is not found by its own name");
  const std::optional<TensorView> found = checkpoint.find(tensor.name);
  if (found) look_at_view(checkpoint, *found);
  look_at_view(checkpoint, tensor.view);
  gather_both_ways(checkpoint, tensor.view);
  const std::vector<PathPart> path = checkpoint.path(tensor.index);
  require(checkpoint.get_path(path).has_value(), "a tensor is not found by its own path");
}

void look_at_tensors(const Checkpoint& checkpoint) {
  for (const NamedTensor& tensor : checkpoint.tensors()) look_at_tensor(checkpoint, tensor);
  for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i) {
    const NamedStorage storage = Backing(checkpoint).storage(i);
    look_at_text(storage.key);
  }
}

}  // namespace

void look_at(const Checkpoint& checkpoint) {
  look_at_tensors(checkpoint);
  look_at(checkpoint.root(), [&checkpoint](const Value& value) {
    if (const std::optional<NamedTensor> tensor = checkpoint.tensor(value))
      look_at_view(checkpoint, tensor->view);
  });
  for (const ComposedTensor& composed : composed_tensors(checkpoint)) {
    look_at_text(composed.name);
    look_at_text(composed.type);
    const std::size_t count = checkpoint.tensors().size();
    require(composed.first_part <= count && composed.part_count <= count - composed.first_part,
            "a part of a composed tensor is not there");
  }
}

OpenOptions small_limits() {
  OpenOptions options;
  options.limits.record_bytes = std::uint64_t{1} << 20;
  options.limits.base_memory = std::uint64_t{128} << 10;
  options.limits.copied_bytes = std::uint64_t{1} << 20;
  options.limits.tensors = 1000;
  return options;
}

}  // namespace weightmap::fuzz
