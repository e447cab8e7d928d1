// A remote file in shared memory: /dev/shm/NAME.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/hold/copies.hpp"
#include "tools/hold/shared_names.hpp"
#include "tools/hold/wanted_digests.hpp"

namespace weightmap::cli::hold {

// Versions are "FILE@TAG.SOURCE", as SharedNames has them.
class FileCopies final : public Copies {
 public:
  // `file`: the URL's file name; `identity`: what the URL names, without its secrets. Fails if NAME
  // cannot be used.
  static Result<std::unique_ptr<Copies>> at(const std::string& name, const std::string& file,
                                            const std::string& identity, WantedDigests wanted);

  std::filesystem::path path() const override { return names_.path(); }
  std::string published() const override;
  std::string shown(const std::string& version) const override;
  Result<void> ask(const std::string& url, const OpenSource& open) const override;
  Round round(const std::string& url, const OpenSource& open, const std::string& published,
              const std::string& refused) override;
  void remove() override { names_.remove(); }

 private:
  FileCopies(SharedNames names, std::string file, std::string source, WantedDigests wanted)
      : names_(std::move(names)),
        file_(std::move(file)),
        source_(std::move(source)),
        wanted_(std::move(wanted)) {}
  Result<RemoteVersion> version_at(const std::string& url, const OpenSource& open) const;
  Result<void> bring(std::unique_ptr<RangeSource> store, const RemoteVersion& version,
                     Round& round);
  Result<void> take_over(RangeSource& store, const std::filesystem::path& copy, Round& round) const;

  const SharedNames names_;
  const std::string file_;
  const std::string source_;  // a digest of its identity
  const WantedDigests wanted_;
  std::optional<Staging> unfinished_;  // failed, and has what came until then
};

}  // namespace weightmap::cli::hold
