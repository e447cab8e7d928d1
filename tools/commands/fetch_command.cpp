#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/output/fetch_report.hpp"
#include "tools/output/terminal.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap::cli {
namespace {

struct FetchCommand : FileArgument {
  std::string target;
  FetchOptions fetch;
  bool replaces = false;
  bool json = false;
};

bool names_folder(const std::string& path) {
  std::error_code unknown;
  return path.ends_with('/') || std::filesystem::is_directory(path, unknown);
}

// What was in the folder before may come first for whoever opens that.
void say_what_opens_instead(const std::string& folder, const std::filesystem::path& lead) {
  const Result<Checkpoint> opened = Checkpoint::open(folder, OpenOptions::to_look());
  if (!opened) return;
  for (const std::string& name : opened->info().not_opened)
    if (name == lead.filename())
      say(printable(folder) + ": opens as another checkpoint that was there, and not as " +
          printable(name) + "; name that, or remove the other");
}

Result<std::vector<FetchReport>> fetch_from(const std::string& url, const FetchCommand& options) {
  TRY_ASSIGN(std::unique_ptr<RangeSource> source, open_remote(url, options.remote));
  if (names_folder(options.target)) {
    auto done = fetch_into(std::move(source), options.target, options.fetch);
    if (done) say_what_opens_instead(options.target, done->back().path);
    return done;
  }
  TRY_ASSIGN(FetchReport report, fetch(*source, options.target, options.fetch, options.replaces));
  return std::vector<FetchReport>{std::move(report)};
}

Result<std::vector<FetchReport>> fetch_folder(const FetchCommand& options) {
  return first_in_folder<std::vector<FetchReport>>(
      options.url, [&](const std::string& url) { return fetch_from(url, options); });
}

Result<std::vector<FetchReport>> fetch_all(FetchCommand& options) {
  const Interruptible interruptible;
  options.remote.goes_on = [] { return !interrupted(); };
  ProgressBar bar;
  options.fetch.progress = bar.follow();
  if (options.url.ends_with('/')) return fetch_folder(options);
  return fetch_from(options.url, options);
}

Json describe_fetched(const FetchCommand& options, const std::vector<FetchReport>& reports) {
  Json files = Json::array();
  for (const FetchReport& report : reports) {
    files.push_back({{"path", report.path.native()}});
    files.back().update(describe(report));
  }
  return {{"url", options.file}, {"files", files}};
}

void say_what_was_done(const FetchReport& report) {
  say(printable(report.path.native()) + ": " + human_bytes(report.file_bytes) +
      " on the disk after " +
      fmt::format("{:.3f} s", std::chrono::duration<double>(report.time).count()) + ": " +
      fetch_words(report));
}

Result<int> run_fetch(Output& out, FetchCommand& options) {
  TRY_ASSIGN(const std::vector<FetchReport> reports, about(options, fetch_all(options)));
  for (const FetchReport& report : reports) say_what_was_done(report);
  if (options.json) {
    out.write(to_text(describe_fetched(options, reports)) + "\n");
  } else {
    for (const FetchReport& report : reports) out.write(printable(report.path.native()) + "\n");
  }
  return exit_good;
}

}  // namespace

void add_fetch(CLI::App& app, Run& run) {
  auto options = std::make_shared<FetchCommand>();
  CLI::App& command = *app.add_subcommand("fetch", "Copy a remote file to the disk");
  add_file_argument(command, *options, "The checkpoint, or the index of a set", "URL")->required();
  command.add_option("TARGET", options->target, "The file to write, or the folder to write into")
      ->required()
      ->type_name("");
  add_fetch_options(command, options->fetch);
  command.add_flag("--force", options->replaces, "Replace TARGET if it exists");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  add_remote_options(command, options->remote);
  command.footer(
      "TARGET appears once it is whole and on the disk. A fetch that was killed goes on where it\n"
      "was: run it again. Into a folder all files of a set are fetched, under their own names,\n"
      "with the configuration and the tokenizer beside its index. Of a URL that ends with a slash\n"
      "model.safetensors or its index is fetched.\n"
      "Examples:\n"
      "  weightmap fetch https://host/model.pt model.pt\n"
      "  weightmap fetch s3://bucket/llama/model.safetensors.index.json /models/llama/\n"
      "  weightmap fetch --order 'model.embed*' --order 'model.layers.0.*' https://host/m.pt m.pt");
  command.callback([options, &run] {
    if (!options->is_remote()) throw CLI::ValidationError("URL", "must be a URL");
    if (options->url.starts_with("hf://"))
      throw CLI::ValidationError(
          "URL",
          "models of the hub are fetched by its own program, which compares what it gets with the "
          "hub's SHA-256s: hf download ORG/NAME; weightmap then opens ORG/NAME out of its cache");
    run = [options](Output& out) { return run_fetch(out, *options); };
  });
}

}  // namespace weightmap::cli
