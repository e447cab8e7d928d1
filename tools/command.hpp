// The parts of every command: an entry in the command line, common options, and a function that
// runs once the command line has been parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/options/file_argument.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/files.hpp"
#include "tools/support/output.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

// Exit codes: success; a file or the work failed; wrong usage.
inline constexpr int exit_good = 0;
inline constexpr int exit_failed = 1;
inline constexpr int exit_usage = 2;

// Returns the exit code, or an error that main() reports.
using Run = std::function<Result<int>(Output&)>;

struct CommonOptions : FileArgument {
  bool json = false;
  bool verbose = false;
  OpenOptions open;  // set by the command line; the environment sets the rest
};

// Adds --bytes and --tsv.
void add_table_options(CLI::App& command, TableStyle& style);

// Adds FILE, --json, -v, and the command line's options of an open, except --verify.
void add_common_options(CLI::App& command, CommonOptions& options);
void add_verify_option(CLI::App& command, CommonOptions& options);
// Adds an option for a command that does not use open_checkpoint().
void add_open_option(CLI::App& command, std::string_view name, OpenOptions& open);
// Adds --variant and --dtype-of.
void add_selection_options(CLI::App& command, OpenOptions& open);

// Adds --allow-global.
void add_allow_option(CLI::App& command, OpenOptions& open);

// Reads all items of a distributed checkpoint, so that a damaged one is told before anything else;
// of other formats the open has proven all.
Result<void> prove_tensors(const Checkpoint& checkpoint);

// Proves them, too. Of a URL it opens the metadata (open_metadata()), whose views have no memory.
Result<Checkpoint> open_checkpoint(const CommonOptions& options);
// Does the same for a command that only looks; fails if that would drop pages of processes that
// have the file mapped (check_look_is_harmless()).
Result<Checkpoint> open_to_look(const CommonOptions& options);
Result<void> check_may_look(const FileArgument& options);
// Fails for a URL, for which a part of a command cannot work.
Result<void> check_is_file(const CommonOptions& options);

// What `CheckpointInfo::unsupported` has.
inline constexpr std::string_view unlisted_kinds =
    "no array, pickled, compressed, of no dtype of a tensor or without elements of whole bytes";
// Returns "2 names, of what is ...: a, b". Precondition: `info.unsupported` is not empty.
std::string unlisted_text(const CheckpointInfo& info);

// Adds the file's name to `error` if the library did not.
Error about(const FileArgument& options, Error error);
// The same of what may have failed.
template <class T>
Result<T> about(const FileArgument& options, Result<T> result) {
  if (!result) result.error() = about(options, std::move(result.error()));
  return result;
}

// Each adds one subcommand to `app`, whose parsing sets `run`.
void add_ls(CLI::App& app, Run& run);
void add_tree(CLI::App& app, Run& run);
void add_scan(CLI::App& app, Run& run);
void add_cat(CLI::App& app, Run& run);
void add_stats(CLI::App& app, Run& run);
void add_diff(CLI::App& app, Run& run);
void add_verify(CLI::App& app, Run& run);
void add_residency(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_warm(CLI::App& app, Run& run);
void add_stage(CLI::App& app, Run& run);
void add_fetch(CLI::App& app, Run& run);
void add_ps(CLI::App& app, Run& run);
void add_publish(CLI::App& app, Run& run);
void add_convert(CLI::App& app, Run& run);
void add_delta(CLI::App& app, Run& run);
void add_apply(CLI::App& app, Run& run);
void add_hold(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_read_ahead(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_bench_sample(CLI::App& app, Run& run);

}  // namespace weightmap::cli
