#include "runtime/services/cuda/upload_work.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/checkpoint/copies.hpp"
#include "runtime/services/cuda/upload_lane.hpp"
#include "runtime/system/page_size.hpp"
#include "weightmap/cuda.hpp"

namespace weightmap::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the duration of a scope.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) noexcept : seconds_(seconds) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - began_).count(); }

 private:
  double& seconds_;
  const Clock::time_point began_ = Clock::now();
};

tl::unexpected<Error> about(Checkpoint::State& checkpoint, std::span<const std::byte> part,
                            Error error) {
  error.message.insert(0, start_of_error(checkpoint, part));
  return tl::unexpected<Error>(std::move(error));
}

Result<void> check_view(const UploadLane& lane, Checkpoint::State& checkpoint,
                        const TensorView& view) {
  TRY(view.check_gather(view.nbytes()));
  if (!view.stored_bytes().empty() && !checkpoint.position_of(view.stored_bytes()))
    return failure(ErrorCode::invalid_argument, "the view is not one of this checkpoint");
  if (!view.is_contiguous()) {
    TRY(TensorSlice::of(view));
  }
  const std::uint64_t most = lane.device()->facts().memory_bytes;
  if (view.nbytes() > most)
    return failure(ErrorCode::limit_exceeded, "its " + std::to_string(view.nbytes()) +
                                                  " bytes do not fit the " + std::to_string(most) +
                                                  " of CUDA device " +
                                                  std::to_string(lane.device()->ordinal()));
  return {};
}

Result<UploadPlan> plan_of(const UploadLane& lane, Checkpoint::State& checkpoint,
                           std::span<const TensorView> views) {
  if (checkpoint.is_in_memory())
    return failure(ErrorCode::unsupported,
                   "the checkpoint is in memory, and only mapped files are uploaded");
  for (const TensorView& view : views)
    if (Result<void> ok = check_view(lane, checkpoint, view); !ok)
      return about(checkpoint, view.stored_bytes(), std::move(ok.error()));
  const PlanOptions options{lane.options().slot_bytes, lane.options().register_bytes,
                            os::page_bytes(), checkpoint.info.writable};
  return plan_upload(views, checkpoint.mapping.bytes(), options);
}

}  // namespace

Result<std::unique_ptr<UploadWork>> UploadWork::start(const std::shared_ptr<UploadLane>& lane,
                                                      Checkpoint::State& checkpoint,
                                                      std::span<const TensorView> views) {
  TRY(lane->device()->check_own());
  TRY(checkpoint.check_view_memory());
  TRY_ASSIGN(UploadPlan plan, plan_of(*lane, checkpoint, views));
  std::unique_ptr<UploadWork> work(new UploadWork(lane, checkpoint, std::move(plan)));
  TRY(work->take_lane());
  TRY(work->prepare());
  return work;
}

UploadWork::UploadWork(std::shared_ptr<UploadLane> lane, Checkpoint::State& checkpoint,
                       UploadPlan plan)
    : lane_(std::move(lane)),
      checkpoint_(checkpoint),
      plan_(std::move(plan)),
      registrations_(plan_.ranges.size()),
      memories_(plan_.tensors.size()),
      feeder_(checkpoint_, plan_, lane_->slots(), lane_->way()),
      calls_before_(lane_->driver().calls()) {}

Result<void> UploadWork::take_lane() {
  has_lane_ = lane_->try_take();
  if (has_lane_) return {};
  return failure(ErrorCode::invalid_argument,
                 "another Upload of this Uploader has not been destroyed yet, or its copies could "
                 "not be waited for");
}

Result<void> UploadWork::prepare() {
  const Current current(*lane_->device());
  TRY(current.made());
  if (std::ranges::any_of(plan_.batches, [&](const Batch& batch) {
        return lane_->way() == Way::slots || batch.needs_memory;
      })) {
    TRY(lane_->slots().make_memory(lane_->device()));
  }
  const std::size_t events = std::min(plan_.batches.size(), lane_->slots().slots());
  while (events_.size() < events) {
    Event event = nullptr;
    TRY(driver().call(driver().event_create, &event, event_disable_timing));
    events_.emplace_back(lane_->device(), &Driver::event_destroy, event);
  }
  return feeder_.start(std::min<std::size_t>(plan_.batches.size(), lane_->options().threads));
}

UploadWork::~UploadWork() {
  feeder_.stop();
  if (!has_lane_) return;
  if (copies_under_way_) {  // from slots and registered memory, which are freed next
    const Current current(*lane_->device());
    if (!current.made()) return;  // the copies may continue, so no other upload may fill the slots
    driver().result_of(driver().stream_synchronize, lane_->stream());
  }
  lane_->give_back();
}

Result<std::optional<DeviceTensor>> UploadWork::next() {
  TRY(lane_->device()->check_own());
  if (failed_) return tl::unexpected<Error>(*failed_);
  if (given_ == plan_.tensors.size()) return std::optional<DeviceTensor>();
  const Current current(*lane_->device());
  TRY(current.made());
  Result<DeviceTensor> tensor = finish_next();
  if (tensor) return std::optional<DeviceTensor>(std::move(*tensor));
  failed_ = tensor.error();
  return tl::unexpected<Error>(*failed_);
}

UploadReport UploadWork::report() const {
  UploadReport report = report_;
  report.tensors = given_;
  report.bytes = report.mapping_bytes + report.registered_bytes + report.slot_bytes;
  report.driver_calls = driver().calls() - calls_before_;
  return report;
}

Result<DeviceTensor> UploadWork::finish_next() {
  PlannedTensor& planned = plan_.tensors[given_];
  while (released_ < planned.end_batch) TRY(go_on());
  DeviceTensor tensor;
  tensor.memory_ = std::move(memories_[given_]);
  tensor.pointer_ =
      tensor.memory_ ? static_cast<const Held<DevicePointer>*>(tensor.memory_.get())->get() : 0;
  tensor.nbytes_ = planned.nbytes;
  tensor.device_ = lane_->device()->ordinal();
  tensor.dtype_ = planned.dtype;
  tensor.dims_ = std::move(planned.dims);
  ++given_;
  return tensor;
}

Result<void> UploadWork::go_on() {
  if (issued_ < plan_.batches.size() && feeder_.is_filled(issued_)) return issue(issued_);
  if (released_ < issued_) return release_first();
  const Stopwatch stopwatch(report_.seconds_waiting_for_fill);
  return feeder_.wait_filled(issued_);
}

Result<void> UploadWork::issue(std::size_t batch) {
  TRY(feeder_.wait_filled(batch));
  const std::span<const Transfer> transfers = plan_.transfers_of(plan_.batches[batch]);
  for (const Transfer& transfer : transfers)
    if (Result<void> copied = copy(batch, transfer); !copied)
      return about(checkpoint_, transfer.view.stored_bytes(), std::move(copied.error()));
  const Result<void> recorded =
      driver().call(driver().event_record, events_[batch % events_.size()].get(), lane_->stream());
  if (!recorded) return about(checkpoint_, transfers.back().view.stored_bytes(), recorded.error());
  ++issued_;
  return {};
}

Result<void> UploadWork::copy(std::size_t batch, const Transfer& transfer) {
  TRY(allocate(transfer.tensor));
  TRY_ASSIGN(const void* const source, source_of(batch, transfer));
  copies_under_way_ = true;
  return driver().call(driver().copy_to_device,
                       memories_[transfer.tensor]->get() + transfer.device_offset, source,
                       static_cast<std::size_t>(transfer.view.nbytes()), lane_->stream());
}

Result<const void*> UploadWork::source_of(std::size_t batch, const Transfer& transfer) {
  const std::byte* in_slot = feeder_.in_slot(batch, transfer);
  if (in_slot == nullptr && lane_->way() == Way::mapping) {
    report_.mapping_bytes += transfer.view.nbytes();
    return transfer.view.data();
  }
  if (in_slot == nullptr) {
    TRY_ASSIGN(const bool is_registered, register_range(transfer.range));
    if (is_registered) {
      report_.registered_bytes += transfer.view.nbytes();
      return transfer.view.data();
    }
    TRY(lane_->slots().make_memory(lane_->device()));
    TRY(feeder_.use_slot_after_all(batch));
    in_slot = feeder_.in_slot(batch, transfer);
  }
  report_.slot_bytes += transfer.view.nbytes();
  return in_slot;
}

Result<void> UploadWork::allocate(std::size_t tensor) {
  if (memories_[tensor]) return {};
  DevicePointer pointer = 0;
  TRY(driver().call(driver().memory_allocate, &pointer,
                    static_cast<std::size_t>(plan_.tensors[tensor].nbytes)));
  memories_[tensor] =
      std::make_shared<Held<DevicePointer>>(lane_->device(), &Driver::memory_free, pointer);
  return {};
}

Result<bool> UploadWork::register_range(std::size_t range) {
  if (registrations_[range]) return true;
  if (registers_nothing_) return false;
  const ByteRange& bytes = plan_.ranges[range].bytes;
  // The driver's parameter is a pointer to non-const memory.
  void* const begin = const_cast<std::byte*>(checkpoint_.mapping.bytes().data() + bytes.offset);
  const CallResult result =
      driver().result_of(driver().host_register, begin, static_cast<std::size_t>(bytes.length),
                         host_register_read_only);
  const std::string text =
      result == success ? std::string() : driver().text_of(driver().host_register.name, result);
  if (result == success) {
    registrations_[range] = Held<void*>(lane_->device(), &Driver::host_unregister, begin);
    ++report_.registrations;
    return true;
  }
  if (result != not_supported && result != invalid_value && result != already_registered)
    return failure(ErrorCode::io, text);
  registers_nothing_ = true;
  ++report_.refused_registrations;
  report_.refusal = text;
  return false;
}

Result<void> UploadWork::release_first() {
  const std::size_t batch = released_;
  {
    const Stopwatch stopwatch(report_.seconds_waiting_for_copies);
    const Result<void> done =
        driver().call(driver().event_synchronize, events_[batch % events_.size()].get());
    const std::span<const Transfer> transfers = plan_.transfers_of(plan_.batches[batch]);
    if (!done) return about(checkpoint_, transfers.front().view.stored_bytes(), done.error());
  }
  TRY(check_copied(batch));
  ++released_;
  copies_under_way_ = released_ < issued_;
  feeder_.release_first();
  return {};
}

Result<void> UploadWork::check_copied(std::size_t batch) {
  for (const Transfer& transfer : plan_.transfers_of(plan_.batches[batch])) {
    if (!transfer.is_as_stored) continue;
    if (lane_->way() != Way::slots) {
      TRY(check_unchanged(checkpoint_, transfer.view));
    }
    if (--plan_.ranges[transfer.range].transfers > 0) continue;
    if (Result<void> done = registrations_[transfer.range].give_back(); !done)
      return about(checkpoint_, transfer.view.bytes(), std::move(done.error()));
  }
  return {};
}

Upload::Upload(std::unique_ptr<UploadWork> work) noexcept : work_(std::move(work)) {}
Upload::Upload(Upload&&) noexcept = default;
Upload& Upload::operator=(Upload&& other) noexcept {
  std::swap(work_, other.work_);
  return *this;
}
Upload::~Upload() {
  if (work_ && work_->is_inherited()) static_cast<void>(work_.release());
}

Result<std::optional<DeviceTensor>> Upload::next() { return work_->next(); }
UploadReport Upload::report() const { return work_->report(); }

Result<Uploader> Uploader::create(const UploaderOptions& options) {
  TRY_ASSIGN(std::shared_ptr<UploadLane> lane, UploadLane::open(options));
  return Uploader(std::move(lane));
}

Uploader::Uploader(std::shared_ptr<UploadLane> lane) noexcept : lane_(std::move(lane)) {}
Uploader::Uploader(Uploader&&) noexcept = default;
Uploader& Uploader::operator=(Uploader&&) noexcept = default;
Uploader::~Uploader() = default;

const DeviceFacts& Uploader::facts() const& noexcept { return lane_->device()->facts(); }
Way Uploader::way() const noexcept { return lane_->way(); }

Result<Upload> Uploader::start(const Checkpoint& checkpoint, std::span<const TensorView> views) {
  TRY_ASSIGN(std::unique_ptr<UploadWork> work,
             UploadWork::start(lane_, Checkpoint::Access::state(checkpoint), views));
  return Upload(std::move(work));
}

Result<Upload> Uploader::start(const Checkpoint& checkpoint,
                               std::span<const std::string_view> names) {
  std::vector<TensorView> views;
  views.reserve(names.size());
  for (const std::string_view name : names) {
    TRY_ASSIGN(const NamedTensor tensor, checkpoint.get(name));
    views.push_back(tensor.view);
  }
  return start(checkpoint, views);
}

}  // namespace weightmap::cuda
