#include "runtime/base/value/builder.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/base/value/build.hpp"

namespace weightmap::value {
namespace {

constexpr std::size_t chunk_bytes = 16384;

std::string_view as_text(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Builder::Builder(std::pmr::memory_resource& memory, const BuildLimits& limits)
    : limits_(limits),
      tree_(std::make_unique<Tree>(weightmap::bytes::Buffer(0, memory),
                                   std::span<const std::byte>{}, memory, chunk_bytes,
                                   limits.budget_bytes)),
      shapes_(tree_->arena_) {}

void Builder::raise_budget(std::uint64_t budget_bytes) noexcept {
  if (budget_bytes <= limits_.budget_bytes) return;
  tree_->arena_.raise_budget(budget_bytes - limits_.budget_bytes);
  limits_.budget_bytes = budget_bytes;
}

bool Builder::fits_budget(bool fits) {
  if (!fits && fault_.empty())
    fault_ = "the value tree needs more memory than its budget of " +
             std::to_string(limits_.budget_bytes) + " bytes";
  return fits;
}

std::uint32_t Builder::nest(std::span<const Cell> cells) {
  const std::uint32_t depth = deepest(cells.data(), static_cast<std::uint32_t>(cells.size())) + 1;
  return fits_depth(depth) ? depth : 0;
}

bool Builder::fits_depth(std::uint32_t depth) {
  const bool fits = depth <= limits_.depth;
  if (!fits && fault_.empty())
    fault_ = "the value tree nests deeper than " + std::to_string(limits_.depth) + " containers";
  return fits;
}

Cell Builder::boolean(bool value) const noexcept {
  return make_cell(Value::Kind::boolean, std::uint64_t{value});
}
Cell Builder::integer(std::int64_t value) const noexcept { return make_integer(value); }
Cell Builder::real(double value) const noexcept {
  return make_cell(Value::Kind::real, std::bit_cast<std::uint64_t>(value));
}

Cell Builder::add_text(Value::Kind kind, std::string_view text) {
  constexpr std::size_t longest = 0xFFFFFFFF;  // Cell::count has 32 bits
  // The old and the new text exist together while a string grows.
  if (!fits_budget(text.size() <= longest && tree_->arena_.charge(3 * text.size()))) return {};
  const std::uint64_t position = tree_->text_.size();
  tree_->text_.append(text);
  return make_cell(kind, position, static_cast<std::uint32_t>(text.size()));
}

Cell Builder::big_integer(std::span<const std::byte> digits) {
  return add_text(Value::Kind::big_integer, as_text(digits));
}
Cell Builder::string(std::string_view utf8) { return add_text(Value::Kind::string, utf8); }
Cell Builder::bytes(std::span<const std::byte> content) {
  return add_text(Value::Kind::bytes, as_text(content));
}
Cell Builder::byte_array(std::span<const std::byte> content) {
  return add_text(Value::Kind::byte_array, as_text(content));
}

Cell Builder::tuple(std::span<const Cell> elements) {
  if (elements.empty()) return make_cell(Value::Kind::tuple, std::uint64_t{0});
  const std::uint32_t depth = nest(elements);
  Cell made;
  if (depth != 0)
    fits_budget(make_tuple(tree_->arena_, elements.data(),
                           static_cast<std::uint32_t>(elements.size()), depth, made));
  return made;
}

Sequence* Builder::sequence_of(std::span<const Cell> cells) {
  Sequence* const made = sequence();
  return made != nullptr && append(*made, cells) ? made : nullptr;
}

Sequence* Builder::sequence() {
  Sequence* const made = make_sequence(tree_->arena_);
  fits_budget(made != nullptr);
  return made;
}

bool Builder::append(Sequence& sequence, std::span<const Cell> cells) {
  const std::uint32_t depth = nest(cells);
  return depth != 0 && fits_budget(extend(tree_->arena_, sequence, cells.data(),
                                          static_cast<std::uint32_t>(cells.size()), depth, 0));
}

Cell Builder::add_sequence(Value::Kind kind, std::span<const Cell> cells) {
  const Sequence* sequence = sequence_of(cells);
  return sequence != nullptr ? make_cell(kind, sequence) : Cell{};
}

Cell Builder::list(std::span<const Cell> elements) {
  return add_sequence(Value::Kind::list, elements);
}
Cell Builder::set(std::span<const Cell> elements) {
  return add_sequence(Value::Kind::set, elements);
}
Cell Builder::frozen_set(std::span<const Cell> elements) {
  return add_sequence(Value::Kind::frozen_set, elements);
}
Cell Builder::dict(std::span<const Cell> items) { return add_sequence(Value::Kind::dict, items); }

std::string_view Builder::keep(std::string_view text) {
  char* kept = tree_->arena_.allocate<char>(text.size());
  if (!fits_budget(kept != nullptr)) return {};
  std::copy(text.begin(), text.end(), kept);
  return {kept, text.size()};
}

Cell Builder::global(std::string_view module, std::string_view name) {
  const Global* made = make_global(tree_->arena_, keep(module), keep(name), 0);
  if (!fits_budget(made != nullptr)) return {};
  tree_->globals_.push_back(made);
  return make_cell(Value::Kind::global, made);
}

Cell Builder::object(const Call& call) {
  const std::array parts{call.callable, call.arguments};
  const std::uint32_t depth = nest(parts);
  if (depth == 0) return {};
  Object* made = value::make_object(tree_->arena_, call.callable, call.arguments,
                                    call.is_new_object, depth, ++objects_);
  if (!fits_budget(made != nullptr)) return {};
  const Cell cell = make_cell(Value::Kind::object, made);
  fill(cell, {call.elements, call.items, call.state});
  return fault_.empty() ? cell : Cell{};
}

void Builder::fill(const Cell& made, const Contents& contents) {
  if (!fault_.empty()) return;
  if (kind_of(made) != Value::Kind::object) {
    const bool is_dict = kind_of(made) == Value::Kind::dict;
    append(*target_of<Sequence>(made), is_dict ? contents.items : contents.elements);
    return;
  }
  Object& object = *target_of<Object>(made);
  if (contents.state) {
    object.has_state = true;
    object.state = *contents.state;
    object.depth = std::max(object.depth, nest({&object.state, 1}));
  }
  for (const auto& [cells, place] :
       {std::pair{contents.elements, &object.elements}, std::pair{contents.items, &object.items}}) {
    if (cells.empty()) continue;
    *place = sequence_of(cells);
    if (*place != nullptr) object.depth = std::max(object.depth, (*place)->depth);
  }
}

Cell Builder::persistent_id(const Cell& id) {
  const std::uint32_t depth = nest({&id, 1});
  Cell made;
  if (depth != 0) fits_budget(make_persistent_id(tree_->arena_, id, depth, made));
  return made;
}

const PackedHeader* Builder::packed_header(PackedHeader header) {
  const bool has_extra = kind_of(header.extra) != Value::Kind::none;
  header.ids = {};
  header.ids.type = headers_++;  // distinguishes the headers
  header.ids.extra = has_extra ? 0 : PackedHeader::no_id;
  auto* const kept = tree_->arena_.allocate<PackedHeader>();
  if (!fits_budget(kept != nullptr)) return nullptr;
  *kept = header;
  return kept;
}

std::optional<Cell> Builder::packed(const UsualCall& call) {
  constexpr std::size_t most = PackedShape::max_dims;
  if (call.sizes.size() > most || call.strides.size() > most || call.key.payload > 0xFFFFFFFF ||
      call.key.count > 0xFFFF)
    return std::nullopt;
  std::array<std::int64_t, 2 * most> dims;
  std::ranges::copy(call.strides, std::ranges::copy(call.sizes, dims.begin()).out);
  const PackedShape* const shape =
      shapes_.keep({call.header, dims.data(), call.numel, call.storage_offset,
                    static_cast<std::uint8_t>(call.sizes.size()),
                    static_cast<std::uint8_t>(call.strides.size()), 0});
  auto* const made = shape ? tree_->arena_.allocate<PackedCall>() : nullptr;
  if (!fits_depth(packed_depth) || !fits_budget(made != nullptr)) return Cell{};
  *made = {shape,
           0,
           ++objects_,
           PackedCall::no_name,
           static_cast<std::uint32_t>(call.key.payload),
           static_cast<std::uint16_t>(call.key.count),
           false,
           call.requires_grad,
           false};
  ++tree_->packed_count_;
  return make_cell(Value::Kind::object, made, 0, packed_object);
}

Result<void> Builder::check() const {
  if (fault_.empty()) return {};
  return failure(ErrorCode::limit_exceeded, fault_);
}

Result<std::unique_ptr<Tree>> Builder::finish(const Cell& root) && {
  TRY(check());
  tree_->pickle_ = std::as_bytes(std::span(tree_->text_));
  tree_->root_ = root;
  return std::move(tree_);
}

Result<std::unique_ptr<Tree>> empty_dict(std::pmr::memory_resource& memory) {
  Builder build(memory, {std::uint64_t{1} << 16, 1});
  const Cell root = build.dict({});
  return std::move(build).finish(root);
}

}  // namespace weightmap::value
