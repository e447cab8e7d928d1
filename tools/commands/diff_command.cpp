#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>

#include "runtime/base/try.hpp"
#include "tools/command.hpp"
#include "tools/output/number_text.hpp"
#include "tools/output/terminal.hpp"
#include "tools/support/json_out.hpp"
#include "tools/support/text.hpp"
#include "tools/tensors/tensor_difference.hpp"
#include "tools/values/value_difference.hpp"
#include "tools/values/value_text.hpp"
#include "tools/values/value_tree.hpp"

namespace weightmap::cli {
namespace {

struct DiffOptions : CommonOptions {
  std::string other;
  std::vector<std::string> patterns;
  TableStyle style;
  bool quiet = false;
  bool exit_code = false;
};

struct Differences {
  std::vector<TensorPair> differing;
  std::array<std::uint64_t, change_count> tensors{};  // by Change
  std::optional<ValueDifferences> values;             // unset if patterns choose tensors
  std::map<std::string, std::string> left_out;        // of either side, not compared: name, why

  std::uint64_t count(Change change) const { return tensors[static_cast<std::size_t>(change)]; }
  bool are_equal() const {
    return differing.empty() && (!values || values->all() == 0) && left_out.empty();
  }
};

Result<Differences> find(const Checkpoint& old, const Checkpoint& now, const DiffOptions& options) {
  ProgressBar bar;
  TRY_ASSIGN(std::vector<TensorPair> pairs,
             compare_tensors(old, now, options.patterns, bar.follow()));
  Differences differences;
  for (TensorPair& pair : pairs) {
    ++differences.tensors[static_cast<std::size_t>(pair.change)];
    if (pair.change != Change::none) differences.differing.push_back(std::move(pair));
  }
  if (!options.patterns.empty()) return differences;
  differences.values.emplace();
  if (have_same_files(old, now)) return differences;
  TRY_ASSIGN(differences.values, compare_values(old, now));
  for (const Checkpoint* side : {&old, &now}) {
    for (const std::string& name : left_out_values(*side))
      differences.left_out.emplace(name, "an object with a tensor in it");
    for (const std::string& name : side->info().unsupported)
      differences.left_out.emplace(name, "it is not listed as a tensor");
  }
  return differences;
}

// Both sides of a comparison, for descriptions.
struct Sides {
  const Checkpoint& old;
  const Checkpoint& now;
};

bool is_safetensors(const Checkpoint& checkpoint) {
  return checkpoint.info().format == Format::safetensors;
}

// True for values that stem from the format alone: safetensors' metadata about its own files, and
// the class of a pickle's root, which safetensors lacks.
bool is_of_the_format(const Sides& sides, const ValueDifference& value) {
  const bool old = is_safetensors(sides.old), now = is_safetensors(sides.now);
  if (value.name.empty()) return old != now;
  return (value.name == "total_size" || value.name == "format") && (old || !value.old) &&
         (now || !value.now);
}

std::string_view change_of(const ValueDifference& value) {
  return to_string(!value.old ? Change::added : !value.now ? Change::removed : Change::changed);
}

Json json_of(const std::optional<NamedTensor>& tensor) {
  if (!tensor) return nullptr;
  return {{"name", tensor->name},
          {"dtype", to_string(tensor->view.dtype())},
          {"shape", tensor->view.shape()}};
}

std::string json_key(Change change) {
  std::string key(to_string(change));
  std::ranges::replace(key, ' ', '_');
  return key;
}

Json json_of(const TensorPair& pair) {
  Json document = {
      {"change", json_key(pair.change)}, {"old", json_of(pair.old)}, {"new", json_of(pair.now)}};
  if (pair.error) document["error"] = describe(*pair.error);
  if (!pair.found) return document;
  const TensorDifference& found = *pair.found;
  document["count"] = found.count;
  document["differing"] = found.differing;
  document["same_value"] = found.same_value;
  document["not_finite"] = found.not_finite;
  document["largest"] = number_json(found.largest);
  document["at"] = found.largest ? Json(found.at) : Json(nullptr);
  return document;
}

// Returns only the head of containers and long strings, since a document with all changes may be
// larger than both files.
Json json_of(const Checkpoint& checkpoint, const std::optional<Value>& value) {
  using Kind = Value::Kind;
  constexpr std::size_t longest_string = 4096;
  if (!value) return nullptr;
  const bool is_short = value->string() && value->string()->size() <= longest_string;
  const bool is_number = value->kind() == Kind::none || value->kind() == Kind::boolean ||
                         value->kind() == Kind::integer || value->kind() == Kind::real;
  if (is_short || is_number)
    if (Result<Json> plain = describe(checkpoint, {"", *value}); plain) return *plain;
  return {{"$text", one_line(*value).value_or(head_of(*value))}};
}

Json json_of(const Sides& sides, const ValueDifference& value) {
  Json document = {{"name", value.name}, {"change", change_of(value)}};
  if (value.old) document["old"] = json_of(sides.old, value.old);
  if (value.now) document["new"] = json_of(sides.now, value.now);
  return document;
}

Json counts_of(const Differences& differences) {
  Json tensors = Json::object();
  for (std::size_t i = 0; i < change_count; ++i)
    tensors[json_key(static_cast<Change>(i))] = differences.tensors[i];
  Json values = nullptr;
  if (differences.values)
    values = {{"changed", differences.values->changed},
              {"removed", differences.values->removed},
              {"added", differences.values->added},
              {"not_compared", differences.left_out.size()}};
  return {{"tensors", tensors}, {"values", values}};
}

Json describe_differences(const Sides& sides, const DiffOptions& options,
                          const Differences& differences) {
  Json document = {{"old", options.file},
                   {"new", options.other},
                   {"equal", differences.are_equal()},
                   {"counts", counts_of(differences)}};
  if (options.quiet) return document;
  Json& tensors = document["tensors"] = Json::array();
  for (const TensorPair& pair : differences.differing) tensors.push_back(json_of(pair));
  Json& values = document["values"] = Json::array();
  if (differences.values)
    for (const ValueDifference& value : differences.values->first)
      values.push_back(json_of(sides, value));
  for (const auto& [name, why] : differences.left_out)
    values.push_back({{"name", name}, {"change", json_key(Change::not_compared)}});
  return document;
}

std::string text_of(const TableStyle& style, const std::optional<NamedTensor>& tensor) {
  if (!tensor) return "-";
  return std::string(to_string(tensor->view.dtype())) + (style.tsv ? "" : " ") +
         style.dims(tensor->view.shape());
}

std::string text_of(const Checkpoint& checkpoint, const std::optional<Value>& value) {
  if (!value) return "-";
  if (value->kind() == Value::Kind::object)
    if (const std::optional<NamedTensor> tensor = checkpoint.tensor(*value))
      return text_of(TableStyle{}, tensor);
  return one_line(*value).value_or(head_of(*value));
}

std::vector<std::string> cells_of(const TableStyle& style, const TensorPair& pair) {
  const std::string name = printable(pair.old ? pair.old->name : pair.now->name);
  const bool is_renamed = pair.change == Change::renamed;
  std::vector<std::string> cells = {
      name, std::string(to_string(pair.change)), text_of(style, pair.old),
      is_renamed ? printable(pair.now->name) : text_of(style, pair.now)};
  if (!pair.found) {
    cells.resize(9, "-");
    return cells;
  }
  const TensorDifference& found = *pair.found;
  cells.push_back(std::to_string(found.differing));
  cells.push_back(std::to_string(found.count));
  cells.push_back(std::to_string(found.not_finite));
  cells.push_back(number_text(found.largest));
  cells.push_back(found.largest ? style.dims(found.at) : "-");
  return cells;
}

std::string name_of_value(const ValueDifference& value) {
  return value.name.empty() ? "(root)" : value.name;
}

std::vector<std::string> cells_of(const Sides& sides, const ValueDifference& value) {
  std::vector<std::string> cells = {name_of_value(value), std::string(change_of(value)),
                                    text_of(sides.old, value.old), text_of(sides.now, value.now)};
  cells.resize(9, "-");
  return cells;
}

void print_table(Output& out, const Sides& sides, const TableStyle& style,
                 const Differences& differences) {
  std::vector<const ValueDifference*> values;
  if (differences.values)
    for (const ValueDifference& value : differences.values->first)
      if (style.tsv || !is_of_the_format(sides, value)) values.push_back(&value);
  const std::size_t tensors = differences.differing.size();
  const std::vector<Column> columns = {
      {"NAME", Column::left},     {"CHANGE", Column::left},     {"OLD", Column::left},
      {"NEW", Column::left},      {"DIFFERING", Column::right}, {"COUNT", Column::right},
      {"NAN/INF", Column::right}, {"LARGEST", Column::right},   {"AT", Column::left}};
  if (!style.tsv && tensors + values.size() == 0) return;
  print_columns(out, style, columns, tensors + values.size(), [&](std::size_t i) {
    return i < tensors ? cells_of(style, differences.differing[i])
                       : cells_of(sides, *values[i - tensors]);
  });
}

void add_count(std::vector<std::string>& words, std::uint64_t number, Change change) {
  if (number > 0) words.push_back(std::to_string(number) + " " + std::string(to_string(change)));
}

// Returns "5 tensors: 2 equal, 3 changed; values: 1 changed", and which stem from the format.
std::string summary_of(const Sides& sides, const Differences& differences) {
  std::uint64_t all = 0;
  std::vector<std::string> tensors;
  for (std::size_t i = 0; i < change_count; ++i) {
    all += differences.tensors[i];
    add_count(tensors, differences.tensors[i], static_cast<Change>(i));
  }
  std::string text = count(all, "tensor") + (all > 0 ? ": " : "") + joined_words(tensors);
  if (!differences.values) return text;
  const ValueDifferences& values = *differences.values;
  std::vector<std::string> words;
  add_count(words, values.changed, Change::changed);
  add_count(words, values.removed, Change::removed);
  add_count(words, values.added, Change::added);
  add_count(words, differences.left_out.size(), Change::not_compared);
  if (values.all() > values.first.size())
    words.push_back("the first " + std::to_string(values.first.size()) + " are shown");
  text += "; values: " + (words.empty() ? "equal" : joined_words(words));
  std::vector<std::string> of_the_format;
  for (const ValueDifference& value : values.first)
    if (is_of_the_format(sides, value)) of_the_format.push_back(name_of_value(value));
  return of_the_format.empty()
             ? text
             : text + "; due to the file format alone: " + joined_words(of_the_format);
}

void print_differences(Output& out, const Sides& sides, const DiffOptions& options,
                       const Differences& differences) {
  if (options.json)
    return out.write(to_text(describe_differences(sides, options, differences)) + "\n");
  if (!options.quiet) print_table(out, sides, options.style, differences);
  if (!options.style.tsv) out.write(summary_of(sides, differences) + "\n");
}

// Lists what was not compared; returns true if there is any. JSON has the reasons of tensors.
bool name_what_was_not_compared(const DiffOptions& options, const Differences& differences) {
  bool found = !differences.left_out.empty();
  for (const auto& [name, why] : differences.left_out)
    std::fprintf(stderr, "weightmap: %s: not compared: %s\n", printable(name).c_str(), why.c_str());
  for (const TensorPair& pair : differences.differing) {
    if (pair.change != Change::not_compared) continue;
    found = true;
    if (!options.json)
      std::fprintf(stderr, "weightmap: %s: not compared: %s\n", printable(pair.old->name).c_str(),
                   pair.error->message.c_str());
  }
  return found;
}

Result<int> run_diff(Output& out, const DiffOptions& options) {
  TRY_ASSIGN(const Checkpoint old, open_checkpoint(options));
  CommonOptions options_of_other = options;
  options_of_other.file = options.other;
  TRY_ASSIGN(const Checkpoint now, open_checkpoint(options_of_other));
  const Result<Differences> differences = find(old, now, options);
  if (!differences) return tl::unexpected<Error>(about(options, differences.error()));
  print_differences(out, {old, now}, options, *differences);
  if (name_what_was_not_compared(options, *differences)) return exit_failed;
  return options.exit_code && !differences->are_equal() ? exit_failed : exit_good;
}

}  // namespace

void add_diff(CLI::App& app, Run& run) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App& command =
      *app.add_subcommand("diff", "Show how the tensors and values of two files differ");
  add_common_options(command, *options);
  command.add_option("OTHER", options->other, "The checkpoint to compare it with")
      ->required()
      ->type_name("");
  command
      .add_option("PATTERN", options->patterns,
                  "Only tensors whose names match, and no values, e.g. 'layers.0.*'")
      ->type_name("");
  command.add_flag("-q,--quiet", options->quiet, "Print only how many tensors and values differ");
  command.add_flag("--exit-code", options->exit_code, "End with status 1 if there is a difference");
  add_table_options(command, options->style);
  command.get_option("--tsv")->excludes(command.get_option("--quiet"));
  add_verify_option(command, *options);
  command.footer(
      "Tensors are compared element by element; those of two floating point types by value.\n"
      "A tensor that was removed and an added one with the same bits count as one that was\n"
      "renamed. What is not compared is named, and ends it with status 1.\n"
      "Examples:\n"
      "  weightmap diff before.pt after.pt\n"
      "  weightmap diff model.pt model-bf16.pt 'layers.0.*'\n"
      "  weightmap diff --quiet --exit-code a.pt b.pt && echo equal");
  command.callback(
      [options, &run] { run = [options](Output& out) { return run_diff(out, *options); }; });
}

}  // namespace weightmap::cli
