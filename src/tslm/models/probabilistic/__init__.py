"""Eq. 19 with non-negative, normalised factors: the tensor is the probability, and every marginal of it is exact."""
