#include "examples/serving/worker.hpp"

#include <httplib.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "examples/serving/answers.hpp"
#include "examples/serving/signals.hpp"

namespace serving {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds between_looks{200};  // at the file and the parent
constexpr int seconds_to_read = 5;          // for a client to send its request
constexpr std::size_t threads = 4;
constexpr std::size_t request_bytes_max = 4096;

// httplib opens its socket itself; this one takes a socket that the parent opened.
class Server : public httplib::Server {
 public:
  explicit Server(int listening) { svr_sock_ = listening; }
};

void configure(Server& server) {
  server.new_task_queue = [] { return new httplib::ThreadPool(threads); };
  server.set_read_timeout(seconds_to_read);
  // A client that keeps a connection open would keep a thread.
  server.set_keep_alive_max_count(1);
  server.set_payload_max_length(request_bytes_max);
}

// Waits for signals and looks at the file, until there is a reason to end.
void watch(int parent, ServedModel& model, const std::atomic<bool>& has_ended) {
  while (!has_ended && getppid() == parent) {
    const int signal = wait_for_signal(between_looks);
    if (signal == SIGTERM) return;
    if (signal == SIGHUP)
      model.retry();
    else
      model.follow();
  }
}

}  // namespace

int work(int listening, int parent, ServedModel& model) {
  // The worker that was here before has shut the socket down, if it ended in good order.
  if (listen(listening, SOMAXCONN) != 0) return 1;
  Server server(listening);
  configure(server);
  add_answers(server, model);
  std::atomic<bool> has_ended = false;
  std::thread watcher([&] {
    watch(parent, model, has_ended);
    while (!has_ended && !server.is_running()) std::this_thread::yield();
    server.stop();
  });
  const bool ended_well = server.listen_after_bind();
  has_ended = true;
  watcher.join();
  return ended_well ? 0 : 1;
}

}  // namespace serving
