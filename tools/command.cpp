#include "tools/command.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <memory>
#include <string_view>

#include "runtime/base/option_table.hpp"
#include "runtime/base/try.hpp"
#include "runtime/services/inspect/processes.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/remote/remote_model.hpp"
#include "tools/support/text.hpp"
#include "weightmap/remote.hpp"

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

// Returns "--no-reserve"; "--no-huge-pages" for a switch that is on by default; one has a short
// name.
std::string flag_of(const OptionRow& option) {
  if (option.name == "zero_copy_only") return "--strict";
  std::string flag = option.is_switch() && option.default_word == 1 ? "--no-" : "--";
  for (char c : option.name) flag += c == '_' ? '-' : c;
  return flag;
}

std::string help_of(const OptionRow& option) {
  std::string help(option.help);
  if (option.is_switch() && option.default_word == 1) return "Do not " + help;
  help[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(help[0])));
  return help;
}

void add_switch(CLI::App& command, const OptionRow& option, OpenOptions& open) {
  command.add_flag_callback(
      flag_of(option), [&option, &open] { option.set(open, 1 - option.default_word); },
      help_of(option));
}

// Adds an option with a few words, which lists them in its refusal of others.
void add_choice(CLI::App& command, const OptionRow& option, OpenOptions& open) {
  const std::string name = flag_of(option);
  std::string list;
  for (std::string_view word : option.words) list += (list.empty() ? "" : "|") + std::string(word);
  const auto set = [&option, &open, name, list](const std::string& text) {
    const std::optional<std::size_t> word = option.find(text);
    if (!word)
      throw CLI::ValidationError(name, "must be " + list + ", not \"" + printable(text) + "\"" +
                                           std::string(option.hint_about(text)));
    option.set(open, *word);
  };
  command.add_option_function<std::string>(name, set, help_of(option))->type_name(list);
}

}  // namespace

void add_open_option(CLI::App& command, std::string_view name, OpenOptions& open) {
  const OptionRow& option = *find_option(name);
  option.is_switch() ? add_switch(command, option, open) : add_choice(command, option, open);
}

void add_table_options(CLI::App& command, TableStyle& style) {
  command.add_flag("--bytes", style.exact_bytes, "Sizes in bytes, not rounded");
  CLI::Option* const tsv = command.add_flag(
      "--tsv", style.tsv, "Fields between tabs, none with a blank inside; sizes in bytes");
  if (CLI::Option* const json = command.get_option_no_throw("--json")) tsv->excludes(json);
}

void add_common_options(CLI::App& command, CommonOptions& options) {
  add_file_argument(command, options, "The checkpoint")->required();
  command.add_flag("--json", options.json, "One JSON document on standard output");
  for (const OptionRow& option : option_table())
    if (option.on_command_line && option.name != "verify")
      add_open_option(command, option.name, options.open);
  add_allow_option(command, options.open);
  add_selection_options(command, options.open);
  command.add_flag("-v,--verbose", options.verbose, "Log what happens to standard error");
}

void add_verify_option(CLI::App& command, CommonOptions& options) {
  add_open_option(command, "verify", options.open);
}

void add_allow_option(CLI::App& command, OpenOptions& open) {
  const auto allow = [&open](const std::string& name) {
    if (name.find('.') == std::string::npos)
      throw CLI::ValidationError("--allow-global",
                                 "must be MODULE.NAME, not \"" + printable(name) + "\"");
    open.safe_globals.insert(name);
  };
  command
      .add_option_function<std::string>(
          "--allow-global", allow,
          "Take a name such as argparse.Namespace for safe; may be repeated")
      ->type_name("NAME")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->trigger_on_parse();
}

void add_selection_options(CLI::App& command, OpenOptions& open) {
  command
      .add_option("--variant", open.variant,
                  "Of a folder, the files with this variant in their names, such as fp16")
      ->type_name("NAME");
  const auto tell = [&open](const std::string& told) {
    const std::size_t equals = told.rfind('=');
    const std::optional<DType> dtype =
        equals == std::string::npos ? std::nullopt : dtype_from_string(told.substr(equals + 1));
    if (!dtype)
      throw CLI::ValidationError(
          "--dtype-of", "must be NAME=DTYPE, as in a=bfloat16, not \"" + printable(told) + "\"");
    const auto known = open.dtypes.emplace(told.substr(0, equals), *dtype).first;
    if (known->second != *dtype)
      throw CLI::ValidationError(
          "--dtype-of", "gives \"" + printable(known->first) +
                            "\" two dtypes: " + std::string(to_string(known->second)) + " and " +
                            std::string(to_string(*dtype)));
  };
  command
      .add_option_function<std::string>(
          "--dtype-of", tell, "The dtype of an array that is listed as opaque; may be repeated")
      ->type_name("NAME=DTYPE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->trigger_on_parse();
}

namespace {

// Says which of several checkpoints of the folder was opened.
void tell_left_out(const CommonOptions& options, const Checkpoint& checkpoint) {
  const std::vector<std::string>& others = checkpoint.info().not_opened;
  if (others.empty()) return;
  std::string names;
  for (const std::string& name : others) names += (names.empty() ? "" : ", ") + printable(name);
  const std::string opened = files_of(checkpoint).front().path.filename();
  std::cerr << "weightmap: " << printable(options.file) << ": opened " << printable(opened)
            << " and left out " << names
            << ": open another checkpoint of the folder by its name, or a variant by --variant\n";
}

}  // namespace

Result<void> prove_tensors(const Checkpoint& checkpoint) {
  return checkpoint.info().format == Format::dcp ? verify_headers(checkpoint) : Result<void>();
}

Result<Checkpoint> open_checkpoint(const CommonOptions& options) {
  OpenOptions open = options.open;
  if (options.verbose) open.log = stderr_log();
  if (!options.is_remote()) {
    TRY_ASSIGN(Checkpoint opened, about(options, Checkpoint::open(options.file, open)));
    tell_left_out(options, opened);
    TRY(about(options, prove_tensors(opened)));
    return opened;
  }
  const auto open_at = [&](const std::string& url) { return open_remote(url, options.remote); };
  TRY_ASSIGN(std::unique_ptr<RangeSource> lead, about(options, open_lead(options.url, open_at)));
  return about(options, open_metadata(std::move(lead), open));
}

Result<void> check_may_look(const FileArgument& options) {
  return options.is_remote() ? Result<void>() : check_look_is_harmless(options.file);
}

Result<Checkpoint> open_to_look(const CommonOptions& options) {
  TRY(check_may_look(options));
  return open_checkpoint(options);
}

Result<void> check_is_file(const CommonOptions& options) {
  if (!options.is_remote()) return {};
  return tl::unexpected<Error>(
      about(options, {ErrorCode::unsupported,
                      "this needs the file itself: weightmap fetch URL FILE",
                      Error::no_offset,
                      {}}));
}

std::string unlisted_text(const CheckpointInfo& info) {
  constexpr std::size_t most = 8;
  const std::size_t all = info.unsupported.size();
  std::string text = count(all, "name") + ", of what is " + std::string(unlisted_kinds) + ": ";
  for (std::size_t i = 0; i < std::min(all, most); ++i)
    text += (i == 0 ? "" : ", ") + printable(info.unsupported[i]);
  return text + (all > most ? " and " + std::to_string(all - most) + " more" : "");
}

Error about(const FileArgument& options, Error error) {
  if (error.file.empty()) error.file = printable(options.file);
  return error;
}

}  // namespace weightmap::cli
