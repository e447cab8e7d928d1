#include "tools/hold/model_copies.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/remote/remote_model.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::hold {
namespace {

namespace fs = std::filesystem;

std::string version_in(const fs::path& folder) {
  const std::string name = folder.filename();
  return name.substr(std::min(name.size(), name.rfind('@') + 1));
}

Json describe(const std::vector<FetchReport>& files, const fs::path& folder) {
  Json described = Json::array();
  for (const FetchReport& file : files)
    described.push_back({{"file", file.path.lexically_relative(folder).native()},
                         {"bytes", file.file_bytes},
                         {"tag", file.version.tag}});
  return described;
}

const ListedFile* find(const Listing& listing, const std::string& name) {
  const auto found = std::ranges::find(listing, name, &ListedFile::name);
  return found == listing.end() ? nullptr : &*found;
}

std::uint64_t bytes_of(const std::vector<FetchReport>& files) {
  std::uint64_t bytes = 0;
  for (const FetchReport& file : files) bytes += file.file_bytes;
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Copies>> ModelCopies::at(const std::string& name, WantedDigests wanted) {
  TRY_ASSIGN(fs::path link, model_in_memory(name));
  return std::unique_ptr<Copies>(new ModelCopies(std::move(link), std::move(wanted)));
}

std::string ModelCopies::published() const {
  std::error_code absent;
  const fs::path folder = fs::canonical(link_, absent);
  return absent || wanted_.are_wanted() ? "" : version_in(folder);
}

Result<void> ModelCopies::ask(const std::string& url, const OpenSource& open) const {
  TRY_ASSIGN(const std::unique_ptr<RangeSource> lead, open_lead(url, open));
  TRY_ASSIGN(const RemoteVersion version, lead->identify({}, {}));
  if (!version_name("", version).empty()) return {};
  return failure(ErrorCode::unsupported,
                 "its server names no version (ETag), so a new one could not be told from it");
}

// Each file has a version of its own, and a new one of any is a new version of the model. So is a
// file that the store did not have. A listing with tags tells all of it, one without them the
// latter.
Result<bool> ModelCopies::has_changed(RangeSource& lead) const {
  const fs::path folder = files_.back().path.parent_path();
  TRY_ASSIGN(const std::optional<Listing> listing, lead.list());
  if (listing && has_more(*listing)) return true;
  for (const FetchReport& file : files_) {
    const fs::path name = file.path.lexically_relative(folder);
    const ListedFile* const listed = listing ? find(*listing, name) : nullptr;
    const bool has_tag = listed != nullptr && !listed->tag.empty();
    if (listed != nullptr && listed->size != file.version.size) return true;
    if (has_tag && listed->tag == file.version.tag) continue;
    TRY_ASSIGN(const std::unique_ptr<RangeSource> source, lead.sibling(name));
    const Result<RemoteVersion> now = source->identify({}, {});
    const bool is_gone =
        !now && (now.error().code == ErrorCode::not_found || now.error().os_error == ENOENT);
    // The hub may answer small files without ranges, of which its listing has the tag.
    const bool has_no_ranges = has_tag && !now && now.error().code == ErrorCode::unsupported;
    if (!now && !is_gone && !has_no_ranges) return tl::unexpected<Error>(now.error());
    if (!now || *now != file.version) return true;
  }
  return false;
}

// A file that fetch_model() would bring, and that is not there.
bool ModelCopies::has_more(const Listing& listing) const {
  const fs::path folder = files_.back().path.parent_path();
  const auto beside = names_beside(files_.back().path.filename().native(), listing);
  return beside && std::ranges::any_of(*beside, [&](const std::string& name) {
           return (wanted_.sums.empty() || wanted_.sums.contains(name)) &&
                  std::ranges::none_of(files_, [&](const FetchReport& file) {
                    return file.path.lexically_relative(folder) == name;
                  });
         });
}

Round ModelCopies::round(const std::string& url, const OpenSource& open,
                         const std::string& published, const std::string&) {
  Round round;
  round.version = published;
  Result<std::unique_ptr<RangeSource>> lead = open_lead(url, open);
  Result<bool> changed = true;
  if (lead && !files_.empty()) changed = has_changed(**lead);
  Result<void> done;
  if (!lead || !changed)
    done = tl::unexpected<Error>(!lead ? lead.error() : changed.error());
  else if (*changed)
    done = bring(std::move(*lead), round);
  else
    done = remove_old_versions(link_);  // whoever was about to open one has done so
  if (!done) round.error = std::move(done.error());
  return round;
}

Result<void> ModelCopies::bring(std::unique_ptr<RangeSource> lead, Round& round) {
  FetchOptions options;
  options.sha256 = wanted_.sums;
  options.require_digest = wanted_.are_required;
  TRY_ASSIGN(ModelReport report, fetch_into_memory(std::move(lead), link_, options));
  files_ = std::move(report.files);
  round.is_fetched = round.version != version_in(report.folder);
  round.version = version_in(report.folder);
  round.files = describe(files_, report.folder);
  round.how = ": " + count(files_.size(), "file") + ", " + human_bytes(bytes_of(files_));
  return {};
}

void ModelCopies::remove() { static_cast<void>(remove_model(link_)); }

}  // namespace weightmap::cli::hold
