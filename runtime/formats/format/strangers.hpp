// Names files of other programs by their kind, and says what to do with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/zip/directory.hpp"

namespace weightmap::format {

// The last bytes of a file that name_stranger() uses.
inline constexpr std::size_t stranger_tail_bytes = 8;

// True for UBJSON, as XGBoost writes it, which begins like JSON.
bool begins_ubjson(std::string_view head) noexcept;

// Returns a sentence without its subject: "is a model of ONNX; ...". Empty for an unknown kind.
// `head` is at least the first head_bytes (identify.hpp) of a file of `file_bytes` bytes.
std::string_view name_stranger(std::string_view head, std::string_view tail,
                               std::uint64_t file_bytes) noexcept;
// Likewise of a zip archive that is none of torch's nor numpy's, by the names of its records.
std::string name_archive(const zip::Directory& directory);

}  // namespace weightmap::format
