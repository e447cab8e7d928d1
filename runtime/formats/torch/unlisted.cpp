#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/range_set.hpp"
#include "runtime/base/catalog/view_size.hpp"
#include "runtime/formats/torch/tensor_table.hpp"

namespace weightmap::torch {
namespace {

// Returns the bytes of the storage that the tensor lies in; none if it is empty, or if its numbers
// are wrong, which the catalog finds out.
ByteRange range_of(const TensorSpec& spec) noexcept {
  catalog::ViewSize size;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  const bool is_right =
      spec.storage_offset >= 0 &&
      std::all_of(spec.dims, spec.dims + 2 * std::size_t{spec.rank},
                  [](std::int64_t dim) { return dim >= 0; }) &&
      catalog::measure(spec.dtype, spec.dims, spec.rank, size) &&
      bytes::checked_mul<std::uint64_t>(static_cast<std::uint64_t>(spec.storage_offset),
                                        block_of(spec.dtype).bytes, &begin) &&
      bytes::checked_add(begin, size.extent, &end);
  return is_right ? ByteRange{begin, size.extent} : ByteRange{0, 0};
}

// The tensors that are listed: which objects they are, and which bytes they have.
class Listed {
 public:
  void add(const TensorSpec& spec) {
    positions_.insert(spec.position);
    if (const ByteRange range = range_of(spec); range.length != 0) ranges_[spec.storage].add(range);
  }
  void add_position(std::uint32_t position) { positions_.insert(position); }

  bool has(std::uint32_t position) const { return positions_.contains(position); }
  bool has(const TensorSpec& spec) const {
    if (has(spec.position)) return true;
    const auto ranges = ranges_.find(spec.storage);
    return ranges != ranges_.end() && ranges->second.intersects(range_of(spec));
  }

 private:
  std::unordered_set<std::uint32_t> positions_;
  std::unordered_map<std::uint32_t, bytes::RangeSet> ranges_;  // by storage
};

class Moving {
 public:
  explicit Moving(TensorTable& table) : table_(table), hidden_(table.tensors.size()) {}

  void run() {
    find_hidden();
    forget_composed();
    move();
  }

 private:
  using Node = TensorTable::ComposedNode;

  void find_hidden() {
    constexpr std::uint8_t other = TensorSpec::attribute | TensorSpec::not_persistent;
    for (const TensorSpec& spec : table_.tensors)
      if ((spec.flags & other) == 0) listed_.add(spec);
    for (const Node& node : table_.composed_nodes)
      if ((node.flags & other) == 0) listed_.add_position(node.position);
    for (std::size_t i = 0; i < table_.tensors.size(); ++i) {
      const TensorSpec& spec = table_.tensors[i];
      if ((spec.flags & other) == 0) continue;
      hidden_[i] = (spec.flags & TensorSpec::not_persistent) != 0 || listed_.has(spec);
      if (!hidden_[i]) listed_.add(spec);
    }
  }

  // An attribute that is a composed tensor is listed with all its parts or not at all.
  void forget_composed() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < table_.composed.size(); ++i) {
      if (is_forgotten(table_.composed[i], table_.composed_nodes[i])) continue;
      if (kept != i) table_.composed[kept] = std::move(table_.composed[i]);
      ++kept;
    }
    table_.composed.resize(kept);
  }

  bool is_forgotten(const ComposedTensor& composed, const Node& node) {
    if ((node.flags & TensorSpec::not_persistent) != 0) return true;
    if ((node.flags & TensorSpec::attribute) == 0) return false;
    const auto parts = hidden_.begin() + static_cast<std::ptrdiff_t>(composed.first_part);
    const auto end = parts + static_cast<std::ptrdiff_t>(composed.part_count);
    const bool is_listed = listed_.has(node.position);
    listed_.add_position(node.position);
    if (is_listed || (parts != end && std::all_of(parts, end, [](bool hides) { return hides; }))) {
      std::fill(parts, end, true);
      return true;
    }
    std::fill(parts, end, false);
    return false;
  }

  void move() {
    std::vector<std::uint64_t> listed_before(hidden_.size() + 1);
    for (std::size_t i = 0; i < hidden_.size(); ++i)
      listed_before[i + 1] = listed_before[i] + (hidden_[i] ? 0 : 1);
    for (ComposedTensor& composed : table_.composed) {
      const std::uint64_t end = listed_before[composed.first_part + composed.part_count];
      composed.first_part = listed_before[composed.first_part];
      composed.part_count = end - composed.first_part;
    }
    table_.unlisted = hidden_.size() - listed_before.back();
    std::vector<TensorSpec> unlisted;
    for (std::size_t i = 0; i < hidden_.size(); ++i) {
      if (hidden_[i])
        unlisted.push_back(table_.tensors[i]);
      else
        table_.tensors[listed_before[i]] = table_.tensors[i];
    }
    std::copy(unlisted.begin(), unlisted.end(),
              table_.tensors.end() - static_cast<std::ptrdiff_t>(unlisted.size()));
  }

  TensorTable& table_;
  std::vector<bool> hidden_;
  Listed listed_;
};

}  // namespace

void move_unlisted(TensorTable& table) { Moving(table).run(); }

}  // namespace weightmap::torch
