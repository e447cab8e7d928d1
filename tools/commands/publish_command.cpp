#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/new_file.hpp"

namespace weightmap::cli {
namespace {

struct PublishCommand {
  std::string from;
  std::string target;
  bool json = false;
  PublishOptions how;
};

Json describe_publication(const PublishCommand& command, const PublishReport& report) {
  return {{"file", command.from},
          {"target", command.target},
          {"bytes", report.bytes},
          {"replaced", report.replaced},
          {"copied", report.copied},
          {"previous", report.previous.empty() ? Json(nullptr) : Json(report.previous.native())},
          {"inode", report.generation.inode},
          {"mtime_ns", report.generation.mtime_ns}};
}

bool is_link(const PublishCommand& command) {
  std::error_code unknown;
  return std::filesystem::is_directory(command.target, unknown);
}

std::string publication_line(const PublishCommand& command, const PublishReport& report) {
  if (is_link(command))
    return printable(command.target) + ": leads to " + printable(command.from) + ", " +
           human_bytes(report.bytes) +
           (report.replaced ? ", and led to " + printable(report.previous.native()) +
                                  "; programs that have it open keep it\n"
                            : "; it led to nothing before\n");
  return printable(command.target) + ": " + human_bytes(report.bytes) +
         (report.copied ? ", copied from " : ", renamed from ") + printable(command.from) +
         (report.replaced ? "; programs that have the old file open keep it\n"
                          : "; no file had this name before\n");
}

Result<int> run_publish(Output& out, const PublishCommand& command) {
  TRY_ASSIGN(const PublishReport report, publish(command.from, command.target, command.how));
  out.write(command.json ? to_text(describe_publication(command, report)) + "\n"
                         : publication_line(command, report));
  // main() reports the failure of the output, and the exit status is 1.
  if (!out.finish())
    std::fprintf(stderr, "weightmap: %s was published all the same\n",
                 printable(command.target).c_str());
  return exit_good;
}

}  // namespace

void add_publish(CLI::App& app, Run& run) {
  auto options = std::make_shared<PublishCommand>();
  CLI::App& command =
      *app.add_subcommand("publish", "Replace a checkpoint that programs may have open");
  command
      .add_option("NEW", options->from, "The checkpoint to publish: a file, or a model's folder")
      ->required()
      ->type_name("");
  command.add_option("TARGET", options->target, "The name it gets")->required()->type_name("");
  command.add_flag("--copy", options->how.copy, "Leave NEW where it is and publish a copy");
  command.add_flag("--follow", options->how.follow,
                   "NEW may be a symbolic link: publish what it leads to");
  command.add_flag("--crc", options->how.verify_crc, "Compare every byte with its CRC-32 first");
  command.add_flag("--force", options->how.any_format,
                   "Also if NEW has another format than TARGET has, or than its name promises");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "A program that opens TARGET finds the whole old file or the whole new one, also after a "
      "loss\n"
      "of power. Within a file system NEW is renamed; otherwise it is copied beside TARGET first.\n"
      "A folder stays where it is, and TARGET is a symbolic link, or is made one, that then leads\n"
      "to it.\n"
      "Examples:\n"
      "  weightmap publish llama-v2/ llama\n"
      "  weightmap publish model.next.pt model.pt\n"
      "  weightmap publish --crc --copy /mnt/build/model.pt /srv/model.pt");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_publish(out, *options); }; });
}

}  // namespace weightmap::cli
