// A file of file://, read with pread: for mounts, and where a URL is wanted.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "remote/url.hpp"
#include "runtime/system/unique_fd.hpp"
#include "weightmap/remote.hpp"

namespace weightmap::remote {

class FileSource final : public RangeSource {
 public:
  explicit FileSource(Url url);

  const std::string& name() const noexcept override { return name_; }
  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override;
  Result<void> read(RangeReader& reader) override;
  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override;
  RangeCounts counts() const noexcept override { return counts_; }

 private:
  Result<void> read_bytes(std::uint64_t offset, std::span<std::byte> into);
  Result<void> read_range(RangeReader& reader, const RangeRequest& request,
                          std::uint64_t& received);
  Result<void> check_unchanged() const;
  Result<RemoteVersion> version_now() const;
  tl::unexpected<Error> failed(ErrorCode code, std::string message, int os_error = 0) const;

  Url url_;
  std::string name_;
  os::UniqueFd file_;
  RemoteVersion version_;
  RangeCounts counts_;
};

}  // namespace weightmap::remote
