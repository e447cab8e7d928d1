// The model that answers come from, and how it follows its file when that is replaced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "examples/serving/model.hpp"

namespace serving {

// Thread-safe; follow() and retry() are for one thread at a time.
class ServedModel {
 public:
  // What to open when the file is replaced, and what to serve until then.
  ServedModel(std::filesystem::path path, std::string tensor, std::shared_ptr<const Model> model);

  // Whoever holds it goes on with this version, however often the file is replaced meanwhile.
  std::shared_ptr<const Model> get() const;
  // Whether the file of that name is the one that is served.
  bool is_current() const;
  // Why the file that now has the name is not served; empty if it is.
  std::string refusal() const;

  // If the file was replaced, opens the new one and then serves that. One that cannot be served is
  // refused: the old one stays. It is not tried again until it is replaced in turn.
  void follow();
  // The same, and tries again what was refused.
  void retry();

 private:
  void serve(std::shared_ptr<const Model> model);
  void refuse(const weightmap::Error& why);

  const std::filesystem::path path_;
  const std::string tensor_;
  std::optional<weightmap::Generation> refused_;
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<const Model> model_;
  std::string refusal_;
};

}  // namespace serving
