#include "tools/run/kept_starts.hpp"

#include <algorithm>
#include <system_error>

#include "tools/run/plan_store.hpp"
#include "tools/run/start_reader.hpp"

namespace weightmap::cli::start {

KeptStarts::KeptStarts(std::chrono::milliseconds interval) : interval_(interval) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // no thread: nothing is kept
  }
}

KeptStarts::~KeptStarts() {
  {
    const std::lock_guard guard(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void KeptStarts::keep(const std::vector<std::filesystem::path>& weights) {
  std::set<std::string> keys;
  for (const std::filesystem::path& path : weights) keys.insert(weights_key(path));
  const std::lock_guard guard(mutex_);
  weights_ = std::move(keys);
}

void KeptStarts::run() {
  while (!stopped_) {
    read();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, interval_, [this] { return stopped_.load(); });
  }
}

void KeptStarts::read() const {
  std::set<std::string> weights;
  {
    const std::lock_guard guard(mutex_);
    weights = weights_;
  }
  if (weights.empty()) return;
  for (const StartPlan& plan : all_plans()) {
    const bool is_of_these =
        std::any_of(plan.weights.begin(), plan.weights.end(),
                    [&weights](const std::string& key) { return weights.contains(key); });
    if (is_of_these) read_start(plan, stopped_);
  }
}

}  // namespace weightmap::cli::start
