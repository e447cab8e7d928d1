#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/bytes/sha256.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/sets/file_names.hpp"
#include "runtime/formats/sets/hub.hpp"
#include "runtime/services/fetch/names_beside.hpp"
#include "weightmap/remote.hpp"

namespace weightmap {
namespace {

constexpr std::string_view scheme = "hf://";

// All but letters, digits, "-._~" and the bytes of `kept`.
std::string percent_encoded(std::string_view text, std::string_view kept) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const bool stays = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       std::string_view("-._~").find(c) != std::string_view::npos ||
                       kept.find(c) != std::string_view::npos;
    const auto byte = static_cast<unsigned char>(c);
    if (stays)
      encoded += c;
    else
      encoded.append({'%', digits[byte >> 4], digits[byte & 15]});
  }
  return encoded;
}

// What the hub answers for a file that is in git itself. For others it leads to a store with tags
// of its own.
std::string tag_of(const sets::HubFile& file) { return '"' + file.blob + '"'; }

// Of the folder of this file.
Listing files_beside(const sets::HubListing& listing, const std::string& file) {
  const std::string folder = file.substr(0, file.rfind('/') + 1);
  Listing files;
  for (const sets::HubFile& listed : listing.files)
    if (listed.name.starts_with(folder) &&
        listed.name.find('/', folder.size()) == std::string::npos)
      files.push_back({listed.name.substr(folder.size()), listed.size, tag_of(listed)});
  return files;
}

// The file that was named, or the one that is or leads to the model's checkpoint.
Result<std::string> file_of(const sets::HubName& name, const sets::HubListing& listing) {
  if (!name.file.empty()) return name.file;
  TRY_ASSIGN(std::vector<std::string> files, listing.checkpoint());
  return only_one_of(std::move(files));
}

// A file that was read as a whole.
class HubWholeFile final : public RangeSource {
 public:
  HubWholeFile(HubClient& client, std::string path, std::string content, std::string tag)
      : client_(client),
        path_(std::move(path)),
        content_(std::move(content)),
        tag_(std::move(tag)) {}

  const std::string& name() const noexcept override { return path_; }

  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override {
    const auto bytes = std::as_bytes(std::span(content_));
    const std::size_t first = std::min(head.size(), bytes.size());
    const std::size_t last = std::min(tail.size(), bytes.size());
    std::ranges::copy(bytes.first(first), head.begin());
    std::ranges::copy(bytes.last(last), tail.last(last).begin());
    return RemoteVersion{.size = bytes.size(), .tag = tag_};
  }

  Result<void> read(RangeReader& reader) override {
    const auto bytes = std::as_bytes(std::span(content_));
    while (const std::optional<RangeRequest> wanted = reader.next()) {
      if (!bytes::contains(bytes.size(), wanted->offset, wanted->into.size()))
        return failure(ErrorCode::invalid_argument, "a range is not within the file",
                       wanted->offset);
      std::ranges::copy(bytes.subspan(wanted->offset, wanted->into.size()), wanted->into.begin());
      TRY(reader.arrived(*wanted));
    }
    return {};
  }

  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override {
    if (!sets::stays_below(relative))
      return failure(ErrorCode::invalid_argument,
                     bytes::quote(relative) + " would leave the folder");
    return client_.open(path_.substr(0, path_.rfind('/') + 1) + percent_encoded(relative, "/"));
  }

  RangeCounts counts() const noexcept override { return {.requests = 1, .bytes = content_.size()}; }

 private:
  HubClient& client_;
  const std::string path_;
  const std::string content_;
  const std::string tag_;
};

// "hf://org/name@revision/file".
Result<sets::HubName> parse_hub_url(const std::string& text) {
  if (text.starts_with(scheme))
    if (std::optional<sets::HubName> name = sets::HubName::parse(text.substr(scheme.size())))
      return std::move(*name);
  return failure(ErrorCode::invalid_argument,
                 bytes::quote(text) +
                     " is no model of the hub: expected hf://org/name, hf://org/name@revision or "
                     "hf://org/name/file");
}

// Asks which commit the revision is, and for its files.
Result<sets::HubListing> list_hub_model(HubClient& client, const sets::HubName& name) {
  TRY_ASSIGN(const std::string answer,
             client.get("/api/models/" + name.model + "/revision/" +
                        percent_encoded(name.revision, "") + "?blobs=true"));
  TRY_ASSIGN(sets::HubListing listing, sets::read_hub_listing(answer));
  if (name.file.empty() || listing.find(name.file) != nullptr) return listing;
  return failure(ErrorCode::not_found, "the model has no file " + bytes::quote(name.file) +
                                           " in commit " + listing.commit);
}

std::string hub_path(const sets::HubName& name, const std::string& commit, std::string_view file) {
  return "/" + name.model + "/resolve/" + commit + "/" + percent_encoded(file, "/");
}

// Opens a file of this listing, as long as the client lives.
Result<std::unique_ptr<RangeSource>> open_hub_file(HubClient& client, const sets::HubName& name,
                                                   const sets::HubListing& listing,
                                                   const std::string& file) {
  std::string path = hub_path(name, listing.commit, file);
  const sets::HubFile* const listed = listing.find(file);
  // The hub need not serve ranges of the files that are in git itself.
  if (!file.ends_with(".json") || listed == nullptr) return client.open(path);
  TRY_ASSIGN(std::string content, client.get(path));
  return std::make_unique<HubWholeFile>(client, std::move(path), std::move(content),
                                        tag_of(*listed));
}

class HubSource final : public RangeSource {
 public:
  HubSource(std::shared_ptr<HubClient> client, sets::HubName model, std::string name)
      : client_(std::move(client)), model_(std::move(model)), name_(std::move(name)) {}

  // From identify() on it ends with the file.
  const std::string& name() const noexcept override { return name_; }
  std::string identity() const override { return file_ ? file_->identity() : name_; }

  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override {
    TRY(about_file(find(), name_));
    return file_->identify(head, tail);
  }

  Result<void> read(RangeReader& reader) override {
    if (!file_) return failure(ErrorCode::invalid_argument, "read() comes after identify()");
    return file_->read(reader);
  }

  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override {
    if (!file_) return failure(ErrorCode::invalid_argument, "sibling() comes after identify()");
    return file_->sibling(relative);
  }

  RangeCounts counts() const noexcept override { return file_ ? file_->counts() : RangeCounts{}; }
  bool tells_began() const noexcept override { return file_ && file_->tells_began(); }
  Result<StoreSum> store_sum() override { return StoreSum{.sha256 = sum_}; }
  Result<std::optional<Listing>> list() override {
    TRY(about_file(find(), name_));
    return beside_;
  }

 private:
  // Once.
  Result<void> find() {
    if (file_) return {};
    TRY_ASSIGN(const sets::HubListing listing, list_hub_model(*client_, model_));
    TRY_ASSIGN(const std::string file, file_of(model_, listing));
    // The hash of a large file is its SHA-256, that of others a shorter one of git.
    if (const sets::HubFile* const listed = listing.find(file))
      sum_ = bytes::parse_sha256(listed->blob);
    beside_ = files_beside(listing, file);
    TRY_ASSIGN(file_, open_hub_file(*client_, model_, listing, file));
    if (model_.file.empty()) name_ += "/" + file;
    return {};
  }

  std::shared_ptr<HubClient> client_;
  sets::HubName model_;
  std::string name_;
  std::unique_ptr<RangeSource> file_;
  std::optional<bytes::Sha256::Digest> sum_;
  Listing beside_;
};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Without white space around it.
std::string trimmed(const std::string& text) {
  constexpr const char* blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return trimmed(line);
}

std::filesystem::path token_file() {
  if (std::string path = variable("HF_TOKEN_PATH"); !path.empty()) return path;
  const std::filesystem::path home = sets::hub_home();
  return home.empty() ? home : home / "token";
}

}  // namespace

Result<std::unique_ptr<RangeSource>> open_hub_model(std::shared_ptr<HubClient> client,
                                                    const std::string& name) {
  TRY_ASSIGN(sets::HubName model, parse_hub_url(name));
  return std::make_unique<HubSource>(std::move(client), std::move(model), name);
}

HubAccess hub_access() {
  HubAccess access;
  if (std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty())
    access.endpoint = std::move(endpoint);
  while (access.endpoint.ends_with('/')) access.endpoint.pop_back();
  access.token = trimmed(variable("HF_TOKEN"));
  access.token_from = "HF_TOKEN";
  if (!access.token.empty()) return access;
  const std::filesystem::path file = token_file();
  access.token = first_line(file);
  access.token_from = access.token.empty() ? "" : shown_name(file);
  return access;
}

}  // namespace weightmap
