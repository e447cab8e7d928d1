#include "tools/output/globals_report.hpp"

#include <algorithm>
#include <utility>

#include "tools/support/columns.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

std::string full_name(const NamedGlobal& global) {
  return global.module.empty() && global.name.empty() ? "" : global.module + "." + global.name;
}

std::string record_of(const PickleGlobals& pickle) {
  return pickle.record.empty() ? "the file itself" : printable(pickle.record);
}

}  // namespace

std::string shown_name(const NamedGlobal& global) {
  const std::string name = full_name(global);
  return name.empty() ? "(a name that is made while the pickle runs)" : printable(name);
}

Json describe(const PickleGlobals& pickle, const NamedGlobal& global) {
  const std::string name = full_name(global);
  return {{"global", name.empty() ? Json(nullptr) : Json(name)},
          {"verdict", to_string(global.verdict)},
          {"record", pickle.record.empty() ? Json(nullptr) : Json(pickle.record)},
          {"file_offset", global.file_offset},
          {"count", global.count}};
}

Json describe(const FileGlobals& globals) {
  Json pickles = Json::array();
  for (const PickleGlobals& pickle : globals.pickles) {
    Json listed = Json::array();
    for (const NamedGlobal& global : pickle.globals) listed.push_back(describe(pickle, global));
    pickles.push_back({{"record", pickle.record.empty() ? Json(nullptr) : Json(pickle.record)},
                       {"file_offset", pickle.file_offset},
                       {"hidden", pickle.is_hidden},
                       {"bytes_behind", pickle.bytes_behind},
                       {"fault", pickle.fault ? describe(*pickle.fault) : Json(nullptr)},
                       {"globals", std::move(listed)}});
  }
  return pickles;
}

void print(Output& out, const FileGlobals& globals) {
  std::vector<std::pair<const PickleGlobals*, const NamedGlobal*>> rows;
  for (const PickleGlobals& pickle : globals.pickles)
    for (const NamedGlobal& global : pickle.globals) rows.emplace_back(&pickle, &global);
  print_columns(
      out, {},
      {{"VERDICT"}, {"OFFSET", Column::right}, {"COUNT", Column::right}, {"RECORD"}, {"GLOBAL"}},
      rows.size(), [&](std::size_t i) -> std::vector<std::string> {
        const auto& [pickle, global] = rows[i];
        return {std::string(to_string(global->verdict)), std::to_string(global->file_offset),
                std::to_string(global->count), record_of(*pickle), shown_name(*global)};
      });
  for (const std::string& oddity : oddities(globals)) out.write(oddity + "\n");
}

std::vector<std::string> oddities(const FileGlobals& globals) {
  std::vector<std::string> found;
  if (globals.fault) found.push_back(to_string(*globals.fault));
  for (const PickleGlobals& pickle : globals.pickles) {
    const std::string record = record_of(pickle);
    if (pickle.is_hidden)
      found.push_back("a hidden pickle in " + record + " at byte " +
                      std::to_string(pickle.file_offset));
    if (pickle.bytes_behind > 0)
      found.push_back(count(pickle.bytes_behind, "byte") + " behind the pickle in " + record);
    if (pickle.fault) found.push_back(record + ": " + to_string(*pickle.fault));
  }
  if (globals.hole_bytes > 0)
    found.push_back(count(globals.hole_bytes, "byte") +
                    " of tensors are holes in the file: nobody has written them, or a sparse copy "
                    "left zeros out");
  if (!globals.code.empty())
    found.push_back("programs, such as " + printable(globals.code.front()) + ", " +
                    count(globals.code.size(), "record"));
  return found;
}

}  // namespace weightmap::cli
