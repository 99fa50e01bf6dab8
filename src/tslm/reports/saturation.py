"""Compress and compare: perplexity, error and parameters of an n-gram tensor against the rank of its decomposition."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from tslm.corpus.sources import Corpus
from tslm.errors import NumberError
from tslm.evaluation.perplexity import evaluate
from tslm.files import whole, write_text
from tslm.models.ngram.class_tensor import NgramTensor, Scaling
from tslm.models.ngram.compressed import CompressedModel
from tslm.tensors.approximation import Approximation, measure_error
from tslm.tensors.decompose import RecursiveDecomposition, decompose, maximum_rank

Progress = Callable[[str], None]
"""Told what is being done."""


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """What one rank gives."""

    rank: int | None
    """r of Eq. 16, None for the tensor itself."""
    parameters: int
    """Numbers the decomposition stores."""
    relative_error: float
    """‖K − K̂‖ / ‖K‖ of the scaled tensor."""
    bound: float
    """The proven bound of the relative error."""
    clipped: float
    """Share of |T̂| that was negative and set to zero."""
    weight: float
    """μ, the share of the tensor against the unigram model, found on the validation split."""
    valid: float
    """Perplexity of the validation split."""
    test: float
    """Perplexity of the test split."""


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """A whole sweep."""

    corpus: str
    fingerprint: str
    order: int
    words: int
    classes: int
    scaling: str
    unigram_valid: float
    unigram_test: float
    ranks: tuple[RankResult, ...]
    exact: RankResult
    """The tensor itself, not decomposed, smoothed in the same way."""
    protocol: str = (
        "full vocabulary; every token predicted once, <eos> included; history forgotten at each line; "
        "μ chosen on valid, test read once per rank"
    )


def sweep_ranks(
    corpus: Corpus,
    *,
    order: int,
    words: int,
    ranks: Sequence[int],
    scaling: Scaling = "none",
    progress: Progress | None = None,
) -> Saturation:
    """Decompose the n-gram tensor of a corpus at each rank and measure the model it makes.

    Raises:
        NumberError: a rank is below 1 or above the maximum for the tensor.
        SizeLimitError: the tensor is too large to build.
    """
    tell = progress or _ignore
    tell(f"counting {order}-grams of {words} words")
    ngrams = NgramTensor.count(corpus, order, words, scaling)
    shape = tuple(ngrams.scaled.shape)
    chosen = sorted(set(ranks))
    for rank in chosen:
        if not 1 <= rank <= maximum_rank(shape):
            raise NumberError(
                f"rank {rank} for a tensor of {shape[0]} classes; expected 1 to {maximum_rank(shape)}"
            )
    results: list[RankResult] = []
    largest: Approximation[RecursiveDecomposition] | None = None
    for rank in chosen:
        tell(f"rank {rank}: decomposing")
        if order == 2:
            largest = largest or decompose(ngrams.scaled, rank=chosen[-1])
            cut = _cut_matrix(largest, ngrams.scaled, rank)
        else:
            cut = decompose(ngrams.scaled, rank=rank)
        tell(f"rank {rank}: measuring")
        results.append(_measure(ngrams, corpus, rank, cut))
    tell("the tensor itself: measuring")
    exact = _measure(ngrams, corpus, None, None)
    unigram = CompressedModel(corpus.vocabulary, ngrams.scaled, ngrams.scale_C, ngrams.unigram_V, weight=0.0)
    baseline = {
        split: evaluate(unigram, corpus.splits[split], reset=False).perplexity for split in ("valid", "test")
    }
    return Saturation(
        corpus=corpus.name,
        fingerprint=corpus.fingerprint,
        order=order,
        words=words,
        classes=shape[0],
        scaling=scaling,
        unigram_valid=baseline["valid"],
        unigram_test=baseline["test"],
        ranks=tuple(results),
        exact=exact,
    )


def save_sweep(sweep: Saturation, folder: Path) -> list[Path]:
    """Write ``saturation.json``, ``saturation.svg`` and ``saturation.png`` into a folder; return their paths."""
    paths = [folder / f"saturation.{suffix}" for suffix in ("json", "svg", "png")]
    write_text(paths[0], json.dumps(asdict(sweep), indent=2) + "\n")
    for path in paths[1:]:
        with whole(path) as temporary:
            plot_sweep(sweep, temporary, path.suffix.removeprefix("."))
    return paths


def plot_sweep(sweep: Saturation, path: Path, format: str) -> None:  # noqa: A002
    """Plot perplexity, error and parameters against rank."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ranks = [result.rank or 0 for result in sweep.ranks]
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.plot(ranks, [result.valid for result in sweep.ranks], "o-", color="#2f6fb0", label="valid")
    left.plot(ranks, [result.test for result in sweep.ranks], "s-", color="#c8553d", label="test")
    left.axhline(sweep.unigram_test, color="#777777", linestyle=":", label="unigram (test)")
    left.axhline(sweep.exact.test, color="#777777", linestyle="--", label="whole tensor (test)")
    left.set_ylabel("perplexity")
    left.legend(fontsize=8)
    middle.plot(
        ranks,
        [result.relative_error for result in sweep.ranks],
        "o-",
        color="#2f6fb0",
        label="error ‖K−K̂‖/‖K‖",
    )
    middle.plot(
        ranks, [result.clipped for result in sweep.ranks], "s-", color="#c8553d", label="clipped share of |T̂|"
    )
    middle.set_ylim(bottom=0)
    middle.legend(fontsize=8)
    middle.set_ylabel("share")
    right.plot(
        ranks, [result.parameters for result in sweep.ranks], "o-", color="#2f6fb0", label="decomposed"
    )
    right.axhline(sweep.classes**sweep.order, color="#777777", linestyle="--", label="whole tensor")
    right.set_yscale("log")
    right.set_ylabel("numbers stored")
    right.legend(fontsize=8)
    for axes in (left, middle, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(
            ranks, [str(rank) for rank in ranks], fontsize=8, rotation=45 if len(ranks) > 8 else 0
        )
        axes.minorticks_off()
        axes.set_xlabel("rank r")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{sweep.corpus}: {sweep.order}-gram tensor of {sweep.classes:,} classes, scaling: {sweep.scaling}",
        fontsize=11,
    )
    # A fixed salt and no date: the same numbers are the same file.
    with rc_context({"svg.hashsalt": "tslm"}):
        figure.savefig(path, format=format, dpi=150, metadata={"Date": None} if format == "svg" else None)


def _ignore(message: str) -> None:
    """Say nothing."""
    del message


def _cut_matrix(
    largest: Approximation[RecursiveDecomposition], matrix: Tensor, rank: int
) -> Approximation[RecursiveDecomposition]:
    """Return the leading terms of a decomposed matrix, which are its best approximation of that rank."""
    form = largest.form
    kept = form.weights.argsort(descending=True)[:rank]
    cut = RecursiveDecomposition(form.weights[kept], (form.W[0][kept],), (form.U[0], form.U[1][kept]))
    # W reads all terms of the level below; those it no longer needs are turned into the kept ones.
    below = cut.W[0] @ cut.U[0]
    lengths = below.norm(dim=1)
    cut = RecursiveDecomposition(cut.weights, (lengths.diag(),), (below / lengths[:, None], cut.U[1]))
    error = measure_error(matrix, cut)
    dropped = float(form.weights.double().square().sum() - cut.weights.double().square().sum())
    bound = (max(0.0, dropped) + (largest.bound or 0.0) ** 2) ** 0.5
    return Approximation(cut, error, max(bound, error), largest.norm)


def _measure(
    ngrams: NgramTensor, corpus: Corpus, rank: int | None, cut: Approximation[RecursiveDecomposition] | None
) -> RankResult:
    """Return what a decomposition, or with None the tensor itself, gives as a model."""
    model = CompressedModel.wrap(ngrams, ngrams.scaled if cut is None else cut.form, corpus)
    perplexity = {
        split: evaluate(model, corpus.splits[split], reset=False).perplexity for split in ("valid", "test")
    }
    return RankResult(
        rank=rank,
        parameters=ngrams.scaled.numel() if cut is None else cut.parameter_count,
        relative_error=0.0 if cut is None else cut.relative_error,
        bound=0.0 if cut is None else (cut.bound or 0.0) / cut.norm,
        clipped=model.clipped(),
        weight=model.weight,
        valid=perplexity["valid"],
        test=perplexity["test"],
    )
