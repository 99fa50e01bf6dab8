"""What a recipe says of hidden states: how many, which words share them, and where their probabilities come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tslm.config import check


@dataclass(frozen=True, kw_only=True)
class ProbabilisticConfig:
    """The hidden states, the words that share them, and where their probabilities come from."""

    rank: int = 4096
    """R: how many hidden states there are, the rank of every cut of the tensor."""

    clusters: int = 128
    """C: each word belongs to one cluster, and only the R / C states of its cluster can emit it; 1 for all of them."""

    alone: int = 32
    """How many of the most frequent words have a cluster of their own."""

    clustering: Literal["exchange", "k-means"] = "exchange"
    """Clusters that say most about each other (exchange, after Brown), or of words with alike neighbours (k-means)."""

    features: int = 0
    """F: with one cluster, W as a product of two matrices with F features between them; 0 for all of W."""

    parameters: Literal["neural", "free"] = "neural"
    """Products of vectors through small networks, or a free number for each probability."""

    embedding: int = 64
    """M: the size of the vectors of states, clusters and words."""

    layers: int = 1
    """How many residual layers are between the vectors and their products."""

    start: Literal["words", "random", "states"] = "words"
    """Each state begins near a word of its cluster, or anywhere (free numbers begin anywhere), or near a word and then
    from a group of the states of a trained recurrent model."""

    start_run: str = ""
    """That model with ``start = "states"``: its run folder, or the name of one that comes with the package."""

    dropout: float = 0.0
    """Dropout on the vectors."""

    dropout_states: float = 0.0
    """The share of each cluster's states that take no part in a window of training."""

    seed: int = 1
    """For the clusters."""

    def __post_init__(self) -> None:
        for key, least, largest in (
            ("rank", 1, 1 << 20),
            ("clusters", 1, 65_536),
            ("embedding", 1, 65_536),
            ("layers", 0, 64),
            ("features", 0, 65_536),
        ):
            value = getattr(self, key)
            check(least <= value <= largest, f"model.{key} = {value} must be {least} to {largest:,}")
        for key, known in (
            ("clustering", ("exchange", "k-means")),
            ("parameters", ("neural", "free")),
            ("start", ("words", "random", "states")),
        ):
            value = getattr(self, key)
            check(value in known, f"model.{key} = {value!r} must be one of {', '.join(known)}")
        check(
            (self.start == "states") == bool(self.start_run),
            "model.start = 'states' and model.start_run go together: the run of a recurrent model of the same corpus",
        )
        for key in ("dropout", "dropout_states"):
            value = getattr(self, key)
            check(0 <= value < 1, f"model.{key} = {value} must lie in [0, 1)")
        check(
            self.rank % self.clusters == 0, f"model.rank = {self.rank} must be a multiple of model.clusters"
        )
        if self.clusters > 1:
            check(
                self.features == 0,
                f"model.features = {self.features} needs model.clusters = 1: with {self.clusters} clusters a word "
                f"takes only {self.states} × {self.states} numbers of W; leave one of the two out",
            )
            check(
                0 <= self.alone < self.clusters,
                f"model.alone = {self.alone} must be 0 to {self.clusters - 1}, below model.clusters",
            )
        check(self.seed >= 0, f"model.seed = {self.seed} must not be negative")

    @property
    def states(self) -> int:
        """How many states each cluster has: k."""
        return self.rank // self.clusters

    def least_numbers(self, words: int) -> int:
        """Return how many numbers such a model has at the least."""
        if self.parameters == "free":
            return self.rank * (2 * self.features or self.rank) + words * self.states
        return (self.rank + self.features + words) * self.embedding
