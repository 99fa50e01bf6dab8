"""Perplexity: the only place where it is computed."""
