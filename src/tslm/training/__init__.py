"""The gradient engine: objective, optimiser, checkpoints, several processes."""
