"""How far a training run has come, in plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

STATE = "training_state.safetensors"
"""The file that holds it, with all tensors that the next step depends on."""


@dataclass(kw_only=True)
class Position:
    """How far a run has come: the plain numbers of a checkpoint."""

    epoch: int = 0
    """Epochs finished."""
    window: int = 0
    """Windows of the current epoch that have been read."""
    step: int = 0
    """Steps since the beginning."""
    epoch_nats: float = 0.0
    """The summed loss of the current epoch."""
    epoch_tokens: int = 0
    """The targets of the current epoch that have been read."""
    best: float | None = None
    """The best validation perplexity so far."""
    best_epoch: int = 0
    """The epoch it was reached in."""
    plateaus: int = 0
    """How often an epoch ended worse than the best."""
    metrics_bytes: int = 0
    """How long metrics.jsonl was: what stands beyond it was written by a part that is now repeated."""
    seconds: float = 0.0
    """The time spent training, over all sessions."""
    fingerprint: str = ""
    """The corpus that is being learnt."""
