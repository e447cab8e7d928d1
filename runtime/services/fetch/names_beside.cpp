#include "runtime/services/fetch/names_beside.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/json/document.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/formats/sets/model_files.hpp"
#include "runtime/formats/sets/select_files.hpp"

namespace weightmap {
namespace {

std::optional<std::string_view> text_in(const Value& value, std::string_view key) {
  const std::optional<Value> found = value.find(key);
  return found ? found->string() : std::nullopt;
}

}  // namespace

std::optional<Listing> read_autoindex(std::string_view json) {
  const Result<std::unique_ptr<json::Document>> document = json::Document::parse(json);
  if (!document) return std::nullopt;
  const Value entries = (*document)->root();
  if (entries.kind() != Value::Kind::list) return std::nullopt;
  Listing files;
  for (const Value& entry : entries.elements()) {
    const auto name = text_in(entry, "name"), type = text_in(entry, "type");
    if (!name || !type) return std::nullopt;
    if (*type != "file" || !sets::stays_below(*name) || name->find('/') != name->npos) continue;
    const std::optional<Value> size = entry.find("size");
    const std::int64_t bytes = size ? size->integer().value_or(-1) : -1;
    if (bytes < 0) return std::nullopt;
    files.push_back({std::string(*name), static_cast<std::uint64_t>(bytes)});
  }
  return files;
}

Result<std::string> only_one_of(std::vector<std::string> checkpoint) {
  if (checkpoint.size() == 1) return std::move(checkpoint.front());
  return failure(ErrorCode::unsupported,
                 "has " + std::to_string(checkpoint.size()) +
                     " files without an index, of which only one can be read from here; name one "
                     "of them, such as " +
                     bytes::quote(checkpoint.front()));
}

Result<std::string> lead_of(const Listing& listing) {
  std::vector<std::string> names;
  for (const ListedFile& file : listing) names.push_back(file.name);
  TRY_ASSIGN(sets::Selection chosen, sets::select_names(std::move(names)));
  return only_one_of(std::move(chosen.files));
}

std::optional<std::vector<std::string>> names_beside(std::string_view lead,
                                                     const Listing& listing) {
  std::vector<std::string> names;
  if (!sets::leads_to_model(lead)) return names;
  for (const ListedFile& file : listing)
    if (sets::stays_below(file.name) && sets::lies_beside_weights(file.name, file.size))
      names.push_back(file.name);
  if (listing.empty() || names.size() > sets::most_beside_weights) return std::nullopt;
  return names;
}

const ListedFile* Beside::find_listed(std::string_view name) const noexcept {
  if (!listing) return nullptr;
  const auto found = std::ranges::find(*listing, name, &ListedFile::name);
  return found == listing->end() ? nullptr : &*found;
}

Result<Beside> find_beside(RangeSource& lead, std::string_view name) {
  Beside beside;
  if (!sets::leads_to_model(name)) return beside;
  TRY_ASSIGN(beside.listing, lead.list());
  std::optional<std::vector<std::string>> listed;
  if (beside.listing) listed = names_beside(name, *beside.listing);
  const auto known = sets::well_known_names();
  if (listed) {
    beside.names = std::move(*listed);
    return beside;
  }
  const auto again = lead.sibling(std::string(name));
  if (again && dynamic_cast<WholeSource*>(again->get()) != nullptr)  // others are asked for nothing
    beside.names.assign(known.begin(), known.end());
  return beside;
}

Result<Beside> find_in_modules(const RangeSource& lead, std::string_view modules_json) {
  Beside found{.listing = Listing()};
  TRY_ASSIGN(const std::vector<std::string> folders, sets::module_folders(modules_json));
  for (const std::string& folder : folders) {
    const std::string front = folder + "/";
    TRY_ASSIGN(const auto any, lead.sibling(front + std::string(sets::module_names().front())));
    TRY_ASSIGN(const std::optional<Listing> listing, any->list());
    if (!listing)
      for (const std::string_view name : sets::module_names())
        found.names.push_back(front + std::string(name));
    for (const ListedFile& file : listing.value_or(Listing())) {
      if (file.name.starts_with('.') || !sets::stays_below(file.name)) continue;
      found.listing->push_back({front + file.name, file.size, file.tag});
      found.names.push_back(found.listing->back().name);
    }
    if (found.names.size() > sets::most_beside_weights)
      return failure(ErrorCode::limit_exceeded, "the folders of its modules have more than " +
                                                    std::to_string(sets::most_beside_weights) +
                                                    " files");
  }
  return found;
}

}  // namespace weightmap
