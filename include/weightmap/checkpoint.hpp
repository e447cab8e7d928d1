// An opened checkpoint: one read-only mapping of the whole file and one frozen table of its
// tensors.
//
//   auto checkpoint = weightmap::Checkpoint::open("model.pt");
//   if (!checkpoint) return fail(checkpoint.error());
//   std::optional<weightmap::TensorView> w = checkpoint->find("layers.0.attn.wq.weight");
//
// Nothing in the file is executed: the pickle is run by a machine that builds values and calls
// nothing. Metadata is read with pread into private memory and proven once; the mapping serves
// tensor bytes only. After open() nothing is parsed again: find() is a hash and a small copy, with
// no allocation, no lock and no system call.
//
// Views, names and values are borrowed from the Checkpoint and valid until it is destroyed; moving
// it is fine. For a longer life hold a std::shared_ptr<const Checkpoint>. All const members are
// thread-safe.
//
// Replace checkpoints by rename (publish.hpp), never in place: then what is mapped stays whole, and
// is_current() says that there is something newer to reopen(). If another process cuts the file
// short, or the disk fails, reading what is gone raises SIGBUS and ends the process. What
// OpenOptions::protection can do about it:
//
// - map: nothing. This is the default.
// - guard: a handler of SIGBUS puts zeros in the place of the whole mapping, and state() answers
//   `lost` from then on. So whatever was computed since state() was last asked must be thrown away
//   if it answers `lost` or `modified`. What the guard cannot do:
//   - Bytes that are written over in place give no signal. state() answers `modified`, by the time
//     of the change and the size: forged times, and writes within one tick of the clock of the file
//     system, are not seen, nor are writes through a shared mapping until the system notes them.
//   - A system call that is given memory that is gone fails with EFAULT, and a device that reads it
//     by itself (DMA) fails in its own way. Neither raises a signal.
//   - Whoever installs a handler of SIGBUS later and passes nothing on switches the guard off. See
//     guard_is_active().
//   - A thread that has SIGBUS blocked is ended by the system, guard or not.
//   - What was written to a private writable mapping is lost with the rest of it.
//   - At most 1024 mappings are guarded at a time: one of each checkpoint, and its copy_on_write().
//   AddressSanitizer must leave SIGBUS to the program, which is its default: handle_sigbus=1 and
//   allow_user_segv_handler=1.
// - snapshot: opens a reflink of the file, which nobody else can change: it shares the blocks,
//   copies nothing and has page cache of its own. A file system without reflinks (they are in xfs
//   and btrfs) is an error: stage() makes a copy in memory there, which processes can share. A file
//   that is written to meanwhile is an error, as far as its times tell that, and so is a snapshot
//   that would be written through (Sharing::shared, writable).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/export.hpp"
#include "weightmap/generation.hpp"
#include "weightmap/options.hpp"
#include "weightmap/result.hpp"
#include "weightmap/stats.hpp"
#include "weightmap/tensor_view.hpp"
#include "weightmap/value.hpp"

namespace weightmap {

// One step of the way from the root of the pickle to a tensor: a string key, or an integer (a list
// or tuple index, or an integer key).
class WEIGHTMAP_API PathPart {
 public:
  PathPart(std::string_view key) noexcept : text_(key) {}
  PathPart(const char* key) noexcept : text_(key) {}
  PathPart(const std::string& key) noexcept : text_(key) {}
  PathPart(std::int64_t index) noexcept : index_(index), is_integer_(true) {}
  PathPart(int index) noexcept : PathPart(static_cast<std::int64_t>(index)) {}

  bool is_integer() const noexcept { return is_integer_; }
  std::int64_t integer() const noexcept { return index_; }  // 0 for a key
  std::string_view key() const noexcept { return text_; }   // empty for an integer

  friend bool operator==(const PathPart& a, const PathPart& b) noexcept = default;

 private:
  std::string_view text_;
  std::int64_t index_ = 0;
  bool is_integer_ = false;
};

// What the checkpoint says about one tensor, beside its bytes. `name` is the path joined by dots.
struct NamedTensor {
  std::string_view name;
  TensorView view;
  std::string_view storage;     // key of the storage: "0" for data/0
  std::int64_t storage_offset;  // of the first element in the storage, in elements
  std::uint64_t file_offset;    // of the first element in the file, in bytes
  std::string_view location;    // where it was when saved: "cpu", "cuda:0"
  bool requires_grad;
  bool is_parameter;          // saved as torch.nn.Parameter
  std::size_t index;          // position in Checkpoint::tensors()
  std::size_t storage_index;  // position among Checkpoint::storage()
};

struct NamedStorage {
  std::string_view key;
  std::uint64_t payload_offset;  // absolute
  std::uint64_t nbytes;          // of the record
  std::uint32_t crc32;           // 0 with nbytes > 0: not computed by the writer
};

// What kind of file this is; the fields of `weightmap info`.
struct CheckpointInfo {
  std::string_view format;                    // "torch_zip"
  std::uint64_t version = 0;                  // of the `version` record
  std::optional<std::string> format_version;  // of `.format_version`; absent before torch 2.7
  std::string_view byteorder;                 // "little" or "big"
  bool byteorder_assumed = false;             // the file does not say; options decided
  std::uint64_t storage_alignment = 64;       // bytes
  std::uint64_t tensors = 0;
  std::uint64_t storages = 0;
  std::uint64_t tensor_bytes =
      0;  // sum of nbytes over all tensors (views of one storage count each)
  std::uint64_t file_bytes = 0;
  std::uint64_t pickle_bytes = 0;
  Sharing sharing = Sharing::shared;  // as mapped, after any fallback
  bool sharing_fell_back = false;     // the file system refused MAP_SHARED
  bool writable = false;
  Protection protection = Protection::map;
  // By what a snapshot was made: "reflink". Empty for others.
  std::string_view protection_means;
  CatalogSource catalog = CatalogSource::parsed;
  std::string catalog_reason;  // why a shared catalog was not used or not published; empty: nothing
                               // went wrong, or none was asked for
};

// Whether what is mapped is still what was opened.
enum class CheckpointState : std::uint8_t {
  current,   // the path names this very file, and nobody has written to it
  replaced,  // the path names another file, or none. What is mapped is whole. Also said of a
             // snapshot whose file was written to
  modified,  // the file was written to, or cut: views show other bytes, or fault
  lost,      // the guard has put zeros in the place of pages that could not be had
};

WEIGHTMAP_API std::string_view to_string(CheckpointState state) noexcept;  // "current", ...

// Whether a SIGBUS comes to the guard first: false before anything was opened with
// Protection::guard, and after somebody else has installed a handler. If that one passes signals
// on, the guard goes on working. Opening another checkpoint with the guard puts it in front again.
WEIGHTMAP_API bool guard_is_active() noexcept;

class WEIGHTMAP_API Checkpoint {
 public:
  static Result<Checkpoint> open(const std::filesystem::path& path,
                                 const OpenOptions& options = {});
  // The same of a file that is open for reading: inherited, sent by another process, or staged
  // (stage.hpp). The descriptor stays the caller's and may be closed afterwards. Errors call the
  // file "descriptor 5". Fails with io for what is no such descriptor, else as open() does.
  static Result<Checkpoint> open_descriptor(int descriptor, const OpenOptions& options = {});
  // The same with a catalog that share_catalog() of another process made for this very file,
  // instead of parsing it. The descriptor is borrowed and may be closed afterwards. Fails with
  // invalid_argument if it is not sealed memory, or is about another generation of the file, or was
  // made under limits or an assumed byte order that these options do not allow; with corrupt if its
  // content is damaged or cut short.
  static Result<Checkpoint> attach(const std::filesystem::path& path, int catalog_descriptor,
                                   const OpenOptions& options = {});

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // All tensors, in file order; the range computes each NamedTensor on the way.
  class TensorRange;
  TensorRange tensors() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void tensors() const&& = delete;  // would dangle

  // The tensor of this name. nullopt if there is none, or if two tensors have this joined name
  // ({"a.b": t, "a": {"b": u}}); get() tells the two apart.
  std::optional<TensorView> find(std::string_view name) const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void find(std::string_view) const&& = delete;
  // The same with an error that says why not: for an ambiguous name, with both paths.
  Result<NamedTensor> get(std::string_view name) const& WEIGHTMAP_LIFETIMEBOUND;
  void get(std::string_view) const&& = delete;
  // The tensor at exactly this path: find_path({"optimizer", "state", 0, "exp_avg"}).
  std::optional<TensorView> find_path(
      std::span<const PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND;
  std::optional<TensorView> find_path(
      std::initializer_list<PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND {
    return find_path(std::span<const PathPart>(path.begin(), path.size()));
  }
  void find_path(std::span<const PathPart>) const&& = delete;
  void find_path(std::initializer_list<PathPart>) const&& = delete;
  // The same as get() of a name: an error where there is no such tensor.
  Result<NamedTensor> get_path(std::span<const PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND;
  Result<NamedTensor> get_path(
      std::initializer_list<PathPart> path) const& WEIGHTMAP_LIFETIMEBOUND {
    return get_path(std::span<const PathPart>(path.begin(), path.size()));
  }
  void get_path(std::span<const PathPart>) const&& = delete;
  void get_path(std::initializer_list<PathPart>) const&& = delete;
  // The path of tensors()[index].
  std::vector<PathPart> path(std::size_t index) const& WEIGHTMAP_LIFETIMEBOUND;
  void path(std::size_t) const&& = delete;

  // The whole value tree: epochs, optimizer state, lists, hyper-parameters. Where the catalog is
  // another process's (CatalogSource::attached) the first call parses the file; if that fails the
  // value is none, and load_root() says why.
  Value root() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void root() const&& = delete;
  // Parses the file now if root() would. Fails as open() does, or with io if the file changed
  // meanwhile; then it is not tried again.
  Result<void> load_root() const;

  // The tensor that this node of root() describes: a value of kind object that one of torch's
  // rebuild functions would make a tensor or parameter of. The first of its names if it has many.
  // nullopt for any other value. Precondition: the value is of this checkpoint.
  std::optional<NamedTensor> tensor(const Value& value) const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void tensor(const Value&) const&& = delete;

  std::size_t storage_count() const noexcept;
  // Precondition: index < storage_count().
  NamedStorage storage(std::size_t index) const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void storage(std::size_t) const&& = delete;

  const CheckpointInfo& info() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void info() const&& = delete;
  const OpenStats& stats() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void stats() const&& = delete;

  // Whether another process's catalog was found damaged when it was used. Then this checkpoint has
  // parsed the file and gone on with a catalog of its own, and what was handed out before stays
  // valid. If the file cannot be parsed either, find() and find_path() answer nullopt, the others
  // their error, and those that have none an empty tensor, storage or path.
  bool catalog_was_damaged() const noexcept;
  // The catalog as sealed memory, to be handed to another process, which gives it to attach(): over
  // a Unix socket (SCM_RIGHTS), or through exec() once close-on-exec is cleared. The caller owns
  // the descriptor. A fork()ed child needs nothing of this: it goes on with what its parent opened.
  // Fails with io if the system refuses, or if the file was changed less than 20 ms before it was
  // opened, since its times might not show another change.
  Result<int> share_catalog() const;

  // The whole file as mapped.
  std::span<const std::byte> mapping() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void mapping() const&& = delete;
  // The bytes of `view`, a view of this checkpoint, for writing. Fails with invalid_argument unless
  // it was opened writable; with Sharing::shared the writes reach the file.
  Result<std::span<std::byte>> writable_bytes(const TensorView& view) &;
  void writable_bytes(const TensorView&) && = delete;

  // The whole file as memory that may be written to and belongs to this process: a write copies its
  // page and reaches neither the file nor mapping(). What libraries want that know no read-only
  // tensors. Reading costs no memory of its own. The checkpoint's mapping if that is private and
  // writable; else a second one, made by the first call and kept until the Checkpoint is destroyed.
  // Fails with io if the system refuses it, or if the file was written to since it was opened.
  Result<std::span<std::byte>> copy_on_write() const& WEIGHTMAP_LIFETIMEBOUND;
  void copy_on_write() const&& = delete;

  // Of the file, at the moment of opening.
  const Generation& generation() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void generation() const&& = delete;
  // Two or three system calls. `modified` is also what own writes lead to that reach the file.
  CheckpointState state() const noexcept;
  // state() == current, by one system call: stat of the path, which was made absolute at open.
  bool is_current() const noexcept;
  // Opens the path again with the options of this open, environment included as it was then. This
  // checkpoint and its views stay as they are. Fails as open() does, or with invalid_argument if
  // this was opened by descriptor.
  Result<Checkpoint> reopen() const;

  // Copies the bytes of `view`, a view of this checkpoint, as they lie there: view.bytes(). Raises
  // no signal, whatever became of the file: reads with pread, and from private memory that may have
  // been written to with process_vm_readv, or /proc/self/mem where that is refused. Fails with io,
  // naming a tensor and the offset, if the file was cut short or written to since it was opened, or
  // was lost; own writes that reach the file are not told from those of others and pass. Fails with
  // invalid_argument if the view is not one of this checkpoint, or `out` is not as large.
  Result<void> copy_to(const TensorView& view, std::span<std::byte> out) const;

  // Brings the bytes of `view`, a view of this checkpoint, into memory and maps them; returns when
  // they are there. A Warmer that is at work gives way. Fails with io if the file was cut short or
  // the disk failed, with invalid_argument if the view is not one of this checkpoint.
  Result<void> demand(const TensorView& view) const;
  // Positions in tensors(), in the order in which demand() was first asked for each, to be saved
  // for the next warm-up (tensor_order.hpp). A view, whole or narrowed, stands for the first tensor
  // in tensors() that has its first byte; so of tensors that share memory one is named, and an
  // empty one never. A demand that failed counts. Remembering takes at most some 70 bytes a tensor.
  std::vector<std::size_t> demand_order() const;

  // Compares every storage offset with the record's local header. One small read a record.
  Result<void> verify_headers() const;
  // Brings the whole file into memory, as a Warmer does, and compares the CRC-32 of each storage as
  // soon as it is there: the disk is read once, and what fits stays. Answers how many storages had
  // none (CRC 0: the writer did not compute it). `progress` gets the bytes summed and the bytes in
  // all, from a thread that ends before this returns.
  struct CrcReport {
    std::uint64_t storages_checked = 0;
    std::uint64_t storages_without_crc = 0;
    std::uint64_t bytes = 0;
    std::vector<Error> faults;  // one for each storage that differs, or could not be read
  };
  CrcReport verify_crc(
      const std::function<void(std::uint64_t, std::uint64_t)>& progress = {}) const;

  struct WEIGHTMAP_LOCAL Access;  // for other parts of the library

 private:
  struct WEIGHTMAP_LOCAL State;
  class WEIGHTMAP_LOCAL Opener;
  explicit Checkpoint(std::unique_ptr<State> state) noexcept;
  NamedTensor tensor_at(std::size_t index) const noexcept;
  std::unique_ptr<State> state_;
};

class Checkpoint::TensorRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;  // gives values, not references
    using value_type = NamedTensor;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = NamedTensor;
    NamedTensor operator*() const noexcept { return owner_->tensor_at(index_); }
    Iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    Iterator operator++(int) noexcept {
      const Iterator before = *this;
      ++index_;
      return before;
    }
    bool operator==(const Iterator& other) const noexcept { return index_ == other.index_; }

   private:
    friend class TensorRange;
    Iterator(const Checkpoint* owner, std::size_t index) noexcept : owner_(owner), index_(index) {}
    const Checkpoint* owner_;
    std::size_t index_;
  };

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  // Precondition: index < size().
  NamedTensor operator[](std::size_t index) const noexcept { return owner_->tensor_at(index); }
  Iterator begin() const noexcept { return {owner_, 0}; }
  Iterator end() const noexcept { return {owner_, size_}; }

 private:
  friend class Checkpoint;
  TensorRange(const Checkpoint* owner, std::size_t size) noexcept : owner_(owner), size_(size) {}
  const Checkpoint* owner_;
  std::size_t size_;
};

}  // namespace weightmap
