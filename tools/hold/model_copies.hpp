// A remote model in shared memory: /dev/shm/NAME is a symbolic link to the folder of its present
// version, which has all of its files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/hold/copies.hpp"
#include "tools/hold/wanted_digests.hpp"

namespace weightmap::cli::hold {

// Versions are those of fetch_model().
class ModelCopies final : public Copies {
 public:
  // Fails with invalid_argument if NAME cannot be used.
  static Result<std::unique_ptr<Copies>> at(const std::string& name, WantedDigests wanted);

  std::filesystem::path path() const override { return link_; }
  std::string published() const override;
  std::string shown(const std::string& version) const override { return version; }
  Result<void> ask(const std::string& url, const OpenSource& open) const override;
  Round round(const std::string& url, const OpenSource& open, const std::string& published,
              const std::string& refused) override;
  void remove() override;

 private:
  ModelCopies(std::filesystem::path link, WantedDigests wanted)
      : link_(std::move(link)), wanted_(std::move(wanted)) {}
  Result<bool> has_changed(RangeSource& lead) const;
  bool has_more(const Listing& listing) const;
  Result<void> bring(std::unique_ptr<RangeSource> lead, Round& round);

  const std::filesystem::path link_;
  const WantedDigests wanted_;
  std::vector<FetchReport> files_;  // of the version that was fetched last; the one that leads last
};

}  // namespace weightmap::cli::hold
