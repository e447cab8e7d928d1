// weightmap: inspects PyTorch checkpoints from the command line.
#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <span>
#include <string_view>

#include "tools/command.hpp"
#include "tools/output/path_hint.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "weightmap/version.hpp"

namespace weightmap::cli {
namespace {

void report(Output& out, const Error& error, bool json) {
  std::fprintf(stderr, "weightmap: %s\n", to_string(error).c_str());
  if (json) out.write(to_text({{"error", describe(error)}}) + "\n");
}

bool asks_for_json(int argc, char** argv) {
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i)
    if (std::string_view(argv[i]) == "--json") return true;
  return false;
}

// The commands of earlier versions, and what does the same now.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> gone = {{
    {"completion", "no script completes commands in a shell now"},
    {"du", "weightmap ls --sum FILE does that"},
    {"evict", "weightmap residency --evict FILE does that"},
    {"info", "weightmap ls --info FILE does that; of --globals weightmap scan --names FILE"},
    {"ray", "python -m weightmap.ray does that"},
    {"snapshots", "weightmap run --list DIR, --check DIR and --remove DIR SNAPSHOT|all do that"},
}};

// Returns `there is no command "lss"; did you mean ls?`; nullopt if the first word is a command.
std::optional<std::string> unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return std::nullopt;
  const std::string_view word = argv[1];
  std::string near;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    if (name == word) return std::nullopt;
    if (!command->get_group().empty() && (name.starts_with(word) || word.starts_with(name)))
      near = "; did you mean " + name + "?";
  }
  for (const auto& [name, now] : gone)
    if (name == word)
      return "there is no command \"" + printable(word) + "\" any more: " + std::string(now);
  return "there is no command \"" + printable(word) + "\"" + near;
}

int refuse_usage(Output& out, const CLI::App& app, const CLI::ParseError& error, int argc,
                 char** argv, bool json) {
  std::string message = unknown_command(app, argc, argv).value_or(error.what());
  while (!message.empty() && (message.back() == '\n' || message.back() == '.')) message.pop_back();
  report(out,
         {ErrorCode::invalid_argument, message + " (see weightmap --help)", Error::no_offset, {}},
         json);
  return exit_usage;
}

// Adds a hint if the error is about a path in the arguments.
Error with_hint(Error error, std::span<char* const> arguments) {
  for (const char* const argument : arguments)
    if (error.file == printable(argument)) {
      error.message += path_hint(error, argument);
      break;
    }
  return error;
}

int run_safely(const Run& run, Output& out, std::span<char* const> arguments, bool json) {
  try {
    const Result<int> code = run(out);
    if (code) return *code;
    report(out, with_hint(code.error(), arguments), json);
  } catch (const std::bad_alloc&) {
    report(out, {ErrorCode::io, "not enough memory", Error::no_offset, {}}, json);
  }
  return exit_failed;
}

// Has the list of commands be one of headings.
void arrange(CLI::App& app) {
  struct Heading {
    const char* text;
    std::vector<std::string_view> commands;
  };
  const std::array<Heading, 6> headings = {{
      {"Look at checkpoints", {"ls", "tree", "cat", "stats", "diff"}},
      {"Check them", {"scan", "verify"}},
      {"Rewrite them", {"convert", "delta", "apply", "publish"}},
      {"Keep them in memory", {"residency", "warm", "hold", "stage", "ps"}},
      {"Start programs", {"run", "doctor"}},
      {"Between machines", {"fetch", "bench"}},
  }};
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (const Heading& heading : headings)
      if (std::find(heading.commands.begin(), heading.commands.end(), command->get_name()) !=
          heading.commands.end())
        command->group(heading.text);
}

int run_command_line(int argc, char** argv) {
  CLI::App app(
      "Looks into model checkpoints without running them or loading them. Begin with these "
      "three:\n\n"
      "    weightmap ls model.pt             what is in it; of a URL, too\n"
      "    weightmap scan model.pt           whether it would run code where it is unpickled\n"
      "    weightmap run -- ./serve ...      a start that reads ahead what the one before it "
      "used\n",
      "weightmap");
  app.set_version_flag("--version", "weightmap " WEIGHTMAP_VERSION);
  app.require_subcommand(1);
  app.footer("weightmap COMMAND --help tells more about each command.");
  Run run;
  add_ls(app, run);
  add_tree(app, run);
  add_cat(app, run);
  add_stats(app, run);
  add_diff(app, run);
  add_scan(app, run);
  add_verify(app, run);
  add_convert(app, run);
  add_delta(app, run);
  add_apply(app, run);
  add_publish(app, run);
  add_residency(app, run);
  add_warm(app, run);
  add_hold(app, run);
  add_stage(app, run);
  add_ps(app, run);
  add_run(app, run);
  add_doctor(app, run);
  add_fetch(app, run);
  add_read_ahead(app, run);
#ifdef WEIGHTMAP_HAS_COLD_BENCH
  add_bench(app, run);
  add_bench_sample(app, run);
#endif
  arrange(app);
  refuse_urls_elsewhere(app);

  Output out;
  const bool json = asks_for_json(argc, argv);
  int code = exit_good;
  try {
    app.parse(argc, argv);
    code = run_safely(run, out, {argv, static_cast<std::size_t>(argc)}, json);
  } catch (const CLI::ParseError& error) {
    // Help and version arrive as "errors" of exit code 0.
    if (error.get_exit_code() != 0 || unknown_command(app, argc, argv))
      code = refuse_usage(out, app, error, argc, argv, json);
    else
      app.exit(error);
  }
  if (Result<void> written = out.finish(); !written) {
    report(out, written.error(), false);
    return exit_failed;
  }
  return code;
}

}  // namespace
}  // namespace weightmap::cli

int main(int argc, char** argv) {
  weightmap::cli::ignore_write_signals();
  return weightmap::cli::run_command_line(argc, argv);
}
