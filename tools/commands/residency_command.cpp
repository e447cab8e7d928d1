#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "runtime/base/try.hpp"
#include "runtime/services/inspect/processes.hpp"
#include "tools/command.hpp"
#include "tools/commands/experts_picture.hpp"
#include "tools/output/each_file.hpp"
#include "tools/output/terminal.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/tensor_groups.hpp"
#include "tools/tensors/tensor_selection.hpp"
#include "weightmap/inspect.hpp"

namespace weightmap::cli {
namespace {

struct ResidencyOptions {
  std::string file;                // the one that is looked at
  std::vector<std::string> files;  // all of them
  TensorSelection selection;
  TableStyle style;
  std::optional<std::size_t> depth;
  std::string experts;  // a profile of their use
  bool by_tensor = false;
  bool repair = false;
  bool evict = false;
  bool json = false;
};

struct Picture {
  Residency file;
  std::vector<TensorGroup> groups;
  std::vector<StorageResidency> storages;
};

struct Repair {
  Residency before;
  RepairReport report;
};

// Returns the tensors' storages, in the order of the report.
std::vector<StorageResidency> storages_of(const Checkpoint& checkpoint,
                                          const ResidencyReport& report,
                                          const std::vector<std::size_t>& indices) {
  std::vector<bool> is_wanted(report.storages.size());
  for (std::size_t index : indices) is_wanted[checkpoint.tensors()[index].storage_index] = true;
  std::vector<StorageResidency> storages;
  for (std::size_t i = 0; i < is_wanted.size(); ++i)
    if (is_wanted[i]) storages.push_back(report.storages[i]);
  return storages;
}

Grouping grouping_of(const Checkpoint& checkpoint, const std::vector<std::size_t>& indices,
                     const ResidencyOptions& options) {
  if (options.by_tensor) return {};
  return options.depth ? Grouping{*options.depth} : Grouping::by_size(checkpoint, indices);
}

Result<Picture> look(const Checkpoint& checkpoint, const std::vector<std::size_t>& indices,
                     const ResidencyOptions& options) {
  TRY_ASSIGN(const ResidencyReport report, residency(checkpoint));
  return Picture{
      report.file,
      group_tensors(checkpoint, indices, grouping_of(checkpoint, indices, options), report),
      storages_of(checkpoint, report, indices)};
}

Json nullable(const std::optional<bool>& flag) { return flag ? Json(*flag) : Json(nullptr); }

Json describe_repair(const Repair& repair) {
  const EvictReport& evicted = repair.report.evicted;
  const std::string_view reason = staying_reason(evicted);
  return {{"cached_before", evicted.cached_before},
          {"fragmented_before", nullable(repair.before.is_fragmented)},
          {"stayed_bytes", evicted.cached_after},
          {"reason", reason.empty() ? Json(nullptr) : Json(reason)},
          {"read_bytes", repair.report.read_bytes},
          {"huge_bytes", repair.report.huge_mapped_bytes}};
}

Json describe_picture(const std::string& file, const Picture& picture,
                      const std::optional<Repair>& repair) {
  Json groups = Json::array();
  for (const TensorGroup& group : picture.groups)
    groups.push_back({{"name", group.name},
                      {"tensors", group.tensors},
                      {"bytes", group.bytes},
                      {"cached_bytes", group.cached_bytes}});
  Json storages = Json::array();
  for (const StorageResidency& storage : picture.storages)
    storages.push_back({{"key", storage.key},
                        {"file_offset", storage.file_offset},
                        {"bytes", storage.extent_bytes},
                        {"cached_bytes", storage.cached_bytes}});
  Json document = {{"file", file},
                   {"file_bytes", picture.file.file_bytes},
                   {"cached_bytes", picture.file.cached_bytes},
                   {"fragmented", nullable(picture.file.is_fragmented)},
                   {"sampled_bytes", picture.file.sampled_bytes},
                   {"sampled_huge_bytes", picture.file.sampled_huge_bytes},
                   {"groups", groups},
                   {"storages", storages}};
  if (repair) document["repair"] = describe_repair(*repair);
  return document;
}

double part_of(std::uint64_t cached, std::uint64_t bytes) {
  return bytes == 0 ? 0 : static_cast<double>(cached) / static_cast<double>(bytes);
}

// Only exact values are shown as 0 % and 100 %.
std::string percent(std::uint64_t cached, std::uint64_t bytes) {
  if (bytes == 0) return "-";
  if (cached == 0) return "0%";
  if (cached >= bytes) return "100%";
  const double exact = part_of(cached, bytes) * 100;
  if (exact < 1) return "<1%";
  return std::to_string(std::min(static_cast<int>(exact), 99)) + "%";
}

std::string bar(std::uint64_t cached, std::uint64_t bytes, std::size_t cells) {
  const auto full = static_cast<std::size_t>(part_of(cached, bytes) * static_cast<double>(cells));
  return "[" + std::string(std::min(full, cells), '#') +
         std::string(cells - std::min(full, cells), '.') + "]";
}

// The rest of a line after the name and three columns of numbers with two spaces between.
std::size_t bar_cells(const std::vector<TensorGroup>& rows) {
  constexpr std::size_t others = 2 + 10 + 2 + 10 + 2 + 4 + 2 + 2;
  std::size_t name = 0;
  for (const TensorGroup& row : rows) name = std::max(name, width(printable(row.name)));
  const std::size_t all = terminal_width();
  return std::clamp<std::size_t>(all < others + name ? 0 : all - others - name, 10, 50);
}

// Prints for programs: no bar, and no row that sums up the others.
void print_tsv(Output& out, const Picture& picture, const ResidencyOptions& options) {
  const std::vector<Column> columns = {
      {options.by_tensor ? "TENSOR" : "GROUP"}, {"SIZE"}, {"CACHED"}};
  const std::vector<TensorGroup>& rows = picture.groups;
  print_columns(out, options.style, columns, rows.size(), [&](std::size_t i) {
    return std::vector<std::string>{printable(rows[i].name), options.style.bytes(rows[i].bytes),
                                    options.style.bytes(rows[i].cached_bytes)};
  });
}

void print_table(Output& out, const Picture& picture, const ResidencyOptions& options) {
  std::vector<TensorGroup> rows = picture.groups;
  rows.push_back({"whole file", 0, 0, picture.file.file_bytes, picture.file.cached_bytes});
  const std::size_t cells = bar_cells(rows);
  const std::vector<Column> columns = {{options.by_tensor ? "TENSOR" : "GROUP", Column::left},
                                       {"SIZE", Column::right},
                                       {"CACHED", Column::right},
                                       {"%", Column::right},
                                       {"IN THE PAGE CACHE", Column::left}};
  const TableStyle& style = options.style;
  print_columns(out, style, columns, rows.size(), [&](std::size_t i) -> std::vector<std::string> {
    const TensorGroup& row = rows[i];
    return {i + 1 == rows.size() ? row.name : printable(row.name), style.bytes(row.bytes),
            style.bytes(row.cached_bytes), percent(row.cached_bytes, row.bytes),
            bar(row.cached_bytes, row.bytes, cells)};
  });
}

std::string sample_text(const Residency& file) {
  return human_bytes(file.sampled_huge_bytes) + " of " + human_bytes(file.sampled_bytes) +
         " sampled in huge pages";
}

void print_repair(Output& out, const Repair& repair, const Residency& after) {
  const RepairReport& report = repair.report;
  out.write(
      "repaired: read " + human_bytes(report.read_bytes) + " again, of which " +
      human_bytes(report.huge_mapped_bytes) + " are in huge pages" +
      (repair.before.sampled_bytes > 0 ? " (before: " + sample_text(repair.before) + ")" : "") +
      "\n");
  if (report.evicted.cached_after > 0)
    out.write(human_bytes(report.evicted.cached_after) +
              " could not be evicted: " + staying_text(report.evicted) + "\n");
  if (after.is_fragmented.value_or(false))
    out.write("still fragmented: " + sample_text(after) + "\n");
}

void print_picture(Output& out, const Picture& picture, const ResidencyOptions& options,
                   const std::optional<Repair>& repair) {
  if (options.style.tsv) return print_tsv(out, picture, options);
  print_table(out, picture, options);
  if (repair)
    print_repair(out, *repair, picture.file);
  else if (picture.file.is_fragmented.value_or(false))
    out.write("fragmented: " + sample_text(picture.file) +
              ", so that mapping costs a page fault for each small one; --repair evicts the file "
              "and reads it again\n");
}

// The document of one FILE; text is printed at once.
Json show(Output& out, const Picture& picture, const ResidencyOptions& options,
          const std::optional<Repair>& repair) {
  if (options.json) return describe_picture(options.file, picture, repair);
  if (options.files.size() > 1) out.write(printable(options.file) + ":\n");
  print_picture(out, picture, options, repair);
  return {};
}

Result<Repair> repair_with_bar(const Checkpoint& checkpoint, const ResidencyOptions& options) {
  TRY_ASSIGN(const ResidencyReport before, residency(checkpoint));
  ProgressBar bar;
  TRY_ASSIGN(const RepairReport report, repair(options.file, bar.follow()));
  return Repair{before.file, report};
}

// Fails if the file is still fragmented.
Result<OfFile> run_repair(Output& out, const Checkpoint& checkpoint,
                          const std::vector<std::size_t>& indices,
                          const ResidencyOptions& options) {
  TRY_ASSIGN(const Repair repair, repair_with_bar(checkpoint, options));
  TRY_ASSIGN(const Picture after, look(checkpoint, indices, options));
  return OfFile{after.file.is_fragmented.value_or(false) ? exit_failed : exit_good,
                show(out, after, options, repair)};
}

struct OpenedPart {
  Checkpoint checkpoint;
  std::vector<std::size_t> indices;
};

Result<OpenedPart> open_part(const ResidencyOptions& options) {
  if (!options.repair) TRY(check_look_is_harmless(options.file));
  TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::open(options.file, OpenOptions::to_look()));
  Result<std::vector<std::size_t>> indices = select(checkpoint, options.selection);
  if (indices) return OpenedPart{std::move(checkpoint), std::move(*indices)};
  indices.error().file = printable(options.file);
  return tl::unexpected<Error>(indices.error());
}

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

// Goes on with the next file after a failure. Fails if any of a file stays.
int evict_files(Output& out, const ResidencyOptions& options) {
  int code = exit_good;
  Json listed = Json::array();
  for (const std::string& file : options.files) {
    const Result<EvictReport> report = evict(file);
    if (!report) std::fprintf(stderr, "weightmap: %s\n", to_string(report.error()).c_str());
    if (!report || report->cached_after > 0) code = exit_failed;
    if (options.json)
      listed.push_back(describe_eviction(file, report));
    else if (report)
      out.write(eviction_line(file, *report));
  }
  if (options.json) out.write(to_text({{"files", listed}}) + "\n");
  return code;
}

Result<int> run_residency(Output& out, ResidencyOptions options) {
  if (options.evict) return evict_files(out, options);
  const auto examine = [&](const std::string& file) -> Result<OfFile> {
    options.file = file;
    TRY_ASSIGN(const OpenedPart chosen, open_part(options));
    if (!options.experts.empty()) {
      TRY_ASSIGN(Json layers, show_experts(out, chosen.checkpoint, options.experts, options.style,
                                           options.json));
      return OfFile{exit_good, {{"file", file}, {"layers", std::move(layers)}}};
    }
    if (options.repair) return run_repair(out, chosen.checkpoint, chosen.indices, options);
    TRY_ASSIGN(const Picture picture, look(chosen.checkpoint, chosen.indices, options));
    return OfFile{exit_good, show(out, picture, options, std::nullopt)};
  };
  return examine_each(out, options.files, options.json, examine);
}

// Of the arguments behind the first FILE, those that are there are FILEs, also if they cannot be
// read. A folder is none, since modules are often called like folders.
void take_files(ResidencyOptions& options) {
  std::vector<std::string>& patterns = options.selection.patterns;
  const auto is_pattern = [&options](const std::string& text) {
    if (options.evict) return false;
    std::error_code failed;
    return !std::filesystem::exists(std::filesystem::symlink_status(text, failed)) ||
           std::filesystem::is_directory(text, failed);
  };
  const auto files = std::stable_partition(patterns.begin(), patterns.end(), is_pattern);
  options.files = {options.file};
  options.files.insert(options.files.end(), files, patterns.end());
  patterns.erase(files, patterns.end());
  if (options.files.size() > 1 && options.style.tsv)
    throw CLI::ValidationError("--tsv", "takes one FILE");
}

}  // namespace

void add_residency(CLI::App& app, Run& run) {
  auto options = std::make_shared<ResidencyOptions>();
  CLI::App& command =
      *app.add_subcommand("residency", "Show what of the file is in the page cache");
  command.add_option("FILE", options->file, "The checkpoint; others may follow")
      ->required()
      ->type_name("");
  command
      .add_option("PATTERN", options->selection.patterns,
                  "Only names that match, e.g. 'layers.0.*': what is not there as a file")
      ->type_name("");
  command.add_flag("--json", options->json, "One JSON document on standard output");
  CLI::Option* const depth =
      command
          .add_option(
              "--depth", options->depth,
              "A bar for all tensors that share the first N parts of their names; without it,\n"
              "as many parts as give at most 40 bars")
          ->type_name("N")
          ->check(CLI::Range(1, 65535));
  CLI::Option* const by_tensor =
      command.add_flag("--by-tensor", options->by_tensor, "A bar for each tensor")->excludes(depth);
  CLI::Option* const repair = command.add_flag("--repair", options->repair,
                                               "Evict what is cached and read it in huge pages");
  CLI::Option* const experts =
      command
          .add_option("--experts", options->experts,
                      "Show what of its experts was used instead, by a profile of a ResidentSet")
          ->type_name("PROFILE")
          ->excludes(depth, by_tensor, repair);
  add_table_options(command, options->style);
  command
      .add_flag("--evict", options->evict,
                "Drop what is cached instead, of any FILEs: the next read of one is a cold one")
      ->excludes(depth, by_tensor, repair, experts, command.get_option("--tsv"));
  command.footer(
      "Opening the file for this reads its metadata, which is cached afterwards. With --evict the\n"
      "exit status is 1 if any of a file stays, and it is said why: a process has it mapped, or "
      "it\n"
      "is not on the disk yet.\n"
      "Examples:\n"
      "  weightmap residency model.pt\n"
      "  weightmap residency --depth 1 *.safetensors\n"
      "  weightmap residency --by-tensor model.pt 'model.layers.0.*'\n"
      "  weightmap residency --evict *.pt\n"
      "  weightmap residency --experts used.profile model.gguf\n"
      "  weightmap residency --repair model.pt");
  command.callback([options, &run] {
    take_files(*options);
    run = [options](Output& out) { return run_residency(out, *options); };
  });
}

}  // namespace weightmap::cli
