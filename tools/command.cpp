#include "tools/command.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "tools/text.hpp"

namespace weightmap::cli {
namespace {

std::function<void(std::string_view)> stderr_log() {
  auto logger = std::make_shared<spdlog::logger>("weightmap",
                                                 std::make_shared<spdlog::sinks::stderr_sink_st>());
  logger->set_pattern("[%H:%M:%S.%e] %n: %v");
  return [logger](std::string_view line) {
    logger->info(spdlog::string_view_t(line.data(), line.size()));
  };
}

// What more is said of a word that is refused.
template <class T>
std::string hint_about(const std::string& word) {
  const bool is_copy = std::is_same_v<T, Protection> && word == "copy";
  return is_copy ? std::string(copy_protection_hint) : "";
}

// An option that takes one of a few words, and refuses others with the list of them.
template <class T>
void add_choice(CLI::App& command, const std::string& name, std::optional<T>& field,
                const std::vector<std::pair<std::string, T>>& words, const std::string& help) {
  std::string list;
  for (const auto& word : words) list += (list.empty() ? "" : "|") + word.first;
  const auto set = [&field, words, list, name](const std::string& text) {
    const auto found = std::find_if(words.begin(), words.end(),
                                    [&](const auto& word) { return word.first == text; });
    if (found == words.end())
      throw CLI::ValidationError(
          name, "must be " + list + ", not \"" + printable(text) + "\"" + hint_about<T>(text));
    field = found->second;
  };
  command.add_option_function<std::string>(name, set, help)->type_name(list);
}

}  // namespace

void add_common_options(CLI::App& command, CommonOptions& options) {
  command.add_option("FILE", options.file, "The checkpoint")->required()->type_name("");
  command.add_flag("--json", options.json, "One JSON document on standard output");
  add_choice<Sharing>(command, "--sharing", options.sharing,
                      {{"shared", Sharing::shared}, {"private", Sharing::private_}},
                      "How to map the file");
  add_choice<Protection>(
      command, "--protection", options.protection,
      {{"map", Protection::map}, {"guard", Protection::guard}, {"snapshot", Protection::snapshot}},
      "What to do about the loss of the file");
  command.add_flag("--no-huge-pages", options.no_huge_pages, "Do not ask for 2 MiB pages");
  command.add_flag("--shared-catalog", options.shared_catalog,
                   "Use the catalog that another process published, or publish one");
  command.add_flag("-v,--verbose", options.verbose, "Log what happens to standard error");
}

void add_verify_option(CLI::App& command, CommonOptions& options) {
  add_choice<Verify>(command, "--verify", options.verify,
                     {{"chain", Verify::chain}, {"headers", Verify::headers}, {"crc", Verify::crc}},
                     "What to prove before anything is shown");
}

Result<Checkpoint> open_checkpoint(const CommonOptions& options) {
  OpenOptions open;
  open.sharing = options.sharing;
  open.protection = options.protection;
  open.verify = options.verify;
  if (options.no_huge_pages) open.huge_pages = false;
  if (options.shared_catalog) open.shared_catalog = true;
  if (options.verbose) open.log = stderr_log();
  Result<Checkpoint> checkpoint = Checkpoint::open(options.file, open);
  if (!checkpoint) return tl::unexpected<Error>(about(options, checkpoint.error()));
  return checkpoint;
}

Error about(const CommonOptions& options, Error error) {
  if (error.file.empty()) error.file = printable(options.file);
  return error;
}

}  // namespace weightmap::cli
