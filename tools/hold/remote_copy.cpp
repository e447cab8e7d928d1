#include "tools/hold/remote_copy.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/hold/file_copies.hpp"
#include "tools/hold/model_copies.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/remote/remote_model.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::hold {

bool is_of_the_content(ErrorCode code) noexcept {
  using enum ErrorCode;
  return code == not_a_checkpoint || code == corrupt || code == unsupported ||
         code == unsafe_pickle || code == limit_exceeded;
}

namespace {

// What is known of the URL without asking. Of a folder it is that of a file which may not be there.
Result<std::unique_ptr<RangeSource>> unasked(const std::string& url, const RemoteOptions& options) {
  return open_remote(url + (url.ends_with('/') ? "model.safetensors" : ""), options);
}

}  // namespace

Result<std::string> RemoteCopy::identity_of(const std::string& url, const RemoteOptions& options) {
  TRY_ASSIGN(const std::unique_ptr<RangeSource> source, unasked(url, options));
  return source->identity();
}

Result<std::unique_ptr<RemoteCopy>> RemoteCopy::open(RemoteFile file, Say say) {
  TRY_ASSIGN(const std::unique_ptr<RangeSource> source, unasked(file.url, file.options));
  const bool is_model = names_model(file.url);
  const std::string own = is_model ? model_name(file.url) : remote_file_name(*source);
  const std::string name = file.name.empty() ? own : file.name;
  std::string identity = source->identity();
  TRY_ASSIGN(std::unique_ptr<Copies> copies,
             is_model ? ModelCopies::at(name, file.wanted)
                      : FileCopies::at(name, own, identity, file.wanted));
  std::string shown = source->name();
  if (file.url.ends_with('/')) shown.resize(shown.rfind('/') + 1);
  return std::unique_ptr<RemoteCopy>(new RemoteCopy(
      std::move(file), std::move(shown), std::move(identity), std::move(copies), std::move(say)));
}

RemoteCopy::RemoteCopy(RemoteFile file, std::string shown, std::string identity,
                       std::unique_ptr<Copies> copies, Say say)
    : file_(std::move(file)),
      shown_(std::move(shown)),
      identity_(std::move(identity)),
      copies_(std::move(copies)),
      say_(std::move(say)),
      published_(copies_->published()) {}

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

OpenSource RemoteCopy::opener() const {
  RemoteOptions options = file_.options;
  options.goes_on = [this] { return !stops_ && !interrupted(); };
  return [options](const std::string& url) { return open_remote(url, options); };
}

Round RemoteCopy::try_round() {
  try {
    return copies_->round(file_.url, opener(), published_, refused_);
  } catch (const std::exception& error) {  // memory, or a thread
    Round round;
    round.error = {
        ErrorCode::io, std::string("cannot be fetched: ") + error.what(), Error::no_offset, {}};
    return round;
  }
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
  if (!round.files.is_null()) files_ = std::move(round.files);
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
  copies_->remove();
}

Json RemoteCopy::describe() const {
  Json described = {
      {"url", shown_},
      {"version", is_there() ? Json(copies_->shown(published_)) : Json(nullptr)},
      {"versions_fetched", fetched_},
      {"sha256_compared", is_there() && file_.wanted.are_wanted()},
      {"url_problem", problem_.message.empty() ? Json(nullptr) : Json(problem_.message)}};
  if (!files_.is_null()) described["files"] = files_;
  return described;
}

}  // namespace weightmap::cli::hold
