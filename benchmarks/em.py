"""Gradient against expectation maximisation, for the same small model and the same few passes over the same text.

    python benchmarks/em.py                          # 256 states, 100,000 words of Penn Treebank

The expected counts of a window are its gradient by the logarithm of each probability, so one backward pass serves both.
Stepwise EM (Cappé & Moulines 2009) moves the counts of the text a little towards those of each window, and divides.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch

from report import write_results
from tslm.corpus.sources import open_corpus
from tslm.corpus.streams import Columns
from tslm.models.probabilistic.factors import Factors
from tslm.models.probabilistic.model import ProbabilisticConfig, ProbabilisticModel

BATCH, WINDOW = 40, 35
SMOOTHED = 1e-4
"""Added to every expected count, so that no probability becomes zero for ever."""


class Tables(Factors):
    """Probabilities as they are."""

    def __init__(self, factors: Factors, clusters: int) -> None:
        pairs = torch.cartesian_prod(torch.arange(clusters), torch.arange(clusters))
        k = factors.onward_CkC.shape[1]
        self.within_CCkk = factors.blocks(pairs[:, 0], pairs[:, 1]).view(clusters, clusters, k, k).clone()
        self.onward_CkC, self.emission_Pk = factors.onward_CkC.clone(), factors.emission_Vk.clone()
        self.row_V = torch.arange(len(self.emission_Pk))

    def blocks(self, before_N, after_N):
        return self.within_CCkk[before_N, after_N]

    @property
    def parts(self):
        return [self.within_CCkk, self.onward_CkC, self.emission_Pk]

    def set(self, counts, cluster_V) -> None:
        within, onward, emission = [part + SMOOTHED for part in counts]
        self.within_CCkk = within / within.sum(-1, keepdim=True)
        self.onward_CkC = onward / onward.sum(-1, keepdim=True)
        total_Ck = torch.zeros_like(onward[:, :, 0]).index_add_(0, cluster_V, emission)
        self.emission_Pk = emission / total_Ck[cluster_V]


def make_model(config, corpus) -> ProbabilisticModel:
    torch.manual_seed(1)
    model = ProbabilisticModel(config, corpus.vocabulary)
    model.prepare(corpus)
    return model


def measure(model, corpus) -> float:
    model.eval()
    scores, _ = model.score(corpus.splits["valid"][None].astype(np.int64), model.start(1))
    model.train()
    return float(np.exp(-scores.mean(dtype=np.float64)))


def by_gradient(config, corpus, columns, passes, rate) -> list[float]:
    model, found = make_model(config, corpus), []
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0)
    model.train()
    step, total = 0, passes * len(columns)
    for _ in range(passes):
        carried = model.begin(BATCH)
        for inputs_BT, targets_BT in columns.windows():
            optimiser.param_groups[0]["lr"] = rate * min(1, (step + 1) / 50) * (1 - step / total)
            window = model.read_window(inputs_BT.t().contiguous(), targets_BT.t(), carried, None)
            carried = tuple(tuple(state.detach() for state in cell) for cell in window.carried)
            optimiser.zero_grad()
            window.nats.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            step += 1
        found.append(measure(model, corpus))
    return found


def by_em(config, corpus, columns, passes, power) -> list[float]:
    model, found, step = make_model(config, corpus), [], 0
    model.eval()
    tables = Tables(model.factors, config.clusters)
    size = float(len(corpus.splits["train"]))
    counts = [part * size / part.shape[-1] / part.shape[0] for part in tables.parts]
    for _ in range(passes):
        carried = model.begin(BATCH)
        for inputs_BT, targets_BT in columns.windows():
            for part in tables.parts:
                part.requires_grad_()
            gathered = model.gather(
                tables, model.cluster_V[inputs_BT[:, 0]], targets_BT.t().clamp(min=0).contiguous()
            )
            scale_TB, belief_TBk = tables.read(carried[0][0].detach(), *gathered)
            present_TB = targets_BT.t() >= 0
            gradients = torch.autograd.grad((scale_TB.log() * present_TB).sum(), tables.parts)
            carried = ((belief_TBk[-1].detach(),),)
            share = (step + 2) ** -power
            grown = size / float(present_TB.sum())
            with torch.no_grad():
                counts = [
                    old.lerp(part * gradient * grown, share)
                    for old, part, gradient in zip(counts, tables.parts, gradients, strict=True)
                ]
                tables.set(counts, model.cluster_V)
            step += 1
        model._factors = tables
        model.training = False
        scores, _ = model.score(corpus.splits["valid"][None].astype(np.int64), model.start(1))
        found.append(float(np.exp(-scores.mean(dtype=np.float64))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--passes", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    corpus = open_corpus("ptb")
    splits = {"train": corpus.splits["train"][: arguments.tokens], "valid": corpus.splits["valid"][:20_000]}
    corpus = replace(corpus, splits={**corpus.splits, **splits})
    columns = Columns(splits["train"], batch=BATCH, window=WINDOW, eos_id=corpus.vocabulary.eos_id)
    free = ProbabilisticConfig(rank=256, clusters=16, alone=4, parameters="free")
    neural = ProbabilisticConfig(rank=256, clusters=16, alone=4, embedding=64)
    results: list[dict[str, object]] = []

    def tell(way: str, parameters: str, setting: float, work) -> None:
        began = time.process_time()
        valid = work()
        results.append(
            {"way": way, "parameters": parameters, "setting": setting, "valid": valid}
            | {"seconds": time.process_time() - began}
        )
        print(results[-1], flush=True)

    for power in (0.8, 1.0):
        tell("em", "free", power, lambda p=power: by_em(free, corpus, columns, arguments.passes, p))
    for rate in (0.03,):
        tell("gradient", "free", rate, lambda r=rate: by_gradient(free, corpus, columns, arguments.passes, r))
    tell("gradient", "neural", 0.02, lambda: by_gradient(neural, corpus, columns, arguments.passes, 0.02))
    settings = {"tokens": arguments.tokens, "passes": arguments.passes, "rank": 256, "clusters": 16}
    write_results("em", {"settings": settings, "results": results})


if __name__ == "__main__":
    main()
