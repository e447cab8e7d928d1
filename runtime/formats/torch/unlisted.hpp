// Tensors of a pickled module that its state_dict() does not have, and what repeats others.
#pragma once

#include "runtime/formats/torch/tensor_table.hpp"

namespace weightmap::torch {

// Moves tensors that shall not be listed behind the others, and forgets composed ones like that:
// the buffers that are not persistent; and attributes that are, or overlap with, a tensor that is
// listed, such as the `_flat_weights` of a torch.nn.LSTM. Sets TensorTable::unlisted.
void move_unlisted(TensorTable& table);

}  // namespace weightmap::torch
