"""Log-probability and entropy of tokens, from logits or from hidden states, without a second copy
of the logits."""
