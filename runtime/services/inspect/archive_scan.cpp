// ContentScan::scan_zip(): the records of a zip archive.

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <memory_resource>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/base/zip/local_header.hpp"
#include "runtime/base/zip/record_bytes.hpp"
#include "runtime/formats/format/zip_directory.hpp"
#include "runtime/formats/npz/parse_npz.hpp"
#include "runtime/formats/torch/archive_records.hpp"
#include "runtime/formats/torch/names.hpp"
#include "runtime/services/inspect/content_scan.hpp"

namespace weightmap {
namespace {

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return lower.ends_with(ending); });
}

// Applies to a checkpoint; other archives may have any content in these folders.
bool holds_tensors(std::string_view name) {
  for (const std::string_view folder : {torch::storage_folder, std::string_view("constants/")})
    if (name.starts_with(folder))
      return name.find_first_not_of("0123456789", folder.size()) == std::string_view::npos;
  return false;
}

}  // namespace

bool is_named_as_pickle(std::string_view name) {
  return ends_with_any(name, {".pkl", ".pickle", ".debug_pkl"});
}
bool is_named_as_code(std::string_view name) {
  return ends_with_any(name, {".py", ".pyc", ".so", ".o", ".cpp", ".dll", ".dylib"});
}

class ContentScan::Archive {
 public:
  Archive(ContentScan& scan, const Content& content) : scan_(scan), content_(content) {}

  Result<void> run();

 private:
  void look_into(const zip::Record& record, std::string_view name, bool holds_tensors);
  Content content_of(const bytes::ByteSource& bytes, std::uint64_t payload,
                     std::string_view name) const {
    return {bytes, content_.base + payload, content_.inner(name), content_.nesting + 1,
            is_torchscript_};
  }
  // Calls `then` with the record's whole content, in memory.
  template <typename Then>
  void read_whole(const zip::Record& record, std::string_view name, Then then);
  void add_fault(std::string_view name, Error error) {
    scan_.add_fault({content_.bytes, content_.base, content_.inner(name)}, std::move(error));
  }

  ContentScan& scan_;
  const Content& content_;
  zip::Directory directory_;
  bool is_torchscript_ = false;
};

Result<void> ContentScan::scan_zip(const Content& content) { return Archive(*this, content).run(); }

Result<void> ContentScan::Archive::run() {
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  bytes::ReadCache cache(content_.bytes, memory);
  TRY_ASSIGN(directory_, format::read_directory(content_.bytes, cache, scan_.options_.limits));
  is_torchscript_ = directory_.find("constants.pkl") != nullptr;
  const bool is_checkpoint = directory_.find(torch::pickle_record) != nullptr;
  FileGlobals& into = scan_.into_;
  if (content_.name.empty())
    into.format = is_torchscript_               ? Format::torchscript
                  : is_checkpoint               ? Format::torch_zip
                  : npz::is_archive(directory_) ? Format::npz
                                                : Format::zip;
  for (const zip::Record& record : directory_.records()) {
    // By its whole name FILE//MEMBER opens a member.
    const std::string_view name =
        is_checkpoint ? directory_.short_name(record) : record.full_name();
    const std::size_t before = into.pickles.size();
    if (is_named_as_pickle(name))
      read_whole(record, name, [&](const Content& content, std::span<const std::byte> bytes) {
        scan_.look_into_pickles(content, bytes);
      });
    else
      look_into(record, name, is_checkpoint && holds_tensors(name));
    if (is_named_as_code(name)) into.code.push_back(content_.inner(name));
    // torch.load() reads only the first pickle of data.pkl.
    if (is_checkpoint && !is_torchscript_)
      scan_.collector_.set_hidden(before + (name == torch::pickle_record ? 1 : 0));
  }
  return {};
}

template <typename Then>
void ContentScan::Archive::read_whole(const zip::Record& record, std::string_view name, Then then) {
  std::pmr::memory_resource& memory = *std::pmr::new_delete_resource();
  bytes::ReadCache cache(content_.bytes, memory);
  Result<zip::RecordBytes> whole = zip::read_record(directory_, record, cache, scan_.bytes_left_);
  std::optional<Error> damage;
  if (!whole) {  // readers differ in whether they check the checksum
    damage = whole.error();
    whole = zip::read_unsummed(directory_, record, cache, scan_.bytes_left_);
  }
  if (!whole) return add_fault(name, std::move(whole.error()));
  scan_.bytes_left_ -= whole->bytes.size();
  const std::size_t before = scan_.into_.pickles.size();
  const bytes::MemorySource bytes(whole->bytes);
  then(content_of(bytes, whole->file_offset, name), whole->bytes);
  if (!damage) return;
  if (scan_.into_.pickles.size() == before)
    add_fault(name, std::move(*damage));
  else if (!scan_.into_.pickles[before].fault)
    scan_.into_.pickles[before].fault = std::move(damage);
}

// Scans a record of any name that may be a pickle or an archive. One with the bytes of a tensor is
// read by its name alone, and as numpy's array if it is one.
void ContentScan::Archive::look_into(const zip::Record& record, std::string_view name,
                                     bool holds_tensors) {
  if (record.size < 2) return;
  const Result<std::uint64_t> payload =
      zip::read_local_header(content_.bytes, record, directory_.limit_of(record));
  if (!payload) return add_fault(name, payload.error());
  const Part stored(content_.bytes, *payload, record.stored_size);
  if (record.method == zip::Method::stored) {
    if (!holds_tensors || is_array(stored)) scan_.look_into(content_of(stored, *payload, name));
    return;
  }
  if (!scan_.may_hold_something(stored, record.size, zip::Wrapping::none)) return;
  read_whole(record, name,
             [&](const Content& content, std::span<const std::byte>) { scan_.look_into(content); });
}

}  // namespace weightmap
