#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/options/size_option.hpp"
#include "tools/output/fetch_report.hpp"
#include "tools/output/terminal.hpp"
#include "tools/remote/remote_file.hpp"
#include "tools/remote/remote_model.hpp"
#include "tools/run/program.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/signals.hpp"
#include "tools/support/text.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap::cli {
namespace {

struct StageCommand : FileArgument {
  std::vector<std::string> command;
  std::string remove;
  StageOptions stage;
  FetchOptions fetch;  // of a URL
  bool json = false;
};

double seconds(const StageReport& report) {
  return std::chrono::duration<double>(report.time).count();
}

// A copy, and how it was fetched if FILE is a URL.
struct Copied {
  StagedFile file;
  std::optional<FetchReport> fetched = {};
};

Json describe_staged(const StageCommand& options, const Copied& copied) {
  const StagedFile& staged = copied.file;
  const StageReport& report = staged.report();
  Json described = {{"file", options.file},
                    {"path", staged.path().native()},
                    {"pid", ::getpid()},
                    {"descriptor", staged.descriptor()},
                    {"sealed", report.sealed},
                    {"bytes", report.file_bytes},
                    {"direct_bytes", report.direct_bytes},
                    {"cached_bytes", report.cached_bytes},
                    {"dropped_bytes", report.dropped_bytes},
                    {"why_not_direct", report.why_not_direct},
                    {"huge_bytes", report.huge_bytes},
                    {"seconds", seconds(report)}};
  if (copied.fetched) described["fetched"] = describe(*copied.fetched);
  return described;
}

std::string how_it_was_read(const StageReport& report) {
  return human_bytes(report.direct_bytes) + " read past the page cache, " +
         human_bytes(report.cached_bytes) + " copied from it" +
         (report.dropped_bytes > 0 ? ", " + human_bytes(report.dropped_bytes) + " dropped from it"
                                   : std::string());
}

void say_what_was_done(const Copied& copied) {
  const StageReport& report = copied.file.report();
  say(human_bytes(report.file_bytes) + " in shared memory after " +
      fmt::format("{:.3f} s", seconds(report)) + ": " +
      (copied.fetched ? fetch_words(*copied.fetched) : how_it_was_read(report)));
}

Result<Copied> stage_url(StageCommand& options, Progress progress) {
  TRY_ASSIGN(std::unique_ptr<RangeSource> source, open_remote(options.url, options.remote));
  options.fetch.progress = std::move(progress);
  TRY_ASSIGN(Staging staging, start_staging(std::move(source), {options.fetch, options.stage.name,
                                                                options.stage.budget_bytes}));
  TRY_ASSIGN(StagedFile staged, staging.finish());
  return Copied{std::move(staged), staging.report()};
}

// The file that leads to the others of a model in a folder; empty if FILE is one file by itself.
Result<std::filesystem::path> lead_of(const std::string& file) {
  TRY_ASSIGN(const std::vector<std::filesystem::path> files, weightmap::files_of(file));
  std::error_code unknown;
  if (files.size() == 1 && !std::filesystem::is_directory(file, unknown))
    return std::filesystem::path();
  return std::filesystem::absolute(files.front(), unknown);
}

// Of a URL that stands for a model, or of a local folder or index, as a URL; empty: of neither.
Result<std::string> url_of_model(const StageCommand& options) {
  // Most models of the hub are one file, which may be staged by itself, without a name.
  const bool is_maybe_one_file = options.stage.name.empty() && options.url.starts_with("hf://");
  if (options.is_remote())
    return names_model(options.url) && !is_maybe_one_file ? options.url : std::string();
  TRY_ASSIGN(const std::filesystem::path lead, lead_of(options.file));
  return lead.empty() ? std::string() : file_url(lead);
}

Json describe_model(const StageCommand& options, const std::filesystem::path& link,
                    const ModelReport& report) {
  Json files = Json::array();
  for (const FetchReport& file : report.files) {
    files.push_back({{"path", file.path.native()}});
    files.back().update(describe(file));
  }
  return {
      {"file", options.file},      {"path", link.native()},   {"folder", report.folder.native()},
      {"version", report.version}, {"is_new", report.is_new}, {"files", files}};
}

// All files of a model, and those beside it, as a folder in shared memory.
Result<int> stage_model(Output& out, StageCommand& options, const std::string& url) {
  const auto refused = [&options](const char* why) {
    return tl::unexpected<Error>(about(options, Error{ErrorCode::invalid_argument, why}));
  };
  if (options.stage.name.empty())
    return refused(
        "is a model of several files, which are staged as a folder: --name says which one of "
        "/dev/shm");
  if (options.stage.budget_bytes != 0)
    return refused("is a model of several files, and --budget is for one file");
  TRY_ASSIGN(const std::filesystem::path link, model_in_memory(options.stage.name));
  ProgressBar bar;
  options.fetch.progress = bar.follow();
  const auto open = [&options](const std::string& each) {
    return open_remote(each, options.remote);
  };
  TRY_ASSIGN(std::unique_ptr<RangeSource> lead, about(options, open_lead(url, open)));
  TRY_ASSIGN(const ModelReport report,
             about(options, fetch_into_memory(std::move(lead), link, options.fetch)));
  TRY(remove_old_versions(link));
  if (options.json)
    out.write(to_text(describe_model(options, link, report)) + "\n");
  else
    out.write(printable(link.native()) + "\n");
  return exit_good;
}

Result<Copied> stage_with_bar(StageCommand& options) {
  ProgressBar bar;
  if (options.is_remote()) return about(options, stage_url(options, bar.follow()));
  options.stage.progress = bar.follow();
  TRY_ASSIGN(StagedFile staged, stage(options.file, options.stage));
  return Copied{std::move(staged)};
}

// Memory without a name lives as long as its processes, so this one stays.
void keep(Output& out, const StagedFile& staged) {
  const Interruptible interruptible;
  if (!out.finish()) return;
  say("there until this is interrupted (Ctrl-C) and nobody has it open or mapped: " +
      printable(staged.path().native()));
  while (!interrupted()) interruptible.sleep_for(std::chrono::seconds(1));
}

std::string replace_all(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

// Becomes the command, which inherits the descriptor. Returns an exit status only if that fails.
Result<int> become(const std::vector<std::string>& command, const StagedFile& staged) {
  const std::string descriptor = std::to_string(staged.descriptor());
  std::vector<std::string> words;
  for (const std::string& word : command)
    words.push_back(replace_all(word, "{}", "/proc/self/fd/" + descriptor));
  if (::fcntl(staged.descriptor(), F_SETFD, 0) != 0 ||
      ::setenv("WEIGHTMAP_STAGED_FD", descriptor.c_str(), 1) != 0)
    return failure(ErrorCode::io,
                   "the copy cannot be handed on: " + std::generic_category().message(errno));
  return start::become(std::move(words));
}

Result<int> run_stage(Output& out, StageCommand& options) {
  TRY_ASSIGN(const std::string model, about(options, url_of_model(options)));
  if (!model.empty()) return stage_model(out, options, model);
  TRY_ASSIGN(const Copied copied, stage_with_bar(options));
  const StagedFile& staged = copied.file;
  say_what_was_done(copied);
  if (!options.command.empty()) return become(options.command, staged);
  if (options.json)
    out.write(to_text(describe_staged(options, copied)) + "\n");
  else
    out.write(printable(staged.path().native()) + "\n");
  if (options.stage.name.empty())
    keep(out, staged);
  else if (!out.finish())  // main() reports it
    say(printable(staged.path().native()) + " was made all the same; weightmap stage --remove " +
        printable(options.stage.name) + " removes it");
  return exit_good;
}

Result<int> run_remove(const StageCommand& options) {
  const Result<std::filesystem::path> link = model_in_memory(options.remove);
  if (std::error_code unknown; link && std::filesystem::is_symlink(*link, unknown))
    TRY(remove_model(*link));
  else
    TRY(remove_staged(options.remove));
  return exit_good;
}

}  // namespace

void add_stage(CLI::App& app, Run& run) {
  auto options = std::make_shared<StageCommand>();
  CLI::App& command = *app.add_subcommand("stage", "Copy the file into shared memory");
  CLI::Option* const file = add_file_argument(command, *options, "The checkpoint");
  CLI::Option* const rest =
      command
          .add_option("COMMAND", options->command,
                      "After --: run this with the copy open, {} standing for its path")
          ->type_name("");
  CLI::Option* const name =
      command
          .add_option("--name", options->stage.name,
                      "Make the file /dev/shm/NAME, which stays until it is removed")
          ->type_name("NAME");
  CLI::Option* const remove =
      command.add_option("--remove", options->remove, "Remove /dev/shm/NAME, and copy nothing")
          ->type_name("NAME");
  add_size_option(
      command, "--budget", [options](std::uint64_t bytes) { options->stage.budget_bytes = bytes; },
      "Refuse a larger file; default: what fits into free memory");
  CLI::Option* const order = add_fetch_options(command, options->fetch);
  add_remote_options(command, options->remote);
  CLI::Option* const json =
      command.add_flag("--json", options->json, "One JSON document on standard output");
  remove->excludes(name)->excludes(json)->excludes(rest)->excludes(order);
  rest->excludes(json)->excludes(name);
  command.footer(
      "For file systems that are slow to map: every process that opens the copy shares its "
      "memory.\n"
      "Without a name the copy is sealed, and there as long as this command, or COMMAND, or "
      "another\n"
      "process that has it open. COMMAND finds its descriptor in WEIGHTMAP_STAGED_FD.\n"
      "Of a URL the metadata come first, and nothing is written to the disk.\n"
      "A model of several files, and the URL of its index or its folder, becomes a folder:\n"
      "/dev/shm/NAME is a link to its present version, and leads to a new one once that is whole.\n"
      "Examples:\n"
      "  weightmap stage /mnt/remote/model.pt                 # prints the path to open; Ctrl-C "
      "ends it\n"
      "  weightmap stage /mnt/remote/model.pt -- python3 serve.py {}\n"
      "  weightmap stage s3://bucket/model.pt -- python3 serve.py {}\n"
      "  weightmap stage /mnt/remote/model.pt --name model.pt; weightmap stage --remove model.pt\n"
      "  weightmap stage s3://bucket/llama/ --name llama   # then serve /dev/shm/llama");
  command.callback([options, file, remove, &run] {
    if (file->count() == 0 && remove->count() == 0) throw CLI::RequiredError("FILE");
    if (file->count() > 0 && remove->count() > 0) throw CLI::ExcludesError("--remove", "FILE");
    if (remove->count() > 0)
      run = [options](Output&) { return run_remove(*options); };
    else
      run = [options](Output& out) { return run_stage(out, *options); };
  });
}

}  // namespace weightmap::cli
