#include "tools/hold/file_copies.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/hold/held_copy.hpp"
#include "tools/output/fetch_report.hpp"
#include "tools/remote/remote_file.hpp"

namespace weightmap::cli::hold {
namespace {

// 16 hexadecimal digits.
std::string digest_of(const std::string& identity) {
  std::uint64_t sum = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : identity) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", sum);
}

// "FILE@TAG", or a digest of the tag in its place if that is too long for a name.
std::string short_version_name(const std::string& file, const RemoteVersion& version) {
  constexpr std::size_t longest_tag = 128;
  std::string name = version_name(file, version);
  if (name.size() > file.size() + longest_tag) name = file + "@" + digest_of(version.tag);
  return name;
}

}  // namespace

Result<std::unique_ptr<Copies>> FileCopies::at(const std::string& name, const std::string& file,
                                               const std::string& identity, WantedDigests wanted) {
  std::string source = digest_of(identity);
  TRY_ASSIGN(SharedNames names, SharedNames::at(name, file, source));
  return std::unique_ptr<Copies>(
      new FileCopies(std::move(names), file, std::move(source), std::move(wanted)));
}

// One that was there before is compared first.
std::string FileCopies::published() const { return wanted_.are_wanted() ? "" : names_.published(); }

std::string FileCopies::shown(const std::string& version) const {
  const std::size_t begin = file_.size() + 1;
  return version.substr(begin, version.rfind('.') - begin);
}

Result<RemoteVersion> FileCopies::version_at(const std::string& url, const OpenSource& open) const {
  TRY_ASSIGN(const std::unique_ptr<RangeSource> store, open(url));
  TRY_ASSIGN(const RemoteVersion version, store->identify({}, {}));
  if (version_name(file_, version).empty())
    return failure(ErrorCode::unsupported,
                   "its server names no version (ETag), so a new one could not be told from it");
  return version;
}

Result<void> FileCopies::ask(const std::string& url, const OpenSource& open) const {
  TRY(version_at(url, open));
  return {};
}

Round FileCopies::round(const std::string& url, const OpenSource& open,
                        const std::string& published, const std::string& refused) {
  Round round;
  const Result<RemoteVersion> version = version_at(url, open);
  if (!version) {
    round.error = version.error();
    return round;
  }
  round.version = short_version_name(file_, *version) + "." + source_;
  round.is_refused = round.version == refused;
  if (round.version == published) names_.remove_rests(published);
  if (round.is_refused || round.version == published) return round;
  Result<std::unique_ptr<RangeSource>> store = open(url);
  Result<void> done =
      store ? bring(std::move(*store), *version, round) : tl::unexpected<Error>(store.error());
  if (done) done = names_.publish(round.version);
  round.is_fetched = done.has_value();
  if (!done) round.error = std::move(done.error());
  return round;
}

Result<void> FileCopies::bring(std::unique_ptr<RangeSource> store, const RemoteVersion& version,
                               Round& round) {
  const std::filesystem::path copy = path().parent_path() / round.version;
  if (!wanted_.sums.empty()) TRY(wanted_sum(copy, file_, wanted_));
  if (names_.has(round.version, version.size)) return take_over(*store, copy, round);
  RemoteStageOptions options;
  options.name = names_.new_name();
  options.fetch.sha256 = wanted_.sums;
  options.fetch.require_digest = wanted_.are_required;
  TRY_ASSIGN(Staging staging, unfinished_
                                  ? start_staging_again(std::move(store), options, *unfinished_)
                                  : start_staging(std::move(store), options));
  unfinished_.reset();
  if (staging.report().version != version) return failure(ErrorCode::io, "changed meanwhile");
  const Result<StagedFile> staged = staging.finish();
  round.how = ": " + fetch_words(staging.report());
  if (staged) return {};
  if (!is_of_the_content(staged.error().code)) unfinished_ = std::move(staging);
  return tl::unexpected<Error>(staged.error());
}

// It is from before this daemon.
Result<void> FileCopies::take_over(RangeSource& store, const std::filesystem::path& copy,
                                   Round& round) const {
  if (!wanted_.are_wanted()) return {};
  StoreSum said;
  if (wanted_.sums.empty()) {
    TRY(store.identify({}, {}));
    TRY_ASSIGN(said, store.store_sum());
  }
  TRY_ASSIGN(const FileSum wanted, wanted_sum(copy, file_, wanted_, said));
  const SumReport compared = compare_sums({&wanted.file, 1}, {&wanted, 1});
  round.how = ", its SHA-256 compared";
  if (compared.faults.empty()) return {};
  return tl::unexpected<Error>(compared.faults.front());
}

}  // namespace weightmap::cli::hold
