// Finds tensors of an open checkpoint.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/state.hpp"

namespace weightmap {

// Implement the corresponding member functions of Checkpoint.
NamedTensor tensor_at(const Checkpoint::State& state, std::size_t index) noexcept;
std::optional<TensorView> find_tensor(const Checkpoint::State& state,
                                      std::string_view name) noexcept;
bool contains_tensor(const Checkpoint::State& state, std::string_view name) noexcept;
Result<NamedTensor> get_tensor(const Checkpoint::State& state, std::string_view name);
std::optional<TensorView> find_tensor(const Checkpoint::State& state,
                                      std::span<const PathPart> path);
Result<NamedTensor> get_tensor(const Checkpoint::State& state, std::span<const PathPart> path);
std::vector<PathPart> path_of_tensor(const Checkpoint::State& state, std::size_t index);
std::optional<NamedTensor> tensor_of_value(const Checkpoint::State& state,
                                           const Value& value) noexcept;
NamedStorage storage_at(const Checkpoint::State& state, std::size_t index) noexcept;

}  // namespace weightmap
