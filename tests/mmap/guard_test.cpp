// Mappings whose file is truncated, and the handler of SIGBUS among those of others.
#include "mmap/guard.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>
#include <vector>

#include "mmap/fault_handler.hpp"
#include "mmap/mapping.hpp"
#include "mmap/page_loader.hpp"
#include "runtime/system/file/file.hpp"
#include "tests/mmap/bus_child.hpp"
#include "tests/support/failures.hpp"
#include "tests/support/temporary_file.hpp"

namespace weightmap::mmap {
namespace {

namespace fs = std::filesystem;
using test::in_child;
using test::TemporaryFolder;

const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

// 16 pages of ones, mapped with the guard.
struct GuardedFile {
  TemporaryFolder folder;
  fs::path path = folder.write("ones", std::string(16 * page, '\1'));
  os::File file = os::File::open(path, false).value();
  Mapping mapping = Mapping::map(file, options()).value();

  static MapOptions options() {
    MapOptions how;
    how.guard = true;
    return how;
  }
  int at(std::size_t offset) const {
    return std::to_integer<int>(*static_cast<const volatile std::byte*>(&mapping.bytes()[offset]));
  }
  std::size_t sum() const {
    std::size_t total = 0;
    for (std::size_t i = 0; i < mapping.bytes().size(); ++i)
      total += static_cast<std::size_t>(at(i));
    return total;
  }
};

// What the handlers of the tests saw, in order.
std::string seen;
siginfo_t seen_info;
sigjmp_buf way_out;

using Handler = void (*)(int, siginfo_t*, void*);

// As another library would: keeps what was there before in `before`.
void install(Handler handler, struct sigaction* before, int flags = SA_SIGINFO) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = flags;
  REQUIRE(::sigaction(SIGBUS, &action, before) == 0);
}

void exit_with_3(int, siginfo_t*, void*) { ::_exit(3); }
void exit_with_4(int) { ::_exit(4); }
void jump_out(int, siginfo_t* info, void*) {
  seen_info = *info;
  siglongjmp(way_out, 1);
}

struct sigaction before_second;
// A library that came later and is polite.
void call_the_one_before(int number, siginfo_t* info, void* context) {
  seen += "second ";
  if ((before_second.sa_flags & SA_SIGINFO) != 0)
    before_second.sa_sigaction(number, info, context);
  else
    ::_exit(5);
}
// As Python's faulthandler: takes itself away, speaks, and raises the signal again.
void raise_again(int number, siginfo_t*, void*) {
  ::sigaction(number, &before_second, nullptr);
  seen += "spoke ";
  ::raise(number);
}

// The same, once two threads are here.
std::atomic<int> inside{0};
void meet_and_raise_again(int number, siginfo_t*, void*) {
  ++inside;
  while (inside < 2) ::sched_yield();
  ::sigaction(number, &before_second, nullptr);
  ::raise(number);
}

// Faults in a mapping that is nobody's.
int touch_foreign_page() {
  char name[] = "/tmp/weightmap-foreign-XXXXXX";
  const int descriptor = ::mkstemp(name);
  ::unlink(name);
  if (::ftruncate(descriptor, static_cast<off_t>(page)) != 0) return 9;
  void* const mapped = ::mmap(nullptr, page, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED || ::ftruncate(descriptor, 0) != 0) return 9;
  return *static_cast<volatile char*>(mapped);
}

// Sends SIGBUS to this thread as the system would.
void send_bus(int code, const void* address) {
  siginfo_t info{};
  info.si_signo = SIGBUS;
  info.si_code = code;
  info.si_addr = const_cast<void*>(address);
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::syscall(SYS_gettid), SIGBUS, &info);
}

int set_action(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  return ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

TEST_CASE_FIXTURE(GuardedFile, "a file that is cut to nothing reads as zeros and is lost") {
  CHECK(at(0) == 1);
  CHECK_FALSE(mapping.lost_at().has_value());
  REQUIRE_OK(mapping.check_not_lost());
  fs::resize_file(path, 0);
  CHECK(at(5 * page + 7) == 0);
  CHECK(mapping.lost_at() == 5 * page + 7);
  CHECK(sum() == 0);
  CHECK(mapping.lost_at() == 5 * page + 7);
  const Result<void> lost = mapping.check_not_lost();
  CHECK_FAILS(lost, ErrorCode::io, "the file was lost under its mapping");
  CHECK(lost.error().file_offset == 5 * page + 7);
}

TEST_CASE_FIXTURE(GuardedFile, "a file that is cut in the middle is lost as a whole, at a touch") {
  fs::resize_file(path, 8 * page);
  CHECK(at(8 * page - 1) == 1);
  CHECK_FALSE(mapping.lost_at().has_value());
  CHECK(at(8 * page) == 0);
  CHECK(mapping.lost_at() == 8 * page);
  CHECK(at(0) == 0);
}

TEST_CASE_FIXTURE(GuardedFile, "a cut within a page raises nothing in that page") {
  fs::resize_file(path, 8 * page + 100);
  CHECK(at(8 * page + 99) == 1);
  CHECK(at(8 * page + 100) == 0);  // which only the time of change tells
  CHECK_FALSE(mapping.lost_at().has_value());
  CHECK(at(9 * page) == 0);
  CHECK(mapping.lost_at() == 9 * page);
}

TEST_CASE_FIXTURE(GuardedFile, "a file that is cut and extended again before a touch is not lost") {
  fs::resize_file(path, 0);
  fs::resize_file(path, 16 * page);
  CHECK(sum() == 0);
  CHECK_FALSE(mapping.lost_at().has_value());
  CHECK_FAILS(file.check_unchanged(), ErrorCode::io, "the file changed");
}

TEST_CASE_FIXTURE(GuardedFile, "what was lost stays lost when the file comes back") {
  fs::resize_file(path, 0);
  CHECK(at(0) == 0);
  folder.write("ones", std::string(16 * page, '\1'));
  CHECK(sum() == 0);
  CHECK(mapping.lost_at() == 0);
}

TEST_CASE_FIXTURE(GuardedFile, "a private writable mapping can be written to after it was lost") {
  MapOptions how = options();
  how.sharing = Sharing::private_;
  how.writable = true;
  const Mapping own = Mapping::map(file, how).value();
  own.writable_bytes()[0] = std::byte{9};
  fs::resize_file(path, 0);
  own.writable_bytes()[page] = std::byte{7};
  CHECK(own.lost_at() == page);
  CHECK(own.bytes()[page] == std::byte{7});
  CHECK(own.bytes()[0] == std::byte{0});
}

TEST_CASE_FIXTURE(GuardedFile, "of two mappings only the one that is touched is lost") {
  const GuardedFile other;
  fs::resize_file(path, 0);
  fs::resize_file(other.path, 0);
  CHECK(at(0) == 0);
  CHECK(mapping.lost_at() == 0);
  CHECK_FALSE(other.mapping.lost_at().has_value());
  CHECK(other.at(page) == 0);
  CHECK(other.mapping.lost_at() == page);
}

TEST_CASE_FIXTURE(GuardedFile, "errno is what it was before the fault") {
  fs::resize_file(path, 0);
  errno = 77;
  CHECK(at(0) == 0);
  CHECK(errno == 77);
}

TEST_CASE_FIXTURE(GuardedFile, "a disk error and bad memory are losses, too") {
  SUBCASE("disk error") { send_bus(BUS_OBJERR, &mapping.bytes()[page]); }
  SUBCASE("bad memory") { send_bus(BUS_MCEERR_AR, &mapping.bytes()[page]); }
  CHECK(mapping.lost_at() == page);
  CHECK(sum() == 0);
}

TEST_CASE_FIXTURE(GuardedFile, "many threads may fault at once") {
  fs::resize_file(path, 0);
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  std::atomic<std::size_t> total{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      ++ready;
      while (ready < 8) std::this_thread::yield();
      total += sum();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(total == 0);
  CHECK(mapping.lost_at().has_value());
}

TEST_CASE("mappings come and go while others are lost") {
  std::atomic<bool> done{false};
  std::thread coming_and_going([&] {
    while (!done) {
      const GuardedFile other;
      CHECK(other.at(0) == 1);
    }
  });
  for (int round = 0; round < 200; ++round) {
    const GuardedFile lost;
    fs::resize_file(lost.path, 0);
    CHECK(lost.sum() == 0);
    CHECK(lost.mapping.lost_at() == 0);
  }
  done = true;
  coming_and_going.join();
}

TEST_CASE_FIXTURE(GuardedFile, "filling a mapping reports a loss") {
  PageLoader loader({file, mapping}, LoadMethod::populate);
  REQUIRE_OK(loader.load(0, 4 * page));
  fs::resize_file(path, 0);
  CHECK(at(0) == 0);
  fs::resize_file(path, 16 * page);  // so that its size says nothing
  CHECK_FAILS(loader.load(0, 4 * page), ErrorCode::io, "the file was lost");
}

TEST_CASE_FIXTURE(GuardedFile, "a mapping that was assigned to is guarded as the one it took") {
  GuardedFile other;
  mapping = std::move(other.mapping);
  fs::resize_file(path, 0);
  fs::resize_file(other.path, page);
  CHECK(at(0) == 1);
  CHECK(at(page) == 0);
  CHECK(mapping.lost_at() == page);
}

TEST_CASE("as many mappings are guarded as there are places, and places come back") {
  TemporaryFolder folder;
  const os::File file = os::File::open(folder.write("one", "1"), false).value();
  std::vector<Mapping> mappings;
  Result<Mapping> one = Mapping::map(file, GuardedFile::options());
  for (; one; one = Mapping::map(file, GuardedFile::options())) mappings.push_back(std::move(*one));
  CHECK(mappings.size() == Guard::capacity);
  CHECK_FAILS(one, ErrorCode::limit_exceeded, "1024 of this process are guarded");
  mappings.pop_back();
  CHECK(Mapping::map(file, GuardedFile::options()).has_value());
}

TEST_CASE("without a guard a file that is cut ends the process") {
  const GuardedFile guarded;
  CHECK(in_child([] {
          set_action(SIG_DFL);  // a sanitizer has a handler of its own
          TemporaryFolder folder;
          const fs::path path = folder.write("ones", std::string(page, '\1'));
          const os::File file = os::File::open(path, false).value();
          const Mapping mapping = Mapping::map(file, {}).value();
          fs::resize_file(path, 0);
          return std::to_integer<int>(mapping.bytes()[0]);
        }) == "signal 7");
}

// --- Other handlers ------------------------------------------------------------------------------

TEST_CASE("a fault that is not ours goes to the handler that was there before") {
  CHECK(in_child([] {
          install(exit_with_3, nullptr);
          const GuardedFile guarded;
          fs::resize_file(guarded.path, 0);
          if (guarded.at(0) != 0 || !guarded.mapping.lost_at()) return 8;
          return touch_foreign_page();
        }) == "exit 3");
}

TEST_CASE("and to one without siginfo") {
  CHECK(in_child([] {
          set_action(exit_with_4);
          const GuardedFile guarded;
          return touch_foreign_page();
        }) == "exit 4");
}

TEST_CASE("a fault that is not ours ends the process if nobody handles it, or ignores it") {
  const auto die_with = [](void (*action)(int)) {
    return in_child([action] {
      set_action(action);
      const GuardedFile guarded;
      return touch_foreign_page();
    });
  };
  CHECK(die_with(SIG_DFL) == "signal 7");
  CHECK(die_with(SIG_IGN) == "signal 7");
}

TEST_CASE("a signal that was sent is ignored, handled or deadly as before") {
  const auto send_with = [](void (*action)(int)) {
    return in_child([action] {
      set_action(action);
      const GuardedFile guarded;
      ::raise(SIGBUS);
      return guarded.at(0) == 1 ? 0 : 1;
    });
  };
  CHECK(send_with(SIG_DFL) == "signal 7");
  CHECK(send_with(SIG_IGN) == "exit 0");
  CHECK(send_with(exit_with_4) == "exit 4");
}

TEST_CASE("a handler that jumps out gets the same siginfo, as often as it likes") {
  CHECK(in_child([] {
          install(jump_out, nullptr, SA_SIGINFO | SA_NODEFER);
          const GuardedFile guarded;
          for (int i = 0; i < 40; ++i) {
            if (sigsetjmp(way_out, 1) == 0) return touch_foreign_page();
            if (seen_info.si_code != BUS_ADRERR || seen_info.si_addr == nullptr) return 2;
          }
          fs::resize_file(guarded.path, 0);
          return guarded.at(0) == 0 && guarded.mapping.lost_at() ? 0 : 1;
        }) == "exit 0");
}

// From further down the stack than its caller, by more than a signal takes.
[[gnu::noinline]] int probe_deeper() {
  volatile char room[64 * 1024];
  room[0] = 0;
  if (sigsetjmp(way_out, 1) == 0) return touch_foreign_page();
  return room[0];
}

int probe_twice() {
  if (sigsetjmp(way_out, 1) == 0) return touch_foreign_page();
  return probe_deeper();
}

TEST_CASE("a handler that jumps out is called again from deeper down, when it was overtaken") {
  CHECK(in_child([] {
          set_action(SIG_DFL);
          const GuardedFile guarded;
          install(jump_out, nullptr, SA_SIGINFO | SA_NODEFER);
          const GuardedFile another;
          int outcome = 1;
          // A thread of its own has no other stack for signals.
          std::thread([&outcome] { outcome = probe_twice(); }).join();
          return outcome;
        }) == "exit 0");
}

TEST_CASE("a signal on the other stack is not taken for one within a handler that jumped out") {
  CHECK(in_child([] {
          install(exit_with_3, nullptr);
          const GuardedFile guarded;
          install(jump_out, nullptr, SA_SIGINFO | SA_NODEFER);
          const GuardedFile another;
          // The thread's stack lies behind the one for signals.
          constexpr std::size_t half = std::size_t{1} << 20;
          std::vector<std::byte> memory(2 * half);
          pthread_attr_t attributes;
          ::pthread_attr_init(&attributes);
          ::pthread_attr_setstack(&attributes, memory.data() + half, half);
          const auto run = [](void* below) -> void* {
            if (sigsetjmp(way_out, 1) == 0) touch_foreign_page();
            stack_t stack{};
            stack.ss_sp = below;
            stack.ss_size = half;
            stack_t before{};  // a sanitizer's own, which it unmaps when the thread ends
            ::sigaltstack(&stack, &before);
            if (sigsetjmp(way_out, 1) == 0) ::raise(SIGBUS);
            ::sigaltstack(&before, nullptr);
            return below;  // both went to the handler that came last
          };
          pthread_t thread;
          void* answer = nullptr;
          if (::pthread_create(&thread, &attributes, run, memory.data()) != 0) return 9;
          ::pthread_join(thread, &answer);
          return answer == memory.data() ? 0 : 1;
        }) == "exit 0");
}

TEST_CASE("the same handler with another mask is another handler") {
  CHECK(in_child([] {
          struct sigaction action {};
          action.sa_handler = [](int) {
            sigset_t blocked;
            ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
            ::_exit(::sigismember(&blocked, SIGUSR1) == 1 ? 3 : 4);
          };
          ::sigaction(SIGBUS, &action, nullptr);
          const GuardedFile guarded;
          ::sigaddset(&action.sa_mask, SIGUSR1);
          ::sigaction(SIGBUS, &action, nullptr);
          const GuardedFile another;
          return touch_foreign_page();
        }) == "exit 3");
}

namespace {

void note_write(const void* context, std::uint64_t position) noexcept {
  seen += static_cast<const char*>(context) + std::to_string(position) + " ";
}

void say_seen(int, siginfo_t* info, void*) {
  ::_exit(seen == "byte 5 " && info->si_code == SEGV_ACCERR ? 3 : 4);
}

// A guard over one page of memory that is only read, and what is told about writes to it.
struct ReadOnlyPage {
  explicit ReadOnlyPage(decltype(RefusedWrite::tell) tell = note_write) : tell_(tell) {}

  decltype(RefusedWrite::tell) tell_;
  void* const memory = ::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Guard guard =
      Guard::against_writes({static_cast<const std::byte*>(memory), page}, {tell_, "byte "})
          .value();
  int write(std::size_t at) const {
    static_cast<volatile char*>(memory)[at] = 1;
    return 0;
  }
};

void handle_segv(Handler handler) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  REQUIRE(::sigaction(SIGSEGV, &action, nullptr) == 0);
}

std::atomic<bool> is_telling{false};
std::atomic<bool> may_go_on{false};
void tell_slowly(const void*, std::uint64_t) noexcept {
  is_telling = true;
  while (!may_go_on) ::sched_yield();
}

}  // namespace

TEST_CASE("a child that was forked while a handler was at work does not wait for it") {
  CHECK(in_child([] {
          handle_segv([](int, siginfo_t* info, void*) {  // lets the writer go on
            const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
            ::mprotect(reinterpret_cast<void*>(address / page * page), page, PROT_WRITE);
          });
          auto guarded = std::make_unique<ReadOnlyPage>(tell_slowly);
          std::thread writer([&] { guarded->write(5); });
          while (!is_telling) ::sched_yield();
          const pid_t child = test::start_child([&] {
            guarded.reset();
            return 3;
          });
          const std::string end = test::end_of(child);
          may_go_on = true;
          writer.join();
          return end == "exit 3" ? 0 : 1;
        }) == "exit 0");
}

TEST_CASE("a write to what is only read is told, and goes to the handler that was there before") {
  CHECK(in_child([] {
          handle_segv(say_seen);
          return ReadOnlyPage().write(5);
        }) == "exit 3");
}

TEST_CASE("a write to what is only read ends the process as if nobody had been told") {
  CHECK(in_child([] {
          ::signal(SIGSEGV, SIG_DFL);
          return ReadOnlyPage().write(5);
        }) == "signal 11");
}

TEST_CASE("a write elsewhere is not told") {
  CHECK(in_child([] {
          handle_segv(say_seen);
          const ReadOnlyPage guarded;
          void* const other = ::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          static_cast<volatile char*>(other)[5] = 1;
          return 0;
        }) == "exit 4");
}

TEST_CASE("a handler that is to be called once is called once") {
  CHECK(in_child([] {
          install([](int, siginfo_t*, void*) { seen += "x"; }, nullptr,
                  static_cast<int>(SA_SIGINFO | SA_RESETHAND));
          const GuardedFile guarded;
          return touch_foreign_page();
        }) == "signal 7");
}

TEST_CASE("a library that comes later and passes signals on changes nothing") {
  CHECK(in_child([] {
          install(exit_with_3, nullptr);
          const GuardedFile guarded;
          install(call_the_one_before, &before_second);
          if (fault_handler_is_first(SIGBUS)) return 7;
          fs::resize_file(guarded.path, 0);
          if (guarded.at(0) != 0 || !guarded.mapping.lost_at() || seen != "second ") return 8;
          return touch_foreign_page();
        }) == "exit 3");
}

TEST_CASE("a library that comes later is overtaken by the next guard, and still gets what is its") {
  CHECK(in_child([] {
          install(exit_with_3, nullptr);
          const GuardedFile guarded;
          install(call_the_one_before, &before_second);
          const GuardedFile another;
          if (!fault_handler_is_first(SIGBUS)) return 7;
          fs::resize_file(guarded.path, 0);
          if (guarded.at(0) != 0 || !guarded.mapping.lost_at() || !seen.empty()) return 8;
          return touch_foreign_page();  // ours, the second, ours again, the first
        }) == "exit 3");
}

TEST_CASE("a handler that raises the signal again is survived, if the file was cut") {
  CHECK(in_child([] {
          const GuardedFile guarded;
          const GuardedFile whole;
          install(raise_again, &before_second, SA_SIGINFO | SA_NODEFER);
          fs::resize_file(guarded.path, 0);
          if (guarded.at(0) != 0 || !guarded.mapping.lost_at() || seen != "spoke ") return 8;
          return whole.at(0) == 1 && !whole.mapping.lost_at() ? 0 : 1;
        }) == "exit 0");
}

TEST_CASE("and by two threads at once, of which one finds the mapping repaired") {
  CHECK(in_child([] {
          const GuardedFile guarded;
          install(meet_and_raise_again, &before_second, SA_SIGINFO | SA_NODEFER);
          fs::resize_file(guarded.path, 0);
          std::thread other([&guarded] { static_cast<void>(guarded.at(page)); });
          const int first = guarded.at(0);
          other.join();
          return first == 0 && inside == 2 && guarded.mapping.lost_at() ? 0 : 1;
        }) == "exit 0");
}

TEST_CASE("a handler that raises the signal again ends the process for a fault that is not ours") {
  CHECK(in_child([] {
          set_action(SIG_DFL);
          const GuardedFile guarded;
          install(raise_again, &before_second, SA_SIGINFO | SA_NODEFER);
          return touch_foreign_page();
        }) == "signal 7");
  CHECK(in_child([] {
          set_action(SIG_DFL);
          const GuardedFile guarded;
          install(raise_again, &before_second, SA_SIGINFO | SA_NODEFER);
          const GuardedFile another;  // in front again
          return touch_foreign_page();
        }) == "signal 7");
}

TEST_CASE("a library that passes nothing on switches the guard off, until the next one") {
  CHECK(in_child([] {
          const GuardedFile guarded;
          if (!fault_handler_is_first(SIGBUS)) return 7;
          set_action(SIG_DFL);
          if (fault_handler_is_first(SIGBUS)) return 8;
          fs::resize_file(guarded.path, 0);
          const GuardedFile another;
          return fault_handler_is_first(SIGBUS) && guarded.at(0) == 0 ? 0 : 1;
        }) == "exit 0");
}

TEST_CASE("the handler is put in front a limited number of times") {
  CHECK(in_child([] {
          const GuardedFile guarded;
          for (int i = 0; i < 40; ++i) {
            set_action(i % 2 == 0 ? SIG_IGN : exit_with_4);
            const Result<Mapping> again = Mapping::map(guarded.file, GuardedFile::options());
            if (again) continue;
            const bool is_right = again.error().code == ErrorCode::limit_exceeded;
            return is_right && i == 15 ? 0 : 1;
          }
          return 2;
        }) == "exit 0");
}

TEST_CASE("a thread with a stack of its own for signals is served on it") {
  std::thread([] {
    std::vector<std::byte> memory(64 * 1024);
    stack_t stack{};
    stack.ss_sp = memory.data();
    stack.ss_size = memory.size();
    REQUIRE(::sigaltstack(&stack, nullptr) == 0);
    const GuardedFile guarded;
    fs::resize_file(guarded.path, 0);
    CHECK(guarded.at(0) == 0);
    CHECK(guarded.mapping.lost_at() == 0);
    stack.ss_flags = SS_DISABLE;
    ::sigaltstack(&stack, nullptr);
  }).join();
}

TEST_CASE("a child of a fork is guarded as its parent") {
  const GuardedFile guarded;
  CHECK(in_child([&] {
          fs::resize_file(guarded.path, 0);
          return guarded.at(0) == 0 && guarded.mapping.lost_at() ? 0 : 1;
        }) == "exit 0");
  CHECK_FALSE(guarded.mapping.lost_at().has_value());
  CHECK(guarded.at(0) == 0);
  CHECK(guarded.mapping.lost_at() == 0);
}

}  // namespace weightmap::mmap
