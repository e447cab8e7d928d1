#include "runtime/torch/read_tensors.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "runtime/bytes/escape.hpp"
#include "runtime/torch/equal_key.hpp"
#include "runtime/torch/key_text.hpp"
#include "runtime/torch/names.hpp"
#include "runtime/torch/tensor_decoder.hpp"
#include "runtime/torch/walk_frame.hpp"
#include "runtime/torch/work_budget.hpp"

namespace weightmap::torch {
namespace {

using value::Cell;
using value::PackedCall;
using value::Tree;

// An object that turned out to be a tensor. Worked out once, however often it is mentioned.
struct Decoded {
  TensorSpec spec;
  std::vector<Attachment> attachments;
};

// The first tensors of a pickle and those in its last kilobyte are never packed.
std::size_t expected_tensors(const Tree& tree) noexcept {
  return tree.packed_count() + tree.packed_count() / 64 + 16;
}

class Reader {
 public:
  Reader(const Tree& tree, const ReadLimits& limits, std::pmr::memory_resource& memory)
      : tree_(tree),
        file_offset_(limits.file_offset),
        limits_(limits.limits),
        budget_(tree.pickle().size(), limits.file_offset),
        table_(memory, expected_tensors(tree)),
        decoder_(tree, limits.file_offset, limits.limits, table_, budget_) {}

  Result<TensorTable> run();

 private:
  using Status = Result<void>;

  // The walk. These answer false after setting error_, which is cheaper to return 100,000 times
  // than a Result.
  bool walk();
  bool visit(const Child& child, std::uint32_t path);
  bool visit_object(const Child& child, std::uint32_t path);
  bool visit_packed(const PackedCall& call, const Child& child, std::uint32_t path);
  bool visit_decoded(std::uint32_t number, const Child& child, std::uint32_t path);
  bool visit_storage(const Child& child);
  bool enter(const Child& child, std::uint32_t path);
  bool leave();
  bool check_depth();
  bool check_memory(std::uint64_t more, std::uint32_t position);
  bool add(TensorSpec& spec, const Child& child, std::uint32_t path);
  std::uint32_t child_path(const Child& child, std::uint32_t parent);
  // See WorkBudget.
  bool spend(std::uint64_t work) { return budget_.spend(work) || fail(budget_.exhausted()); }
  [[gnu::cold]] bool fail(Error error) {
    error_ = std::move(error);
    return false;
  }
  [[gnu::cold]] bool fail(ErrorCode code, std::string message, std::uint32_t position = 0) {
    return fail(Error{code, std::move(message), file_offset_ + position, {}});
  }

  Status refuse_harmful_globals() const;
  // Refuses a container of the walk whose items hold a key twice, but for two tensors under texts
  // or integers: those have one name, which the catalog notices.
  bool check_keys(const Value& container);
  bool is_tensor(const Cell& cell);
  // What the tensors so far take here and will take in the catalog, with its index.
  std::uint64_t table_bytes() const noexcept {
    constexpr std::uint64_t each = sizeof(TensorSpec) + 64 + 4 * sizeof(std::uint64_t);
    return table_.tensors.size() * each + table_.name_bytes +
           table_.paths.size() * sizeof(PathNode) + decoded_bytes_ +
           (table_.dim_count - shared_dims_) * sizeof(std::int64_t) +
           table_.path_parts * sizeof(std::uint32_t);
  }

  Value value(const Cell& cell) const noexcept { return {&tree_, cell}; }

  const Tree& tree_;
  std::uint64_t file_offset_;
  Limits limits_;
  WorkBudget budget_;
  TensorTable table_;
  TensorDecoder decoder_;
  std::vector<Frame> frames_;
  std::deque<Decoded> decoded_;  // addresses stay
  std::uint64_t decoded_bytes_ = 0;
  std::uint64_t cuts_ = 0;  // containers that were met inside themselves
  const HeaderMeaning* last_meaning_ = nullptr;
  const std::int64_t* last_dims_ = nullptr;  // shared by neighbours of one shape
  std::uint64_t shared_dims_ = 0;            // of dim_count, those that are stored once
  Error error_;
};

Result<TensorTable> Reader::run() {
  TRY(refuse_harmful_globals());
  table_.paths.push_back({});
  if (!walk()) return tl::unexpected<Error>(std::move(error_));
  return std::move(table_);
}

bool Reader::walk() {
  Child child{{}, tree_.root(), false};
  if (!visit(child, TensorSpec::is_root)) return false;
  while (!frames_.empty())
    if (!(frames_.back().next(child) ? visit(child, frames_.back().path()) : leave())) return false;
  return true;
}

Result<void> Reader::refuse_harmful_globals() const {
  for (const value::Global* global : tree_.globals())
    if (is_harmful(global->module, global->name))
      return failure(
          ErrorCode::unsafe_pickle,
          "the pickle names " +
              bytes::escape(std::string(global->module) + "." + std::string(global->name)) +
              ", which no checkpoint needs; nothing was run",
          file_offset_ + global->position);
  return {};
}

bool Reader::visit(const Child& child, std::uint32_t path) {
  if (!spend(1)) return false;
  if (const PackedCall* packed = value::packed_call(child.value))
    return visit_packed(*packed, child, path);
  switch (value::kind_of(child.value)) {
    case Value::Kind::object:
      return visit_object(child, path);
    case Value::Kind::tuple:
    case Value::Kind::list:
    case Value::Kind::dict:
    case Value::Kind::set:
    case Value::Kind::frozen_set:
      return enter(child, path);
    case Value::Kind::persistent_id:
      return visit_storage(child);
    default:
      if (!frames_.empty()) frames_.back().note_other_item();
      return true;
  }
}

// A storage that no tensor views: saved by itself, or the argument of a call that we do not know.
bool Reader::visit_storage(const Child& child) {
  if (!frames_.empty()) frames_.back().note_other_item();
  const Value id = value(child.value).persistent_id();
  if (id.kind() != Value::Kind::tuple || id.size() != 5 || id[0].string() != "storage" ||
      !id[2].string() || !id[4].integer())
    return true;
  const std::optional<StorageType> type = storage_type(id[1].module(), id[1].name());
  if (!type) return true;
  const Result<std::uint32_t> number =
      decoder_.intern(*id[2].string(), *id[4].integer(), type->dtype, 0);
  return number || fail(number.error());
}

bool Reader::visit_object(const Child& child, std::uint32_t path) {
  std::uint32_t* const mark = mark_of(child.value);
  if (mark == nullptr) {  // hooks reached by themselves
    if (!frames_.empty()) frames_.back().note_other_item();
    return true;
  }
  if (*mark >= first_decoded) {
    table_.storages.count_hit();
    return visit_decoded(*mark - first_decoded, child, path);
  }
  if (*mark != mark_unknown) return enter(child, path);
  TensorCall call;
  const Result<bool> is_tensor = decoder_.unwrap(value(child.value), call);
  if (!is_tensor) return fail(is_tensor.error());
  if (!*is_tensor) return enter(child, path);
  Result<TensorSpec> spec = decoder_.decode(call);
  if (!spec) return fail(spec.error());
  spec->position = *value::position_of(child.value);  // the outermost wrapper is the tensor
  const auto number = static_cast<std::uint32_t>(decoded_.size());
  decoded_.push_back({*spec, std::move(call.attachments)});
  decoded_bytes_ += sizeof(Decoded);
  *mark = first_decoded + number;
  return visit_decoded(number, child, path);
}

bool Reader::visit_decoded(std::uint32_t number, const Child& child, std::uint32_t path) {
  const Decoded& decoded = decoded_[number];
  TensorSpec spec = decoded.spec;
  if (!add(spec, child, path)) return false;
  if (decoded.attachments.empty()) return true;
  if (!check_depth()) return false;
  const Frame::Before before{table_.tensors.size(), table_.paths.size(), cuts_};
  frames_.emplace_back(decoded.attachments, child_path(child, path), before);
  return true;
}

bool Reader::visit_packed(const PackedCall& call, const Child& child, std::uint32_t path) {
  if (last_meaning_ == nullptr || last_meaning_->header != call.shape->header) {
    const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(call);
    if (!meaning) return fail(meaning.error());
    last_meaning_ = *meaning;
  }
  if (!last_meaning_->is_tensor) {  // nothing inside such a call can be a tensor
    if (!frames_.empty()) frames_.back().note_other_item();
    return true;
  }
  TensorSpec spec;
  if (!decoder_.decode_packed(call, *last_meaning_, spec)) return fail(decoder_.error());
  return add(spec, child, path);
}

bool Reader::check_depth() {
  if (frames_.size() < limits_.depth) return true;
  return fail(ErrorCode::limit_exceeded,
              "the pickle nests deeper than " + std::to_string(limits_.depth) + " containers");
}

bool Reader::enter(const Child& child, std::uint32_t path) {
  if (!frames_.empty()) frames_.back().note_other_item();
  if (std::uint32_t* const mark = mark_of(child.value)) {
    if (*mark == mark_barren) return true;
    if (*mark == mark_open) {  // a cycle; its tensors are listed above
      ++cuts_;
      return true;
    }
    *mark = mark_open;
  }
  if (!check_depth()) return false;
  const Value container = value(child.value);
  const Frame::Before before{table_.tensors.size(), table_.paths.size(), cuts_};
  const std::uint32_t own_path = child_path(child, path);
  const Value callable = container.callable();
  table_.paths[own_path].keys_are_unique =
      container.kind() == Value::Kind::dict || is_dict_class(callable.module(), callable.name());
  frames_.emplace_back(container, own_path, before);
  return true;
}

// What leads to no tensor leaves no path and is not walked again; but inside a cycle something may
// have been left out.
bool Reader::leave() {
  const Frame& frame = frames_.back();
  const Frame::Before& before = frame.before();
  const bool barren = table_.tensors.size() == before.tensors;
  if (!barren && frame.has_other_items() && table_.paths[frame.path()].keys_are_unique &&
      !check_keys(frame.value()))
    return false;
  if (std::uint32_t* const mark = mark_of(frame.value().cell()))
    *mark = barren && cuts_ == before.cuts ? mark_barren : mark_unknown;
  if (barren) table_.paths.resize(before.paths);
  frames_.pop_back();
  return true;
}

// The state of an object is walked under the object's own path: a module's tensors are called by
// the attributes that hold them. It still has a node of its own, since an item and an attribute of
// one name are two things.
std::uint32_t Reader::child_path(const Child& child, std::uint32_t parent) {
  if (parent == TensorSpec::is_root) return 0;
  PathNode node = table_.paths[parent];
  node.keys_are_unique = false;
  if (child.has_key) {
    node.prefix_bytes += KeyText(tree_, child.key).text().size() + 1;
    node.key = child.key;
    node.parent = parent;
    ++node.depth;
  }
  table_.paths.push_back(node);
  return static_cast<std::uint32_t>(table_.paths.size() - 1);
}

bool Reader::is_tensor(const Cell& cell) {
  if (const PackedCall* packed = value::packed_call(cell)) {
    const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(*packed);
    return meaning && (*meaning)->is_tensor;
  }
  const std::uint32_t* const mark = mark_of(cell);
  return mark != nullptr && *mark >= first_decoded;
}

bool Reader::check_keys(const Value& container) {
  const auto items = [&](auto visit) {
    for (const auto& [key, item] : container.items()) {
      const Value::Kind kind = key.kind();
      const bool has_name = kind == Value::Kind::string || kind == Value::Kind::integer;
      visit(key.cell(), has_name && is_tensor(item.cell()));
    }
  };
  const auto less = [this](const Cell& a, const Cell& b) {
    return EqualKey(tree_, a) < EqualKey(tree_, b);
  };
  const auto equal = [this](const Cell& a, const Cell& b) {
    return EqualKey(tree_, a) == EqualKey(tree_, b);
  };
  std::uint64_t text_bytes = 0;
  std::size_t other_count = 0;
  items([&](const Cell& key, bool is_named_tensor) {
    text_bytes += EqualKey(tree_, key).text_bytes();
    if (!is_named_tensor) ++other_count;
  });
  if (!spend(container.item_count() + text_bytes / 64) ||
      !check_memory(other_count * sizeof(Cell), 0))
    return false;
  std::vector<Cell> others;
  others.reserve(other_count);
  items([&](const Cell& key, bool is_named_tensor) {
    if (!is_named_tensor && EqualKey(tree_, key).is_comparable()) others.push_back(key);
  });
  if (!std::is_sorted(others.begin(), others.end(), less))
    std::sort(others.begin(), others.end(), less);
  auto twice = std::adjacent_find(others.begin(), others.end(), equal);
  if (twice == others.end() && other_count != container.item_count())
    items([&](const Cell& key, bool is_named_tensor) {
      if (!is_named_tensor || twice != others.end()) return;
      const auto found = std::lower_bound(others.begin(), others.end(), key, less);
      if (found != others.end() && equal(*found, key)) twice = found;
    });
  if (twice == others.end()) return true;
  return fail(key_twice(tree_, *twice, file_offset_));
}

// A shared container is listed each time it is reached, so few bytes could ask for many tensors.
bool Reader::check_memory(std::uint64_t more, std::uint32_t position) {
  if (table_bytes() + more <= limits_.base_memory + 2 * tree_.pickle().size()) return true;
  return fail(ErrorCode::limit_exceeded,
              "the names and shapes of the tensors need more memory than " +
                  std::to_string(limits_.base_memory) + " bytes and twice the pickle",
              position);
}

bool Reader::add(TensorSpec& spec, const Child& child, std::uint32_t path) {
  if (table_.tensors.size() == limits_.tensors)
    return fail(ErrorCode::limit_exceeded,
                "the pickle has more than " + std::to_string(limits_.tensors) + " tensors",
                spec.position);
  spec.path = path;
  // A tensor that is the state of an object has no key of its own: the empty one.
  spec.key = child.has_key ? child.key : value::make_cell(Value::Kind::string, std::uint64_t{0});
  if (path != TensorSpec::is_root) {
    const PathNode& parent = table_.paths[path];
    const Value::Kind kind = value::kind_of(spec.key);
    const bool is_text = kind == Value::Kind::string;
    table_.name_bytes +=
        parent.prefix_bytes + (is_text ? spec.key.count : KeyText(tree_, spec.key).text().size());
    if (parent.depth > 0 || kind == Value::Kind::integer) table_.path_parts += parent.depth + 1;
    if (!is_text && kind != Value::Kind::integer) frames_.back().note_other_item();
  }
  table_.dim_count += std::uint64_t{2} * spec.rank;
  if (spec.dims == last_dims_) shared_dims_ += std::uint64_t{2} * spec.rank;
  last_dims_ = spec.dims;
  if (!check_memory(0, spec.position)) return false;
  table_.tensors.push_back(spec);
  return true;
}

}  // namespace

Result<TensorTable> read_tensors(const Tree& tree, const ReadLimits& limits,
                                 std::pmr::memory_resource& memory) {
  return Reader(tree, limits, memory).run();
}

}  // namespace weightmap::torch
