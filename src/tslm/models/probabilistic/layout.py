"""Which words each cluster has, and in which order their probabilities are kept."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Bucket(NamedTuple):
    """Clusters of about one size, side by side."""

    clusters_c: Int[Tensor, " c"]
    members_cX: Int[Tensor, "c X"]
    """The words of each; any word behind the last."""
    present_cX: Bool[Tensor, "c X"]


class Layout:
    """The words of each cluster, in buckets: a few large clusters make no small one long.

    Args:
        cluster_V: the cluster of each word.
        clusters: how many there are.
    """

    def __init__(self, cluster_V: Int[Tensor, " V"], clusters: int) -> None:
        size_C = torch.bincount(cluster_V, minlength=clusters)
        order_V = cluster_V.argsort(stable=True)
        begin_C = size_C.cumsum(0) - size_C
        place_V = torch.empty_like(order_V)
        place_V[order_V] = torch.arange(len(order_V)) - begin_C[cluster_V[order_V]]
        # Sizes up to 1, 2, 4, 8 …
        kind_C = (size_C.clamp(min=1) - 1).double().log2().floor().add(1).clamp(min=0).long()
        kind_C[size_C <= 1] = 0
        self.buckets: list[Bucket] = []
        self.row_V = torch.empty_like(order_V)
        """Where each word stands when the buckets are laid out row by row, one behind the other."""
        row = 0
        for kind in kind_C.unique().tolist():
            clusters_c = (kind_C == kind).nonzero().squeeze(1)
            X = max(1, int(size_C[clusters_c].max()))
            present_cX = torch.arange(X) < size_C[clusters_c].unsqueeze(1)
            rank_C = torch.full_like(size_C, -1)
            rank_C[clusters_c] = torch.arange(len(clusters_c))
            words = (rank_C[cluster_V] >= 0).nonzero().squeeze(1)
            where = rank_C[cluster_V[words]], place_V[words]
            members_cX = torch.zeros(present_cX.shape, dtype=torch.int64)
            members_cX[where] = words
            self.row_V[words] = row + where[0] * X + where[1]
            row += members_cX.numel()
            self.buckets.append(Bucket(clusters_c, members_cX, present_cX))
