#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <tuple>

#include "runtime/base/try.hpp"
#include "runtime/services/inspect/processes.hpp"
#include "tools/command.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/fetch.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

struct PsOptions {
  std::vector<std::string> files;
  TableStyle style;
  bool json = false;
};

// "/models/model-*-of-00003.safetensors" for a file of a numbered set, which has as many; another
// file's own path.
std::string set_of(const std::string& file) {
  const fs::path path(file);
  if (path.extension() == ".distcp") return path.parent_path() / "*.distcp";
  constexpr std::string_view form = "-00000-of-00000";
  const std::string stem = path.stem();
  const std::size_t at = stem.size() - std::min(stem.size(), form.size());
  const bool is_shard = std::ranges::equal(stem.substr(at), form, {},
                                           [](char c) { return c >= '0' && c <= '9' ? '0' : c; });
  if (!is_shard) return file;
  constexpr std::size_t number = 6;
  return path.parent_path() /
         (stem.substr(0, at) + "-*" + stem.substr(at + number) + path.extension().native());
}

// What a process has mapped of a file, or of all files of a set.
void add(const MappedCheckpoint& file, MappedCheckpoint& sum) {
  sum.has_shared = sum.has_shared || file.has_shared;
  sum.has_private = sum.has_private || file.has_private;
  sum.writable = sum.writable || file.writable;
  for (const auto field : {&MappedCheckpoint::file_bytes, &MappedCheckpoint::mapped_bytes,
                           &MappedCheckpoint::resident_bytes, &MappedCheckpoint::pss_bytes,
                           &MappedCheckpoint::anonymous_bytes, &MappedCheckpoint::huge_mapped_bytes,
                           &MappedCheckpoint::locked_bytes})
    sum.*field += file.*field;
}

// Sums up the files of a set by process and version.
std::vector<MappedCheckpoint> sums_of_sets(const std::vector<MappedCheckpoint>& files) {
  std::vector<MappedCheckpoint> rows;
  std::map<std::tuple<std::string, MappedVersion, std::int64_t>, std::size_t> known;
  for (const MappedCheckpoint& file : files) {
    std::string set = set_of(file.file);
    if (set == file.file) {
      rows.push_back(file);
      continue;
    }
    const auto [row, is_new] = known.try_emplace({set, file.version, file.process}, rows.size());
    if (!is_new) {
      add(file, rows[row->second]);
      continue;
    }
    rows.push_back(file);
    rows.back().file = std::move(set);
    rows.back().device = rows.back().inode = 0;
  }
  std::ranges::stable_sort(rows, {}, [](const MappedCheckpoint& row) {
    return std::tie(row.file, row.version, row.device, row.inode, row.process);
  });
  return rows;
}

// The processes that have one version of a file, or of a set, mapped.
struct FileTotal {
  std::string file;
  MappedVersion version;
  std::uint64_t device;
  std::uint64_t inode;
  std::uint64_t file_bytes = 0;
  std::uint64_t copies_bytes = 0;
  std::uint64_t processes = 0;
  std::uint64_t pss_bytes = 0;
  std::uint64_t anonymous_bytes = 0;
};

// Precondition: sorted by file and version.
std::vector<FileTotal> totals(const std::vector<MappedCheckpoint>& sorted) {
  std::vector<FileTotal> files;
  for (const MappedCheckpoint& mapped : sorted) {
    if (files.empty() || files.back().device != mapped.device ||
        files.back().inode != mapped.inode || files.back().file != mapped.file ||
        files.back().version != mapped.version)
      files.push_back({mapped.file, mapped.version, mapped.device, mapped.inode});
    FileTotal& total = files.back();
    total.file_bytes = std::max(total.file_bytes, mapped.file_bytes);
    total.copies_bytes += mapped.file_bytes;
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
  Json processes = Json::array(), files = Json::array();
  for (const MappedCheckpoint& each : report.mapped) processes.push_back(describe_mapped(each));
  for (const FileTotal& total : totals(report.mapped)) files.push_back(describe_total(total));
  return {{"processes", processes},
          {"files", files},
          {"unreadable_processes", report.unreadable_processes},
          {"unreadable_users", report.unreadable_users}};
}

void print_table(Output& out, const TableStyle& style, const std::vector<MappedCheckpoint>& rows) {
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
  print_columns(out, style, columns, rows.size(), [&](std::size_t i) -> std::vector<std::string> {
    const MappedCheckpoint& mapped = rows[i];
    return {std::to_string(mapped.process),
            style.bytes(mapped.resident_bytes),
            style.bytes(mapped.pss_bytes),
            style.bytes(mapped.anonymous_bytes),
            style.bytes(mapped.huge_mapped_bytes),
            style.bytes(mapped.locked_bytes),
            std::string(to_string(mapped.version)),
            std::string(sharing_of(mapped)) + (mapped.writable ? ",writable" : ""),
            printable(fs::path(mapped.file).filename().native()),
            printable(mapped.command)};
  });
}

std::string process_count(std::uint64_t number) {
  return std::to_string(number) + (number == 1 ? " process" : " processes");
}

std::string cost_of(const TableStyle& style, const FileTotal& total) {
  if (total.pss_bytes == 0) return ", nothing of it touched yet";
  return ": " + style.bytes(total.pss_bytes) +
         (total.processes == 1 ? "" : " instead of " + style.bytes(total.copies_bytes));
}

void print_totals(Output& out, const TableStyle& style, const std::vector<MappedCheckpoint>& rows) {
  for (const FileTotal& total : totals(rows))
    out.write(printable(total.file) +
              (total.version == MappedVersion::current
                   ? std::string()
                   : " (" + std::string(to_string(total.version)) + ")") +
              ": " + process_count(total.processes) + cost_of(style, total) + "\n");
}

// A file that lost its name is found by that name if a process still has it mapped.
Result<void> check_is_known(const std::string& file) {
  std::error_code ignored;
  if (fs::status(file, ignored).type() != fs::file_type::not_found) return {};
  if (weightmap::files_of(file)) return {};  // a member of an archive, which is there
  const Result<ProcessesReport> report = processes({file});
  if (!report) return tl::unexpected<Error>(report.error());
  if (!report->mapped.empty()) return {};
  return tl::unexpected<Error>({ErrorCode::io,
                                "is not there, and no process has a deleted file of this name "
                                "mapped",
                                Error::no_offset, printable(file), ENOENT});
}

// Processes that opened it before it was changed have files that it no longer leads to. Of a link
// to the versions of a model they are listed.
void tell_of_link(Output& out, const std::string& file) {
  std::error_code failed;
  const fs::path named = file.ends_with('/') ? fs::path(file).parent_path() : fs::path(file);
  const fs::path led_to = fs::read_symlink(named, failed);
  if (failed || (fs::is_directory(named, failed) && is_model_link(named))) return;
  out.write(
      printable(file) + " is a symbolic link, now to " + printable(led_to.native()) +
      ": whoever opened it when it led elsewhere is listed by `weightmap ps` alone, or by the "
      "name of that version\n");
}

void tell_unreadable(Output& out, const ProcessesReport& report) {
  if (report.unreadable_processes == 0) return;
  std::string users;
  for (const std::uint32_t id : report.unreadable_users)
    users += (users.empty() ? " of user " : ", ") + (id == 0 ? "root" : std::to_string(id));
  out.write(process_count(report.unreadable_processes) + users +
            " could not be looked at, which takes root with CAP_SYS_PTRACE\n");
}

// Leaves those of several files that can be looked for, and complains of the others. Fails if none
// is left.
Result<int> take_out_unknown(std::vector<std::string>& files) {
  std::vector<std::string> known;
  std::optional<Error> complaint;
  for (const std::string& file : files) {
    const Result<ProcessesReport> found = processes({file});
    Result<void> checked = found ? check_is_known(file) : tl::unexpected<Error>(found.error());
    if (checked) known.push_back(file);
    if (checked) continue;
    if (complaint) std::fprintf(stderr, "weightmap: %s\n", to_string(*complaint).c_str());
    complaint = std::move(checked.error());
  }
  files = std::move(known);
  if (!complaint) return exit_good;
  if (files.empty()) return tl::unexpected<Error>(*complaint);
  std::fprintf(stderr, "weightmap: %s\n", to_string(*complaint).c_str());
  return exit_failed;
}

Result<int> run_ps(Output& out, PsOptions& options) {
  int code = exit_good;
  if (options.files.size() > 1) {
    TRY_ASSIGN(code, take_out_unknown(options.files));
  }
  const Result<ProcessesReport> report = processes({options.files.begin(), options.files.end()});
  if (!report) return tl::unexpected<Error>(report.error());
  for (const std::string& file : options.files) TRY(check_is_known(file));
  if (options.json) {
    out.write(to_text(describe_report(*report)) + "\n");
    return code;
  }
  if (options.style.tsv) {
    print_table(out, options.style, report->mapped);
    return code;
  }
  const std::vector<MappedCheckpoint> rows = sums_of_sets(report->mapped);
  if (report->mapped.empty())
    out.write((report->unreadable_processes > 0 ? "no process that this user may look at has "
                                                : "no process has ") +
              std::string(options.files.empty()       ? "a checkpoint"
                          : options.files.size() == 1 ? "it"
                                                      : "them") +
              " mapped\n");
  else
    print_table(out, options.style, rows);
  print_totals(out, options.style, rows);
  for (const std::string& file : options.files) tell_of_link(out, file);
  tell_unreadable(out, *report);
  return code;
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
      "A row has all files of a numbered set; --tsv and --json have a row for each.\n"
      "Without FILE, a file counts that begins as torch.save(), safetensors or GGUF begin one, a "
      "copy\n"
      "made by `stage`, and, where it cannot be looked at or is on FUSE or a network, one whose "
      "name\n"
      "ends with .pt, .pth, .ckpt, .bin, .safetensors or .gguf.\n"
      "Examples:\n"
      "  weightmap ps model.pt\n"
      "  weightmap ps --json | jq '.files[] | [.file, .pss_bytes, .copies_bytes]'");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_ps(out, *options); }; });
}

}  // namespace weightmap::cli
