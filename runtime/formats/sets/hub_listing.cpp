#include "runtime/formats/sets/hub_listing.hpp"

#include <algorithm>
#include <memory_resource>
#include <optional>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/json/json_tree.hpp"
#include "runtime/base/try.hpp"
#include "runtime/base/value/builder.hpp"
#include "runtime/base/value/tree.hpp"
#include "runtime/formats/sets/file_name.hpp"
#include "runtime/formats/sets/hub_cache.hpp"
#include "runtime/formats/sets/select_files.hpp"
#include "weightmap/options.hpp"

namespace weightmap::sets {
namespace {

tl::unexpected<Error> not_a_listing(const std::string& why) {
  return failure(ErrorCode::corrupt, "the hub's list of the model's files " + why);
}

std::string text_at(const Value& value, std::string_view key) {
  const std::optional<Value> found = value.find(key);
  return std::string(found ? found->string().value_or("") : "");
}

// The hash of a large file is that of its bytes; of others it is git's, of its header and bytes.
std::string blob_of(const Value& file) {
  const std::optional<Value> large = file.find("lfs");
  const bool is_large = large && large->kind() == Value::Kind::dict;
  return is_large ? text_at(*large, "sha256") : text_at(file, "blobId");
}

bool is_hash(std::string_view text) noexcept {
  return !text.empty() && text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<HubFile> file_of(const Value& value) {
  HubFile file{.name = text_at(value, "rfilename"), .blob = blob_of(value)};
  if (!stays_below(file.name))
    return not_a_listing("has the name " + bytes::quote(file.name) +
                         ", which would leave a folder");
  const std::optional<Value> size = value.find("size");
  const std::int64_t bytes = size ? size->integer().value_or(-1) : -1;
  if (!is_hash(file.blob) || bytes < 0)
    return not_a_listing("has " + bytes::quote(file.name) + " without its hash or its size");
  file.size = static_cast<std::uint64_t>(bytes);
  return file;
}

}  // namespace

const HubFile* HubListing::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(files, name, &HubFile::name);
  return found == files.end() ? nullptr : &*found;
}

Result<std::vector<std::string>> HubListing::checkpoint() const {
  std::vector<std::string> names;
  for (const HubFile& file : files)
    if (file.name.find('/') == std::string::npos) names.push_back(file.name);
  TRY_ASSIGN(Selection chosen, select_names(std::move(names)));
  return std::move(chosen.files);
}

Result<HubListing> read_hub_listing(std::string_view json) {
  const Limits limits;
  std::pmr::monotonic_buffer_resource memory;
  value::Builder build(memory, {limits.base_memory + 5 * json.size(), limits.depth});
  Result<value::Cell> root = json::add_document(build, json);
  if (!root) return not_a_listing("is no JSON: " + root.error().message);
  TRY_ASSIGN(const std::unique_ptr<value::Tree> tree, std::move(build).finish(*root));
  const Value answer(tree.get(), tree->root());
  HubListing listing{.commit = text_at(answer, "sha")};
  const std::optional<Value> files = answer.find("siblings");
  if (!is_hub_commit(listing.commit) || !files || files->kind() != Value::Kind::list)
    return not_a_listing("has no commit or no files");
  for (const Value& value : files->elements()) {
    TRY_ASSIGN(HubFile file, file_of(value));
    listing.files.push_back(std::move(file));
  }
  return listing;
}

}  // namespace weightmap::sets
