// Which file of which store a local one is: what its journal and its extended attribute say.
#pragma once

#include <filesystem>
#include <string>

#include "weightmap/remote.hpp"

namespace weightmap {

// True if equal versions mean equal bytes: a strong ETag, or S3's versionId.
bool is_exact(const RemoteVersion& version) noexcept;

// The source's name and a digest of its identity(), which may have a secret.
std::string source_text(const RangeSource& source);

// Notes at the open file that it is this version of this source as long as it is not written to.
// Does nothing if the version is not exact, or the file system keeps no attributes.
void note_version(int descriptor, const RangeSource& source, const RemoteVersion& version);
// True if that was noted of the file at the path, and is still so.
bool has_version(const std::filesystem::path& path, const RangeSource& source,
                 const RemoteVersion& version);

}  // namespace weightmap
