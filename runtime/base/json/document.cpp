#include "runtime/base/json/document.hpp"

#include "runtime/base/json/json_tree.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/builder.hpp"
#include "weightmap/options.hpp"

namespace weightmap::json {

Result<std::unique_ptr<Document>> Document::parse(std::string_view text) {
  const Limits limits;
  std::unique_ptr<Document> document(new Document);
  value::Builder build(document->memory_, {limits.base_memory + 5 * text.size(), limits.depth});
  TRY_ASSIGN(const value::Cell root, add_document(build, text));
  TRY_ASSIGN(document->tree_, std::move(build).finish(root));
  return document;
}

}  // namespace weightmap::json
