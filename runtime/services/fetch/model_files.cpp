// What the files of a remote model are.

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/parallel_for.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/arriving_file.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/fetch/fetch_file.hpp"
#include "runtime/services/fetch/names_beside.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap {
namespace {

constexpr std::size_t asked_at_a_time = 16;

const ListedFile* listed_as(const std::string& name, const std::optional<Listing>& listing) {
  if (!listing) return nullptr;
  const auto found = std::ranges::find(*listing, name, &ListedFile::name);
  return found == listing->end() ? nullptr : &*found;
}

// One that is not listed and not there stays without a name. Of one whose server knows no ranges,
// as the hub for files in git, there is what the listing says.
Result<void> ask_for(const RangeSource& lead, const std::string& name, const ListedFile* listed,
                     ModelFile& file) {
  TRY_ASSIGN(const std::unique_ptr<RangeSource> source, lead.sibling(name));
  Result<RemoteVersion> version = source->identify({}, {});
  if (!version && version.error().code == ErrorCode::unsupported && listed != nullptr)
    version = RemoteVersion{.size = listed->size, .tag = listed->tag};
  else if (!version && listed == nullptr &&
           (version.error().code == ErrorCode::not_found || version.error().os_error == ENOENT ||
            version.error().os_error == EACCES))
    return {};
  if (!version) return tl::unexpected<Error>(std::move(version.error()));
  TRY_ASSIGN(file.sum, source->store_sum());
  file.version = std::move(*version);
  file.name = name;
  return {};
}

}  // namespace

Result<std::vector<ModelFile>> model_files(std::unique_ptr<RangeSource> source) {
  const std::shared_ptr<RangeSource> lead = std::move(source);
  TRY_ASSIGN(const Checkpoint opened, about_file(open_to_fetch(lead), lead->name()));
  std::vector<ModelFile> weights;
  for (const SourceFile& file : Checkpoint::Access::state(opened).sources.opened()) {
    TRY_ASSIGN(const StoreSum sum, file.remote->source()->store_sum());
    weights.push_back({file.name_beside, file.remote->version(), sum, true});
  }
  std::rotate(weights.begin(), weights.begin() + 1, weights.end());
  TRY_ASSIGN(Beside beside, find_beside(*lead, weights.back().name));
  std::vector<std::string>& names = beside.names;
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::find(weights, name, &ModelFile::name) != weights.end();
  });
  std::vector<ModelFile> files(names.size());
  TRY(parallel_for(names.size(), asked_at_a_time, [&](std::size_t number) {
    return ask_for(*lead, names[number], listed_as(names[number], beside.listing), files[number]);
  }));
  std::erase_if(files, [](const ModelFile& file) { return file.name.empty(); });
  files.insert(files.end(), std::make_move_iterator(weights.begin()),
               std::make_move_iterator(weights.end()));
  return files;
}

}  // namespace weightmap
