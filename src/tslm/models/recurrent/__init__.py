"""Recurrent models: cells, the scan over a window, heads, and the shell that joins them."""
