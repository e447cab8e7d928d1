#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include "runtime/services/inspect/processes.hpp"
#include "tools/command.hpp"
#include "tools/output/globals_report.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"

namespace weightmap::cli {
namespace {

namespace fs = std::filesystem;

struct ScanOptions {
  std::vector<std::string> paths;
  OpenOptions open;
  bool strict = false;
  bool names = false;  // all of them
  bool json = false;
};

enum class Verdict : std::uint8_t {
  safe,
  plain_data,
  unsafe,
  not_a_checkpoint,
  damaged,
  unchecked,
  unreadable
};

constexpr std::string_view word_of(Verdict verdict) noexcept {
  constexpr std::string_view words[] = {"safe",    "plain data", "unsafe",    "not a checkpoint",
                                        "damaged", "unchecked",  "unreadable"};
  return words[static_cast<std::size_t>(verdict)];
}

struct Scanned {
  std::string file;
  Verdict verdict;
  FileGlobals globals;
  std::optional<Error> error;  // of the file as a whole
};

using UnsafeGlobals = std::vector<std::pair<const PickleGlobals*, const NamedGlobal*>>;

UnsafeGlobals unsafe_globals(const FileGlobals& globals) {
  UnsafeGlobals found;
  for (const PickleGlobals& pickle : globals.pickles)
    for (const NamedGlobal& global : pickle.globals)
      if (is_unsafe(global.verdict)) found.emplace_back(&pickle, &global);
  return found;
}

// What a fault says of a file: that it is damaged, or only that not all of it was looked at.
Verdict judge_fault(const Error& error) noexcept {
  if (error.code == ErrorCode::io) return Verdict::unreadable;
  const bool is_beyond =
      error.code == ErrorCode::limit_exceeded || error.code == ErrorCode::unsupported;
  return is_beyond ? Verdict::unchecked : Verdict::damaged;
}

std::optional<Verdict> judge_faults(const FileGlobals& globals) {
  std::optional<Verdict> worst;
  const auto take = [&](const std::optional<Error>& fault) {
    if (!fault) return;
    const Verdict verdict = judge_fault(*fault);
    if (!worst || verdict == Verdict::damaged) worst = verdict;
  };
  take(globals.fault);
  for (const PickleGlobals& pickle : globals.pickles) take(pickle.fault);
  return worst;
}

Verdict judge(const FileGlobals& globals) {
  const UnsafeGlobals unsafe = unsafe_globals(globals);
  if (std::ranges::any_of(unsafe, [](const auto& found) {
        return found.second->verdict != GlobalVerdict::plain_data;
      }))
    return Verdict::unsafe;
  if (const std::optional<Verdict> fault = judge_faults(globals)) return *fault;
  const bool needs_no_pickle =
      is_header_and_elements(globals.format) || globals.format == Format::npz;
  if (globals.pickles.empty() && !needs_no_pickle) return Verdict::not_a_checkpoint;
  if (!globals.code.empty()) return Verdict::unsafe;
  return unsafe.empty() ? Verdict::safe : Verdict::plain_data;
}

// Judges a file without a pickle. A foreign file is refused as a whole, at no byte.
Verdict judge(const Error& error) noexcept {
  const bool is_foreign =
      error.code == ErrorCode::not_a_checkpoint || error.code == ErrorCode::unsupported;
  return is_foreign && error.file_offset == Error::no_offset ? Verdict::not_a_checkpoint
                                                             : judge_fault(error);
}

// What open() says of a file that is none by what was found in it: its kind, and what to do; or
// that it is the index of a set of which a file is missing. Harmful content has its own line.
void describe_foreign(Scanned& scanned, const fs::path& path, OpenOptions options) {
  options.globals = Globals::opaque;
  Result<Checkpoint> opened = Checkpoint::open(path, options);
  if (opened) {
    if (scanned.error) scanned.error->message = "is the index of a set; scan its files, too";
    return;
  }
  Error& error = opened.error();
  const bool is_index =
      path.extension() == ".json" && path.filename().native().find(".index") != std::string::npos;
  if (is_index && error.code == ErrorCode::io) {
    scanned.verdict = Verdict::damaged;
    error = {ErrorCode::corrupt,
             "is the index of a set that is not whole: " + to_string(error),
             Error::no_offset,
             {}};
  } else if (error.code != ErrorCode::not_a_checkpoint) {
    return;
  }
  scanned.error = std::move(error);
}

Scanned scan_file(const fs::path& path, const OpenOptions& options) {
  if (const Result<void> harmless = check_look_is_harmless(path); !harmless)
    return {path.native(), Verdict::unchecked, {}, harmless.error()};
  Result<FileGlobals> globals = list_globals(path, options);
  Scanned scanned{path.native(), Verdict::not_a_checkpoint, {}, {}};
  scanned.verdict = globals ? judge(*globals) : judge(globals.error());
  if (globals)
    scanned.globals = std::move(*globals);
  else
    scanned.error = std::move(globals.error());
  if (scanned.verdict == Verdict::not_a_checkpoint && scanned.globals.code.empty())
    describe_foreign(scanned, path, options);
  return scanned;
}

Scanned unreadable(const fs::path& path, const std::error_code& why) {
  return {path.native(),
          Verdict::unreadable,
          {},
          Error{ErrorCode::io, "cannot be read: " + why.message(), Error::no_offset, {}}};
}

// Lists all files in and below the named paths, sorted by name. Follows links, but enters no
// directory twice; skips anything that is neither a file nor a directory.
class Walk {
 public:
  Walk(const OpenOptions& options, std::vector<Scanned>& into) : options_(options), into_(into) {}

  void add(const fs::path& path) {
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (failed && failed != std::errc::not_a_directory)
      into_.push_back(unreadable(path, failed));
    else if (fs::is_directory(status))
      add_directory(path);
    else
      into_.push_back(scan_file(path, options_));
  }

 private:
  void add_directory(const fs::path& root);
  void list(const fs::path& directory, std::vector<fs::path>& waiting);

  const OpenOptions& options_;
  std::vector<Scanned>& into_;
  std::set<fs::path> visited_;
};

void Walk::add_directory(const fs::path& root) {
  std::vector<fs::path> waiting{root};  // the next one is last
  while (!waiting.empty()) {
    const fs::path path = std::move(waiting.back());
    waiting.pop_back();
    std::error_code failed;
    const fs::file_status status = fs::status(path, failed);
    if (fs::is_directory(status))
      list(path, waiting);
    else if (fs::is_regular_file(status))
      into_.push_back(scan_file(path, options_));
    else if (failed)  // such as a dangling link
      into_.push_back(unreadable(path, failed));
  }
}

void Walk::list(const fs::path& directory, std::vector<fs::path>& waiting) {
  std::error_code failed;
  const fs::path real = fs::canonical(directory, failed);
  if (!failed && !visited_.insert(real).second) return;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end;
       at.increment(failed))
    found.push_back(at->path());
  if (failed) into_.push_back(unreadable(directory, failed));
  std::sort(found.begin(), found.end(), std::greater<>());
  waiting.insert(waiting.end(), found.begin(), found.end());
}

std::map<Verdict, std::size_t> counts_of(const std::vector<Scanned>& files) {
  std::map<Verdict, std::size_t> counts;
  for (const Scanned& file : files) ++counts[file.verdict];
  return counts;
}

Json describe_file(const Scanned& file, bool names) {
  Json globals = Json::array();
  for (const auto& [pickle, global] : unsafe_globals(file.globals))
    globals.push_back(describe(*pickle, *global));
  Json hidden = Json::array();
  Json faults = Json::array();
  if (file.globals.fault) faults.push_back(describe(*file.globals.fault));
  std::uint64_t bytes_behind = 0;
  for (const PickleGlobals& pickle : file.globals.pickles) {
    const Json record = pickle.record.empty() ? Json(nullptr) : Json(pickle.record);
    if (pickle.is_hidden)
      hidden.push_back({{"record", record}, {"file_offset", pickle.file_offset}});
    if (pickle.fault) faults.push_back(describe(*pickle.fault));
    bytes_behind += pickle.bytes_behind;
  }
  Json document = {
      {"file", file.file},
      {"verdict", word_of(file.verdict)},
      {"format", file.globals.format == Format::unknown ? Json(nullptr)
                                                        : Json(to_string(file.globals.format))},
      {"unsafe", std::move(globals)},
      {"hidden", std::move(hidden)},
      {"bytes_behind", bytes_behind},
      {"hole_bytes", file.globals.hole_bytes},
      {"code", file.globals.code},
      {"faults", std::move(faults)},
      {"error", file.error ? describe(*file.error) : Json(nullptr)}};
  if (names) document["pickles"] = describe(file.globals);
  return document;
}

void print_json(Output& out, const std::vector<Scanned>& files, bool names) {
  Json listed = Json::array();
  for (const Scanned& file : files) listed.push_back(describe_file(file, names));
  Json all = Json::object();
  for (const auto& [verdict, number] : counts_of(files))
    all[std::string(word_of(verdict))] = number;
  out.write(to_text({{"files", std::move(listed)}, {"all", std::move(all)}}) + "\n");
}

// Returns the findings on a file: the count of unsafe names, the first of them, and oddities.
std::string findings_of(const Scanned& file) {
  if (file.error) return printable(file.error->message);
  constexpr std::size_t most = 4;
  const UnsafeGlobals globals = unsafe_globals(file.globals);
  std::vector<std::string> found;
  for (std::size_t i = 0; i < std::min(most, globals.size()); ++i) {
    const NamedGlobal& global = *globals[i].second;
    const std::string& record = globals[i].first->record;
    const bool is_in_member = record.find("//") != std::string::npos;
    found.push_back(shown_name(global) + " (" + std::string(to_string(global.verdict)) + ")" +
                    (is_in_member ? " in " + printable(record) : "") + " at byte " +
                    std::to_string(global.file_offset));
  }
  if (globals.size() > most) found.push_back(count(globals.size() - most, "other name"));
  for (const std::string& oddity : oddities(file.globals)) found.push_back(oddity);
  std::string text;
  for (const std::string& one : found) text += (text.empty() ? "" : "; ") + one;
  return text.empty() ? "-" : text;
}

void print_table(Output& out, const std::vector<Scanned>& files) {
  print_columns(out, {}, {{"VERDICT"}, {"FORMAT"}, {"FILE"}, {"FOUND"}}, files.size(),
                [&](std::size_t i) -> std::vector<std::string> {
                  const Scanned& file = files[i];
                  return {std::string(word_of(file.verdict)),
                          file.globals.format == Format::unknown
                              ? "-"
                              : std::string(to_string(file.globals.format)),
                          printable(file.file), findings_of(file)};
                });
  std::string line = count(files.size(), "file");
  for (const auto& [verdict, number] : counts_of(files))
    line += ", " + std::to_string(number) + " " + std::string(word_of(verdict));
  out.write(line + "\n");
}

void print_names(Output& out, const std::vector<Scanned>& files) {
  for (const Scanned& file : files) {
    out.write(printable(file.file) + ": " + std::string(word_of(file.verdict)) +
              (file.error ? ": " + printable(file.error->message) : "") + "\n");
    if (!file.error) print(out, file.globals);
  }
}

Result<int> run_scan(Output& out, const ScanOptions& options) {
  std::vector<Scanned> files;
  Walk walk(options.open, files);
  for (const std::string& path : options.paths) walk.add(path);
  if (options.json)
    print_json(out, files, options.names);
  else
    options.names ? print_names(out, files) : print_table(out, files);
  const bool good = std::all_of(files.begin(), files.end(), [&](const Scanned& file) {
    return file.verdict == Verdict::safe || file.verdict == Verdict::not_a_checkpoint ||
           (file.verdict == Verdict::plain_data && !options.strict);
  });
  return good ? exit_good : exit_failed;
}

}  // namespace

void add_scan(CLI::App& app, Run& run) {
  auto options = std::make_shared<ScanOptions>();
  CLI::App& command =
      *app.add_subcommand("scan", "Tell which files would run code where they are unpickled");
  command.add_option("PATH", options->paths, "Files, and directories with all that is in them")
      ->required()
      ->type_name("");
  add_allow_option(command, options->open);
  command.add_flag("--strict", options->strict, "End with 1 for plain data, too");
  command.add_flag("--names", options->names,
                   "List all classes and functions that the pickles name, the safe ones too");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  command.footer(
      "Looks at the names in pickles, wherever they are in a file, and runs nothing. Safe is what\n"
      "is whole and names only what torch allows by default; plain data names numpy's arrays, "
      "too,\n"
      "which torch refuses by default and which run no code. Ends with exit status 1 if a file is\n"
      "unsafe, damaged, could not be checked to its end, or cannot be read.\n"
      "Examples:\n"
      "  weightmap scan models/\n"
      "  weightmap scan --allow-global argparse.Namespace model.pt\n"
      "  weightmap scan --names model.pt\n"
      "  weightmap scan --json models/ | jq '.files[] | select(.verdict == \"unsafe\")'");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_scan(out, *options); }; });
}

}  // namespace weightmap::cli
