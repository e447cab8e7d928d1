#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <memory_resource>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/bytes/about_file.hpp"
#include "runtime/bytes/checked.hpp"
#include "runtime/format/identify.hpp"
#include "runtime/format/zip_directory.hpp"
#include "runtime/os/file/file.hpp"
#include "runtime/pickle/opcode.hpp"
#include "runtime/pickle/scan.hpp"
#include "runtime/torch/archive_records.hpp"
#include "runtime/torch/globals.hpp"
#include "runtime/torch/names.hpp"
#include "runtime/zip/local_header.hpp"
#include "runtime/zip/record_bytes.hpp"
#include "weightmap/globals.hpp"

namespace weightmap {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::string_view zip_signature("PK\3\4");
// The first pickle of a torch.save before 1.6, a magic number. The pickles of the protocol, the
// system, the object and the keys follow, and then the storages.
constexpr std::string_view legacy_magic("\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.");
constexpr std::size_t legacy_pickles = 5;
constexpr std::size_t most_pickles = 1000;  // one after another
constexpr int most_nesting = 3;             // of archives within archives

std::string_view as_text(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool begins_as_pickle(Bytes bytes) noexcept {
  return bytes.size() >= 2 && static_cast<std::uint8_t>(bytes[0]) == pickle::op_PROTO &&
         static_cast<std::uint8_t>(bytes[1]) <= 5;
}

// True if bytes that are not known to be a pickle are one. Any data may begin like a pickle, but it
// does not end like one by chance, nor name globals that only attacks need.
bool is_believable(const PickleGlobals& pickle) noexcept {
  return !pickle.fault ||
         std::any_of(pickle.globals.begin(), pickle.globals.end(), [](const NamedGlobal& global) {
           return global.verdict == GlobalVerdict::harmful;
         });
}

// A part of another source: an archive that is a record of an archive.
class Part final : public bytes::ByteSource {
 public:
  Part(const bytes::ByteSource& whole, std::uint64_t base, std::uint64_t size) noexcept
      : whole_(whole), base_(base), size_(size) {}
  std::uint64_t size() const noexcept override { return size_; }
  Result<void> read(std::uint64_t offset, std::span<std::byte> out) const override {
    return whole_.read(base_ + offset, out);
  }

 private:
  const bytes::ByteSource& whole_;
  std::uint64_t base_;
  std::uint64_t size_;
};

// Collects the globals of one pickle after another.
class Collector {
 public:
  Collector(const OpenOptions& options, FileGlobals& into) : options_(options), into_(into) {}

  // Adds all consecutive pickles. `record` is their name, `file_offset` the place of `bytes`.
  // Returns true if more bytes could reveal more.
  bool add(std::string record, Bytes bytes, std::uint64_t file_offset, bool is_torchscript);
  void set_hidden(std::size_t from) {
    for (std::size_t i = from; i < into_.pickles.size(); ++i) into_.pickles[i].is_hidden = true;
  }

 private:
  pickle::Scan add_one(const std::string& record, Bytes bytes, std::uint64_t file_offset,
                       bool is_torchscript);
  GlobalVerdict judge(const pickle::ScannedGlobal& global, bool is_torchscript) const;

  const OpenOptions& options_;
  FileGlobals& into_;
};

GlobalVerdict Collector::judge(const pickle::ScannedGlobal& global, bool is_torchscript) const {
  if (global.module.empty() && global.name.empty()) return GlobalVerdict::harmful;
  return torch::judge(global.module, global.name, options_.safe_globals, is_torchscript);
}

pickle::Scan Collector::add_one(const std::string& record, Bytes bytes, std::uint64_t file_offset,
                                bool is_torchscript) {
  PickleGlobals& made = into_.pickles.emplace_back();
  made.record = record;
  made.file_offset = file_offset;
  const std::uint64_t budget = options_.limits.base_memory + 2 * bytes.size();
  std::uint64_t used = 0;
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> known;
  const auto found = [&](const pickle::ScannedGlobal& global) {
    const auto [at, is_new] = known.try_emplace({global.module, global.name}, made.globals.size());
    if (!is_new) {
      if (at->second < made.globals.size()) ++made.globals[at->second].count;
      return;
    }
    // Two strings, a node of the map, and fields.
    used += sizeof(NamedGlobal) + 128 + global.module.size() + global.name.size();
    if (used > budget) {
      known.erase(at);
      return;
    }
    const torch::GlobalName current = torch::in_python_3(global.module, global.name);
    made.globals.push_back({std::string(current.module), std::string(current.name),
                            file_offset + global.position, 1, judge(global, is_torchscript)});
  };
  pickle::Scan scan = pickle::scan_globals(bytes, file_offset,
                                           options_.limits.base_memory + 8 * bytes.size(), found);
  made.fault = scan.fault;
  if (used > budget && !made.fault)
    made.fault =
        Error{ErrorCode::limit_exceeded,
              "the names in the pickle need more memory than " + std::to_string(budget) + " bytes",
              file_offset,
              {}};
  return scan;
}

bool Collector::add(std::string record, Bytes bytes, std::uint64_t file_offset,
                    bool is_torchscript) {
  const std::size_t first = into_.pickles.size();
  for (std::size_t i = 0; i < most_pickles; ++i) {
    const pickle::Scan scan = add_one(record, bytes, file_offset, is_torchscript);
    if (scan.fault) return scan.ends_early;
    bytes = bytes.subspan(scan.length);
    file_offset += scan.length;
    if (!begins_as_pickle(bytes)) break;
  }
  into_.pickles[first].bytes_behind = bytes.size();
  return false;
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return lower.ends_with(ending); });
}

bool is_named_as_pickle(std::string_view name) {
  return ends_with_any(name, {".pkl", ".pickle", ".debug_pkl"});
}
bool is_named_as_code(std::string_view name) {
  return ends_with_any(name, {".py", ".pyc", ".so", ".o", ".cpp", ".dll", ".dylib"});
}

// Applies to a checkpoint; other archives may have any content in these folders.
bool holds_tensors(std::string_view name) {
  return name.starts_with(torch::storage_folder) || name.starts_with("constants/");
}

class ArchiveScan {
 public:
  // `base` is the archive's offset in the file; `prefix` precedes the names of its records.
  ArchiveScan(const bytes::ByteSource& source, std::uint64_t base, std::string prefix, int nesting,
              const OpenOptions& options, std::uint64_t& bytes_left, FileGlobals& into)
      : source_(source),
        base_(base),
        prefix_(std::move(prefix)),
        nesting_(nesting),
        options_(options),
        bytes_left_(bytes_left),
        into_(into),
        collector_(options, into) {}

  Result<void> run();

 private:
  void add_pickle(const zip::Record& record, std::string_view name);
  void look_into(const zip::Record& record, std::string_view name);
  void add_fault(std::string_view name, Error error);

  const bytes::ByteSource& source_;
  std::uint64_t base_;
  std::string prefix_;
  int nesting_;
  const OpenOptions& options_;
  std::uint64_t& bytes_left_;  // budget for reading pickles
  FileGlobals& into_;
  Collector collector_;
  zip::Directory directory_;
  bool is_torchscript_ = false;
};

Result<void> ArchiveScan::run() {
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  bytes::ReadCache cache(source_, memory);
  TRY_ASSIGN(directory_, format::read_directory(source_, cache, options_.limits));
  is_torchscript_ = directory_.find("constants.pkl") != nullptr;
  const bool is_checkpoint = directory_.find(torch::pickle_record) != nullptr;
  if (nesting_ == 0)
    into_.format = is_torchscript_ ? Format::torchscript
                   : is_checkpoint ? Format::torch_zip
                                   : Format::zip;
  for (const zip::Record& record : directory_.records()) {
    const std::string_view name = directory_.short_name(record);
    const std::size_t before = into_.pickles.size();
    if (is_named_as_pickle(name))
      add_pickle(record, name);
    else if (!(is_checkpoint && holds_tensors(name)))
      look_into(record, name);
    if (is_named_as_code(name)) into_.code.push_back(prefix_ + std::string(name));
    // torch.load() reads only the first pickle of data.pkl.
    if (is_checkpoint && !is_torchscript_)
      collector_.set_hidden(before + (name == torch::pickle_record ? 1 : 0));
  }
  return {};
}

void ArchiveScan::add_fault(std::string_view name, Error error) {
  PickleGlobals& made = into_.pickles.emplace_back();
  made.record = prefix_ + std::string(name);
  if (error.file_offset != Error::no_offset) error.file_offset += base_;
  made.fault = std::move(error);
}

void ArchiveScan::add_pickle(const zip::Record& record, std::string_view name) {
  const Limits& limits = options_.limits;
  const std::uint64_t most =
      std::min(bytes_left_,
               record.method == zip::Method::stored ? limits.pickle_bytes : limits.record_bytes);
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  bytes::ReadCache cache(source_, memory);
  Result<zip::RecordBytes> content = zip::read_record(directory_, record, cache, most);
  std::optional<Error> damage;
  if (!content) {  // readers differ in whether they check the checksum
    damage = content.error();
    content = zip::read_unsummed(directory_, record, cache, most);
  }
  if (!content) return add_fault(name, std::move(content.error()));
  bytes_left_ -= content->bytes.size();
  const std::size_t before = into_.pickles.size();
  collector_.add(prefix_ + std::string(name), content->bytes, base_ + content->file_offset,
                 is_torchscript_);
  if (damage && !into_.pickles[before].fault) into_.pickles[before].fault = std::move(damage);
}

// Scans a record of any name that may be a pickle or an archive.
void ArchiveScan::look_into(const zip::Record& record, std::string_view name) {
  std::array<std::byte, 4> head;
  if (record.method != zip::Method::stored || record.size < head.size()) return;
  const Result<std::uint64_t> payload =
      zip::read_local_header(source_, record, directory_.limit_of(record));
  if (!payload) return add_fault(name, payload.error());
  if (Result<void> read = source_.read(*payload, head); !read)
    return add_fault(name, std::move(read.error()));
  if (begins_as_pickle(head)) {
    const std::size_t before = into_.pickles.size();
    add_pickle(record, name);
    if (!is_believable(into_.pickles[before])) into_.pickles.resize(before);
    return;
  }
  if (as_text(head) != zip_signature || nesting_ == most_nesting) return;
  const Part inner(source_, *payload, record.size);
  ArchiveScan scan(inner, base_ + *payload, prefix_ + std::string(name) + "/", nesting_ + 1,
                   options_, bytes_left_, into_);
  if (Result<void> ran = scan.run(); !ran) add_fault(name, std::move(ran.error()));
}

// Scans pickles from the first byte on: the stream of torch before 1.6, a bare pickle, or one
// hidden before an archive.
class StreamScan {
 public:
  StreamScan(const os::File& file, const OpenOptions& options, FileGlobals& into)
      : file_(file), options_(options), into_(into) {}

  // Returns false if there is none.
  Result<bool> run();
  bool is_legacy() const noexcept { return is_legacy_; }

 private:
  Result<bool> scan(std::uint64_t length);
  void drop_storages();

  const os::File& file_;
  const OpenOptions& options_;
  FileGlobals& into_;
  bool is_legacy_ = false;
};

Result<bool> StreamScan::run() {
  constexpr std::uint64_t first_bytes = std::uint64_t{1} << 20;
  std::array<std::byte, legacy_magic.size()> head{};
  const std::size_t length = std::min<std::uint64_t>(head.size(), file_.size());
  TRY(file_.read(0, {head.data(), length}));
  is_legacy_ = as_text(head) == legacy_magic;
  const bool is_pickle = begins_as_pickle(head);
  const std::uint64_t most = std::min(file_.size(), options_.limits.pickle_bytes);
  const std::size_t before = into_.pickles.size();
  for (std::uint64_t bytes = std::min(first_bytes, most);; bytes = std::min(2 * bytes, most)) {
    into_.pickles.resize(before);
    TRY_ASSIGN(const bool wants_more, scan(bytes));
    if (!wants_more || bytes == most || !is_pickle) break;
  }
  if (is_legacy_) drop_storages();
  const bool found = is_pickle || is_believable(into_.pickles[before]);
  if (!found) into_.pickles.resize(before);
  return found;
}

Result<bool> StreamScan::scan(std::uint64_t length) {
  std::vector<std::byte> bytes(length);
  TRY(file_.read(0, bytes));
  const std::size_t before = into_.pickles.size();
  Collector collector(options_, into_);
  const bool wants_more = collector.add({}, bytes, 0, false);
  if (is_legacy_) return wants_more && into_.pickles.size() - before <= legacy_pickles;
  into_.pickles[before].bytes_behind += file_.size() - length;
  collector.set_hidden(before + 1);
  return wants_more;
}

// The fifth pickle is followed by bytes of tensors.
void StreamScan::drop_storages() {
  if (into_.pickles.size() > legacy_pickles) into_.pickles.resize(legacy_pickles);
  into_.pickles.front().bytes_behind = 0;
}

Result<bool> begins_as_archive(const os::File& file) {
  std::array<std::byte, zip_signature.size()> head{};
  if (file.size() < head.size()) return false;
  TRY(file.read(0, head));
  return as_text(head) == zip_signature;
}

Result<format::Kind> kind_of_head(const os::File& file) {
  std::array<std::byte, format::head_bytes> head{};
  const std::size_t length = std::min<std::uint64_t>(head.size(), file.size());
  TRY(file.read(0, {head.data(), length}));
  return format::identify_head({head.data(), length});
}

Result<FileGlobals> list_globals_of(const std::filesystem::path& path, const OpenOptions& options) {
  TRY_ASSIGN(const os::File file, os::File::open(path, false));
  FileGlobals made;
  std::uint64_t bytes_left = options.limits.pickle_bytes;
  const Result<void> archive = ArchiveScan(file, 0, {}, 0, options, bytes_left, made).run();
  TRY_ASSIGN(const format::Kind kind, kind_of_head(file));
  // Safetensors has no pickles; its beginning only looks like one.
  if (!archive && kind == format::Kind::safetensors) {
    made.format = Format::safetensors;
    return made;
  }
  TRY_ASSIGN(const bool is_archive, begins_as_archive(file));
  // torch detects an archive by its first bytes, and unpickles any other file.
  if (!is_archive) {
    StreamScan stream(file, options, made);
    TRY_ASSIGN(const bool found, stream.run());
    if (found && !archive) made.format = stream.is_legacy() ? Format::torch_legacy : Format::pickle;
    if (found) return made;
  }
  if (archive) return made;
  // GGUF's first four bytes are an opcode, too, so the rest was scanned.
  if (kind != format::Kind::gguf) return tl::unexpected<Error>(archive.error());
  made.format = Format::gguf;
  return made;
}

}  // namespace

Result<FileGlobals> list_globals(const std::filesystem::path& path, const OpenOptions& options) {
  TRY_ASSIGN(const OpenOptions complete, with_defaults(options));
  Result<FileGlobals> listed = list_globals_of(path, complete);
  if (!listed) return about_file(std::move(listed.error()), path);
  return listed;
}

}  // namespace weightmap
