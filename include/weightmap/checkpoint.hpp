// An opened checkpoint: its files in one read-only mapping, and one frozen table of its tensors.
//
//   auto checkpoint = weightmap::Checkpoint::open("model.pt");
//   if (!checkpoint) return fail(checkpoint.error());
//   std::optional<weightmap::TensorView> w = checkpoint->find("layers.0.attn.wq.weight");
//
// Nothing in the file is executed: the pickle is run by a machine that builds values and calls
// nothing. Metadata is read with pread into private memory and proven once; the mapping serves
// tensor bytes only.
//
// Views, names and values are borrowed from the Checkpoint and valid until it is destroyed; moving
// it is fine, and a moved-from Checkpoint may only be assigned to or destroyed. For a longer life
// hold a std::shared_ptr<const Checkpoint> (open_shared()), or a SharedTensor. All const members
// may be called from any thread, and in a child after fork() (docs/concurrency.md).
//
// Replace checkpoints by rename (publish.hpp), never in place. If another process truncates a file
// that is mapped, reading what is gone raises SIGBUS and ends the process;
// OpenOptions::protection can make that an error (docs/protection.md).
#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weightmap/checkpoint_info.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/progress.hpp"
#include "weightmap/stats.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

class Checkpoint;
template <>
inline constexpr bool lends_from_itself<Checkpoint> = true;

class WEIGHTMAP_API Checkpoint {
 public:
  // Maps the file, or all files of a set, and reads its metadata, not its tensors. `path` is a file
  // of any format (by its content), the *.index.json of a set of shards, the .metadata of a
  // distributed checkpoint, or a folder with one checkpoint (docs/format.md has the rules by which
  // it is chosen); where there is no such file, also "org/name" or "org/name@revision" of a model
  // in the local cache of huggingface_hub. Fails with io if the file cannot be opened, read or
  // mapped; with not_a_checkpoint, corrupt, unsupported, unsafe_pickle or limit_exceeded for what
  // is in it, as error.hpp says; with invalid_argument for options that exclude one another, or an
  // environment variable that holds none of its words; with cancelled if OpenOptions::progress said
  // so. The file's descriptor stays open, close-on-exec, until the Checkpoint is destroyed.
  static Result<Checkpoint> open(const std::filesystem::path& path,
                                 const OpenOptions& options = {});
  // The files that open() of this path would open: of an index or a folder all of them, else the
  // file itself, whatever it is. Fails as open() does where they cannot be told.
  static Result<std::vector<std::filesystem::path>> files(const std::filesystem::path& path);
  // A checkpoint of the tensors of all these files, each of which open() takes, in this order. Of
  // one file it is open(). Fails with corrupt if two of them have a tensor of one name.
  static Result<Checkpoint> open_files(std::span<const std::filesystem::path> paths,
                                       const OpenOptions& options = {});
  // open() for those who pass it on: a SharedTensor (shared_tensor.hpp) keeps it open.
  static Result<std::shared_ptr<const Checkpoint>> open_shared(const std::filesystem::path& path,
                                                               const OpenOptions& options = {});
  // Opens the file of a descriptor that is open for reading: inherited, sent by another process, or
  // staged (stage.hpp). The descriptor stays the caller's and may be closed afterwards. Errors call
  // the file "descriptor 5". Fails with io for a bad descriptor, else as open() does.
  static Result<Checkpoint> open_descriptor(int descriptor, const OpenOptions& options = {});

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  TensorRange tensors() const& noexcept WEIGHTMAP_LIFETIMEBOUND;  // in file order
  // The tensor of this name. nullopt if there is none, or if two tensors have this joined name
  // ({"a.b": t, "a": {"b": u}}); get() tells the two apart. A hash and a small copy: no allocation,
  // no lock, no system call, and no parse.
  std::optional<TensorView> find(std::string_view name) const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // Whether find() has something to find: also true of a name that two tensors have.
  bool contains(std::string_view name) const noexcept;
  // The tensor of this name, or an error that says why not: not_found, with the names that are like
  // it, for which up to some milliseconds are spent; or, with both paths, invalid_argument for an
  // ambiguous one. For names that may well be absent there are find() and contains().
  Result<NamedTensor> get(std::string_view name) const& WEIGHTMAP_LIFETIMEBOUND;
  // The tensor at exactly this path: find_path({"optimizer", "state", 0, "exp_avg"}). nullopt, and
  // not_found, if there is none.
  std::optional<TensorView> find_path(
      std::span<const PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND;
  std::optional<TensorView> find_path(
      std::initializer_list<PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND {
    return find_path(std::span<const PathPart>(path.begin(), path.size()));
  }
  Result<NamedTensor> get_path(std::span<const PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND;
  Result<NamedTensor> get_path(
      std::initializer_list<PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND {
    return get_path(std::span<const PathPart>(path.begin(), path.size()));
  }
  // The path of tensors()[index]. Precondition: index < tensors().size().
  std::vector<PathPart> path(std::size_t index) const& WEIGHTMAP_LIFETIMEBOUND;

  // The whole value tree: epochs, optimizer state, lists, hyper-parameters.
  Value root() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // The tensor that this node of root() describes, by the first of its names; nullopt for a value
  // that is no tensor. Precondition: the value is of this checkpoint.
  std::optional<NamedTensor> tensor(const Value& value) const& noexcept WEIGHTMAP_LIFETIMEBOUND;

  std::size_t storage_count() const noexcept;
  // Precondition: index < storage_count().
  NamedStorage storage(std::size_t index) const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // What open() or open_files() was told, as absolute paths; empty: a descriptor.
  std::vector<std::filesystem::path> opened_paths() const;
  std::size_t source_count() const noexcept;  // files, and memory of copies; at least one
  // Precondition: index < source_count().
  const SourceInfo& source(std::size_t index) const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  const CheckpointInfo& info() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  const OpenStats& stats() const& noexcept WEIGHTMAP_LIFETIMEBOUND;

  // The whole file as mapped; of many files, all of them in one range, with zeros between them.
  std::span<const std::byte> mapping() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // The bytes of `view`, a view of this checkpoint, for writing. Fails with invalid_argument unless
  // it was opened writable; with Sharing::shared the writes reach the file.
  Result<std::span<std::byte>> writable_bytes(const TensorView& view) &;
  // mapping() as memory of this process that may be written to: a write copies its page and reaches
  // neither the file nor mapping(). For libraries that know no read-only tensors. Reading costs no
  // memory. mapping() itself if that is private and writable; else a second one, made by the first
  // call. Fails with io if the system refuses it, or if the file was written to since the open.
  Result<std::span<std::byte>> copy_on_write() const& WEIGHTMAP_LIFETIMEBOUND;
  // The memory in which a storage of so many bytes is given to a library that knows no read-only
  // memory: copy_on_write(), or mapping() itself, which must then only be read, as
  // OpenOptions::copy_on_write says, or `how` in its place. Of a checkpoint that was opened
  // writable it is what writes are meant for. Costs no system call but the first of
  // copy_on_write(). Fails as that does; with invalid_argument for a `how` that wants read-only
  // memory of a writable mapping.
  Result<std::span<std::byte>> lend(
      std::uint64_t storage_bytes,
      std::optional<CopyOnWrite> how = {}) const& WEIGHTMAP_LIFETIMEBOUND;
  // Has a write to mapping(), where that is only read, named on standard error, with tensor and
  // file, before its SIGSEGV goes on to the handler that was there before, or to the default
  // action: docs/protection.md. With Protection::guard that is so anyway. For whoever lend()s
  // mapping() itself. Of at most 1,024 checkpoints at a time, and not where the system refuses.
  void tell_refused_writes() const;

  // The identity of what was opened: of the first file, at that moment.
  const Generation& generation() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // Two or three system calls a file. Own writes that reach the file lead to `modified`, too.
  CheckpointState state() const noexcept;
  // state() == current, by one stat() a file of the path, which was made absolute at open.
  bool is_current() const noexcept;
  // Opens the path again with the options of this open, environment included as it was then; this
  // one stays as it is. Errors and the log call the file what they called it then. Fails as open()
  // does, or with invalid_argument if opened by descriptor.
  Result<Checkpoint> reopen() const;

  // view.gather(), and a copy of view.bytes() with the gaps between the elements. Both read the
  // file, so they raise no signal, whatever became of it. They fail with io, naming tensor, file
  // and offset, if it was truncated, lost or written to (but for own writes) since the open; with
  // invalid_argument for a view of another checkpoint or an `out` that is not view.nbytes(), or
  // view.bytes().size(), long; gather() also as view.gather() does.
  Result<void> gather(const TensorView& view, std::span<std::byte> out) const;
  Result<void> copy_bytes(const TensorView& view, std::span<std::byte> out) const;
  // For a tensor that is needed now: reads the bytes of `view`, a view of this checkpoint, into the
  // page cache and maps them; returns when they are there. A Warmer that is at work gives way.
  // Fails with io if the file was truncated or the disk failed, with invalid_argument if the view
  // is not one of this checkpoint.
  Result<void> demand(const TensorView& view) const;
  // Positions in tensors() by the first demand() for each, failed ones too, to be saved for the
  // next warm-up (tensor_order.hpp). A view stands for the first tensor that has its first byte.
  std::vector<std::size_t> demand_order() const;

  // Compares every storage offset with the record's local header. One small read a record. Fails
  // with corrupt at the first that differs, with io if the file cannot be read.
  Result<void> verify_headers() const;
  // Reads the whole file into the page cache, as a Warmer does, and compares the CRC-32 of each
  // storage as soon as it is there: the disk is read once, and what fits stays. `progress` gets the
  // bytes summed, from a thread that ends before this returns.
  CrcReport verify_crc(const Progress& progress = {}) const;

  // Of a temporary Checkpoint these would dangle.
  void tensors() const&& = delete;
  void find(std::string_view) const&& = delete;
  void get(std::string_view) const&& = delete;
  void find_path(std::span<const PathPart>) const&& = delete;
  void find_path(std::initializer_list<PathPart>) const&& = delete;
  void get_path(std::span<const PathPart>) const&& = delete;
  void get_path(std::initializer_list<PathPart>) const&& = delete;
  void path(std::size_t) const&& = delete;
  void root() const&& = delete;
  void tensor(const Value&) const&& = delete;
  void storage(std::size_t) const&& = delete;
  void source(std::size_t) const&& = delete;
  void info() const&& = delete;
  void stats() const&& = delete;
  void mapping() const&& = delete;
  void writable_bytes(const TensorView&) && = delete;
  void copy_on_write() const&& = delete;
  void lend(std::uint64_t, std::optional<CopyOnWrite> = {}) const&& = delete;
  void generation() const&& = delete;

  struct WEIGHTMAP_LOCAL State;  // for other parts of the library
  struct WEIGHTMAP_LOCAL Access;

 private:
  explicit Checkpoint(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace weightmap
