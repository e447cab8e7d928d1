// Lists the globals of pickles that lie one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/pickle/scan.hpp"
#include "weightmap/globals.hpp"
#include "weightmap/options.hpp"

namespace weightmap {

bool begins_as_pickle(std::span<const std::byte> bytes) noexcept;

// True if bytes that are not known to be a pickle are one. Any data may begin like a pickle, but it
// does not end like one by chance, nor name globals that only attacks need.
bool is_believable(const PickleGlobals& pickle) noexcept;

class PickleCollector {
 public:
  PickleCollector(const OpenOptions& options, FileGlobals& into) : options_(options), into_(into) {}

  // Adds all consecutive pickles. `record` is their name, `file_offset` the place of `bytes`.
  // Returns true if more bytes could reveal more.
  bool add(const std::string& record, std::span<const std::byte> bytes, std::uint64_t file_offset,
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
};

}  // namespace weightmap
