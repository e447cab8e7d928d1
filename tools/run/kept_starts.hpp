// Keeps in the page cache what the starts use that load certain weights.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace weightmap::cli::start {

// A thread that reads, every `interval`, the plans in the folder of plans that were made of starts
// with the given weights; of what is cached, a sample (start_reader.hpp). What is wrong with a plan
// is ignored.
class KeptStarts {
 public:
  explicit KeptStarts(std::chrono::milliseconds interval);
  ~KeptStarts();
  KeptStarts(const KeptStarts&) = delete;
  KeptStarts& operator=(const KeptStarts&) = delete;

  // The files or folders of weights, from the next look on.
  void keep(const std::vector<std::filesystem::path>& weights);

 private:
  void run();
  void read() const;

  const std::chrono::milliseconds interval_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> weights_;  // their keys; protected by the mutex
  std::atomic<bool> stopped_{false};
  std::thread thread_;
};

}  // namespace weightmap::cli::start
