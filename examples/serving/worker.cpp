#include "examples/serving/worker.hpp"

#include <httplib.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "examples/serving/answers.hpp"
#include "examples/serving/signals.hpp"

namespace serving {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds between_looks{200};  // at the file, the parent and the reasons to end
constexpr int seconds_to_read = 5;          // for a client to send its request
constexpr std::size_t threads = 4;
constexpr std::size_t request_bytes_max = 4096;

// httplib opens its socket itself, and its stop() shuts it down. This one takes a socket that the
// parent opened and leaves it as it is for the next worker.
class Server : public httplib::Server {
 public:
  explicit Server(int listening) {
    svr_sock_ = listening;
    set_idle_interval(between_looks);
  }
  // Accepts nothing more, and makes listen_after_bind() return when all requests are answered.
  void end() { svr_sock_ = INVALID_SOCKET; }
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
  Server server(listening);
  configure(server);
  add_answers(server, model);
  std::atomic<bool> has_ended = false;
  std::thread watcher([&] {
    watch(parent, model, has_ended);
    server.end();
  });
  const bool ended_well = server.listen_after_bind();
  has_ended = true;
  watcher.join();
  return ended_well ? 0 : 1;
}

}  // namespace serving
