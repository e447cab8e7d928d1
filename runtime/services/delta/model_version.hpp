// Which version of a model a folder has. Versions are numbers, with leading zeros in most places
// (slime has six digits), or any other text (ModelExpress).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "weightmap/checkpoint.hpp"
#include "weightmap/result.hpp"

namespace weightmap::delta {

// Of a model that no delta was applied to.
inline constexpr std::string_view first_version = "000000";

// Equal numbers, or equal texts.
bool is_same_version(std::string_view a, std::string_view b) noexcept;
// Fails with corrupt for an empty or a very long text, and for two numbers that do not ascend.
Result<void> check_ascends(std::string_view from, std::string_view to);
// Returns the number behind this one, or nullopt for another text.
std::optional<std::string> version_after(std::string_view version);
// "000002" of "weight_v000002"; nullopt for another name.
std::optional<std::string> version_in_name(const std::filesystem::path& folder);

// Says which version its folder has:
//
//   {"version": "000002", "base_version": "000001"}
inline constexpr const char* version_name = "weightmap_version.json";
// What the file in this folder says. Fails with corrupt if it does not, with io if it cannot be
// read.
Result<std::string> recorded_version(const std::filesystem::path& folder);
// Writes it.
Result<void> record_version(const std::filesystem::path& folder, std::string_view version,
                            std::string_view base_version, bool durable);

// Returns the version of the model in a folder, which was opened as `checkpoint`, and is or was
// called `name`: see ApplyOptions. Fails with corrupt for a file of versions that is none, with io
// if it cannot be read.
Result<std::string> version_of(const std::filesystem::path& folder,
                               const std::filesystem::path& name, const Checkpoint& checkpoint);

}  // namespace weightmap::delta
