// Lists the globals of pickles that lie one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/pickle/scan.hpp"
#include "runtime/services/inspect/list_globals.hpp"
#include "weightmap/options.hpp"

namespace weightmap {

// True for the mark of protocols 2 to 5. Those before have none.
bool begins_as_pickle(std::span<const std::byte> bytes) noexcept;
// True unless the bytes, the first ones of `size`, tell that they are no pickle of any protocol.
bool may_be_pickle(std::span<const std::byte> bytes, std::uint64_t size);

class PickleCollector {
 public:
  PickleCollector(const OpenOptions& options, FileGlobals& into) : options_(options), into_(into) {}

  struct Added {
    std::uint64_t length = 0;  // of the pickles
    std::uint64_t needs = 0;   // so many bytes could reveal more; 0 if none do
    // The first one is a pickle, if that was not known. Any data may begin like one, but does not
    // end like one by chance, nor name what only attacks need, nor call what it names.
    bool is_believable = false;
  };
  // Adds all consecutive pickles. `record` is their name, `file_offset` the place of `bytes`.
  Added add(const std::string& record, std::span<const std::byte> bytes, std::uint64_t file_offset,
            bool is_torchscript);
  void set_hidden(std::size_t from) {
    for (std::size_t i = from; i < into_.pickles.size(); ++i) into_.pickles[i].is_hidden = true;
  }

 private:
  pickle::Scan add_one(const std::string& record, std::span<const std::byte> bytes,
                       std::uint64_t file_offset, bool is_torchscript);
  GlobalVerdict judge(const pickle::ScannedGlobal& global, bool is_torchscript) const;

  const OpenOptions& options_;
  FileGlobals& into_;
  // Each copies all that is left. What names joblib's arrays is unsafe, however many more there
  // are.
  int array_parses_left_ = 16;
};

}  // namespace weightmap
