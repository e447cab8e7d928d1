// The program criu (https://criu.org), which dumps and restores processes: found when it is needed,
// asked for its version, and called with the options that a snapshot needs.
#pragma once

#include <sys/types.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// Returns $WEIGHTMAP_CRIU if it is set; else finds criu on PATH, else in the folders of programs
// for administrators. Empty: there is none.
std::filesystem::path find_criu();

// Returns "4.2.1". Fails with not_found if there is no criu, with unsupported if it is older than
// 4.0, whose predecessors cannot restore what today's kernels and C libraries set up.
Result<std::string> criu_version(const std::filesystem::path& criu);

// Asks criu whether this kernel and user have what it needs. Fails with unsupported, with its
// words.
Result<void> check_criu(const std::filesystem::path& criu);

// `keeps_connections`: those of TCP between the processes go on after a restore, and two restores
// at once cannot have them. Otherwise all connections are closed then.

// Returns the words that dump a process and its descendants, which then go on. `log` is a file,
// `script` a program that is run while they stand still.
std::vector<std::string> dump_words(const std::filesystem::path& criu, pid_t root,
                                    const std::filesystem::path& image,
                                    const std::filesystem::path& log,
                                    const std::filesystem::path& script, bool keeps_connections);

// Returns the words that restore an image. The restored processes have descriptor `first_output`
// and the next one where those that were dumped had the pipes with these inodes. criu runs `script`
// once they are there, and they run once it has ended well.
std::vector<std::string> restore_words(const std::filesystem::path& criu,
                                       const std::filesystem::path& image,
                                       const std::filesystem::path& work,
                                       const std::filesystem::path& script,
                                       const std::array<std::uint64_t, 2>& pipes, int first_output,
                                       bool keeps_connections);

// Writes a program for criu's --action-script, and returns its path. Fails with io.
Result<std::filesystem::path> write_action_script(const std::filesystem::path& path,
                                                  const char* program);

// The log of criu, which tells why a dump or a restore failed.

// Returns the first error, without the place in criu's source; empty if there is none.
std::string first_error_in(const std::filesystem::path& log);

}  // namespace weightmap::cli::snapshot
