// SHA-256s as people have them: of one file in hexadecimal digits, of several in a file that
// sha256sum has printed. For FetchOptions::sha256 (fetch.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// By the names of the files.
using Sha256Sums = std::map<std::string, std::array<std::byte, 32>>;

// Of 64 hexadecimal digits of either case; nullopt for other texts.
WEIGHTMAP_API std::optional<std::array<std::byte, 32>> sha256_of_hex(std::string_view hex) noexcept;

// As read_sums() of file_sums.hpp reads it, by the names in it, which lose "./" before them. Fails
// as that does; with corrupt for a list of no file, or of two sums for one.
WEIGHTMAP_API Result<Sha256Sums> read_sha256_sums(const std::filesystem::path& file);

}  // namespace weightmap
