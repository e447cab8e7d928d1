#include "runtime/services/delta/delta_folder.hpp"

#include <algorithm>
#include <map>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/bytes/escape.hpp"
#include "runtime/base/try.hpp"
#include "runtime/formats/safetensors/parse_safetensors.hpp"
#include "runtime/formats/sets/shard_index.hpp"
#include "runtime/services/delta/encoding.hpp"
#include "runtime/services/delta/model_version.hpp"
#include "runtime/services/delta/sums.hpp"
#include "weightmap/value.hpp"

namespace weightmap::delta {
namespace {

namespace fs = std::filesystem;

// Before the tensor's name, in the files of ModelExpress.
constexpr std::string_view express_prefix = "mx.adler32:";

tl::unexpected<Error> corrupt(const std::string& why) { return failure(ErrorCode::corrupt, why); }

// The index of the folder: by its usual name, else the one file that is called like an index.
Result<fs::path> index_in(const fs::path& folder) {
  std::error_code failed;
  const fs::path usual = folder / index_name;
  if (fs::exists(usual, failed)) return usual;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (entry->path().filename().native().ends_with(".safetensors.index.json"))
      found.push_back(entry->path());
  if (found.size() == 1) return found.front();
  return failure(ErrorCode::not_a_checkpoint,
                 found.empty() ? "is no delta: it has no " + std::string(index_name)
                               : "has several indexes of shards; name the one that is meant");
}

// The metadata of an index.
class IndexFacts {
 public:
  explicit IndexFacts(const Value& metadata) : metadata_(metadata) {}

  std::optional<std::string_view> find(std::string_view key) const {
    const std::optional<Value> value = metadata_.find(key);
    return value ? value->string() : std::nullopt;
  }
  Result<std::string_view> text(std::string_view key) const {
    if (const std::optional<std::string_view> value = find(key)) return *value;
    return corrupt("the index of a delta has no text " + bytes::quote(key) + " in its metadata");
  }
  // Fails with unsupported if `named` does not know the word.
  template <class Named>
  auto word(std::string_view key, const Named& named) const
      -> Result<typename decltype(named(""))::value_type> {
    TRY_ASSIGN(const std::string_view word, text(key));
    if (const auto value = named(word)) return *value;
    return failure(ErrorCode::unsupported, "has " + bytes::quote(word) + " as its " +
                                               std::string(key) +
                                               ", which this version does not know");
  }

 private:
  Value metadata_;
};

std::optional<std::string_view> known_compression(std::string_view word) {
  return word == "zstd" ? std::optional(word) : std::nullopt;
}

class FolderReading {
 public:
  FolderReading(DeltaFolder& folder, const Limits& limits) : folder_(folder), limits_(limits) {}

  Result<void> run(const fs::path& path) {
    std::error_code unknown;
    folder_.index = path;
    if (fs::is_directory(path, unknown)) {
      TRY_ASSIGN(folder_.index, about_file(index_in(path), path));
    }
    TRY(about_file(read_index(), folder_.index));
    std::ranges::sort(folder_.tensors, {}, &DeltaFolder::Tensor::name);
    return {};
  }

 private:
  Result<void> read_index() {
    TRY_ASSIGN(folder_.index_file, os::File::open_foreign(folder_.index));
    const os::File& file = *folder_.index_file;
    if (file.size() > std::min(sets::longest_index, limits_.pickle_bytes))
      return failure(ErrorCode::limit_exceeded, "the index of shards has " +
                                                    std::to_string(file.size()) +
                                                    " bytes, which is more than the limit");
    std::string text(file.size(), '\0');
    TRY(file.read(0, std::as_writable_bytes(std::span(text))));
    std::pmr::monotonic_buffer_resource memory;
    sets::ShardIndex index(text);
    index.may_be_empty = true;  // nothing changed
    TRY(sets::read_shard_index(index, limits_, memory));
    TRY(read_facts(IndexFacts(Value(index.metadata.get(), index.metadata->root()))));
    TRY_ASSIGN(Named named, names_by_file(index));
    for (std::size_t i = 0; i < index.files.size(); ++i) {
      const fs::path path = folder_.index.parent_path() / index.files[i];
      TRY(about_file(read_file(path, named[i]), path));
    }
    folder_.bytes += file.size();
    return check_all_named(index);
  }

  Result<void> read_facts(const IndexFacts& facts) {
    if (!facts.find("delta_encoding"))
      return failure(ErrorCode::not_a_checkpoint,
                     "is no delta: its metadata has no delta_encoding; a whole version is opened "
                     "as any checkpoint");
    TRY_ASSIGN(folder_.encoding, facts.word("delta_encoding", encoding_named));
    TRY(facts.word("compression_format", known_compression));
    TRY_ASSIGN(folder_.sum, facts.word("checksum_format", sum_named));
    TRY(check_available(folder_.sum));
    TRY_ASSIGN(folder_.version, facts.text("version"));
    TRY_ASSIGN(folder_.base_version, facts.text("base_version"));
    return check_ascends(folder_.base_version, folder_.version);
  }

  // What the index does not name would be left out without a word.
  Result<void> check_all_named(const sets::ShardIndex& index) const {
    std::error_code failed;
    const fs::path folder = folder_.index.parent_path();
    for (fs::directory_iterator entry(folder.empty() ? "." : folder, failed), end;
         !failed && entry != end; entry.increment(failed)) {
      const std::string name = entry->path().filename();
      if (name.ends_with(".safetensors") && !name.starts_with(".") &&
          !std::ranges::binary_search(index.files, name))
        return corrupt("does not name " + bytes::quote(name) + ", which lies beside it");
    }
    return {};
  }

  using Names = std::map<std::string_view, bool>;  // true: the file has it
  using Named = std::vector<Names>;

  Result<Named> names_by_file(const sets::ShardIndex& index) const {
    Named named(index.files.size());
    std::map<std::string_view, bool> all;
    for (const sets::ShardIndex::Item& item : index.items) {
      if (!all.emplace(item.tensor, true).second)
        return failure(
            ErrorCode::corrupt,
            "the index of shards names the tensor " + bytes::quote(item.tensor) + " twice",
            item.position);
      named[item.file].emplace(item.tensor, false);
    }
    return named;
  }

  Result<void> read_file(const fs::path& path, Names& names) {
    TRY_ASSIGN(os::File file, os::File::open_foreign(path));
    folder_.bytes += file.size();
    folder_.files.push_back({std::move(file), path});
    std::pmr::monotonic_buffer_resource memory;
    const os::File& opened = folder_.files.back().file;
    format::Input input(opened, 0, opened.size(), memory);
    OpenOptions options = OpenOptions::to_look();
    options.limits = limits_;
    OpenStats stats;
    TRY_ASSIGN(const format::Parsed parsed, safetensors::parse(input, options, stats, memory));
    if (!parsed.facts.unsupported.empty())
      return corrupt("the tensor " + bytes::quote(parsed.facts.unsupported.front()) +
                     " does not hold bytes, which frames are");
    const Sums sums = sums_of(Value(parsed.tree.get(), parsed.tree->root()));
    for (std::size_t i = 0; i < parsed.catalog.size(); ++i)
      TRY(add(parsed.catalog, parsed.catalog[i], sums, names));
    for (const auto& [name, is_there] : names)
      if (!is_there)
        return corrupt("has no tensor " + bytes::quote(name) + ", which the index has in it");
    return {};
  }

  using Sums = std::map<std::string_view, std::string_view>;

  static Sums sums_of(const Value& metadata) {
    Sums sums;
    for (const auto& [key, text] : metadata.items())
      sums[key.string().value_or("")] = text.string().value_or("");
    return sums;
  }

  Result<void> add(const catalog::Catalog& catalog, const catalog::Entry& entry, const Sums& sums,
                   Names& names) {
    const std::string_view name = catalog.name(entry);
    const auto named = names.find(name);
    if (named == names.end())
      return corrupt("has a tensor " + bytes::quote(name) + ", which the index has not in it");
    named->second = true;
    if (entry.dtype != DType::uint8 || entry.rank != 1)
      return failure(
          ErrorCode::corrupt,
          "the tensor " + bytes::quote(name) + " is no row of bytes (U8), which a frame is",
          entry.position);
    TRY_ASSIGN(std::string sum, sum_of(name, sums));
    folder_.tensors.push_back({std::string(name), folder_.files.size() - 1,
                               ByteRange{entry.position, entry.nbytes}, std::move(sum)});
    return {};
  }

  Result<std::string> sum_of(std::string_view name, const Sums& sums) const {
    auto found = sums.find(name);
    if (found == sums.end() && folder_.sum == TensorSum::adler32)
      found = sums.find(std::string(express_prefix).append(name));
    if (found == sums.end())
      return corrupt("has no sum of the tensor " + bytes::quote(name) + " in its metadata");
    if (is_sum(folder_.sum, found->second)) return std::string(found->second);
    return corrupt("has " + bytes::quote(found->second) + " as the sum of the tensor " +
                   bytes::quote(name) + ", which is none of " +
                   std::string(to_string(folder_.sum)));
  }

  DeltaFolder& folder_;
  const Limits& limits_;
};

}  // namespace

Result<DeltaFolder> DeltaFolder::open(const fs::path& path, const Limits& limits) {
  DeltaFolder folder;
  TRY(FolderReading(folder, limits).run(path));
  return folder;
}

Result<void> DeltaFolder::check_unchanged() const {
  TRY(about_file(index_file->check_unchanged(), index));
  for (const File& file : files) TRY(about_file(file.file.check_unchanged(), file.path));
  return {};
}

Error DeltaFolder::about(const Tensor& tensor, Error error) const {
  error.message.insert(0, "the tensor " + bytes::quote(tensor.name) + ": ");
  if (error.file.empty()) error.file = shown_name(files[tensor.file].path);
  return error;
}

}  // namespace weightmap::delta
