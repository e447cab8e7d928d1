// Copies tensors from a checkpoint into the memory of a CUDA device.
//
//   auto uploader = weightmap::cuda::Uploader::create();
//   if (!uploader) return tl::unexpected(uploader.error());
//   auto upload = uploader->start(*checkpoint, {"layers.0.wq.weight", "layers.0.wk.weight"});
//   if (!upload) return tl::unexpected(upload.error());
//   for (;;) {
//     auto tensor = upload->next();
//     if (!tensor) return tl::unexpected(tensor.error());
//     if (!*tensor) break;
//     use((*tensor)->pointer(), (*tensor)->nbytes());
//   }
//
// Creating an Uploader loads the driver (libcuda.so.1, by dlopen), which stays loaded, so building
// and linking need no part of CUDA. Only the driver API is used, in the device's primary context,
// which libraries of the runtime API share: a failed call leaves no sticky error for later calls of
// other libraries. Each function restores the calling thread's current context.
//
// Bytes reach the device in one of three ways (Way); the device's attributes determine the best. If
// the driver refuses a registration, pinned slots are the fallback for that part and the rest of
// the upload. Tensors that are not contiguous, have a foreign byte order, or belong to a checkpoint
// that was opened writable always use the slots. On the device the elements are row-major, without
// gaps and in this machine's byte order. For a slice only its own bytes are uploaded.
//
// Threads fault tensors in, or copy them into slots, in the requested order. One stream copies them
// to the device. Only the thread that calls next() or destroys an object calls the driver, so the
// other threads never have a context.
//
// A file that was truncated or written to is an error: slots are filled by reads of the file, and
// the other ways compare the file's identity before and after each copy. Only a file that is
// truncated while the driver itself reads the mapping raises SIGBUS, as with any mapping
// (docs/protection.md). If that can happen, use Way::slots.
//
// A failed driver call is an Error with the code io that names the call, CUDA's name and number of
// the error, and the tensor. A failed upload frees its allocations. All sizes are in bytes. Like
// CUDA itself, none of this works in a forked child: start() and next() fail there with
// unsupported, and destructors free nothing, since everything belongs to the parent.
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
#include "weightmap/result.hpp"
#include "weightmap/version.hpp"

namespace weightmap::cuda {

class UploadLane;
class UploadWork;

// How bytes reach the device.
enum class Way : std::uint8_t {
  mapping,     // copied directly from the mapping: the device uses the host's page tables
  registered,  // copied from the mapping, whose current parts are page-locked for the copy
  slots,       // copied into pinned memory by threads, and from there to the device
};

WEIGHTMAP_API std::string_view to_string(Way way) noexcept;  // "mapping", "registered", "slots"

struct UploaderOptions {
  int device = 0;  // the driver's ordinal, which CUDA_VISIBLE_DEVICES affects
  // The maximum number of parts of an upload in progress at a time, each in a pinned slot; 2 to 64.
  std::size_t slots = 4;
  // Size of each slot; 4096 to 1 GiB, rounded up to whole pages.
  std::uint64_t slot_bytes = std::uint64_t{64} << 20;
  unsigned threads = 4;  // that fill slots, or fault pages in; 1 to 64
  // The maximum that one call registers, up to 64 GiB, rounded up to whole pages. Each part is
  // registered before its first tensor is copied, and unregistered after the last one.
  std::uint64_t register_bytes = std::uint64_t{1} << 30;
  // Unset: the best way for the device. Way::mapping is refused for a device that does not use the
  // host's page tables, Way::registered for one that cannot register read-only memory.
  std::optional<Way> way = {};
  std::string library = {};  // the driver's file; empty: libcuda.so.1
};

// The device's attributes.
struct DeviceFacts {
  std::uint64_t memory_bytes = 0;      // total
  bool is_integrated = false;          // shares its memory with the host
  bool uses_host_page_tables = false;  // reads pageable memory by itself
  bool can_register = false;
  bool can_register_read_only = false;
};

// Counted from start() on.
struct UploadReport {
  std::uint64_t tensors = 0;  // returned by next()
  std::uint64_t bytes = 0;    // copied to the device: the sum of the next three
  std::uint64_t mapping_bytes = 0;
  std::uint64_t registered_bytes = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t registrations = 0;          // that succeeded
  std::uint64_t refused_registrations = 0;  // with the slots as the fallback
  std::string refusal;                      // the driver's error for the first of these
  std::uint64_t driver_calls = 0;           // by all users of this Uploader and its tensors
  double seconds_waiting_for_fill = 0;      // while nothing was ready to be copied
  double seconds_waiting_for_copies = 0;    // in the driver, for the end of a copy
};

// A tensor in the device's memory. Copies share the memory, which the last one frees; it may
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

// An upload in progress. Use it from one thread at a time. Borrows the checkpoint. The destructor
// drops the remaining tensors and waits for the copies in progress.
class WEIGHTMAP_API Upload {
 public:
  Upload(Upload&&) noexcept;
  Upload& operator=(Upload&&) noexcept;
  ~Upload();

  // Returns the next tensor once all of it is on the device; nullopt at the end. Meanwhile the
  // following tensors are filled and copied as far as the slots have room. After an error it
  // returns that error again.
  Result<std::optional<DeviceTensor>> next();
  UploadReport report() const;

 private:
  friend class Uploader;
  explicit Upload(std::unique_ptr<UploadWork> work) noexcept;

  std::unique_ptr<UploadWork> work_;
};

// A device with a stream and slots, for one upload after another. Use it from one thread at a time.
class WEIGHTMAP_API Uploader {
 public:
  // Reads the device's attributes, and allocates only a stream on it. Fails with unsupported if
  // there is no driver, or it lacks a function; with invalid_argument for options out of range;
  // with io if the driver or the system refuses.
  static Result<Uploader> create(const UploaderOptions& options = {});
  Uploader(Uploader&&) noexcept;
  Uploader& operator=(Uploader&&) noexcept;
  // An Upload that still exists continues to work.
  ~Uploader();

  const DeviceFacts& facts() const& noexcept WEIGHTMAP_LIFETIMEBOUND;
  void facts() const&& = delete;
  // The way for tensors that need no gathering.
  Way way() const noexcept;

  // Starts the upload of these views of the checkpoint, in this order; the views need not exist
  // afterwards. Fails with invalid_argument while another Upload of this Uploader exists, for a
  // view of another checkpoint, or one that is not contiguous and has more dimensions than
  // TensorView::max_slice_rank; with unsupported if a lazy bit is set, or for blocks of foreign
  // byte order; with limit_exceeded for a tensor larger than the device's memory; with io if the
  // driver or the system refuses.
  Result<Upload> start(const Checkpoint& checkpoint, std::span<const TensorView> views);
  // Starts the upload of the tensors of these names. Also fails as Checkpoint::get() does.
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
