// The ways to have the experts of a file in memory when they are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weightmap/checkpoint.hpp"
#include "weightmap/on_demand.hpp"

// Where the experts of a file lie: the parts of each are side by side, as 64-bit words.
struct ExpertFile {
  struct Range {
    std::uint64_t offset, bytes;
  };
  std::string path;
  int file, direct;  // descriptors, the latter with O_DIRECT; -1 if the file system has none
  std::uint64_t bytes;
  std::vector<weightmap::Unit> units;
  std::vector<Range> ranges;  // of the units
};

// Ends the program, with a message, if there are no such experts.
ExpertFile expert_file(const weightmap::Checkpoint& checkpoint, const std::string& path);

// The rate of the disk, in bytes a second: experts that lie all over the file, of about so many
// bytes, are read past the page cache as a ResidentSet reads. 0 if the file system has no such
// reads.
double disk_rate(const ExpertFile& experts, std::uint64_t bytes);

class ExpertWay {
 public:
  virtual ~ExpertWay() = default;
  // What is done before these are used: it is waited for.
  virtual void bring(std::span<const std::size_t> units) = 0;
  // "Computes" with one of them: returns the sum of its 64-bit words.
  virtual std::uint64_t use(std::size_t unit) = 0;
  virtual void end_use() {}
  virtual std::uint64_t missed_bytes() { return 0; }  // of its policy, if it has one
  // The set, of the way that has one.
  virtual const weightmap::ResidentSet* set() const { return nullptr; }
};

struct WayOptions {
  std::uint64_t budget = 0;  // bytes for experts; 0, for weightmap alone: what there is
  std::string share;         // of weightmap
};

// Ends the program, with a message, for a way that there is not.
std::unique_ptr<ExpertWay> expert_way(const std::string& name,
                                      const weightmap::Checkpoint& checkpoint,
                                      const ExpertFile& experts, const WayOptions& options);
