#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/processes.hpp"

namespace weightmap::cli {
namespace {

struct PsOptions {
  std::vector<std::string> files;
  TableStyle style;
  bool json = false;
};

// The processes that have one version of a file mapped.
struct FileTotal {
  std::string file;
  MappedVersion version;
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t file_bytes = 0;
  std::uint64_t processes = 0;
  std::uint64_t pss_bytes = 0;
  std::uint64_t anonymous_bytes = 0;
};

// The report is sorted by file.
std::vector<FileTotal> totals(const ProcessesReport& report) {
  std::vector<FileTotal> files;
  for (const MappedCheckpoint& mapped : report.mapped) {
    if (files.empty() || files.back().device != mapped.device || files.back().inode != mapped.inode)
      files.push_back({mapped.file, mapped.version, mapped.device, mapped.inode});
    FileTotal& total = files.back();
    total.file_bytes = std::max(total.file_bytes, mapped.file_bytes);
    ++total.processes;
    total.pss_bytes += mapped.pss_bytes;
    total.anonymous_bytes += mapped.anonymous_bytes;
  }
  return files;
}

std::string_view sharing_of(const MappedCheckpoint& mapped) noexcept {
  if (mapped.has_shared && mapped.has_private) return "both";
  return mapped.has_shared ? "shared" : "private";
}

Json describe_mapped(const MappedCheckpoint& mapped) {
  return {{"pid", mapped.process},
          {"command", mapped.command},
          {"file", mapped.file},
          {"version", to_string(mapped.version)},
          {"inode", mapped.inode},
          {"sharing", sharing_of(mapped)},
          {"writable", mapped.writable},
          {"mapped_bytes", mapped.mapped_bytes},
          {"resident_bytes", mapped.resident_bytes},
          {"pss_bytes", mapped.pss_bytes},
          {"anonymous_bytes", mapped.anonymous_bytes},
          {"huge_mapped_bytes", mapped.huge_mapped_bytes},
          {"locked_bytes", mapped.locked_bytes}};
}

Json describe_total(const FileTotal& total) {
  return {{"file", total.file},
          {"version", to_string(total.version)},
          {"inode", total.inode},
          {"file_bytes", total.file_bytes},
          {"processes", total.processes},
          {"pss_bytes", total.pss_bytes},
          {"anonymous_bytes", total.anonymous_bytes},
          {"copies_bytes", total.processes * total.file_bytes}};
}

Json describe_report(const ProcessesReport& report) {
  Json processes = Json::array();
  for (const MappedCheckpoint& mapped : report.mapped) processes.push_back(describe_mapped(mapped));
  Json files = Json::array();
  for (const FileTotal& total : totals(report)) files.push_back(describe_total(total));
  return {{"processes", processes},
          {"files", files},
          {"unreadable_processes", report.unreadable_processes}};
}

void print_table(Output& out, const TableStyle& style, const ProcessesReport& report) {
  const std::vector<Column> columns = {{"PID", Column::right},
                                       {"RSS", Column::right},
                                       {"PSS", Column::right},
                                       {"ANON", Column::right},
                                       {"HUGE", Column::right},
                                       {"LOCKED", Column::right},
                                       {"VERSION"},
                                       {"MODE"},
                                       {"FILE"},
                                       {"COMMAND"}};
  print_columns(out, style, columns, report.mapped.size(),
                [&](std::size_t i) -> std::vector<std::string> {
                  const MappedCheckpoint& mapped = report.mapped[i];
                  return {std::to_string(mapped.process),
                          style.bytes(mapped.resident_bytes),
                          style.bytes(mapped.pss_bytes),
                          style.bytes(mapped.anonymous_bytes),
                          style.bytes(mapped.huge_mapped_bytes),
                          style.bytes(mapped.locked_bytes),
                          std::string(to_string(mapped.version)),
                          std::string(sharing_of(mapped)) + (mapped.writable ? ",writable" : ""),
                          printable(std::filesystem::path(mapped.file).filename().native()),
                          printable(mapped.command)};
                });
}

std::string process_count(std::uint64_t number) {
  return std::to_string(number) + (number == 1 ? " process" : " processes");
}

std::string cost_of(const TableStyle& style, const FileTotal& total) {
  if (total.pss_bytes == 0) return ", nothing of it touched yet";
  return ": " + style.bytes(total.pss_bytes) + " instead of " +
         style.bytes(total.processes * total.file_bytes);
}

void print_totals(Output& out, const TableStyle& style, const ProcessesReport& report) {
  for (const FileTotal& total : totals(report))
    out.write(printable(total.file) +
              (total.version == MappedVersion::current
                   ? std::string()
                   : " (" + std::string(to_string(total.version)) + ")") +
              ": " + process_count(total.processes) + cost_of(style, total) + "\n");
}

// A file that lost its name is found by that name if a process still has it mapped.
Result<void> check_is_known(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::status(file, ignored).type() != std::filesystem::file_type::not_found)
    return {};
  if (Checkpoint::files(file)) return {};  // a member of an archive, which is there
  const Result<ProcessesReport> report = processes({file});
  if (!report) return tl::unexpected<Error>(report.error());
  if (!report->mapped.empty()) return {};
  return tl::unexpected<Error>({ErrorCode::io,
                                "is not there, and no process has a deleted file of this name "
                                "mapped",
                                Error::no_offset, printable(file), ENOENT});
}

// Processes that opened it before it was changed have files that it no longer leads to.
void tell_of_link(Output& out, const std::string& file) {
  std::error_code failed;
  const std::filesystem::path led_to = std::filesystem::read_symlink(file, failed);
  if (failed) return;
  out.write(
      printable(file) + " is a symbolic link, now to " + printable(led_to.native()) +
      ": whoever opened it when it led elsewhere is listed by `weightmap ps` alone, or by the "
      "name of that version\n");
}

Result<int> run_ps(Output& out, const PsOptions& options) {
  for (const std::string& file : options.files) TRY(check_is_known(file));
  const Result<ProcessesReport> report = processes({options.files.begin(), options.files.end()});
  if (!report) return tl::unexpected<Error>(report.error());
  if (options.json) {
    out.write(to_text(describe_report(*report)) + "\n");
    return exit_good;
  }
  if (options.style.tsv) {
    print_table(out, options.style, *report);
    return exit_good;
  }
  if (report->mapped.empty())
    out.write((report->unreadable_processes > 0 ? "no process that this user may look at has "
                                                : "no process has ") +
              std::string(options.files.empty()       ? "a checkpoint"
                          : options.files.size() == 1 ? "it"
                                                      : "them") +
              " mapped\n");
  else
    print_table(out, options.style, *report);
  print_totals(out, options.style, *report);
  for (const std::string& file : options.files) tell_of_link(out, file);
  if (const std::uint64_t number = report->unreadable_processes; number > 0)
    out.write(process_count(number) +
              " could not be looked at, since they are other users' or have just ended\n");
  return exit_good;
}

}  // namespace

void add_ps(CLI::App& app, Run& run) {
  auto options = std::make_shared<PsOptions>();
  CLI::App& command = *app.add_subcommand("ps", "List the processes that have a file mapped");
  command.add_option("FILE", options->files, "Only these; without any, every checkpoint")
      ->type_name("");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  add_table_options(command, options->style);
  command.footer(
      "PSS is each page divided by the number of processes that map it, so its sum is what the\n"
      "machine spends; ANON are pages that a process copied by writing to them. Processes on an\n"
      "older file that was replaced or deleted are listed, too, by the name that it had.\n"
      "Without FILE, a file counts that begins as torch.save() or safetensors begin one, a copy "
      "made by\n"
      "`stage`, and, where it cannot be looked at or is on FUSE or a network, one whose name ends "
      "with\n"
      ".pt, .pth, .ckpt, .bin or .safetensors.\n"
      "Examples:\n"
      "  weightmap ps model.pt\n"
      "  weightmap ps --json | jq '.files[] | [.file, .pss_bytes, .copies_bytes]'");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_ps(out, *options); }; });
}

}  // namespace weightmap::cli
