"""Controllers of entropy, and what of a configuration may be combined with them."""
