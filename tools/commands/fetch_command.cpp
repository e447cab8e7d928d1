#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/output/fetch_report.hpp"
#include "tools/output/terminal.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/remote/remote_model.hpp"
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

// What was fetched, and where a link leads now if it is a model beside its other versions.
struct Fetched {
  std::vector<FetchReport> files;
  std::optional<ModelReport> model = {};
};

bool names_folder(const std::string& path) {
  std::error_code unknown;
  return path.ends_with('/') || std::filesystem::is_directory(path, unknown);
}

// Whether the target stands for a model, so that its versions lie beside it.
bool is_versioned(const FetchCommand& options, const RangeSource& source) {
  std::error_code unknown;  // a folder that is there is filled as it is, also by another name
  if (std::filesystem::is_directory(options.target, unknown) && !is_model_link(options.target))
    return false;
  return names_model(options.url) ||
         (remote_file_name(source) == "model.safetensors" && names_folder(options.target));
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

Result<Fetched> fetch_version(std::unique_ptr<RangeSource> source, const FetchCommand& options) {
  TRY_ASSIGN(ModelReport report, fetch_model(std::move(source), options.target, options.fetch));
  std::vector<FetchReport> files = report.files;
  return Fetched{std::move(files), std::move(report)};
}

Result<Fetched> fetch_all(FetchCommand& options) {
  const Interruptible interruptible;
  options.remote.goes_on = [] { return !interrupted(); };
  ProgressBar bar;
  options.fetch.progress = bar.follow();
  TRY_ASSIGN(std::unique_ptr<RangeSource> source,
             open_lead(options.url, [&options](const std::string& url) {
               return open_remote(url, options.remote);
             }));
  if (is_versioned(options, *source)) return fetch_version(std::move(source), options);
  if (names_model(options.url) || names_folder(options.target)) {
    TRY_ASSIGN(std::vector<FetchReport> done,
               fetch_into(std::move(source), options.target, options.fetch));
    say_what_opens_instead(options.target, done.back().path);
    return Fetched{std::move(done)};
  }
  TRY_ASSIGN(FetchReport report, fetch(*source, options.target, options.fetch, options.replaces));
  return Fetched{{std::move(report)}};
}

// By the name of the link, which stays when versions go.
std::string path_of(const FetchCommand& options, const Fetched& fetched,
                    const FetchReport& report) {
  if (!fetched.model) return report.path;
  return std::filesystem::path(options.target) /
         report.path.lexically_relative(fetched.model->folder);
}

Json describe_fetched(const FetchCommand& options, const Fetched& fetched) {
  Json files = Json::array();
  for (const FetchReport& report : fetched.files) {
    files.push_back({{"path", path_of(options, fetched, report)}});
    files.back().update(describe(report));
  }
  Json described = {{"url", options.file}, {"files", files}};
  if (const auto& model = fetched.model)
    described.update({{"link", options.target},
                      {"folder", model->folder.native()},
                      {"model_version", model->version},
                      {"is_new", model->is_new}});
  return described;
}

void say_what_was_done(const FetchReport& report) {
  say(printable(report.path.native()) + ": " + human_bytes(report.file_bytes) +
      " on the disk after " +
      fmt::format("{:.3f} s", std::chrono::duration<double>(report.time).count()) + ": " +
      fetch_words(report));
}

void say_what_is_current(const FetchCommand& options, const ModelReport& model) {
  std::uint64_t bytes = 0;
  for (const FetchReport& file : model.files) bytes += file.file_bytes;
  say(printable(options.target) + ": version " + model.version + ", " +
      count(model.files.size(), "file") + ", " + human_bytes(bytes) +
      (model.is_new ? ", is current now" : ", was there already"));
}

Result<int> run_fetch(Output& out, FetchCommand& options) {
  TRY_ASSIGN(const Fetched fetched, about(options, fetch_all(options)));
  for (const FetchReport& report : fetched.files) say_what_was_done(report);
  if (fetched.model) say_what_is_current(options, *fetched.model);
  if (options.json) {
    out.write(to_text(describe_fetched(options, fetched)) + "\n");
  } else {
    for (const FetchReport& report : fetched.files)
      out.write(printable(path_of(options, fetched, report)) + "\n");
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
      "Of a model TARGET is a symbolic link, or is made one: to a folder beside it, with its "
      "version\n"
      "in the name. A new version of the store comes beside the old one, and the link leads to it\n"
      "once it is whole; the last one before stays, too. A folder that is there is filled in "
      "place.\n"
      "Examples:\n"
      "  weightmap fetch https://host/model.pt model.pt\n"
      "  weightmap fetch s3://bucket/llama/model.safetensors.index.json /models/llama\n"
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
