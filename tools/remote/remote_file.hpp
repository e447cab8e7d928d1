// Files that are named by a URL, where this build has libweightmap_remote.
#pragma once

#include <cerrno>
#include <functional>
#include <memory>
#include <string>

#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli {

// True for text that begins as a URL does, of whichever scheme: "s3://bucket/model.pt".
bool names_remote_file(const std::string& text) noexcept;

// As open_url(). Fails with unsupported if this build has no remote files.
Result<std::unique_ptr<RangeSource>> open_remote(const std::string& url,
                                                 const RemoteOptions& options);

// The last segment of its URL, decoded: "model.pt".
std::string remote_file_name(const RangeSource& source);

// As version_file_name(): "model.pt@TAG"; empty without a tag.
std::string version_name(const std::string& file, const RemoteVersion& version);

// Of a URL that ends with a slash: opens what leads to the model in that folder, the first name
// that is there. A store that lists nothing to strangers refuses what is not.
template <class T>
Result<T> first_in_folder(const std::string& url,
                          const std::function<Result<T>(const std::string& url)>& open) {
  for (const char* const name : {"model.safetensors.index.json", "model.safetensors",
                                 "pytorch_model.bin.index.json", "pytorch_model.bin"}) {
    Result<T> opened = open(url + name);
    if (opened || (opened.error().os_error != ENOENT && opened.error().os_error != EACCES))
      return opened;
  }
  return failure(ErrorCode::not_found,
                 "is a folder in which the store shows neither model.safetensors.index.json nor "
                 "model.safetensors, nor those of pytorch_model.bin: name the file");
}

}  // namespace weightmap::cli
