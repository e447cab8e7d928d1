// Copies tensors from a checkpoint into the memory of a CUDA device.
//
//   auto uploader = weightmap::cuda::Uploader::create();
//   if (!uploader) return fail(uploader.error());
//   auto upload = uploader->start(*checkpoint, {"layers.0.wq.weight", "layers.0.wk.weight"});
//   if (!upload) return fail(upload.error());
//   for (;;) {
//     auto tensor = upload->next();
//     if (!tensor) return fail(tensor.error());
//     if (!*tensor) break;
//     use((*tensor)->pointer(), (*tensor)->nbytes());
//   }
//
// The driver is loaded when an Uploader is created (libcuda.so.1, by dlopen), so that nothing of
// CUDA is needed to build or to link, and it stays loaded. Only the driver API is used, in the
// device's primary context, which libraries that use the runtime API have, too: a failed call
// leaves no error behind that a later call of somebody else would report. The context that the
// calling thread had is current again when a function returns.
//
// There are three ways for the bytes, of which the device's attributes tell the best (Way). Where
// the driver refuses a registration, that and the rest of the upload goes through pinned slots.
// Through these goes, by any way, what is not contiguous, has a foreign byte order, or is of a
// checkpoint that was opened writable. The elements lie row-major and without gaps on the device,
// in this machine's byte order. Of a slice only its own bytes are uploaded.
//
// Threads bring tensors in, or copy them into slots, in the order in which they were asked for. One
// stream copies them to the device. All driver calls are made by the thread that calls next(), or
// that destroys something, so the threads never have a context.
//
// A file that was truncated or written to is an error: slots are filled by reads of the file, and
// with the other ways it is asked before and after each copy whether the file is what it was. Only
// a file that is truncated while the driver itself reads the mapping raises SIGBUS, as with any
// mapping (docs/protection.md). Whoever cannot exclude that takes Way::slots.
//
// A failed driver call is an Error with the code io that names the call, what CUDA calls the
// error, its number, and the tensor. Whatever was allocated for an upload that fails is given back.
// All sizes are in bytes. As CUDA itself none of this works in a forked child: start() and next()
// fail there with unsupported, and destructors give nothing back, which is the parent's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/export.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cuda {

class UploadLane;
class UploadWork;

// How bytes come to the device.
enum class Way : std::uint8_t {
  mapping,     // copied from the mapping as it is: the device uses the host's page tables
  registered,  // copied from the mapping, of which the parts at hand are page-locked meanwhile
  slots,       // copied into pinned memory by threads, and from there to the device
};

WEIGHTMAP_API std::string_view to_string(Way way) noexcept;  // "mapping", "registered", "slots"

struct UploaderOptions {
  int device = 0;  // the driver's ordinal, which CUDA_VISIBLE_DEVICES has a say in
  // How many parts of an upload may be under way at a time, each in a pinned slot; 2 to 64.
  std::size_t slots = 4;
  // Of each slot; 4096 to 1 GiB. It is rounded up to whole pages.
  std::uint64_t slot_bytes = std::uint64_t{64} << 20;
  unsigned threads = 4;  // that fill slots, or bring pages in; 1 to 64
  // The most that one call registers, up to 64 GiB. It is rounded up to whole pages. Each part is
  // registered when the first tensor of it is due, and let go after the last one.
  std::uint64_t register_bytes = std::uint64_t{1} << 30;
  // What is best for the device if unset. Way::mapping is refused for a device that does not use
  // the host's page tables, Way::registered for one that cannot register read-only memory.
  std::optional<Way> way = {};
  std::string library = {};  // the driver's file; empty: libcuda.so.1
};

// What the device's attributes say.
struct DeviceFacts {
  std::uint64_t memory_bytes = 0;      // in all
  bool is_integrated = false;          // shares its memory with the host
  bool uses_host_page_tables = false;  // reads pageable memory by itself
  bool can_register = false;
  bool can_register_read_only = false;
};

// Counted from start() on.
struct UploadReport {
  std::uint64_t tensors = 0;  // that next() gave
  std::uint64_t bytes = 0;    // copied to the device: the sum of the three that follow
  std::uint64_t mapping_bytes = 0;
  std::uint64_t registered_bytes = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t registrations = 0;          // that succeeded
  std::uint64_t refused_registrations = 0;  // the slots were used instead
  std::string refusal;                      // what the driver said to the first of these
  std::uint64_t driver_calls = 0;           // by all who use this Uploader and its tensors
  double seconds_waiting_for_fill = 0;      // nothing was there to be copied
  double seconds_waiting_for_copies = 0;    // in the driver, until a copy was done
};

// A tensor in the device's memory. Copies share the memory, which the last one gives back; it may
// outlive the Uploader and the checkpoint. Const members may be called from any thread.
class WEIGHTMAP_API DeviceTensor {
 public:
  // A CUdeviceptr, 0 if the tensor is empty. Any stream may use it.
  std::uint64_t pointer() const noexcept { return pointer_; }
  int device() const noexcept { return device_; }  // the ordinal
  DType dtype() const noexcept { return dtype_; }
  std::span<const std::int64_t> shape() const& noexcept WEIGHTMAP_LIFETIMEBOUND {
    return std::span(dims_).first(dims_.size() / 2);
  }
  // Row-major, in elements.
  std::span<const std::int64_t> strides() const& noexcept WEIGHTMAP_LIFETIMEBOUND {
    return std::span(dims_).last(dims_.size() / 2);
  }
  std::uint64_t nbytes() const noexcept { return nbytes_; }

  void shape() const&& = delete;    // would dangle
  void strides() const&& = delete;  // would dangle

 private:
  friend class UploadWork;
  DeviceTensor() noexcept = default;

  std::uint64_t pointer_ = 0;
  std::uint64_t nbytes_ = 0;
  int device_ = 0;
  DType dtype_ = DType::uint8;
  std::vector<std::int64_t> dims_;  // shape then strides
  std::shared_ptr<const void> memory_;
};

// Tensors that are on their way. To be used by one thread at a time. Borrows the checkpoint. What
// was not asked for yet is dropped by the destructor, which waits for the copies under way.
class WEIGHTMAP_API Upload {
 public:
  Upload(Upload&&) noexcept;
  Upload& operator=(Upload&&) noexcept;
  ~Upload();

  // The next tensor, once all of it is on the device; nullopt when there are no more. Meanwhile as
  // much as the slots hold of those that follow is filled and copied, too. After an error it gives
  // that error again.
  Result<std::optional<DeviceTensor>> next();
  UploadReport report() const;

 private:
  friend class Uploader;
  explicit Upload(std::unique_ptr<UploadWork> work) noexcept;

  std::unique_ptr<UploadWork> work_;
};

// Device, stream and slots, for one upload after the other. To be used by one thread at a time.
class WEIGHTMAP_API Uploader {
 public:
  // Asks for the device's attributes, and allocates nothing but a stream on it. Fails with
  // unsupported if there is no driver, or one that lacks a function; with invalid_argument for
  // options out of range; with io if the driver or the system refuses.
  static Result<Uploader> create(const UploaderOptions& options = {});
  Uploader(Uploader&&) noexcept;
  Uploader& operator=(Uploader&&) noexcept;
  // An Upload that is still there goes on working.
  ~Uploader();

  const DeviceFacts& facts() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void facts() const&& = delete;
  // By which way the bytes of tensors that need no gathering go.
  Way way() const noexcept;

  // Begins to upload these views of the checkpoint, in this order; the views need not be there
  // afterwards. Fails with invalid_argument while another Upload of this Uploader exists, for a
  // view of another checkpoint, or one that is not contiguous and has more dimensions than
  // TensorView::max_slice_rank; with unsupported where a lazy bit is set, or for blocks of foreign
  // byte order; with limit_exceeded for a tensor larger than the device's memory; with io where
  // the driver or the system refuses.
  Result<Upload> start(const Checkpoint& checkpoint, std::span<const TensorView> views);
  // The tensors of these names. Fails as Checkpoint::get() does, too.
  Result<Upload> start(const Checkpoint& checkpoint, std::span<const std::string_view> names);
  Result<Upload> start(const Checkpoint& checkpoint,
                       std::initializer_list<std::string_view> names) {
    return start(checkpoint, std::span(names.begin(), names.size()));
  }

 private:
  explicit Uploader(std::shared_ptr<UploadLane> lane) noexcept;

  std::shared_ptr<UploadLane> lane_;
};

}  // namespace weightmap::cuda
