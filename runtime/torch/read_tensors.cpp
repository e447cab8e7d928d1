#include "runtime/torch/read_tensors.hpp"

#include <utility>
#include <vector>

namespace weightmap::torch {
namespace {

using value::PackedCall;
using value::Tree;

// The first tensors of a pickle and those in its last kilobyte are never packed.
std::size_t expected_tensors(const Tree& tree) noexcept {
  return tree.packed_count() + tree.packed_count() / 64 + 16;
}

class Reader final : public TreeWalk {
 public:
  Reader(const Tree& tree, const ReadLimits& limits, std::pmr::memory_resource& memory,
         std::uint32_t first_mark)
      : TreeWalk(tree, limits, TensorTable(memory, expected_tensors(tree), expected_tensors(tree)),
                 first_mark) {}

  Result<TensorTable> run() {
    if (!walk()) return tl::unexpected<Error>(std::move(error_));
    return std::move(table_);
  }

 private:
  bool found_packed(const PackedCall& call, const Child& child, std::uint32_t path) override;
  bool found_call(TensorCall& call, const value::Cell& object) override;
  bool found_object(std::uint32_t number, const Child& child, std::uint32_t path) override {
    return add(decoded_[number], child, path);
  }
  bool found_storage(std::string_view key, std::int64_t numel, DType dtype) override {
    const Result<std::uint32_t> number = decoder_.intern(key, numel, dtype, 0);
    return number || fail(number.error());
  }
  bool is_tensor(const PackedCall& call) override {
    const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(call);
    return meaning && (*meaning)->is_tensor;
  }
  // Of a call whose meaning is last_meaning_. False as in TensorDecoder.
  bool place(const PackedCall& call, std::uint32_t& storage);
  bool add(TensorSpec spec, const Child& child, std::uint32_t path);

  std::vector<TensorSpec> decoded_;  // of objects, each once, however often it is mentioned
  const HeaderMeaning* last_meaning_ = nullptr;
};

bool Reader::found_packed(const PackedCall& call, const Child& child, std::uint32_t path) {
  if (last_meaning_ == nullptr || last_meaning_->header != call.shape->header) {
    const Result<const HeaderMeaning*> meaning = decoder_.meaning_of(call);
    if (!meaning) return fail(meaning.error());
    last_meaning_ = *meaning;
  }
  if (!last_meaning_->is_tensor) {  // nothing inside such a call can be a tensor
    note_other_item();
    return true;
  }
  TensorSpec spec;
  if (!decoder_.describe_packed(call, *last_meaning_, spec) || !place(call, spec.storage))
    return fail(decoder_.error());
  return add(spec, child, path);
}

bool Reader::place(const PackedCall& call, std::uint32_t& storage) {
  if (call.key_position >= bytes::most_digits) {
    const auto next = table_.storages.intern_next(tree_.text(call.key_position, call.key_length),
                                                  call.shape->numel, last_meaning_->storage_dtype,
                                                  last_meaning_->storage_element_size);
    if (next) {
      storage = *next;
      return true;
    }
  }
  return decoder_.intern_packed(call, *last_meaning_, storage);
}

bool Reader::found_call(TensorCall& call, const value::Cell& object) {
  Result<TensorSpec> spec = decoder_.decode(call);
  if (!spec) return fail(std::move(spec.error()));
  spec->position = *value::position_of(object);  // the outermost wrapper is the tensor
  decoded_.push_back(*spec);
  table_.decoded_bytes += sizeof(TensorSpec) + sizeof(std::vector<Attachment>);
  return true;
}

bool Reader::add(TensorSpec spec, const Child& child, std::uint32_t path) {
  if (!count(child, path, spec.position)) return false;
  spec.path = path;
  spec.key = key_of(child);
  table_.count_dims(spec.dims, spec.rank);
  if (!check_memory(0, spec.position)) return false;
  table_.tensors.push_back(spec);
  return true;
}

}  // namespace

Result<TensorTable> read_tensors(const Tree& tree, const ReadLimits& limits,
                                 std::pmr::memory_resource& memory, std::uint32_t first_mark) {
  return Reader(tree, limits, memory, first_mark).run();
}

}  // namespace weightmap::torch
