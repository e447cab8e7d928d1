// The answer of S3's ListObjectsV2.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weightmap/remote.hpp"

namespace weightmap::remote {

struct S3Page {
  Listing files = {};     // names are what of the keys is behind the prefix
  std::string next = {};  // asks for the page behind this one; empty: it is the last
};

// Of a listing with this prefix, which ends with a slash or is empty, by the delimiter "/". Keys
// that are not below the prefix, or would leave a folder, are left out. nullopt for anything else.
std::optional<S3Page> read_s3_page(std::string_view xml, std::string_view prefix);

}  // namespace weightmap::remote
