#include "tools/snapshot/children.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tools/run/program.hpp"
#include "tools/snapshot/criu.hpp"
#include "tools/snapshot/meeting_point.hpp"
#include "tools/snapshot/namespaces.hpp"

namespace weightmap::cli::snapshot {
namespace {

namespace fs = std::filesystem;

// Where criu finds the pipes of a restored command.
constexpr int first_output = 100;
constexpr int not_unpacked = 1;

template <class Work>
pid_t fork_with(const Work& work) {
  const pid_t made = ::fork();
  if (made == 0) ::_exit(work());
  return made;
}

// x86 alone has the call arch_prctl(); elsewhere the number is that of no call.
#ifdef SYS_arch_prctl
constexpr unsigned processor_call = SYS_arch_prctl;
#else
constexpr unsigned processor_call = ~0U;
#endif
constexpr unsigned more_state = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h

// Has calls fail in this process and its descendants, by a seccomp filter, which an image keeps:
// - io_uring_setup() with ENOSYS, since criu cannot dump its rings. Libraries that use it where it
//   is there (libuv, and so uvloop) then use other calls;
// - arch_prctl(ARCH_REQ_XCOMP_PERM) with EOPNOTSUPP, by which oneDNN and MKL ask for the registers
//   of AMX. criu neither saves their content nor asks for them again, so a restored process would
//   end by SIGILL at its first product of matrices. Both libraries then use AVX-512.
// Needs CAP_SYS_ADMIN; without it, or without seccomp, nothing changes.
void forbid_calls() noexcept {
  // The call has one number on all architectures (io_uring_setup(2)), so none is asked for.
  constexpr unsigned setup = 425;
  static std::array<sock_filter, 8> program = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, setup, 4, 0),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, processor_call, 0, 2),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, more_state, 2, 0),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP)};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int become_command(const Supervision& what, OutputPipes pipes) {
  ::setsid();
  ::setenv(meeting_variable, what.meeting_point.c_str(), 1);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(pipes.output, STDOUT_FILENO);
  ::dup2(pipes.error_output, STDERR_FILENO);
  start::close_all_above(STDERR_FILENO);  // what else is open lies outside of the image
  ::sigprocmask(SIG_SETMASK, &what.signals, nullptr);
  forbid_calls();
  return start::become(what.command);
}

int become_criu(std::vector<std::string> words, OutputPipes pipes) {
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, each);
  ::dup2(pipes.output, first_output);
  ::dup2(pipes.error_output, first_output + 1);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  return start::become(std::move(words));
}

bool unpack(const fs::path& image) {
  const pid_t tar = fork_with([&image] { return start::become(unpacking_words(image)); });
  int status = 0;
  return ::waitpid(tar, &status, 0) > 0 && status == 0;
}

}  // namespace

pid_t fork_command(const Supervision& what, OutputPipes pipes) {
  return fork_with([&] { return become_command(what, pipes); });
}

pid_t fork_dump(const Supervision& what, const Order& order, pid_t command, OutputPipes pipes,
                const fs::path& script) {
  const fs::path image = order.folder.data();
  return fork_with([&] {
    ::setenv(archive_variable, archive_in(image).c_str(), 1);
    return become_criu(
        dump_words(what.criu, command, image, dump_log(what), script, order.keeps_connections),
        pipes);
  });
}

pid_t fork_restore(const Supervision& what, const Order& order, OutputPipes pipes,
                   const fs::path& script) {
  const fs::path image = order.folder.data();
  return fork_with([&] {
    if (!unpack(image)) return not_unpacked;
    return become_criu(restore_words(what.criu, image, what.meeting_point, script, order.pipes,
                                     first_output, order.keeps_connections),
                       pipes);
  });
}

fs::path dump_log(const Supervision& what) { return what.meeting_point / "dump.log"; }
fs::path restore_log(const Supervision& what) { return what.meeting_point / "restore.log"; }

}  // namespace weightmap::cli::snapshot
