#include "examples/serving/served_model.hpp"

#include <utility>

namespace serving {

using weightmap::Error;

ServedModel::ServedModel(std::filesystem::path path, std::string tensor,
                         std::shared_ptr<const Model> model)
    : path_(std::move(path)), tensor_(std::move(tensor)), model_(std::move(model)) {}

std::shared_ptr<const Model> ServedModel::get() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

bool ServedModel::is_current() const { return get()->is_current(); }

std::string ServedModel::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

void ServedModel::follow() {
  const auto found = weightmap::generation_at(path_);
  if (!found) return refuse(found.error());
  if (refused_ && refused_->same_content(*found)) return;
  refused_.reset();
  // What was lost stays lost, though the file be whole again.
  if (found->same_content(get()->generation()) && get()->is_whole()) return serve(get());
  auto model = Model::open(path_, tensor_);
  if (model) return serve(std::move(*model));
  refused_ = *found;
  refuse(model.error());
}

void ServedModel::retry() {
  refused_.reset();
  follow();
}

void ServedModel::serve(std::shared_ptr<const Model> model) {
  // The old one is unmapped here, after the lock, or by the last request that holds it.
  const std::lock_guard lock(mutex_);
  model_.swap(model);
  refusal_.clear();
}

void ServedModel::refuse(const Error& why) {
  const std::lock_guard lock(mutex_);
  refusal_ = to_string(why);
}

}  // namespace serving
