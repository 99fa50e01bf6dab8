"""Counts and what is made of them: the n-gram tensor, smoothed n-grams, blanks, compressed tensors."""
