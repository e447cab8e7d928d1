// A command in namespaces of its own, seen by the process that started it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "tools/snapshot/supervisor.hpp"
#include "tools/support/descriptor.hpp"
#include "weightmap/result.hpp"

namespace weightmap::cli::snapshot {

// For one thread. From its creation on, signals to this process go to the command.
class SupervisedCommand {
 public:
  // Makes the namespaces. Fails with io where they cannot be made; then nothing has changed. To be
  // called while this process has one thread.
  static Result<SupervisedCommand> create(Supervision what);

  SupervisedCommand(SupervisedCommand&&) noexcept = default;

  // The supervisor's id; the command and its descendants are below it.
  pid_t supervisor() const noexcept { return supervisor_; }

  // Give an order; what comes of it is a report.
  void start();
  // What is restored stands still until go_on(); start() ends it.
  void restore(const std::filesystem::path& image, const Manifest& manifest);
  void go_on();
  // Has the command dumped, and waits for that. Fails if that fails, or if the command has ended.
  Result<Report> dump(const std::filesystem::path& image, const Manifest& manifest);
  // Has a command go on that waits for being dumped.
  void give_up_dump();

  // Waits until the command was started or restored; none if the supervisor has ended.
  std::optional<Report> outcome();
  // Waits for the end of the command. Returns its exit status; ends this process by the signal that
  // ended the command, if one did.
  int wait();

 private:
  SupervisedCommand(Descriptor socket, pid_t supervisor);
  std::optional<Report> next_report();
  void order(Order::Kind kind, const std::filesystem::path& folder, const Manifest* manifest);

  Descriptor socket_;
  pid_t supervisor_;
  std::optional<Report> end_;
};

}  // namespace weightmap::cli::snapshot
