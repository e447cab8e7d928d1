// Where plans of starts are kept, and under which key.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tools/run/start_plan.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::start {

// Returns a hash of a program's path and version, of its script, module or code if it is an
// interpreter, and of the variables that say where Python and the loader look for code. Other
// arguments are not part of it, since a port does not make another start, unless `all_words` is
// asked for.
enum class KeyOf : bool { code, all_words };
std::string start_key(const std::filesystem::path& program, std::span<const std::string> command,
                      KeyOf parts = KeyOf::code);

// Returns the file of a key in $WEIGHTMAP_START_DIR, else in $XDG_CACHE_HOME/weightmap/starts, else
// in ~/.cache/weightmap/starts. Fails with not_found if none of these is set.
Result<std::filesystem::path> plan_path(const std::string& key);

// Fails with not_found if there is none, and refuses a file that others than this user and root may
// write to, or that is larger than any plan.
Result<StartPlan> load_plan(const std::filesystem::path& path);

// Makes the folder of a plan, for this user alone.
Result<void> make_plan_folder(const std::filesystem::path& path);

// Makes the folder, and replaces the plan atomically.
Result<void> save_plan(const StartPlan& plan, const std::filesystem::path& path);

}  // namespace weightmap::cli::start
