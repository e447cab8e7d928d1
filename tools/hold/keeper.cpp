#include "tools/hold/keeper.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli::hold {
namespace {

// As HeldFile::describe(), of a copy that is not there yet.
Json describe_fetching(const RemoteCopy& copy) {
  return {{"file", copy.path().native()},
          {"state", "fetching"},
          {"locked", false},
          {"lock_refusal", ""},
          {"sha256_compared", false},
          {"file_bytes", 0},
          {"resident_bytes", 0},
          {"cached_bytes", 0},
          {"bytes_left_out", 0},
          {"generation", nullptr},
          {"reloads", 0},
          {"elections", 0},
          {"evicted_bytes", nullptr},
          {"problem", nullptr}};
}

}  // namespace

std::vector<HeldFile>::iterator Keeper::find(const std::filesystem::path& path) {
  return std::find_if(files_.begin(), files_.end(),
                      [&path](const HeldFile& file) { return file.path() == path; });
}

Result<Json> Keeper::hold(const std::filesystem::path& path) { return hold(path, wanted_); }

Result<Json> Keeper::hold(const std::filesystem::path& path, const WantedDigests& wanted) {
  if (const auto held = find(path); held != files_.end()) return held->describe();
  TRY_ASSIGN(HeldFile file, HeldFile::open(path, wants_lock_, wanted, say_));
  files_.push_back(std::move(file));
  ++changes_;
  return files_.back().describe();
}

Result<Json> Keeper::hold_url(const std::string& url, const std::string& name, bool waits) {
  TRY_ASSIGN(std::unique_ptr<RemoteCopy> copy,
             RemoteCopy::open({url, name, remote_, wanted_}, say_));
  for (const auto& other : copies_) {
    if (other->path() != copy->path()) continue;
    if (other->identity() == copy->identity()) {
      other->renew(url);
      return describe(*other);
    }
    return failure(ErrorCode::invalid_argument,
                   printable(copy->path().native()) +
                       " is held of another URL already; another name would be --name");
  }
  if (waits && !copy->is_there()) TRY(copy->ask());
  copy->look();
  copies_.push_back(std::move(copy));
  ++changes_;
  return describe(*copies_.back());
}

Result<std::filesystem::path> Keeper::path_of_url(const std::string& url) const {
  TRY_ASSIGN(const std::string identity, RemoteCopy::identity_of(url, remote_));
  for (const auto& copy : copies_)
    if (copy->identity() == identity) return copy->path();
  return failure(ErrorCode::invalid_argument, "the URL is not held");
}

Result<void> Keeper::release(const std::filesystem::path& path) {
  const auto held = find(path);
  const auto copy = std::find_if(copies_.begin(), copies_.end(),
                                 [&path](const auto& each) { return each->path() == path; });
  if (held == files_.end() && copy == copies_.end())
    return failure(ErrorCode::invalid_argument, printable(path.native()) + " is not held");
  if (held != files_.end()) files_.erase(held);
  if (copy != copies_.end()) {
    (*copy)->remove();
    copies_.erase(copy);
  }
  say_(printable(path.native()) + ": released");
  return {};
}

void Keeper::note_start() {
  for (const HeldFile& file : files_) of_start_.insert(file.path());
  for (const auto& copy : copies_) of_start_.insert(copy->path());
}

Result<void> Keeper::check_start() const {
  for (const HeldFile& file : files_)
    if (std::optional<Error> refusal = file.refusal(); refusal && of_start_.contains(file.path()))
      return tl::unexpected<Error>(*refusal);
  for (const auto& copy : copies_)
    if (std::optional<Error> failed = copy->failure_of_all();
        failed && of_start_.contains(copy->path()))
      return tl::unexpected<Error>(*failed);
  return {};
}

bool Keeper::is_warming() const noexcept {
  return std::any_of(files_.begin(), files_.end(),
                     [](const HeldFile& file) { return file.is_warming(); }) ||
         std::any_of(copies_.begin(), copies_.end(),
                     [](const auto& copy) { return copy->is_busy(); });
}

bool Keeper::is_reloading() const noexcept {
  return std::any_of(files_.begin(), files_.end(),
                     [](const HeldFile& file) { return file.is_reloading(); });
}

void Keeper::advance() {
  for (const auto& copy : copies_) copy->advance();
  hold_copies();
  for (HeldFile& file : files_) file.advance();
}

// Those that are there for the first time.
void Keeper::hold_copies() {
  for (const auto& copy : copies_) {
    if (!copy->is_there() || find(copy->path()) != files_.end()) continue;
    static const WantedDigests compared_before_it_was_there;
    if (const Result<Json> held = hold(copy->path(), compared_before_it_was_there); !held)
      say_(printable(copy->path().native()) + ": " + held.error().message);
  }
}

void Keeper::tell() {
  for (const auto& copy : copies_) copy->tell();
  for (HeldFile& file : files_) file.tell();
}

void Keeper::look(bool counts) {
  for (const auto& copy : copies_) copy->look();
  for (HeldFile& file : files_) file.look(counts);
}

Json Keeper::describe(const RemoteCopy& copy) const {
  const auto held = std::find_if(files_.begin(), files_.end(), [&copy](const HeldFile& file) {
    return file.path() == copy.path();
  });
  Json described = held == files_.end() ? describe_fetching(copy) : held->describe();
  described.update(copy.describe());
  return described;
}

Json Keeper::describe() const {
  Json files = Json::array();
  for (const auto& copy : copies_) files.push_back(describe(*copy));
  for (const HeldFile& file : files_)
    if (std::none_of(copies_.begin(), copies_.end(),
                     [&file](const auto& copy) { return copy->path() == file.path(); }))
      files.push_back(file.describe());
  std::uint64_t file_bytes = 0;
  std::uint64_t resident_bytes = 0;
  bool is_known = true;  // of all of them
  for (const Json& file : files) {
    file_bytes += file["file_bytes"].get<std::uint64_t>();
    const Json& resident = file["resident_bytes"];
    is_known = is_known && resident.is_number();
    if (is_known) resident_bytes += resident.get<std::uint64_t>();
  }
  return {{"pid", ::getpid()},
          {"files", files},
          {"file_bytes", file_bytes},
          {"resident_bytes", is_known ? Json(resident_bytes) : Json(nullptr)}};
}

std::string Keeper::summary() const {
  std::uint64_t bytes = 0;
  for (const HeldFile& file : files_) bytes += file.file_bytes();
  return count(files_.size(), "file") + ", " + human_bytes(bytes);
}

}  // namespace weightmap::cli::hold
