#include "tools/remote/remote_model.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/try.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

std::string_view without_query(std::string_view url) {
  return url.substr(0, url.find_first_of("?#"));
}

// Of "hf://org/name@revision/file" the part behind "hf://"; empty for other URLs.
std::string_view in_hub(std::string_view url) {
  constexpr std::string_view scheme = "hf://";
  return url.starts_with(scheme) ? url.substr(scheme.size()) : std::string_view();
}

// The first name that is there. A store that lists nothing to strangers refuses what is not.
Result<std::unique_ptr<RangeSource>> open_well_known(const std::string& url, const OpenUrl& open) {
  for (const char* const name : {"model.safetensors.index.json", "model.safetensors",
                                 "pytorch_model.bin.index.json", "pytorch_model.bin"}) {
    TRY_ASSIGN(const std::unique_ptr<RangeSource> asked, open(url + name));
    const Result<RemoteVersion> found = asked->identify({}, {});
    if (found) return open(url + name);
    if (found.error().os_error != ENOENT && found.error().os_error != EACCES)
      return tl::unexpected<Error>(found.error());
  }
  return failure(ErrorCode::not_found,
                 "is a folder in which the store shows neither model.safetensors.index.json nor "
                 "model.safetensors, nor those of pytorch_model.bin: name the file");
}

}  // namespace

bool names_model(const std::string& url) {
  const std::string_view path = without_query(url);
  return path.ends_with(".index.json") || path.ends_with('/') ||
         std::ranges::count(in_hub(url), '/') == 1;
}

std::string model_name(const std::string& url) {
  std::string_view path = without_query(url);
  if (const std::string_view hub = in_hub(url); !hub.empty())
    return std::string(hub.substr(hub.find('/') + 1, hub.find('@') - hub.find('/') - 1));
  const std::size_t host = path.find("://");
  path = path.substr(0, path.rfind('/'));
  const std::size_t slash = path.rfind('/');
  return slash == path.npos || slash < host + 3 ? "" : std::string(path.substr(slash + 1));
}

Result<std::unique_ptr<RangeSource>> open_lead(const std::string& url, const OpenUrl& open) {
  if (!url.ends_with('/')) return open(url);
  TRY_ASSIGN(const std::unique_ptr<RangeSource> any, open(url + "model.safetensors"));
  TRY_ASSIGN(const std::optional<Listing> listing, any->list());
  if (!listing || listing->empty()) return open_well_known(url, open);
  TRY_ASSIGN(const std::string lead, lead_of(*listing));
  return any->sibling(lead);
}

std::string file_url(const fs::path& path) {
  constexpr std::string_view stays = "/-._~";
  std::string url = "file://";
  for (const char c : path.native()) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || stays.find(c) != stays.npos)
      url += c;
    else
      url += fmt::format("%{:02X}", byte);
  }
  return url;
}

Result<fs::path> model_in_memory(const std::string& name) {
  const auto refused = [&name](const std::string& why) {
    return failure(ErrorCode::invalid_argument, "\"" + printable(name) + "\" " + why);
  };
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
    return refused("cannot be the name of a folder in /dev/shm; --name gives it another one");
  const fs::path path = fs::path("/dev/shm") / name;
  if (!is_model_link(path))
    return refused("is there already in /dev/shm, and is no version of a model; remove it first");
  return path;
}

Result<ModelReport> fetch_into_memory(std::unique_ptr<RangeSource> lead, const fs::path& link,
                                      const FetchOptions& options) {
  ::mkdir((link.native() + "@incoming").c_str(), 0700);  // fetch_model() says what is wrong with it
  return fetch_model(std::move(lead), link, options);
}

Result<void> remove_model(const fs::path& link) {
  std::error_code failed;
  fs::remove(link, failed);
  if (failed)
    return failure(ErrorCode::io,
                   "cannot remove " + printable(link.native()) + ": " + failed.message());
  TRY(remove_old_versions(link));
  fs::remove_all(link.native() + "@incoming", failed);
  return {};
}

}  // namespace weightmap::cli
