// FILE on the command line: a path, or a URL.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "weightmap/fetch.hpp"
#include "weightmap/remote.hpp"

namespace weightmap::cli {

struct FileArgument {
  std::string file;      // the path; of a URL the part that may be shown, as RangeSource::name()
  std::string url = {};  // as it was given; empty: FILE is a path
  RemoteOptions remote = {};

  bool is_remote() const noexcept { return !url.empty(); }
};

// Adds FILE, or another name. A URL that cannot be used is wrong usage.
CLI::Option* add_file_argument(CLI::App& command, FileArgument& file, const std::string& help,
                               const std::string& name = "FILE");

// Adds --connections, --unproven, --signer and --header, for a command whose FILE may be a URL.
void add_remote_options(CLI::App& command, RemoteOptions& options);
// Adds --sha256, --sums and --require-digest. `whose` begins their help.
void add_sum_options(CLI::App& command, Sha256Sums& sums, bool& are_required,
                     const std::string& whose);
// Adds --order, --chunk and these, for one that fetches it as a whole. Returns --order.
CLI::Option* add_fetch_options(CLI::App& command, FetchOptions& options);

// Makes a URL wrong usage in each command of `app` that has no remote options.
void refuse_urls_elsewhere(CLI::App& app);
// Throws CLI::ValidationError for a FILE that is a URL.
void refuse_url(const std::string& text);

}  // namespace weightmap::cli
