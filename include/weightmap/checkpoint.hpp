// An opened checkpoint: its files in one read-only mapping, and one frozen table of its tensors.
//
//   auto checkpoint = weightmap::Checkpoint::open("model.pt");
//   if (!checkpoint) return tl::unexpected(checkpoint.error());
//   std::optional<weightmap::TensorView> w = checkpoint->find("layers.0.attn.wq.weight");
//
// Nothing in the file is executed: a machine runs the pickle, builds values and calls nothing.
// Metadata is read with pread into private memory and proven once; the mapping serves tensor bytes
// only. All of it is proven by the open, except in torch.distributed.checkpoint, where each tensor
// has some beside it: that is read when the tensor is first looked up. If it is damaged, get()
// fails, and other views have no bytes and say why (TensorView::fault()). OpenOptions::verify
// headers has the open prove all, and verify_headers() does later.
//
// Views, names and values are borrowed from the Checkpoint and valid until it is destroyed; moving
// it is fine, and a moved-from Checkpoint may only be assigned to or destroyed. To extend the
// lifetime, hold a std::shared_ptr<const Checkpoint> (open_shared()), or a SharedTensor. A debug
// build of the library (without NDEBUG) ends a process that reads bytes of a view whose Checkpoint
// was destroyed, with a message that names the file. All const members may be called from any
// thread, and in a child after fork() (docs/concurrency.md).
//
// Replace checkpoints by rename (new_file.hpp), never in place. If another process truncates a
// mapped file, reading the lost pages raises SIGBUS and ends the process;
// OpenOptions::protection can turn that into an error (docs/protection.md).
#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "weightmap/checkpoint_info.hpp"
#include "weightmap/named_tensor.hpp"
#include "weightmap/result.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/value.hpp"
#include "weightmap/version.hpp"

namespace weightmap {

class Checkpoint;
template <>
inline constexpr bool lends_from_itself<Checkpoint> = true;

class WEIGHTMAP_API Checkpoint {
 public:
  // Maps the file, or all files of a set, and reads its metadata, not its tensors. `path` is a file
  // of any format (detected by content), the *.index.json of a set of shards, the .metadata of a
  // distributed checkpoint, or a folder with one checkpoint (docs/format.md has the rules of
  // selection), or FILE//MEMBER for what lies uncompressed in a tar or zip archive: its places and
  // offsets are those in FILE. If no such file exists, it may be "org/name" or "org/name@revision"
  // of a model in the local cache of huggingface_hub. Fails with io if the file cannot be opened,
  // read or mapped; with not_a_checkpoint, corrupt, unsupported, unsafe_pickle or limit_exceeded
  // for its content, see ErrorCode; with invalid_argument for options that exclude one another, or
  // an invalid word in an environment variable; with cancelled if OpenOptions::progress returned
  // false. The file's descriptor stays open, close-on-exec, until the Checkpoint is destroyed.
  static Result<Checkpoint> open(const std::filesystem::path& path,
                                 const OpenOptions& options = {});
  // Opens the tensors of all these files, in this order, as one checkpoint; open() must accept each
  // file. Equals open() for one file. Fails with corrupt if two files have a tensor of one name.
  static Result<Checkpoint> open_files(std::span<const std::filesystem::path> paths,
                                       const OpenOptions& options = {});
  // Opens a checkpoint with shared ownership; a SharedTensor keeps it open.
  static Result<std::shared_ptr<const Checkpoint>> open_shared(const std::filesystem::path& path,
                                                               const OpenOptions& options = {});
  // Opens the file of a descriptor that is open for reading: inherited, sent by another process, or
  // staged (warmer.hpp). The caller keeps the descriptor and may close it afterwards. Errors name
  // the file "descriptor 5". Fails with io for a bad descriptor, otherwise as open() does.
  static Result<Checkpoint> open_descriptor(int descriptor, const OpenOptions& options = {});
  // Opens a checkpoint of one file that lies in memory: an object of a store, a received message, a
  // file mapped by others. Nothing is copied: views point into `bytes`, mapping() is `bytes`, and
  // `owner` is released after the Checkpoint and its SharedTensors. The bytes must not change
  // meanwhile; metadata is read from them without faulting and proven in private memory, as of
  // files. They may begin at any address, so that tensors may be aligned for their bytes only.
  //
  // Memory is only read: with `writable`, `locked`, or a protection other than map it fails with
  // invalid_argument, as it does for a file that names others. Compressed storages are unsupported.
  // Other options on mapping have no effect, and OpenOptions::copy_on_write is off if unset: of a
  // Backing, lend() passes `bytes` on, and copy_on_write() copies all of them, once. state() is
  // always current; reopen() fails; residency(), anonymous_bytes(), Warmer and cuda::Uploader are
  // unsupported; demand() reads nothing. Errors name the file "memory".
  static Result<Checkpoint> open_memory(std::span<const std::byte> bytes,
                                        std::shared_ptr<const void> owner,
                                        const OpenOptions& options = {});

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // In file order. Each access looks the tensor up; tensor_name() does not.
  TensorRange tensors() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // Returns the tensor of this name. nullopt if there is none, or if two tensors have this joined
  // name ({"a.b": t, "a": {"b": u}}); get() distinguishes the two cases. A lookup is a hash and a
  // small copy: no allocation, no lock, no system call, and no parse, but for the first of a tensor
  // of torch.distributed.checkpoint.
  std::optional<TensorView> find(std::string_view name) const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // True if a tensor has this name, even if two have it.
  bool contains(std::string_view name) const noexcept;
  // Returns the tensor of this name, or an error with the reason: not_found, with similar names,
  // whose search takes up to some milliseconds; or invalid_argument for an ambiguous name, with
  // both paths; or TensorView::fault(). For names that are often absent, use find() and contains().
  Result<NamedTensor> get(std::string_view name) const& WEIGHTMAP_LIFETIMEBOUND;
  // Returns the tensor at exactly this path: get_path({"optimizer", "state", 0, "exp_avg"}). The
  // place in a pickled module is a path as well: {"_modules", "head", "_parameters", "weight"}.
  // Fails with not_found if there is none, or with TensorView::fault().
  Result<NamedTensor> get_path(std::span<const PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND;
  Result<NamedTensor> get_path(
      std::initializer_list<PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND {
    return get_path(std::span<const PathPart>(path.begin(), path.size()));
  }
  // Returns the path of tensors()[index]. Precondition: index < tensors().size().
  std::vector<PathPart> path(std::size_t index) const& WEIGHTMAP_LIFETIMEBOUND;

  // The whole value tree: epochs, optimizer state, lists, hyper-parameters. Of a folder of
  // torch.distributed.checkpoint this is the metadata as torch pickled it, and values() is what was
  // saved.
  Value root() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // root(), except for such a folder: the nested dict that torch's dcp_to_torch_save() makes of it.
  // Its tensors are described as torch.save describes them; the key of a storage is the tensor's
  // name, and of one in several chunks the storage is all its elements, without gaps
  // (chunked_name()). The first call reads the items with what are no tensors, of a remote folder
  // by ranges; further calls return the same tree. Fails with corrupt, unsafe_pickle or
  // limit_exceeded for such an item, which the error names, with its file and offset; with io. An
  // object with a tensor in it is not in the tree: left_out_values() has its name.
  Result<Value> values() const& WEIGHTMAP_LIFETIMEBOUND;
  // Returns the tensor that this node of root() or values() describes, under the first of its
  // names; nullopt for a value that is not a tensor. Precondition: the value belongs to this
  // checkpoint.
  std::optional<NamedTensor> tensor(const Value& value) const& noexcept WEIGHTMAP_LIFETIMEBOUND;

  std::size_t source_count() const noexcept;  // files, and memory of copies; at least one
  // Precondition: index < source_count().
  const SourceInfo& source(std::size_t index) const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  const CheckpointInfo& info() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  const OpenStats& stats() const& noexcept WEIGHTMAP_LIFETIMEBOUND;

  // The whole file as mapped; several files are mapped in one range, with zeros between them.
  std::span<const std::byte> mapping() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  // Returns the bytes of `view`, a view of this checkpoint, for writing. Fails with
  // invalid_argument unless the checkpoint was opened writable; with Sharing::shared the writes
  // reach the file.
  Result<std::span<std::byte>> writable_bytes(const TensorView& view) &;

  // Compares the files with what was opened, in two or three system calls per file. This process's
  // own writes that reach the file also lead to `modified`.
  CheckpointState state() const noexcept;
  // Returns state() == current, by one stat() of each file's path, which was made absolute at open.
  bool is_current() const noexcept;
  // Opens the path again with the options of this open, including the environment of that time;
  // this checkpoint is unaffected. Errors and the log use the same names for the files. Fails as
  // open() does, or with invalid_argument if this was opened by descriptor or in memory.
  Result<Checkpoint> reopen() const;

  // Returns view.gather(), but reads the file, so it never raises a signal. Fails with io, naming
  // tensor, file and offset, if the file was truncated, lost or written to (except by this process)
  // since the open; with invalid_argument for a view of another checkpoint or an `out` that is not
  // view.nbytes() long; and as view.gather() does.
  Result<void> gather(const TensorView& view, std::span<std::byte> out) const;
  // Reads the bytes of `view`, a view of this checkpoint, into the page cache and maps them, for a
  // tensor that is needed now; returns when they are there. A running Warmer gives way. Fails with
  // io if the file was truncated or the disk failed, with invalid_argument if the view belongs to
  // another checkpoint.
  Result<void> demand(const TensorView& view) const;

  // The results would dangle for a temporary Checkpoint.
  void tensors() const&& = delete;
  void find(std::string_view) const&& = delete;
  void get(std::string_view) const&& = delete;
  void get_path(std::span<const PathPart>) const&& = delete;
  void get_path(std::initializer_list<PathPart>) const&& = delete;
  void path(std::size_t) const&& = delete;
  void root() const&& = delete;
  void values() const&& = delete;
  void tensor(const Value&) const&& = delete;
  void source(std::size_t) const&& = delete;
  void info() const&& = delete;
  void stats() const&& = delete;
  void mapping() const&& = delete;
  void writable_bytes(const TensorView&) && = delete;

  struct WEIGHTMAP_LOCAL State;  // for other parts of the library
  struct WEIGHTMAP_LOCAL Access;

 private:
  explicit Checkpoint(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

// Returns the files that Checkpoint::open() of this path would open: all files of an index or a
// folder, otherwise the file itself. Fails as open() does if they cannot be determined.
WEIGHTMAP_API Result<std::vector<std::filesystem::path>> files_of(
    const std::filesystem::path& path);

// The names of what values() left out; none before its first success.
WEIGHTMAP_API std::span<const std::string> left_out_values(
    const Checkpoint& checkpoint WEIGHTMAP_LIFETIMEBOUND) noexcept;
void left_out_values(const Checkpoint&&) = delete;  // would dangle

// Compares every storage offset with the record's local header, by one small read per record. Fails
// with corrupt at the first difference, with io if the file cannot be read.
WEIGHTMAP_API Result<void> verify_headers(const Checkpoint& checkpoint);
// Reads the whole file into the page cache, as a Warmer does, and compares the CRC-32 of each
// storage as soon as it is cached: the disk is read once, and the data stays cached if it fits.
// `progress` receives the summed bytes, from a thread that ends before this returns.
WEIGHTMAP_API CrcReport verify_crc(const Checkpoint& checkpoint, const Progress& progress = {});
// A check for code that reads the mapping directly and keeps results computed from it: call this
// after reading the elements of `view`. It fails as Checkpoint::gather() does if they may not be
// those of the opened file, since it was truncated, lost or written to.
WEIGHTMAP_API Result<void> check_unchanged(const Checkpoint& checkpoint, const TensorView& view);

class SharedTensor;
template <>
inline constexpr bool lends_from_itself<SharedTensor> = true;

// A tensor that keeps its checkpoint open, for owners that outlive the scope of the lookup.
//
//   auto checkpoint = weightmap::Checkpoint::open_shared("model.pt");
//   if (!checkpoint) return tl::unexpected(checkpoint.error());
//   auto weight = weightmap::SharedTensor::get(*checkpoint, "layers.0.attn.wq.weight");
//   if (!weight) return tl::unexpected(weight.error());
//   layer.wq = *weight;  // the file stays mapped for as long as the layer has it
//
// It is a value like a std::shared_ptr: copies share the checkpoint, and the last owner unmaps it.
// Const members may be called from any thread.
class SharedTensor {
 public:
  using Owner = std::shared_ptr<const Checkpoint>;

  SharedTensor() noexcept = default;  // no checkpoint, and an empty view
  // Precondition: the view belongs to the checkpoint.
  SharedTensor(Owner checkpoint, const TensorView& view) noexcept
      : checkpoint_(std::move(checkpoint)), view_(view) {}
  // Also keeps the slice's shape.
  SharedTensor(Owner checkpoint, const TensorSlice& slice)
      : checkpoint_(std::move(checkpoint)),
        slice_(std::make_shared<const TensorSlice>(slice)),
        view_(*slice_) {}

  // Fails as Checkpoint::get() does. Precondition: `checkpoint` is not null.
  static Result<SharedTensor> get(Owner checkpoint, std::string_view name) {
    const Result<NamedTensor> found = checkpoint->get(name);
    if (!found) return tl::unexpected<Error>(found.error());
    return SharedTensor(std::move(checkpoint), found->view);
  }

  const TensorView& operator*() const& noexcept WEIGHTMAP_LIFETIMEBOUND { return view_; }
  const TensorView* operator->() const& noexcept WEIGHTMAP_LIFETIMEBOUND { return &view_; }
  const Owner& checkpoint() const& noexcept WEIGHTMAP_LIFETIMEBOUND { return checkpoint_; }

  // These may dangle for a temporary.
  void operator*() const&& = delete;
  void operator->() const&& = delete;
  void checkpoint() const&& = delete;

 private:
  Owner checkpoint_;
  std::shared_ptr<const TensorSlice> slice_;  // the shape of view_ if it came from a slice
  TensorView view_;
};

}  // namespace weightmap
