// The start of a command as a fork of its template (docs/serving.md), which needs no permission.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "tools/run/start_task.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::templates {

// Runs the command as a fork of its template, and returns its exit status. None if there is no
// template, or none that fits, which then takes no further start; the command, which this process
// is to become, may leave one behind that ends after so many seconds without a start. Where that is
// not possible, says why.
std::optional<int> run_from_template(const start::StartOptions& options,
                                     const start::StartCommand& what, std::uint64_t idle_seconds);

// Returns the folders of this user's templates, sorted; some have none any more.
Result<std::vector<std::filesystem::path>> template_folders();

}  // namespace weightmap::cli::templates
