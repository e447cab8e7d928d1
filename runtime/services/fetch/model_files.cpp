// What the files of a remote model are.

#include "runtime/formats/sets/model_files.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <memory>
#include <span>
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

constexpr std::size_t asked_at_a_time = 32;

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

// Adds those that are there.
Result<void> ask_for_all(const RangeSource& lead, const Beside& beside,
                         std::vector<ModelFile>& files) {
  std::vector<ModelFile> asked(beside.names.size());
  TRY(parallel_for(asked.size(), asked_at_a_time, [&](std::size_t number) {
    const std::string& name = beside.names[number];
    return ask_for(lead, name, beside.find_listed(name), asked[number]);
  }));
  for (ModelFile& file : asked)
    if (!file.name.empty()) files.push_back(std::move(file));
  return {};
}

class Text final : public WholeReader {
 public:
  std::string text;

 private:
  Result<void> begins(const RemoteVersion&) override {
    text.clear();
    return {};
  }
  Result<void> take(std::span<const std::byte> bytes) override {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text.size() <= sets::most_bytes_of_modules) return {};
    return failure(ErrorCode::limit_exceeded, std::string(sets::modules_name) + " is too long");
  }
};

Result<void> ask_for_modules(const RangeSource& lead, std::vector<ModelFile>& files) {
  if (std::ranges::find(files, sets::modules_name, &ModelFile::name) == files.end()) return {};
  TRY_ASSIGN(const auto source, lead.sibling(std::string(sets::modules_name)));
  auto* const whole = dynamic_cast<WholeSource*>(source.get());
  if (whole == nullptr) return {};
  Text modules;
  TRY(whole->read_whole(modules));
  TRY_ASSIGN(const Beside found, find_in_modules(lead, modules.text));
  return ask_for_all(lead, found, files);
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
  std::erase_if(beside.names, [&](const std::string& name) {
    return std::ranges::find(weights, name, &ModelFile::name) != weights.end();
  });
  std::vector<ModelFile> files;
  TRY(ask_for_all(*lead, beside, files));
  TRY(ask_for_modules(*lead, files));
  files.insert(files.end(), std::make_move_iterator(weights.begin()),
               std::make_move_iterator(weights.end()));
  return files;
}

}  // namespace weightmap
