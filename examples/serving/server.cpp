// Serves the rows of a matrix from several processes that share one mapped copy of a checkpoint.
//
//   server FILE TENSOR [WORKERS [PORT]]     default: 2 workers and a free port
//
//   GET /row?id=N   the values of row N
//   GET /sum        the sum of all values
//   GET /health     the process id, and the state of the file
//
// Prints its address, at the loopback interface. The parent maps the file and forks; a worker that
// dies is replaced by the next fork. Replace the file by rename: workers notice within a fifth of a
// second and exchange one pointer, so requests in progress end on the old version. A new file that
// cannot be served is refused, and the old version stays. If another process truncates the file in
// place, the response is an error of status 503, not a dead process. SIGTERM ends the server after
// the requests in progress.
#include <httplib.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "weightmap/checkpoint.hpp"

namespace {

using weightmap::Checkpoint;
using weightmap::Result;

// --- the model, and following its file ---

// One version of the file. Immutable, so threads may share it.
struct Model {
  Checkpoint checkpoint;
  std::span<const float> values;  // borrowed from checkpoint
  std::size_t columns = 0;

  static Result<std::shared_ptr<const Model>> open(const std::string& file,
                                                   const std::string& tensor) {
    weightmap::OpenOptions options;
    options.protection = weightmap::Protection::guard;
    Result<Checkpoint> checkpoint = Checkpoint::open(file, options);
    if (!checkpoint) return tl::unexpected<weightmap::Error>(checkpoint.error());
    const auto found = checkpoint->get(tensor);
    if (!found) return tl::unexpected<weightmap::Error>(found.error());
    const auto values = found->view.as<float>();
    if (!values) return tl::unexpected<weightmap::Error>(values.error());
    if (found->view.rank() != 2 || values->empty())
      return weightmap::failure(weightmap::ErrorCode::invalid_argument,
                                file + ": " + tensor + " is not a matrix with rows in it");
    const auto columns = static_cast<std::size_t>(found->view.shape()[1]);
    return std::make_shared<const Model>(Model{std::move(*checkpoint), *values, columns});
  }

  // True if the bytes read from it are those of the opened file.
  bool is_whole() const {
    const weightmap::CheckpointState state = checkpoint.state();
    return state != weightmap::CheckpointState::lost &&
           state != weightmap::CheckpointState::modified;
  }
};

class ServedModel {
 public:
  ServedModel(std::string file, std::string tensor, std::shared_ptr<const Model> model)
      : file_(std::move(file)), tensor_(std::move(tensor)), model_(std::move(model)) {}

  // A request keeps its model until it is answered.
  std::shared_ptr<const Model> get() const {
    const std::lock_guard lock(mutex_);
    return model_;
  }

  // Opens the file again if it was replaced or lost. Only one thread may call it.
  void follow() {
    const std::shared_ptr<const Model> now = get();
    if (now->checkpoint.is_current() && now->is_whole()) return;
    Result<std::shared_ptr<const Model>> next = Model::open(file_, tensor_);
    if (!next) return;
    // The old version is unmapped after the lock, or by the last request that holds it.
    const std::lock_guard lock(mutex_);
    model_.swap(*next);
  }

 private:
  std::string file_, tensor_;
  mutable std::mutex mutex_;  // protects model_
  std::shared_ptr<const Model> model_;
};

// --- answers ---

std::string json(double value) {
  if (!std::isfinite(value)) return "null";  // JSON has no such number
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

std::optional<std::size_t> row_of(const httplib::Request& request, const Model& model) {
  const std::string text = request.get_param_value("id");
  std::size_t row = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), row);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || row >= model.values.size() / model.columns) return std::nullopt;
  return row;
}

void send(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", "application/json");
}

void answer_row(const httplib::Request& request, httplib::Response& response, const Model& model) {
  const std::optional<std::size_t> row = row_of(request, model);
  if (!row) return send(response, 400, R"({"error": "id is not the number of a row"})");
  std::string values;
  for (const float value : model.values.subspan(*row * model.columns, model.columns))
    values += (values.empty() ? "" : ", ") + json(value);
  send(response, 200, "{\"id\": " + std::to_string(*row) + ", \"values\": [" + values + "]}");
}

void answer_sum(const httplib::Request&, httplib::Response& response, const Model& model) {
  const double sum = std::accumulate(model.values.begin(), model.values.end(), 0.0);
  send(response, 200, "{\"sum\": " + json(sum) + "}");
}

void answer_health(httplib::Response& response, const Model& model) {
  const auto word = [](bool value) { return value ? "true" : "false"; };
  send(response, 200,
       std::string("{\"ok\": ") + word(model.is_whole()) + ", \"current\": " +
           word(model.checkpoint.is_current()) + ", \"pid\": " + std::to_string(getpid()) + "}");
}

void add_answers(httplib::Server& server, const ServedModel& served) {
  using Answer = void(const httplib::Request&, httplib::Response&, const Model&);
  const auto add = [&](const char* path, Answer* answer) {
    server.Get(path, [&served, answer](const auto& request, auto& response) {
      const auto model = served.get();
      answer(request, response, *model);
      // The response may stem from lost bytes.
      if (!model->is_whole())
        send(response, 503, R"({"error": "the file was truncated or written to in place"})");
    });
  };
  add("/row", answer_row);
  add("/sum", answer_sum);
  server.Get("/health",
             [&served](const auto&, auto& response) { answer_health(response, *served.get()); });
  server.set_default_headers({{"Worker", std::to_string(getpid())}});
}

// --- processes ---

constexpr std::chrono::milliseconds between_looks{200};  // checks of the file and of the parent

// Waits for SIGTERM, SIGINT and SIGCHLD, which are blocked in every thread. Returns 0 if none came.
int wait_for_signal(std::chrono::nanoseconds time) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const timespec longest{0, static_cast<long>(time.count())};
  return std::max(sigtimedwait(&signals, nullptr, &longest), 0);
}

// Listens at a port that all workers share. The parent keeps the socket open, so the connections
// that a dead worker had not accepted wait for the next one.
class Server : public httplib::Server {
 public:
  Server() {
    set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    });
    set_tcp_nodelay(true);
    set_idle_interval(between_looks);
    set_keep_alive_max_count(1);  // a client that keeps a connection open would block a thread
    set_read_timeout(std::chrono::seconds(5));
    new_task_queue = [] { return new httplib::ThreadPool(4); };
  }
  // Stops accepting, and makes listen_after_bind() return once all requests are answered. stop()
  // would shut down the socket, which the next worker needs.
  void end() { svr_sock_ = INVALID_SOCKET; }
};

int work(Server& server, ServedModel& served, pid_t parent) {
  add_answers(server, served);
  std::thread watcher([&] {
    while (getppid() == parent && wait_for_signal(between_looks) != SIGTERM) served.follow();
    server.end();
  });
  const bool ended_well = server.listen_after_bind();
  watcher.join();
  return ended_well ? 0 : 1;
}

// Runs until SIGTERM or SIGINT. Also follows the file, so that new workers begin with the newest.
void supervise(std::vector<Server>& servers, ServedModel& served) {
  const pid_t parent = getpid();
  std::vector<pid_t> workers(servers.size(), 0);
  int signal = 0;
  while (signal != SIGTERM && signal != SIGINT) {
    for (std::size_t i = 0; i < workers.size(); ++i) {
      if (workers[i] != 0 && waitpid(workers[i], nullptr, WNOHANG) == 0) continue;
      workers[i] = fork();
      if (workers[i] == 0) _exit(work(servers[i], served, parent));
      if (workers[i] < 0) workers[i] = 0;  // retried after the next check
    }
    signal = wait_for_signal(between_looks);
    served.follow();
  }
  for (const pid_t worker : workers)
    if (worker != 0) kill(worker, SIGTERM);
  for (const pid_t worker : workers)
    if (worker != 0) waitpid(worker, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) return 2;
  auto model = Model::open(argv[1], argv[2]);
  if (!model) return std::fprintf(stderr, "server: %s\n", to_string(model.error()).c_str()), 1;
  ServedModel served(argv[1], argv[2], std::move(*model));

  std::vector<Server> servers(argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 2);
  int port = argc > 4 ? std::atoi(argv[4]) : 0;
  for (Server& server : servers) {
    if (port == 0)
      port = server.bind_to_any_port("127.0.0.1");
    else if (!server.bind_to_port("127.0.0.1", port))
      port = -1;
    if (port <= 0) return std::fprintf(stderr, "server: the port cannot be had\n"), 1;
  }
  wait_for_signal({});  // from here on no signal is lost
  std::printf("http://127.0.0.1:%d\n", port);
  std::fflush(stdout);
  supervise(servers, served);
}
