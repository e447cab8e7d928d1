#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/services/write/conversion.hpp"
#include "weightmap/archive.hpp"
#include "weightmap/backing.hpp"
#include "weightmap/chunks.hpp"
#include "weightmap/value.hpp"

namespace weightmap {
namespace {

using Kind = Value::Kind;

// True for a value that only leads on to names.
bool is_container(const Value& value) {
  const Kind kind = value.kind();
  if (kind == Kind::dict || kind == Kind::list || kind == Kind::tuple) return true;
  const Value type = value.callable();
  return kind == Kind::object && type.module() == "collections" &&
         (type.name() == "OrderedDict" || type.name() == "defaultdict");
}

// The omitted values of one file's tree. The walk enters only values with tensors below them, so
// the catalog bounds it.
class ValuesLeftOut {
 public:
  ValuesLeftOut(const Checkpoint& checkpoint, std::vector<std::string>& names) : names_(names) {
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      std::string key;
      for (const PathPart& part : checkpoint.path(i)) {
        above_.insert(key);
        key = key_below(key, part);
      }
      tensors_.insert(std::move(key));
    }
    visit(checkpoint.root(), {});
  }

 private:
  struct Hash {
    std::size_t operator()(const Value& value) const noexcept { return value.hash(); }
  };
  struct Same {
    bool operator()(const Value& a, const Value& b) const noexcept { return a.is_same_as(b); }
  };

  // Returns different keys for different paths.
  static std::string key_below(const std::string& key, const PathPart& part) {
    if (part.is_integer()) return key + "#" + std::to_string(part.integer()) + ";";
    return key + std::to_string(part.key().size()) + ":" + std::string(part.key());
  }

  void visit(const Value& value, const std::string& key) {
    if (tensors_.contains(key)) return;
    if (!is_container(value) || (!path_.empty() && !above_.contains(key)))
      return add((path_.empty() ? type_name_of(value) : name_of(path_)) +
                 (above_.contains(key) ? " (all but its tensors)" : ""));
    if (value.may_be_shared() && !seen_.insert(value).second) return;
    for_each_child(value, [&](const PathPart& part, const Value& child) {
      path_.push_back(part);
      visit(child, key_below(key, part));
      path_.pop_back();
    });
    for (const auto& [name, unused] : value.items())
      if (!name.string() && !name.integer()) add(name_below("(" + type_name_of(name) + ")"));
    if (const auto state = value.state(); state && state->kind() != Kind::dict && !state->is_none())
      add(name_below("(state)"));
  }

  std::string name_below(const std::string& last) const {
    return path_.empty() ? last : name_of(path_) + "." + last;
  }
  void add(std::string name) { names_.push_back(std::move(name)); }

  std::vector<std::string>& names_;
  std::unordered_set<std::string> tensors_;
  std::unordered_set<std::string> above_;  // keys of the paths above tensors
  std::unordered_set<Value, Hash, Same> seen_;
  std::vector<PathPart> path_;
};

// True for a record that a new archive writes itself or does not need.
bool is_of_the_layout(std::string_view name) {
  constexpr std::array names = {torch::pickle_record,
                                std::string_view("byteorder"),
                                std::string_view("version"),
                                std::string_view("archive_format"),
                                std::string_view("archive_version"),
                                std::string_view(".format_version"),
                                std::string_view(".storage_alignment")};
  return name.starts_with(".data/") || std::ranges::find(names, name) != names.end();
}

Result<void> add_records(const Checkpoint& checkpoint, const OpenOptions& options,
                         std::vector<std::string>& names) {
  const SourceFile& source = Checkpoint::Access::state(checkpoint).sources.front();
  TRY_ASSIGN(const ArchiveReader archive, ArchiveReader::open(source.content_path(), options));
  std::unordered_set<std::string> storages;
  for (std::size_t i = 0; i < Backing(checkpoint).storage_count(); ++i)
    storages.insert(Backing(checkpoint).storage(i).record());
  for (const ArchiveReader::RecordInfo& record : archive.records())
    if (!is_of_the_layout(record.name) && !storages.contains(std::string(record.name)))
      names.emplace_back(record.name);
  return {};
}

// Skips `format`, which names the library of the tensors, since the new file has its own.
void add_metadata(const Checkpoint& checkpoint, const SafetensorsMetadata& kept,
                  std::vector<std::string>& names) {
  for (const auto& item : checkpoint.root().items()) {
    const std::string name(item.first.string().value_or(""));
    const std::string text(item.second.string().value_or(""));
    const bool is_kept = std::ranges::find(kept, std::pair(name, text)) != kept.end();
    if (!is_kept && name != "format") names.push_back(name);
  }
}

Result<void> add_file(const Checkpoint& checkpoint, const OpenOptions& options,
                      const SafetensorsMetadata& metadata, std::vector<std::string>& names) {
  const Format format = checkpoint.info().format;
  if (format == Format::safetensors) {
    add_metadata(checkpoint, metadata, names);
    return {};
  }
  if (format != Format::pt2) ValuesLeftOut(checkpoint, names);
  return is_torch_archive(format) ? add_records(checkpoint, options, names) : Result<void>{};
}

// Also covers the files that an index does not name.
Result<void> add_files(const Checkpoint& set, const OpenOptions& options,
                       const SafetensorsMetadata& metadata, std::vector<std::string>& names) {
  const std::vector<std::string_view> written = whole_names(set);
  const std::unordered_set<std::string_view> known(written.begin(), written.end());
  const Sources& sources = Checkpoint::Access::state(set).sources;
  OpenOptions alone = options;  // what is about the set says nothing of a file
  alone.variant.clear();
  alone.dtypes.clear();
  for (std::size_t i = 0; i < set.source_count(); ++i) {
    const Result<Checkpoint> file = Checkpoint::open(sources[i].content_path(), alone);
    // The file of one rank, whose metadata says no more than where its parts belong.
    if (!file && file.error().code == ErrorCode::invalid_argument) continue;
    if (!file) return tl::unexpected<Error>(file.error());
    if (file->source_count() > 1) continue;  // the index
    TRY(add_file(*file, options, metadata, names));
    if (set.info().tensors_not_indexed == 0) continue;
    for (const std::string_view name : whole_names(*file))
      if (!known.contains(name)) names.emplace_back(name);
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> left_out(const Checkpoint& checkpoint, const OpenOptions& options,
                                          const SafetensorsMetadata& metadata, bool has_values) {
  const CheckpointInfo& info = checkpoint.info();
  std::vector<std::string> names(info.unsupported.begin(), info.unsupported.end());
  if (info.format == Format::dcp) {
    const std::optional<format::LateValues>& late =
        Checkpoint::Access::state(checkpoint).content().late;
    const std::span<const std::string> more =
        has_values ? left_out_values(checkpoint) : std::span<const std::string>(late->names);
    names.insert(names.end(), more.begin(), more.end());
    return names;
  }
  const bool is_set = checkpoint.source_count() > 1 && !checkpoint.source(1).is_copy;
  // The first file of a split has the values of all its files.
  TRY(is_set && info.format != Format::gguf ? add_files(checkpoint, options, metadata, names)
                                            : add_file(checkpoint, options, metadata, names));
  return names;
}

}  // namespace weightmap
