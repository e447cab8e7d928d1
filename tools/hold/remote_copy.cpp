#include "tools/hold/remote_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/hold/held_copy.hpp"
#include "tools/output/fetch_report.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::hold {
namespace {

// What will not pass before the store has another version.
bool is_of_the_content(ErrorCode code) {
  using enum ErrorCode;
  return code == not_a_checkpoint || code == corrupt || code == unsupported ||
         code == unsafe_pickle || code == limit_exceeded;
}

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

Result<std::unique_ptr<RemoteCopy>> RemoteCopy::open(RemoteFile file, Say say) {
  TRY_ASSIGN(const std::unique_ptr<RangeSource> source, open_remote(file.url, file.options));
  std::string file_name = remote_file_name(*source);
  std::string identity = source->identity();
  TRY_ASSIGN(SharedNames names, SharedNames::at(file.name.empty() ? file_name : file.name,
                                                file_name, digest_of(identity)));
  return std::unique_ptr<RemoteCopy>(new RemoteCopy(std::move(file), source->name(),
                                                    std::move(identity), std::move(file_name),
                                                    std::move(names), std::move(say)));
}

RemoteCopy::RemoteCopy(RemoteFile file, std::string shown, std::string identity,
                       std::string file_name, SharedNames names, Say say)
    : file_(std::move(file)),
      shown_(std::move(shown)),
      identity_(std::move(identity)),
      file_name_(std::move(file_name)),
      names_(std::move(names)),
      say_(std::move(say)),
      published_(file_.sums.empty() ? names_.published() : "") {}  // else it is compared first

RemoteCopy::~RemoteCopy() { stops_ = true; }  // the future waits for the thread

void RemoteCopy::look() {
  if (is_busy()) return;
  if (looks_to_wait_ > 0) {
    --looks_to_wait_;
    return;
  }
  if (!next_url_.empty()) file_.url = std::exchange(next_url_, {});
  try {
    round_ = std::async(std::launch::async, [this] { return try_round(); });
  } catch (const std::system_error& error) {
    problem_ = {
        ErrorCode::io, std::string("cannot start a thread: ") + error.what(), Error::no_offset, {}};
  }
}

void RemoteCopy::renew(std::string url) {
  next_url_ = std::move(url);
  looks_to_wait_ = 0;
}

std::optional<Error> RemoteCopy::failure_of_all() const {
  if (is_there() || problem_.message.empty() || problem_.message.starts_with("changed"))
    return std::nullopt;
  return problem_;
}

Result<std::unique_ptr<RangeSource>> RemoteCopy::source() const {
  RemoteOptions options = file_.options;
  options.goes_on = [this] { return !stops_ && !interrupted(); };
  return open_remote(file_.url, options);
}

Result<RemoteVersion> RemoteCopy::ask() const {
  TRY_ASSIGN(const std::unique_ptr<RangeSource> store, source());
  TRY_ASSIGN(const RemoteVersion version, store->identify({}, {}));
  if (version_name(file_name_, version).empty())
    return failure(ErrorCode::unsupported,
                   "its server names no version (ETag), so a new one could not be told from it");
  return version;
}

RemoteCopy::Round RemoteCopy::try_round() {
  try {
    return run_round();
  } catch (const std::exception& error) {  // memory, or a thread
    Round round;
    round.error = {
        ErrorCode::io, std::string("cannot be fetched: ") + error.what(), Error::no_offset, {}};
    return round;
  }
}

RemoteCopy::Round RemoteCopy::run_round() {
  Round round;
  const Result<RemoteVersion> version = ask();
  if (!version) {
    round.error = version.error();
    return round;
  }
  round.version = short_version_name(file_name_, *version) + "." + digest_of(identity_);
  round.is_refused = round.version == refused_;
  if (round.version == published_) names_.remove_rests(published_);
  if (round.is_refused || round.version == published_) return round;
  Result<void> done = bring(round.version, *version, round);
  if (done) done = names_.publish(round.version);
  round.is_fetched = done.has_value();
  if (!done) round.error = std::move(done.error());
  return round;
}

Result<void> RemoteCopy::bring(const std::string& name, const RemoteVersion& version,
                               Round& round) {
  std::vector<FileSum> wanted;
  if (!file_.sums.empty()) {
    TRY_ASSIGN(wanted.emplace_back(),
               wanted_sum(path().parent_path() / name, file_name_, file_.sums));
  }
  if (names_.has(name, version.size)) {  // from before this daemon
    if (wanted.empty()) return {};
    const SumReport compared = compare_sums({&wanted.front().file, 1}, wanted);
    round.how = ", its SHA-256 compared";
    return compared.faults.empty() ? Result<void>()
                                   : tl::unexpected<Error>(compared.faults.front());
  }
  TRY_ASSIGN(std::unique_ptr<RangeSource> store, source());
  RemoteStageOptions options;
  options.name = names_.new_name();
  options.fetch.sha256 = file_.sums;
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

void RemoteCopy::advance() {
  if (!is_busy() || round_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  Round round = round_.get();
  if (round.is_fetched) {
    published_ = round.version;
    ++fetched_;
    say_(printable(shown_) + ": version " + published_ + " is " + printable(path().native()) +
         round.how);
  }
  if (!round.is_refused) problem_ = round.error;
  if (is_of_the_content(round.error.code)) refused_ = round.version;
  failures_ = round.error.message.empty() ? 0 : std::min(failures_ + 1, 7u);
  looks_to_wait_ = failures_ == 0 ? 0 : (1u << (failures_ - 1)) - 1;
}

void RemoteCopy::tell() {
  if (problem_.message == told_problem_) return;
  told_problem_ = problem_.message;
  if (!told_problem_.empty())
    say_(printable(shown_) + ": " + told_problem_ +
         (is_there() ? "; what is held stays held" : ""));
}

void RemoteCopy::remove() {
  stops_ = true;
  if (is_busy()) round_.wait();
  names_.remove();
}

Json RemoteCopy::describe() const {
  const std::string tag =
      is_there()
          ? published_.substr(file_name_.size() + 1, published_.rfind('.') - file_name_.size() - 1)
          : std::string();
  return {{"url", shown_},
          {"version", is_there() ? Json(tag) : Json(nullptr)},
          {"versions_fetched", fetched_},
          {"sha256_compared", is_there() && !file_.sums.empty()},
          {"url_problem", problem_.message.empty() ? Json(nullptr) : Json(problem_.message)}};
}

}  // namespace weightmap::cli::hold
