#include "runtime/checkpoint/late_values.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "weightmap/chunks.hpp"

namespace weightmap {

Result<Value> values_of(Checkpoint::State& state) {
  const format::Parsed& content = state.content();
  if (!content.late) return Value(content.tree.get(), content.tree->root());
  const format::Values* known = state.late_values.load(std::memory_order_acquire);
  if (known == nullptr) {
    std::vector<format::ValueFile> files;
    for (const SourceFile& source : state.sources.opened())
      files.push_back({&source.file, source.shown_name});
    Result<format::Values> read = content.late->read(files, content.catalog, state.options);
    if (!read) {
      if (read.error().file.empty()) read.error().file = state.shown_name();
      return tl::unexpected<Error>(std::move(read.error()));
    }
    auto made = std::make_unique<const format::Values>(std::move(*read));
    if (state.late_values.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel))
      known = made.release();
  }
  return Value(known->tree.get(), known->tree->root());
}

std::span<const std::string> left_out_of(const Checkpoint::State& state) noexcept {
  const format::Values* const known = state.late_values.load(std::memory_order_acquire);
  return known == nullptr ? std::span<const std::string>() : known->left_out;
}

std::optional<std::string_view> chunked_name(const Checkpoint& checkpoint,
                                             const Value& value) noexcept {
  const Checkpoint::State& state = Checkpoint::Access::state(checkpoint);
  const format::Values* const late = state.late_values.load(std::memory_order_acquire);
  if (late == nullptr || value.tree() != late->tree.get() || value.kind() != Value::Kind::object ||
      value.arguments().size() == 0)
    return std::nullopt;
  const Value reference = value.arguments()[0];
  if (reference.kind() != Value::Kind::persistent_id) return std::nullopt;
  const std::optional<std::string_view> key = reference.persistent_id()[2].string();
  return key && state.content().chunked.contains(*key) ? key : std::nullopt;
}

}  // namespace weightmap
