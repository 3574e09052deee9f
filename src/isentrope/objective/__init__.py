"""Pure functions of tensors: from rewards and log-probabilities to a loss."""
