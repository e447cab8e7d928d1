// Which experts a router chose: for each token, and each layer, a few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct ExpertTrace {
  std::size_t layers = 0;
  std::size_t experts = 0;  // of a layer
  // By token and layer, one after the other: the experts of one layer, each once.
  std::vector<std::vector<std::size_t>> choices;

  std::size_t tokens() const noexcept { return choices.size() / layers; }
  // Returns the chosen units of one token in one layer: all experts of all layers are numbered,
  // layer by layer.
  std::vector<std::size_t> units(std::size_t token, std::size_t layer) const;
};

// By the distance of a choice in the order of last use, as it was measured of a model with many
// experts: 67 % lie within the last eighth of a layer's experts, another 14 % within the last
// quarter, and the rest anywhere else. Equal arguments give equal traces.
ExpertTrace modelled_trace(std::size_t layers, std::size_t experts, std::size_t chosen,
                           std::size_t tokens, std::uint64_t seed);

// Reads what bench/record_routes.py wrote. Ends the program, with a message, for anything else.
ExpertTrace recorded_trace(const std::string& path);
