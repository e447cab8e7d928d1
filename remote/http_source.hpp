// A file of https://, http:// or s3://: RangeSource over RangeRun.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "remote/place.hpp"
#include "remote/range_run.hpp"
#include "remote/s3.hpp"
#include "remote/transfer.hpp"
#include "remote/url.hpp"
#include "weightmap/remote.hpp"

namespace weightmap::remote {

class HttpSource final : public RangeSource, public WholeSource {
 public:
  using Pool = std::shared_ptr<TransferPool>;
  // `given`: the URL as the user has it, for the signer. Fails with invalid_argument for headers
  // that cannot be used, and what the environment lacks.
  static Result<std::unique_ptr<RangeSource>> open(std::string given, Url url,
                                                   const RemoteOptions& options,
                                                   Pool pool = std::make_shared<TransferPool>());
  static Result<std::unique_ptr<RangeSource>> open(std::string given, S3Object object,
                                                   const RemoteOptions& options,
                                                   Pool pool = std::make_shared<TransferPool>());

  const std::string& name() const noexcept override { return name_; }
  std::string identity() const override { return identity_; }
  Result<RemoteVersion> identify(std::span<std::byte> head, std::span<std::byte> tail) override;
  Result<void> read(RangeReader& reader) override;
  Result<std::unique_ptr<RangeSource>> sibling(const std::string& relative) const override;
  RangeCounts counts() const noexcept override { return counts_; }
  bool tells_began() const noexcept override { return true; }
  Result<StoreSum> store_sum() override;
  Result<std::optional<Listing>> list() override;
  bool has_no_ranges() const noexcept override { return has_no_ranges_; }
  Result<void> read_whole(WholeReader& reader) override;

 private:
  using Location = std::variant<Url, S3Object>;
  HttpSource(std::string name, std::string identity, Location location, Place store,
             const RemoteOptions& options, Pool pool);

  struct Ends;
  Result<Pinned> pin(std::span<std::byte> head, std::span<std::byte> tail);
  Result<void> run(RangeFeed& feed, const Pinned* pinned);
  Result<void> read_end(std::span<std::byte> tail, const Pinned& pinned);
  Error named(Error error) const;

  std::string name_;
  std::string identity_;
  Location location_;
  RemoteOptions options_;
  Pool pool_;
  Place store_;
  RangeCounts counts_;
  std::optional<Pinned> pinned_;
  bool has_no_ranges_ = false;
};

}  // namespace weightmap::remote
