// URLs that stand for a model, which is a folder of files, and its place in shared memory.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "weightmap/fetch.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli {

// True for the URL of an index, of a folder ("https://host/llama/"), and of a model of the hub.
bool names_model(const std::string& url);
// The name of its folder: "llama"; empty if the URL has none.
std::string model_name(const std::string& url);
using OpenUrl = std::function<Result<std::unique_ptr<RangeSource>>(const std::string& url)>;

// Opens what leads to the model: of a folder what leads there by the rules for folders
// (checkpoint.hpp), or, where the store lists none, the first well-known name that is there. `open`
// is open_url().
Result<std::unique_ptr<RangeSource>> open_lead(const std::string& url, const OpenUrl& open);

// The URL of an absolute path.
std::string file_url(const std::filesystem::path& path);

// "/dev/shm/NAME". Fails with invalid_argument if it cannot be used: is_model_link() is false.
Result<std::filesystem::path> model_in_memory(const std::string& name);
// As fetch_model(), for this user alone.
Result<ModelReport> fetch_into_memory(std::unique_ptr<RangeSource> lead,
                                      const std::filesystem::path& link,
                                      const FetchOptions& options);
// Removes the link, and the versions that fetch_model() has brought beside it.
Result<void> remove_model(const std::filesystem::path& link);

}  // namespace weightmap::cli
