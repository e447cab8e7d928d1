// What every command is made of: an entry in the command line, options that all of them have, and
// a function to run once the command line has been understood.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/support/columns.hpp"
#include "tools/support/output.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap::cli {

// Exit codes: good; a file or the work failed; wrong usage.
inline constexpr int exit_good = 0;
inline constexpr int exit_failed = 1;
inline constexpr int exit_usage = 2;

// Answers the exit code, or an error that main() reports.
using Run = std::function<Result<int>(Output&)>;

struct CommonOptions {
  std::string file;
  bool json = false;
  bool verbose = false;
  OpenOptions open;  // what the command line sets; the rest is the environment's
};

// --bytes and --tsv.
void add_table_options(CLI::App& command, TableStyle& style);

// FILE, --json, -v, and each option of an open that the command line offers, but for --verify.
void add_common_options(CLI::App& command, CommonOptions& options);
void add_verify_option(CLI::App& command, CommonOptions& options);
// One that open_checkpoint() is not asked for.
void add_open_option(CLI::App& command, std::string_view name, OpenOptions& open);
// --allow-global.
void add_allow_option(CLI::App& command, OpenOptions& open);

Result<Checkpoint> open_checkpoint(const CommonOptions& options);

// The files that a checkpoint was opened from: one, or those of a set, with its index.
std::vector<SourceInfo> files_of(const Checkpoint& checkpoint);

// Of `info.unsupported`, which is not empty: "2 names, of ... : a, ...".
std::string unlisted_text(const CheckpointInfo& info);

// `error`, with the file's name where the library did not know it.
Error about(const CommonOptions& options, Error error);
// The same of what may have failed.
template <class T>
Result<T> about(const CommonOptions& options, Result<T> result) {
  if (!result) result.error() = about(options, std::move(result.error()));
  return result;
}

// Each adds one subcommand to `app`; when that is the one that was chosen, parsing sets `run`.
void add_ls(CLI::App& app, Run& run);
void add_du(CLI::App& app, Run& run);
void add_tree(CLI::App& app, Run& run);
void add_info(CLI::App& app, Run& run);
void add_scan(CLI::App& app, Run& run);
void add_cat(CLI::App& app, Run& run);
void add_stats(CLI::App& app, Run& run);
void add_diff(CLI::App& app, Run& run);
void add_verify(CLI::App& app, Run& run);
void add_residency(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_evict(CLI::App& app, Run& run);
void add_warm(CLI::App& app, Run& run);
void add_stage(CLI::App& app, Run& run);
void add_ps(CLI::App& app, Run& run);
void add_publish(CLI::App& app, Run& run);
void add_convert(CLI::App& app, Run& run);
void add_hold(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_bench_sample(CLI::App& app, Run& run);
void add_completion(CLI::App& app, Run& run);

}  // namespace weightmap::cli
