// A small file with the experts of one layer, and sets of them.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mmap/pages/page_cache.hpp"
#include "runtime/system/file/file.hpp"
#include "tests/support/checkpoints.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temporary_file.hpp"
#include "tests/support/texts.hpp"
#include "weightmap/checkpoint.hpp"
#include "weightmap/on_demand.hpp"

namespace weightmap::test {

constexpr std::size_t gate_bytes = 30'000, down_bytes = 9'000;
constexpr std::size_t expert_count = 16;
// Both parts begin at a page, or are moved to a multiple of 64.
constexpr std::uint64_t slot_bytes = 10 * std::uint64_t{4096};

inline std::string filled(char kind, std::size_t expert, std::size_t count) {
  std::string text = kind + std::to_string(expert) + ".";
  while (text.size() < count) text += text.substr(0, count - text.size());
  return text;
}

// Fused tensors of one layer: [16, 30000] and [16, 9000] bytes.
inline std::string fused_file() {
  std::string gates, downs;
  for (std::size_t expert = 0; expert < expert_count; ++expert) {
    gates += filled('g', expert, gate_bytes);
    downs += filled('d', expert, down_bytes);
  }
  const std::string end = std::to_string(gates.size() + downs.size());
  return framed(R"({"layers.0.experts.gate":{"dtype":"U8","shape":[16,30000],)"
                R"("data_offsets":[0,480000]},)"
                R"("layers.0.experts.down":{"dtype":"U8","shape":[16,9000],)"
                R"("data_offsets":[480000,)" +
                    end + "]}}",
                gates + downs);
}

inline void evict_file(const std::filesystem::path& path) {
  const os::File file = os::File::open(path, false).value();
  ::fdatasync(file.descriptor());
  REQUIRE_OK(mmap::evict(file));
}

struct Experts {
  TemporaryFolder folder;
  std::filesystem::path path = folder.write("model.safetensors", fused_file());
  Checkpoint checkpoint = opened(path);

  // The file is not cached, so that each unit has to be read.
  ResidentSet cold_set(const ResidentOptions& options) const {
    evict_file(path);
    Result<ResidentSet> set =
        ResidentSet::of(checkpoint, expert_units(checkpoint).value(), options);
    REQUIRE_OK(set);
    return std::move(*set);
  }
};

inline std::vector<Lease> leases_of(const ResidentSet& set, const std::vector<std::size_t>& units) {
  Result<std::vector<Lease>> leases = set.acquire(units);
  REQUIRE_OK(leases);
  return std::move(*leases);
}

// By name the down slice comes first.
inline bool is_right(const Lease& lease) {
  return text_of(lease.part(0)) == filled('d', lease.unit(), down_bytes) &&
         text_of(lease.part(1)) == filled('g', lease.unit(), gate_bytes);
}

// A child that waits for go() before it works: it is forked while this process has one thread, as
// another one could have the lock of a sanitizer's heap, which a child would wait for without end.
class WaitingChild {
 public:
  explicit WaitingChild(const std::function<bool()>& work) {
    REQUIRE(::pipe(go_.data()) == 0);
    process_ = ::fork();
    if (process_ != 0) return;
    char byte = 0;
    const bool is_told = ::read(go_[0], &byte, 1) == 1;
    ::_exit(is_told && work() ? 0 : 1);
  }
  WaitingChild(const WaitingChild&) = delete;
  WaitingChild& operator=(const WaitingChild&) = delete;
  ~WaitingChild() {
    ::close(go_[0]);
    ::close(go_[1]);
  }
  void go() const { REQUIRE(::write(go_[1], "g", 1) == 1); }
  void kill() const { ::kill(process_, SIGKILL); }
  // When it has ended.
  int status() const {
    int status = -1;
    ::waitpid(process_, &status, 0);
    return status;
  }

 private:
  std::array<int, 2> go_{};
  pid_t process_ = -1;
};

}  // namespace weightmap::test
