"""Models: one protocol for n-gram tensors, recurrent networks and what joins them."""
