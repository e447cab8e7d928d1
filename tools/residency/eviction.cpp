#include "tools/residency/eviction.hpp"

#include <cstdio>

#include "tools/command.hpp"
#include "tools/support/files.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli {
namespace {

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

}  // namespace

int evict_files(Output& out, const std::vector<std::string>& names, bool json) {
  int code = exit_good;
  Json listed = Json::array();
  for (const std::string& file : names) {
    const Result<EvictReport> report = evict(file);
    if (!report) std::fprintf(stderr, "weightmap: %s\n", to_string(report.error()).c_str());
    if (!report || report->cached_after > 0) code = exit_failed;
    if (json)
      listed.push_back(describe_eviction(file, report));
    else if (report)
      out.write(eviction_line(file, *report));
  }
  if (json) out.write(to_text({{"files", listed}}) + "\n");
  return code;
}

}  // namespace weightmap::cli
