// Reads a guarded checkpoint by eight threads while another process cuts, overwrites, replaces or
// removes the file at random moments. No round may end the process, and no pass over the tensors
// may see other bytes than those that were opened unless state() says so afterwards.
//
//   loss_rounds CHECKPOINT ROUNDS [SEED]
//
// Works in a folder beside CHECKPOINT. Prints what happened; exits with 1 at the first unreported
// wrong byte, and as the system says if it is ended by a signal.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "weightmap/backing.hpp"
#include "weightmap/checkpoint.hpp"

namespace {

namespace fs = std::filesystem;
using namespace weightmap;

constexpr int readers = 8;

enum class Deed : unsigned char { cut_all, cut_some, cut_and_extend, overwrite, replace, remove };
constexpr std::array deeds = {Deed::cut_all,   Deed::cut_some, Deed::cut_and_extend,
                              Deed::overwrite, Deed::replace,  Deed::remove};
constexpr std::array<const char*, deeds.size()> names = {
    "cut to nothing", "truncated", "cut and extended", "overwritten", "replaced", "removed"};

struct Paths {
  fs::path original;
  fs::path folder;
  fs::path model = folder / "model.pt";
  fs::path next = folder / "next.pt";
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "loss_rounds: %s\n", why.c_str());
  std::_Exit(1);
}

// Old enough for any clock to tell a write from it.
void write_fresh(const Paths& paths, const fs::path& path) {
  fs::copy_file(paths.original, path, fs::copy_options::overwrite_existing);
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::seconds(10));
}

// --- The other process
// -----------------------------------------------------------------------------

void overwrite(const fs::path& path, std::mt19937_64& random) {
  const auto size = static_cast<off_t>(fs::file_size(path));
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const std::vector<char> noise(1 << 16, static_cast<char>(0x5A));
  for (int i = 0; i < 16; ++i) {
    const auto at = static_cast<off_t>(random() % static_cast<std::uint64_t>(size));
    if (::pwrite(file, noise.data(), std::min<std::size_t>(noise.size(), std::size_t(size - at)),
                 at) < 0)
      give_up("cannot overwrite the file");
  }
  ::close(file);
}

void do_it(Deed deed, const Paths& paths, std::mt19937_64& random) {
  const std::uintmax_t size = fs::file_size(paths.model);
  switch (deed) {
    case Deed::cut_all:
      return fs::resize_file(paths.model, 0);
    case Deed::cut_some:
      return fs::resize_file(paths.model, random() % size);
    case Deed::cut_and_extend:
      fs::resize_file(paths.model, random() % size);
      return fs::resize_file(paths.model, size);
    case Deed::overwrite:
      return overwrite(paths.model, random);
    case Deed::replace:
      return fs::rename(paths.next, paths.model);
    case Deed::remove:
      fs::remove(paths.model);
  }
}

// Does what it is told to, some time later, and says when it is done.
void spoil(int orders, int answers, const Paths& paths, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Deed deed{};
  while (::read(orders, &deed, 1) == 1) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    do_it(deed, paths, random);
    if (::write(answers, &deed, 1) != 1) return;
  }
}

// --- The readers
// -------------------------------------------------------------------------------------

struct Counts {
  std::atomic<std::uint64_t> passes{0};
  std::atomic<std::uint64_t> wrong_passes{0};  // all of them reported
  std::atomic<std::uint64_t> failed_copies{0};
  std::array<std::atomic<std::uint64_t>, 4> states{};  // that rounds ended with
};

struct Round {
  const Checkpoint& checkpoint;
  const Checkpoint& reference;
  Counts& counts;
  std::atomic<bool> spoiled{false};
};

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// Whether all tensors had the right bytes. A copy that succeeds must.
bool read_all(const Round& round, bool by_copy) {
  bool right = true;
  std::vector<std::byte> copy;
  for (std::size_t i = 0; i < round.reference.tensors().size(); ++i) {
    const TensorView view = round.checkpoint.tensors()[i].view;
    const std::span<const std::byte> wanted = round.reference.tensors()[i].view.bytes();
    if (!by_copy) {
      right = same(view.bytes(), wanted) && right;
      continue;
    }
    copy.resize(view.bytes().size());
    if (!Backing(round.checkpoint).copy_bytes(view, copy))
      ++round.counts.failed_copies;
    else if (!same(copy, wanted))
      give_up("a copy succeeded with wrong bytes");
  }
  return right;
}

// Until it is told of a loss, or has seen the file once more after all was done to it.
void read_on(Round& round, bool by_copy) {
  for (;;) {
    const bool is_last = round.spoiled;
    const bool right = read_all(round, by_copy);
    const CheckpointState state = round.checkpoint.state();
    const bool reported = state == CheckpointState::lost || state == CheckpointState::modified;
    ++round.counts.passes;
    if (!right && !reported)
      give_up("a pass saw wrong bytes, and the state is " + std::string(to_string(state)));
    if (!right) ++round.counts.wrong_passes;
    if (reported || is_last) return;
  }
}

void check_end(const Checkpoint& checkpoint, Deed deed, Counts& counts) {
  const CheckpointState state = checkpoint.state();
  ++counts.states[static_cast<std::size_t>(state)];
  const bool is_whole = deed == Deed::replace || deed == Deed::remove;
  const bool reported = state == CheckpointState::lost || state == CheckpointState::modified;
  if (is_whole ? state != CheckpointState::replaced : !reported)
    give_up(std::string("the file was ") + names[static_cast<std::size_t>(deed)] +
            ", and the state is " + std::string(to_string(state)));
}

class Spoiler {
 public:
  Spoiler(const Paths& paths, std::uint64_t seed) {
    int orders[2];
    int answers[2];
    if (::pipe2(orders, O_CLOEXEC) != 0 || ::pipe2(answers, O_CLOEXEC) != 0)
      give_up("cannot make a pipe");
    child_ = ::fork();
    if (child_ == 0) {
      ::close(orders[1]);
      spoil(orders[0], answers[1], paths, seed);
      ::_exit(0);
    }
    orders_ = orders[1];
    answers_ = answers[0];
    ::close(orders[0]);
    ::close(answers[1]);
  }
  Spoiler(const Spoiler&) = delete;
  Spoiler& operator=(const Spoiler&) = delete;
  ~Spoiler() {
    ::close(orders_);
    ::close(answers_);
    ::waitpid(child_, nullptr, 0);
  }
  void begin(Deed deed) const {
    if (::write(orders_, &deed, 1) != 1) give_up("the other process is gone");
  }
  void wait() const {
    Deed done{};
    if (::read(answers_, &done, 1) != 1) give_up("the other process is gone");
  }

 private:
  pid_t child_ = -1;
  int orders_ = -1;
  int answers_ = -1;
};

void run_round(const Paths& paths, const Checkpoint& reference, const Spoiler& spoiler, Deed deed,
               Counts& counts) {
  write_fresh(paths, paths.model);
  write_fresh(paths, paths.next);
  OpenOptions options;
  options.protection = Protection::guard;
  const Result<Checkpoint> checkpoint = Checkpoint::open(paths.model, options);
  if (!checkpoint) give_up(to_string(checkpoint.error()));
  Round round{*checkpoint, reference, counts};
  std::vector<std::thread> threads;
  for (int i = 0; i < readers; ++i) threads.emplace_back([&round, i] { read_on(round, i == 0); });
  spoiler.begin(deed);
  spoiler.wait();
  round.spoiled = true;
  for (std::thread& thread : threads) thread.join();
  check_end(*checkpoint, deed, counts);
}

void report(std::uint64_t rounds, const Counts& counts) {
  const auto count = [](const std::atomic<std::uint64_t>& number) {
    return static_cast<unsigned long long>(number.load());
  };
  std::printf("%llu rounds, %d threads, 0 deaths, 0 wrong passes unreported\n",
              static_cast<unsigned long long>(rounds), readers);
  std::printf("%llu passes, %llu with wrong bytes, %llu copies refused\n", count(counts.passes),
              count(counts.wrong_passes), count(counts.failed_copies));
  for (std::size_t i = 0; i < counts.states.size(); ++i)
    std::printf("%llu rounds ended %s\n", count(counts.states[i]),
                std::string(to_string(static_cast<CheckpointState>(i))).c_str());
}

int run(const fs::path& original, std::uint64_t rounds, std::uint64_t seed) {
  const Paths paths{original, original.string() + ".loss." + std::to_string(::getpid())};
  fs::create_directory(paths.folder);
  const Result<Checkpoint> reference = Checkpoint::open(original);
  if (!reference) give_up(to_string(reference.error()));
  std::mt19937_64 random(seed);
  Counts counts;
  {
    const Spoiler spoiler(paths, seed + 1);
    for (std::uint64_t i = 0; i < rounds; ++i)
      run_round(paths, *reference, spoiler, deeds[random() % deeds.size()], counts);
  }
  fs::remove_all(paths.folder);
  report(rounds, counts);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: loss_rounds CHECKPOINT ROUNDS [SEED]\n");
    return 2;
  }
  const std::uint64_t seed = argc == 4 ? std::strtoull(argv[3], nullptr, 10) : 1;
  return run(argv[1], std::strtoull(argv[2], nullptr, 10), seed);
}
