#include "tools/template/template_list.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/try.hpp"
#include "tools/support/columns.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/template/template_peer.hpp"
#include "tools/template/template_start.hpp"

namespace weightmap::cli::templates {
namespace {

struct RunningTemplate {
  TemplatePeer peer;
  std::vector<std::string> command;
  std::uint64_t memory_bytes = 0;  // PSS: a page of n processes counts as 1/n
};

std::uint64_t pss_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Pss:")) return std::stoull(line.substr(4)) * 1024;
  return 0;
}

Result<std::vector<RunningTemplate>> running_templates() {
  TRY_ASSIGN(const std::vector<std::filesystem::path> folders, template_folders());
  std::vector<RunningTemplate> found;
  for (const std::filesystem::path& folder : folders) {
    Result<TemplatePeer> peer = TemplatePeer::connect(folder);
    if (!peer) continue;
    Result<TemplateManifest> manifest = peer->manifest();
    if (!manifest) continue;
    const std::uint64_t memory = pss_of(peer->process());
    found.push_back({std::move(*peer), std::move(manifest->command), memory});
  }
  return found;
}

}  // namespace

Result<void> list_templates(Output& out, bool json) {
  TRY_ASSIGN(const std::vector<RunningTemplate> found, running_templates());
  if (json) {
    Json list = Json::array();
    for (const RunningTemplate& each : found)
      list.push_back({{"process", each.peer.process()},
                      {"memory_bytes", each.memory_bytes},
                      {"command", each.command}});
    out.write(to_text({{"templates", list}}) + "\n");
    return {};
  }
  if (found.empty()) {
    out.write("there are no templates\n");
    return {};
  }
  const std::vector<Column> columns = {
      {"PROCESS", Column::right}, {"MEMORY", Column::right}, {"COMMAND"}};
  print_columns(out, {}, columns, found.size(), [&](std::size_t i) -> std::vector<std::string> {
    return {std::to_string(found[i].peer.process()), human_bytes(found[i].memory_bytes),
            printable(joined_words(found[i].command, " "))};
  });
  return {};
}

Result<void> end_templates(Output& out, bool json) {
  TRY_ASSIGN(const std::vector<RunningTemplate> found, running_templates());
  std::vector<pid_t> ended;
  for (const RunningTemplate& each : found) {
    each.peer.end_template();
    ended.push_back(each.peer.process());
  }
  out.write(json ? to_text({{"ended", ended}}) + "\n"
                 : "ended " + count(ended.size(), "template") + "\n");
  return {};
}

}  // namespace weightmap::cli::templates
