// Which files a store has in a folder.
#pragma once

#include <optional>

#include "remote/s3.hpp"
#include "remote/url.hpp"
#include "weightmap/remote.hpp"
#include "weightmap/result.hpp"

namespace weightmap::remote {

// Both return nullopt for a store that refuses (HTTP 4xx, 501), that answers with something else,
// or with more than any model has. They fail if no answer came in the end, so that a store that is
// out of order is not taken for one without listings.

// Asks by ListObjectsV2 for what lies beside the object, a thousand keys at a time.
Result<std::optional<Listing>> list_s3_folder(const S3Object& object, const RemoteOptions& options,
                                              RangeCounts& counts);
// Asks for the folder of the URL, as read_autoindex() reads it. Nothing for a presigned one.
Result<std::optional<Listing>> list_web_folder(Url file, const RemoteOptions& options,
                                               RangeCounts& counts);

}  // namespace weightmap::remote
