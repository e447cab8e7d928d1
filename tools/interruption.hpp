// SIGINT and SIGTERM as the end of waiting, not of the program.
#pragma once

namespace weightmap::cli {

// One at a time. From its construction to its destruction the two signals are only noted.
class Interruption {
 public:
  Interruption() noexcept;
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  bool happened() const noexcept;
  // Returns when it has happened.
  void wait() const;

 private:
  void (*old_int_)(int);
  void (*old_term_)(int);
};

}  // namespace weightmap::cli
