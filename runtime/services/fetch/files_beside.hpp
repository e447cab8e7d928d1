// What lies beside the index of a model's shards, so that the folder can be served.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "runtime/services/fetch/whole_file.hpp"
#include "weightmap/fetch.hpp"
#include "weightmap/result.hpp"

namespace weightmap {

// By its name: config.json, the tokenizer's files and the like, which are no checkpoints.
bool lies_beside_models(const RangeSource& source);

class FilesBeside {
 public:
  static bool has_name(std::string_view name) noexcept;  // of one of them
  // Brings those that the store has of config.json, the tokenizer's files and the like, as parts in
  // the folder. With SHA-256s only those that have one. Errors name the file.
  Result<void> bring(const RangeSource& lead, const std::filesystem::path& folder,
                     const FetchOptions& options);
  const std::vector<FetchReport>& reports() const noexcept { return reports_; }
  // Gives them their names.
  Result<void> publish();

 private:
  std::vector<std::unique_ptr<WholeFetch>> files_;
  std::vector<FetchReport> reports_;
};

}  // namespace weightmap
