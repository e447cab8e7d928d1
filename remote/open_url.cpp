#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "remote/http_source.hpp"
#include "remote/s3.hpp"
#include "remote/url.hpp"
#include "runtime/base/bytes/checked.hpp"
#include "runtime/base/try.hpp"
#include "runtime/system/uninterrupted.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/remote.hpp"

namespace weightmap {
namespace remote {
namespace {

constexpr std::uint64_t step = 4u << 20;  // between two calls of goes_on()

// A file of file://, read with pread: for mounts, and where a URL is wanted.
class FileSource final : public RangeSource, public WholeSource {
 public:
  explicit FileSource(Url url);

  const std::string& name() const noexcept override { return name_; }
  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override;
  Result<void> read(RangeReader& reader) override;
  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override;
  RangeCounts counts() const noexcept override { return counts_; }
  bool has_no_ranges() const noexcept override { return false; }
  Result<void> read_whole(WholeReader& reader) override;
  Result<std::optional<Listing>> list() override;

 private:
  Result<void> read_bytes(std::uint64_t offset, std::span<std::byte> into);
  Result<void> read_range(RangeReader& reader, const RangeRequest& request,
                          std::uint64_t& received);
  Result<void> check_unchanged() const;
  Result<RemoteVersion> version_now() const;
  tl::unexpected<Error> failed(ErrorCode code, std::string message, int os_error = 0) const;

  Url url_;
  std::string name_;
  os::UniqueFd file_;
  RemoteVersion version_;
  RangeCounts counts_;
};

FileSource::FileSource(Url url) : url_(std::move(url)), name_(url_.name()) {}

Result<RemoteVersion> FileSource::identify(std::span<std::byte> head, std::span<std::byte> tail) {
  const std::string path = percent_decoded(url_.path);
  if (path.find('\0') != path.npos)
    return failed(ErrorCode::invalid_argument, "%00 is in no name of a file");
  // Opening a FIFO would block.
  file_ = os::UniqueFd(
      os::uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (file_.get() < 0) return failed(ErrorCode::io, "cannot open the file", errno);
  TRY_ASSIGN(version_, version_now());
  const std::uint64_t size = version_.size;
  TRY(read_bytes(0, head.first(std::min<std::uint64_t>(size, head.size()))));
  const auto last = tail.last(std::min<std::uint64_t>(size, tail.size()));
  TRY(read_bytes(size - last.size(), last));
  TRY(check_unchanged());
  return version_;
}

Result<void> FileSource::read(RangeReader& reader) {
  if (file_.get() < 0) return failed(ErrorCode::invalid_argument, "read() comes after identify()");
  std::uint64_t received = 0;
  while (const std::optional<RangeRequest> request = reader.next()) {
    TRY(read_range(reader, *request, received));
    TRY(check_unchanged());
    TRY(reader.arrived(*request));
  }
  return {};
}

Result<void> FileSource::read_range(RangeReader& reader, const RangeRequest& request,
                                    std::uint64_t& received) {
  if (!bytes::contains(version_.size, request.offset, request.into.size()))
    return failed(ErrorCode::invalid_argument, "a range is not within the file");
  for (std::uint64_t at = 0; at < request.into.size(); at += step) {
    if (!reader.goes_on(received)) return failed(ErrorCode::cancelled, "cancelled");
    const auto part =
        request.into.subspan(at, std::min<std::uint64_t>(step, request.into.size() - at));
    TRY(read_bytes(request.offset + at, part));
    received += part.size();
  }
  return {};
}

Result<void> FileSource::read_whole(WholeReader& reader) {
  TRY(identify({}, {}));
  TRY(reader.begins(version_));
  std::vector<std::byte> part(static_cast<std::size_t>(std::min(step, version_.size)));
  for (std::uint64_t at = 0; at < version_.size; at += step) {
    const auto bytes = std::span(part).first(std::min<std::uint64_t>(step, version_.size - at));
    TRY(read_bytes(at, bytes));
    TRY(reader.take(bytes));
  }
  return check_unchanged();
}

Result<void> FileSource::read_bytes(std::uint64_t offset, std::span<std::byte> into) {
  ++counts_.requests;
  while (!into.empty()) {
    const ssize_t count = os::uninterrupted(
        [&] { return ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset)); });
    if (count < 0) return failed(ErrorCode::io, "cannot read the file", errno);
    if (count == 0) return failed(ErrorCode::io, "changed: the file has become shorter");
    const auto length = static_cast<std::size_t>(count);
    into = into.subspan(length);
    offset += length;
    counts_.bytes += length;
  }
  return {};
}

Result<void> FileSource::check_unchanged() const {
  TRY_ASSIGN(const RemoteVersion now, version_now());
  if (now == version_) return {};
  return failed(ErrorCode::io,
                "changed: the file was version " + version_.tag + ", and is " + now.tag + " now");
}

// The tag stands for the file's identity, as far as a system tells it.
RemoteVersion version_of(const struct stat& status) {
  std::string tag = "\"";
  for (const auto number : {std::uint64_t{status.st_dev}, std::uint64_t{status.st_ino},
                            static_cast<std::uint64_t>(status.st_size),
                            static_cast<std::uint64_t>(status.st_mtim.tv_sec),
                            static_cast<std::uint64_t>(status.st_mtim.tv_nsec)})
    tag += (tag.size() == 1 ? "" : "-") + std::to_string(number);
  return RemoteVersion{.size = static_cast<std::uint64_t>(status.st_size), .tag = tag + '"'};
}

Result<RemoteVersion> FileSource::version_now() const {
  struct stat status;
  if (::fstat(file_.get(), &status) != 0) return failed(ErrorCode::io, "cannot stat", errno);
  if (!S_ISREG(status.st_mode)) return failed(ErrorCode::io, "not a regular file");
  return version_of(status);
}

Result<std::optional<Listing>> FileSource::list() {
  std::error_code refused;
  Listing files;
  for (std::filesystem::directory_iterator
           entry(std::filesystem::path(percent_decoded(url_.path)).parent_path(), refused),
       end;
       !refused && entry != end; entry.increment(refused)) {
    struct stat status;
    if (::stat(entry->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    RemoteVersion version = version_of(status);
    files.push_back({entry->path().filename(), version.size, std::move(version.tag)});
  }
  return refused ? std::nullopt : std::optional(std::move(files));
}

Result<std::unique_ptr<RangeSource>> FileSource::sibling(const std::string& relative) const {
  TRY_ASSIGN(Url url, url_.sibling(relative));
  return std::make_unique<FileSource>(std::move(url));
}

tl::unexpected<Error> FileSource::failed(ErrorCode code, std::string message, int os_error) const {
  if (os_error != 0) message += ": " + std::generic_category().message(os_error);
  return tl::unexpected<Error>(
      Error{.code = code, .message = std::move(message), .file = name_, .os_error = os_error});
}

}  // namespace
}  // namespace remote

namespace {

bool has_scheme(std::string_view text, std::string_view scheme) noexcept {
  return text.size() > scheme.size() && text.substr(scheme.size()).starts_with("://") &&
         std::equal(scheme.begin(), scheme.end(), text.begin(), [](char lower, char c) {
           return lower == (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
         });
}

}  // namespace

bool is_url(const std::string& text) noexcept {
  constexpr std::array<std::string_view, 5> schemes = {"http", "https", "s3", "file", "hf"};
  return std::any_of(schemes.begin(), schemes.end(),
                     [&](std::string_view scheme) { return has_scheme(text, scheme); });
}

Result<std::unique_ptr<RangeSource>> open_url(const std::string& url,
                                              const RemoteOptions& options) {
  if (has_scheme(url, "s3")) {
    TRY_ASSIGN(remote::S3Object object, remote::S3Object::parse(url));
    return remote::HttpSource::open(url, std::move(object), options);
  }
  if (has_scheme(url, "hf")) {
    TRY_ASSIGN(std::shared_ptr<HubClient> client, hub_client(options));
    return open_hub_model(std::move(client), url);
  }
  TRY_ASSIGN(remote::Url parsed, remote::Url::parse(url));
  if (parsed.scheme == "file") return std::make_unique<remote::FileSource>(std::move(parsed));
  return remote::HttpSource::open(url, std::move(parsed), options);
}

std::string version_file_name(const std::string& file, const RemoteVersion& version) {
  std::string_view tag = version.tag;
  if (tag.starts_with("W/")) tag.remove_prefix(2);
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"')
    tag = tag.substr(1, tag.size() - 2);
  if (tag.empty()) return {};
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string name = file + "@";
  for (const char c : tag) {
    const bool stays = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '-' || c == '.';
    const auto byte = static_cast<unsigned char>(c);
    if (stays)
      name += c;
    else
      name.append({'_', digits[byte >> 4], digits[byte & 15]});
  }
  return name;
}

}  // namespace weightmap
