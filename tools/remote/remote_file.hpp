// Files that are named by a URL, where this build has libweightmap_remote.
#pragma once

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

}  // namespace weightmap::cli
