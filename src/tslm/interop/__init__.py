"""Bridges to other tools: ARPA files, quimb."""
