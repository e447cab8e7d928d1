// What a Checkpoint holds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "mmap/file.hpp"
#include "mmap/mapping.hpp"
#include "mmap/pages/process_faults.hpp"
#include "runtime/catalog/catalog.hpp"
#include "runtime/checkpoint/demand_log.hpp"
#include "runtime/checkpoint/parsed.hpp"
#include "runtime/shared_catalog/attached.hpp"
#include "weightmap/checkpoint.hpp"

namespace weightmap {

struct Checkpoint::State {
  os::File file;                       // a snapshot of what was opened, if that was asked for
  std::unique_ptr<Attached> attached;  // a catalog of another process, kept for what was handed out
  Parsed parsed;  // by open(), or where a catalog was attached by own(); see there
  os::Mapping mapping;
  mutable std::mutex copy_on_write_mutex;
  os::Mapping copy_on_write;                   // on demand; under the mutex
  std::atomic<std::uint32_t> demands{0};       // how many threads wait in demand()
  std::atomic<std::uint64_t> locked_bytes{0};  // at the beginning of the file, by warmers
  DemandLog demand_log{[this] { return whole().value_or(nullptr); }};
  CheckpointInfo info;
  // What was opened, and how: for whoever asks whether it is still there.
  Generation generation;
  std::filesystem::path opened_path;  // absolute; empty: opened by descriptor
  SourceInfo source_info;
  OpenOptions options;                // complete
  OpenStats stats;
  os::ProcessFaults faults_at_open;  // when it was done
  std::string file_name;             // the path as it was given, escaped, for errors made later
  std::chrono::system_clock::time_point began = std::chrono::system_clock::now();

  explicit State(os::File opened)
      : file(std::move(opened)),
        generation(file.generation()),
        source_info{{}, generation, file.size(), 0} {}

  static constexpr unsigned view_flags =
      TensorView::foreign_order | TensorView::conjugate | TensorView::negative;

  TensorView view(const catalog::Catalog& catalog, const catalog::Entry& entry) const noexcept {
    const std::byte* first =
        entry.extent == 0 ? nullptr : mapping.bytes().data() + entry.file_offset;
    return {entry.dtype, entry.rank,   catalog.dims(entry),
            first,       entry.extent, entry.flags & view_flags};
  }
  // The first offset that the guard found missing, in either mapping.
  std::optional<std::uint64_t> lost_at() const noexcept;
  // Where `part` begins in the mapping; nullopt if it does not lie there.
  std::optional<std::uint64_t> offset_of(std::span<const std::byte> part) const noexcept;

  NamedTensor tensor_at(std::size_t index) noexcept;

  // `parsed`, if there is one by now.
  const Parsed* own_if_any() const noexcept { return own_.load(std::memory_order_acquire); }
  // The same; parses the file where there is none yet. From then on all calls go there. nullptr if
  // that failed, once and for all: own_error() says why.
  const Parsed* own() noexcept;
  Error own_error();
  void set_own() noexcept { own_.store(&parsed, std::memory_order_release); }

  // A tensor of a catalog. Catalog::none with a catalog: there is no such tensor; without: the
  // catalog is damaged and the file cannot be parsed.
  struct Place {
    const catalog::Catalog* catalog = nullptr;
    std::uint32_t index = catalog::Catalog::none;
    bool is_found() const noexcept { return index != catalog::Catalog::none; }
    const catalog::Entry& entry() const noexcept { return (*catalog)[index]; }
  };
  Place find(std::string_view name) noexcept {
    if (const Parsed* ready = own_if_any()) return {&ready->catalog, ready->catalog.find(name)};
    return find_attached(name);
  }
  // The same for those who want more of its entry than the view and the flags.
  Place find_entry(std::string_view name) noexcept {
    const Place place = find(name);
    const catalog::Catalog* const checked =
        place.is_found() ? with_entry(place.index) : place.catalog;
    if (checked == place.catalog) return place;
    return checked ? Place{checked, checked->find(name)} : Place{};
  }
  Place find_path(std::span<const PathPart> path);
  // The catalog in which entry or storage `index` may be used, nullptr if there is none.
  const catalog::Catalog* with_entry(std::size_t index) noexcept;
  const catalog::Catalog* with_storage(std::size_t index) noexcept;
  // The catalog, all of which may be used.
  Result<const catalog::Catalog*> whole();
  // The catalog to be asked for its counts only.
  const catalog::Catalog& counts() const noexcept {
    const Parsed* ready = own_if_any();
    return ready ? ready->catalog : attached->published.catalog();
  }
  bool was_damaged() const noexcept { return damaged_; }

 private:
  Place find_attached(std::string_view name) noexcept;
  // own(), for what was found damaged.
  const catalog::Catalog* heal() noexcept;

  std::atomic<const Parsed*> own_{nullptr};
  std::mutex own_mutex_;
  std::optional<Error> own_error_;  // under the mutex
  std::atomic<bool> damaged_{false};
};

struct Checkpoint::Access {
  using State = Checkpoint::State;
  static State& state(const Checkpoint& checkpoint) noexcept { return *checkpoint.state_; }
  // All ways to open begin and end alike; options are complete. The file is not read yet. `name` is
  // for errors.
  static Result<std::unique_ptr<State>> begin_open(os::File file, const std::filesystem::path& name,
                                                   const OpenOptions& filled);
  static Result<std::unique_ptr<State>> begin_open(const std::filesystem::path& path,
                                                   const OpenOptions& filled);
  static Result<Checkpoint> finish_open(std::unique_ptr<State> state);
};

}  // namespace weightmap
