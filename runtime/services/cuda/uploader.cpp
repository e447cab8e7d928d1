#include <utility>

#include "runtime/base/try.hpp"
#include "runtime/services/cuda/upload_lane.hpp"
#include "runtime/services/cuda/upload_work.hpp"
#include "weightmap/cuda.hpp"

namespace weightmap::cuda {

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
