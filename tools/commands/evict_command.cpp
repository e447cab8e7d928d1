#include <cstdio>
#include <memory>
#include <vector>

#include "tools/command.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/staying.hpp"
#include "tools/support/text.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli {
namespace {

struct EvictOptions {
  std::vector<std::string> files;
  bool json = false;
};

Json describe_eviction(const std::string& file, const Result<EvictReport>& report) {
  if (!report) return {{"file", file}, {"error", describe(report.error())}};
  const std::string_view reason = staying_reason(*report);
  return {{"file", file},
          {"file_bytes", report->file_bytes},
          {"cached_before", report->cached_before},
          {"cached_after", report->cached_after},
          {"reason", reason.empty() ? Json(nullptr) : Json(reason)},
          {"unwritten_bytes", report->unwritten_bytes}};
}

std::string eviction_line(const std::string& file, const EvictReport& report) {
  std::string line = printable(file) + ": " + human_bytes(report.cached_before) + " of " +
                     human_bytes(report.file_bytes) + " in the page cache before, " +
                     human_bytes(report.cached_after) + " after";
  if (report.cached_after > 0) line += ": " + staying_text(report);
  return line + "\n";
}

// Continues with the next file after a failure.
Result<int> run_evict(Output& out, const EvictOptions& options) {
  int code = exit_good;
  Json files = Json::array();
  for (const std::string& file : options.files) {
    const Result<EvictReport> report = evict(file);
    if (!report) std::fprintf(stderr, "weightmap: %s\n", to_string(report.error()).c_str());
    if (!report || report->cached_after > 0) code = exit_failed;
    if (options.json)
      files.push_back(describe_eviction(file, report));
    else if (report)
      out.write(eviction_line(file, *report));
  }
  if (options.json) out.write(to_text({{"files", files}}) + "\n");
  return code;
}

}  // namespace

void add_evict(CLI::App& app, Run& run) {
  auto options = std::make_shared<EvictOptions>();
  CLI::App& command = *app.add_subcommand("evict", "Drop files from the page cache");
  command.add_option("FILE", options->files, "Any regular file")->required()->type_name("");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "The next read of the file is a cold one. Ends with exit status 1 if any of it stays, and\n"
      "says why: a process has it mapped, or it is not on the disk yet.\n"
      "Examples:\n"
      "  weightmap evict model.pt\n"
      "  weightmap evict --json *.pt | jq '.files[].cached_after'");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_evict(out, *options); }; });
}

}  // namespace weightmap::cli
