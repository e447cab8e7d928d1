// Turns a tensor as the pickle describes it into a catalog entry with its name and path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/catalog/builder.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/formats/torch/key_text.hpp"
#include "runtime/formats/torch/tensor_table.hpp"
#include "weightmap/tensor_view.hpp"

namespace weightmap::torch {

class EntryMaker {
 public:
  // All references must outlive this object.
  EntryMaker(const value::Tree& tree, const TensorTable& table, bool foreign_byte_order,
             catalog::CatalogBuilder& builder)
      : tree_(tree), table_(table), foreign_byte_order_(foreign_byte_order), builder_(builder) {}

  struct Name {
    catalog::Text text;
    catalog::Path path;
  };
  // Adds the name of the value under this key in the container `path`.
  Name add_name(std::uint32_t path, const value::Cell& key) {
    if (path == 0 && value::kind_of(key) == Value::Kind::string)  // nearly always
      return {builder_.add_text(tree_.text(key.payload, key.count)), {catalog::Path::is_name, 1}};
    return path == TensorSpec::is_root ? Name{{}, {0, 0}} : add_joined_name(path, key);
  }
  // Returns the builder's input for a tensor, after adding the text of its name.
  catalog::TensorInput input_of(const TensorSpec& spec) {
    const Name name = add_name(spec.path, spec.key);
    return {name.text,     name.path,  spec.dims, spec.storage_offset, spec.storage,
            spec.location, spec.dtype, spec.rank, flags_of(spec)};
  }
  // Returns the tensor's name for messages.
  std::string name_of(const TensorSpec& spec);

 private:
  std::uint8_t flags_of(const TensorSpec& spec) const noexcept {
    unsigned flags = 0;
    if (foreign_byte_order_ && swap_unit(spec.dtype) > 1) flags |= TensorView::foreign_order;
    if (spec.flags & TensorSpec::conjugate) flags |= TensorView::conjugate;
    if (spec.flags & TensorSpec::negative) flags |= TensorView::negative;
    if (spec.flags & TensorSpec::requires_grad) flags |= catalog::Entry::requires_grad;
    if (spec.flags & TensorSpec::parameter) flags |= catalog::Entry::parameter;
    if (spec.flags & TensorSpec::buffer) flags |= catalog::Entry::buffer;
    return static_cast<std::uint8_t>(flags);
  }
  Name add_joined_name(std::uint32_t path, const value::Cell& key);
  void enter(std::uint32_t path);

  const value::Tree& tree_;
  const TensorTable& table_;
  bool foreign_byte_order_;
  catalog::CatalogBuilder& builder_;
  std::uint32_t prefix_path_ = 0;
  std::string prefix_;
  std::vector<std::uint32_t> prefix_parts_;  // in the format of catalog::Path
  std::vector<std::uint32_t> chain_;
};

}  // namespace weightmap::torch
