"""Models: one protocol for count tensors, Kneser–Ney and recurrent networks."""
