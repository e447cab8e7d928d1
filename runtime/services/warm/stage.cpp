#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "mmap/memory/copy_file.hpp"
#include "mmap/memory/memory_to_fill.hpp"
#include "mmap/pages/page_cache.hpp"
#include "runtime/base/bytes/about_file.hpp"
#include "runtime/base/try.hpp"
#include "runtime/checkpoint/state.hpp"
#include "runtime/services/warm/staged_file.hpp"
#include "runtime/system/memory/memory_limit.hpp"
#include "runtime/system/memory/sealed_memory.hpp"
#include "runtime/system/memory/shared_file.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/warmer.hpp"

namespace weightmap {
namespace {

tl::unexpected<Error> does_not_fit(std::uint64_t bytes, std::uint64_t budget,
                                   const std::string& reason) {
  return failure(ErrorCode::io, "a copy takes " + std::to_string(bytes) +
                                    " bytes of memory, and there are " + std::to_string(budget) +
                                    " (" + reason + ")");
}

Result<void> check_unchanged(const os::File& source) {
  TRY_ASSIGN(const Generation now, source.current_generation());
  if (now.same_content(source.generation())) return {};
  return failure(ErrorCode::io, "the file was written to while it was copied: it had " +
                                    std::to_string(source.size()) + " bytes and has now " +
                                    std::to_string(now.size));
}

bool is_same(std::span<const std::int64_t> a, std::span<const std::int64_t> b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool is_same(const NamedTensor& a, const NamedTensor& b) noexcept {
  const bool is_at_same_place = a.file_offset == b.file_offset || b.is_copied;
  return a.name == b.name && a.view.dtype() == b.view.dtype() && is_at_same_place &&
         is_same(a.view.shape(), b.view.shape()) && is_same(a.view.strides(), b.view.strides());
}

bool has_same_tensors(const Checkpoint& a, const Checkpoint& b) {
  const TensorRange of_a = a.tensors();
  const TensorRange of_b = b.tensors();
  if (of_a.size() != of_b.size()) return false;
  for (std::size_t i = 0; i < of_a.size(); ++i)
    if (!is_same(of_a[i], of_b[i])) return false;
  return true;
}

}  // namespace

Result<void> check_fits(std::uint64_t bytes, std::uint64_t budget_bytes, bool has_name) {
  if (budget_bytes != 0) {
    if (bytes <= budget_bytes) return {};
    return does_not_fit(bytes, budget_bytes, "the budget");
  }
  const os::MemoryLimit limit = os::memory_limit();
  if (bytes > limit.usable())
    return does_not_fit(bytes, limit.usable(), "15/16 of " + limit.reason);
  if (!has_name) return {};
  TRY_ASSIGN(const std::uint64_t left, os::shared_bytes_left());
  const std::uint64_t usable = left - left / 16;
  if (bytes <= usable) return {};
  return does_not_fit(bytes, usable, "15/16 of what /dev/shm has left");
}

Result<std::filesystem::path> path_of_copy(const std::string& name) {
  TRY_ASSIGN(std::filesystem::path path, os::shared_path(name));
  TRY(os::check_free(path));
  return path;
}

Result<void> check_copy(const Checkpoint& source, const Result<Checkpoint>& copy) {
  if (!copy) return failure(ErrorCode::io, "the copy is no good: " + copy.error().message);
  if (has_same_tensors(source, *copy)) return {};
  return failure(ErrorCode::io, "the copy has other tensors than the file");
}

Result<void> check_copy(const Checkpoint& source, int descriptor) {
  return check_copy(source, Checkpoint::open_descriptor(descriptor, OpenOptions::to_look()));
}

Result<NewFile> create_named_copy(const std::filesystem::path& path, std::uint64_t bytes) {
  NewFileOptions owners_only;
  owners_only.mode = 0600;
  TRY_ASSIGN(NewFile file, NewFile::create(path, owners_only));
  TRY(file.resize(bytes));
  return file;
}

Result<void> name_copy(NewFile& file, const std::filesystem::path& path, StagedFile::State& state) {
  state.path = path;
  TRY(file.commit(NewFile::Existing::refuse));
  Result<os::UniqueFd> named = os::open_shared_file(path);
  if (!named) static_cast<void>(os::remove_shared_file(path));
  TRY(named);
  state.descriptor = std::move(*named);
  return {};
}

namespace {

StageReport report_of(const mmap::CopyReport& copied, std::uint64_t bytes) {
  StageReport report;
  report.file_bytes = bytes;
  report.direct_bytes = copied.direct_bytes;
  report.cached_bytes = copied.cached_bytes;
  report.dropped_bytes = copied.dropped_bytes;
  report.why_not_direct = copied.why_not_direct;
  report.huge_bytes = copied.huge_bytes;
  return report;
}

// Only single files are staged.
const os::File& file_of(const Checkpoint& source) noexcept {
  return Checkpoint::Access::state(source).sources.front().file;
}

using Seal = Result<void>(int descriptor);

// Fills `memory`, which has the size of the source, and opens it for reading once it is verified.
// `seal` may be nullptr.
Result<os::UniqueFd> fill(const Checkpoint& source, int memory, Seal* seal,
                          const StageOptions& options, StageReport& report) {
  const os::File& file = file_of(source);
  TRY_ASSIGN(const mmap::CopyReport copied, mmap::copy_to_memory(file, memory, options.progress));
  report = report_of(copied, file.size());
  TRY(check_unchanged(file));
  if (seal != nullptr) TRY(seal(memory));
  report.sealed = seal != nullptr;
  TRY_ASSIGN(os::UniqueFd reading, os::reopen_for_reading(memory));
  TRY(check_copy(source, reading.get()));
  return reading;
}

Result<void> make_sealed(const Checkpoint& source, const std::string& label,
                         const StageOptions& options, StagedFile::State& state) {
  const std::uint64_t bytes = file_of(source).size();
  Result<os::UniqueFd> memory = os::make_memfd(bytes, label);
  if (!memory) memory.error().message += "; a copy with a name, in /dev/shm, does without";
  TRY(memory);
  if (options.pinnable) {
    TRY_ASSIGN(state.writable, mmap::map_for_writing(memory->get(), bytes));
  }
  Seal* const seal = options.pinnable ? os::seal_but_for_mappings : os::seal;
  TRY_ASSIGN(state.descriptor, fill(source, memory->get(), seal, options, state.report));
  state.path = os::path_of_descriptor(state.descriptor.get());
  return {};
}

Result<void> make_named(const Checkpoint& source, const std::filesystem::path& path,
                        const StageOptions& options, StagedFile::State& state) {
  TRY_ASSIGN(NewFile memory, create_named_copy(path, file_of(source).size()));
  TRY(fill(source, memory.descriptor(), nullptr, options, state.report));
  return name_copy(memory, path, state);
}

}  // namespace

StagedFile::StagedFile(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
StagedFile::StagedFile(StagedFile&&) noexcept = default;
StagedFile& StagedFile::operator=(StagedFile&&) noexcept = default;
StagedFile::~StagedFile() = default;

int StagedFile::descriptor() const noexcept { return state_->descriptor.get(); }
const std::filesystem::path& StagedFile::path() const noexcept { return state_->path; }
const StageReport& StagedFile::report() const noexcept { return state_->report; }
std::span<std::byte> StagedFile::pinnable_memory() const& noexcept {
  return state_->writable.bytes();
}

Result<StagedFile> stage(const std::filesystem::path& path, const StageOptions& options) {
  std::filesystem::path wanted;
  if (!options.name.empty()) {
    if (options.pinnable)
      return failure(ErrorCode::invalid_argument,
                     "pinnable is for copies without a name: one with a name can be mapped for "
                     "writing by any process of its user");
    TRY_ASSIGN(wanted, path_of_copy(options.name));
  }
  TRY_ASSIGN(const Checkpoint source, Checkpoint::open(path, OpenOptions::to_look()));
  if (Checkpoint::Access::state(source).is_set())
    return about_file({ErrorCode::unsupported,
                       "is a checkpoint of several files; stage each of them by its name"},
                      path);
  if (Checkpoint::Access::state(source).sources.front().member)
    return about_file({ErrorCode::unsupported,
                       "is a member of an archive, and whole files are staged: extract it, and "
                       "stage that"},
                      path);
  const auto began = std::chrono::steady_clock::now();
  auto state = std::make_unique<StagedFile::State>();
  Result<void> made =
      check_fits(source.source(0).generation.size, options.budget_bytes, !options.name.empty());
  if (made)
    made = wanted.empty()
               ? make_sealed(source, "weightmap:" + path.filename().string(), options, *state)
               : make_named(source, wanted, options, *state);
  if (!made) return about_file(made.error(), path);
  state->report.time = std::chrono::steady_clock::now() - began;
  return StagedFile::Access::make(std::move(state));
}

Result<void> remove_staged(const std::string& name) {
  TRY_ASSIGN(const std::filesystem::path path, os::shared_path(name));
  return os::remove_shared_file(path);
}

bool lives_in_memory(const Checkpoint& checkpoint) noexcept {
  const Sources& sources = Checkpoint::Access::state(checkpoint).sources;
  return std::all_of(sources.begin(), sources.end(),
                     [](const SourceFile& source) { return mmap::lives_in_memory(source.file); });
}

}  // namespace weightmap
