"""What a gate between counts and tensors gives: what it sees, and what it learns from.

python benchmarks/gate.py runs/ptb-kn5 runs/ptb-gated runs/ptb-gated-cache --out results/reading/ptb-gated-gate.json

Gates are learnt from valid, or from train with the counts cross-fitted (each fold of train scored by counts of the
others) and the dense model with or without its dropout. Test is read once by each, and chooses nothing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from tslm.corpus.sources import Corpus
from tslm.corpus.streams import Columns
from tslm.evaluation.perplexity import evaluate, perplexity
from tslm.files import to_json, write_text
from tslm.inference.gating import observe
from tslm.inference.interpolate import as_part, tune_linear
from tslm.models.gate import Gate, GatedConfig, GatedMixture, even_gate
from tslm.models.ngram.folds import cross_fit
from tslm.models.recurrent.heads.base import score_targets
from tslm.runs.run import Run, open_run
from tslm.training.gate import learn_gate, nats_of

FOLDS = 20
HIDDEN = 32


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("counted", type=open_run)
    parser.add_argument("dense", type=open_run)
    parser.add_argument("cached", type=open_run)
    parser.add_argument("--windows", type=int, default=100, help="of train, 35 words by 40 columns each")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    counted, dense, cached = arguments.counted, arguments.dense, arguments.cached
    corpus = counted.open_corpus()
    results, seconds = [], {}

    def tell(model: str, split: str, found: float, **more: float) -> None:
        results.append(
            {"model": model, "split": split, "perplexity": found, "tokens": len(corpus.splits[split])}
        )
        results[-1] |= more
        print(results[-1], flush=True)

    for split in ("valid", "test"):
        begun = time.process_time()
        plain = evaluate(dense.model, corpus.splits[split], reset=False).perplexity
        tell("plain", split, plain, seconds=time.process_time() - begun)
    for name, parts in (("", (counted, dense)), ("cache and ", (counted, cached))):
        seen = {}
        for split in ("valid", "test"):
            begun = time.process_time()
            seen[split] = look(parts, corpus, split)
            seconds[split] = time.process_time() - begun
        weights = tune_linear(seen["valid"][1].T)
        for split, (_, log_NK) in seen.items():
            nats = -float(np.log(np.exp(log_NK) @ weights).sum())
            tell(f"{name}one weight", split, perplexity(nats, len(log_NK)))
        width = seen["valid"][0].shape[1] - (0 if name else dense.recipe.model.embedding)
        sights = {"counts": slice(0, width), "state": slice(width, None), "both": slice(None)}
        for sees, columns in sights.items() if not name else [("counts", slice(None))]:
            known_NF, log_NK = seen["valid"][0][:, columns], seen["valid"][1]
            gate, halves = learn_gate(known_NF, log_NK, weights, hidden=HIDDEN)
            tell(f"{name}gate, sees {sees}", "valid", measure(gate, known_NF, log_NK), halves=halves)
            found = measure(gate, seen["test"][0][:, columns], seen["test"][1])
            tell(f"{name}gate, sees {sees}", "test", found, seconds=seconds["test"])
        if not name:
            fit_on_train(counted, dense, corpus, arguments.windows, seen, sights, tell)
    facts = {
        "run": str(dense.folder.name),
        "corpus": corpus.name,
        "fingerprint": corpus.fingerprint,
        "protocol": "every token predicted once, <eos> included; full vocabulary; state carried across lines; gates of "
        "valid are learnt from valid, halves: each half of valid under the gate of the other; processor seconds",
        "settings": {"hidden": HIDDEN, "folds": FOLDS, "train_tokens": arguments.windows * 35 * 40},
    }
    write_text(arguments.out, to_json({**facts, "results": results}) + "\n")


def look(parts: tuple[Run, ...], corpus: Corpus, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all that a gate could see before each word of a split, and ln p of the word under each part."""
    config, own = GatedConfig(sees="both"), [as_part(run) for run in parts]
    return observe(GatedMixture(config, own, even_gate(config, own)), corpus.splits[split])


def measure(gate: Gate, known_NF: np.ndarray, log_NK: np.ndarray) -> float:
    return perplexity(nats_of(gate, known_NF, log_NK), len(log_NK))


def fit_on_train(counted, dense, corpus, windows, seen, sights, tell) -> None:
    """Learn gates from windows of train: counts cross-fitted, the dense model with and without its dropout."""
    known, log_counted = cross_fit(counted.recipe.model, corpus, FOLDS)
    tell("counts, cross-fitted", "train", perplexity(-float(log_counted.sum()), len(log_counted)))
    places = Columns(
        np.arange(len(corpus.splits["train"]), dtype=np.int32), batch=40, window=35, eos_id=0
    )  # as training reads them
    for dropout in (False, True):
        name = "with dropout" if dropout else "without dropout"
        at, log_dense, state = read_train(dense, corpus, places, windows, dropout=dropout)
        tell(f"dense {name}, {len(at)} words", "train", perplexity(-float(log_dense.sum()), len(at)))
        both_NF = np.concatenate([known[at], state], axis=1, dtype=np.float64)
        log_NK = np.stack([log_counted[at], log_dense], axis=1)
        for sees, columns in sights.items():
            weights = tune_linear(log_NK.T)
            gate, _ = learn_gate(both_NF[:, columns], log_NK, weights, hidden=HIDDEN)
            for split in ("valid", "test"):
                found = measure(gate, seen[split][0][:, columns], seen[split][1])
                tell(f"gate of train, dense {name}, sees {sees}", split, found)


def read_train(
    dense: Run, corpus: Corpus, places: Columns, windows: int, *, dropout: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the places of words of train, ln p of each under the dense model, and the directions of its states."""
    model, ids = dense.model, corpus.splits["train"]
    torch.manual_seed(1)
    model.train(dropout)
    carried, at, scores, states = model.begin(40), [], [], []
    with torch.no_grad():
        for index in range(windows):
            before_BT, now_BT = places[index]
            inputs_BT = torch.from_numpy(ids[before_BT.numpy()].astype(np.int64))
            targets_N = torch.from_numpy(ids[now_BT.t().flatten().numpy()].astype(np.int64))
            outputs_TBR, carried = model.read(inputs_BT.t().contiguous(), carried)
            outputs_NR = model._locked(outputs_TBR, model.config.dropout_output).flatten(0, 1)
            latents_NKM, prior_NK = model.head(outputs_NR)
            scores.append(
                score_targets(latents_NKM, prior_NK, model.output_VM, model.bias, targets_N).numpy()
            )
            states.append(model.head.direction(outputs_NR).numpy())
            at.append(now_BT.t().flatten().numpy())
    model.eval()
    return np.concatenate(at), np.concatenate(scores).astype(np.float64), np.concatenate(states)


if __name__ == "__main__":
    main()
