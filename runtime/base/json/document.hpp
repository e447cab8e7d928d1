// A JSON document with the memory of its tree.
#pragma once

#include <memory>
#include <memory_resource>
#include <string_view>

#include "runtime/base/value/tree.hpp"
#include "weightmap/result.hpp"
#include "weightmap/value.hpp"

namespace weightmap::json {

class Document {
 public:
  // Within the default limits of OpenOptions. Fails as add_document() does.
  static Result<std::unique_ptr<Document>> parse(std::string_view text);

  // Valid as long as the document.
  Value root() const noexcept { return {tree_.get(), tree_->root()}; }

 private:
  Document() = default;

  std::pmr::monotonic_buffer_resource memory_;
  std::unique_ptr<value::Tree> tree_;
};

}  // namespace weightmap::json
