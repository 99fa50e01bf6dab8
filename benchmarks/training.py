"""Training: the recurrence, a whole step, and how cost grows. Ratios within one run; see --help.

python benchmarks/training.py            # everything, about five minutes
python benchmarks/training.py recurrence # one part
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from report import machine, write_results
from tslm.corpus.vocabulary import Vocabulary
from tslm.models.recurrence import multiplicative_scan
from tslm.models.recurrent import RecurrentConfig, RecurrentModel
from tslm.training.objective import Objective, ObjectiveConfig

console = Console()


def best(work: Callable[[], Any], seconds: float = 2.0) -> float:
    """Return the shortest time of one call, in seconds, over about ``seconds`` of calls."""
    work()
    shortest, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def loop(factors_TBR, transfer_BR, W_RR, b_R):
    states = []
    for factor_BR in factors_TBR:
        state_BR = transfer_BR * factor_BR
        states.append(state_BR)
        transfer_BR = state_BR @ W_RR.T + b_R
    return torch.stack(states)


def loop_normalised(factors_TBR, transfer_BR, W_RR, b_R):
    states = []
    for factor_BR in factors_TBR:
        state_BR = transfer_BR * factor_BR
        state_BR = state_BR / torch.sqrt(1 + state_BR.square().mean(-1, keepdim=True))
        states.append(state_BR)
        transfer_BR = state_BR @ W_RR.T + b_R
    return torch.stack(states)


def measure_recurrence() -> list[dict[str, Any]]:
    """Forward and backward of one window, without embedding and head."""
    rows = []
    for B, T, R in ((20, 35, 256), (64, 35, 512)):
        transfer_BR, b_R = torch.ones(B, R), torch.ones(R, requires_grad=True)
        W_RR = (0.5 * torch.randn(R, R) / R**0.5).requires_grad_()
        gradient_TBR = torch.randn(T, B, R)
        rnn, lstm = nn.RNN(R, R), nn.LSTM(R, R)
        # The TSLM's U belongs to the comparison: nn.RNN and nn.LSTM project their inputs too.
        U_RR = (torch.randn(R, R) / R**0.5).requires_grad_()
        inputs_TBR = torch.randn(T, B, R, requires_grad=True)

        def fast(
            normalise: bool, inputs=inputs_TBR, U=U_RR, start=transfer_BR, W=W_RR, b=b_R, out=gradient_TBR
        ):
            multiplicative_scan((F.linear(inputs, U)).tanh(), start, W, b, normalise=normalise)[0].backward(
                out
            )

        def plain(recur, inputs=inputs_TBR, U=U_RR, start=transfer_BR, W=W_RR, b=b_R, out=gradient_TBR):
            recur((F.linear(inputs, U)).tanh(), start, W, b).backward(out)

        def pytorch(network, inputs=inputs_TBR, out=gradient_TBR):
            network(inputs)[0].backward(out)

        times = {
            "tslm": best(partial(fast, False)),
            "tslm, normalised": best(partial(fast, True)),
            "autograd loop": best(partial(plain, loop)),
            "autograd loop, normalised": best(partial(plain, loop_normalised)),
            "nn.RNN": best(partial(pytorch, rnn)),
            "nn.LSTM": best(partial(pytorch, lstm)),
        }
        rows.append({"B": B, "T": T, "R": R, "milliseconds": {k: 1e3 * v for k, v in times.items()}})
    table = Table(title="recurrence, forward + backward, ms (ratio to tslm)", title_justify="left")
    table.add_column("B × T × R")
    for name in rows[0]["milliseconds"]:
        table.add_column(name, justify="right")
    for row in rows:
        own = row["milliseconds"]["tslm"]
        cells = [f"{ms:.1f} ({ms / own:.2f}×)" for ms in row["milliseconds"].values()]
        table.add_row(f"{row['B']} × {row['T']} × {row['R']}", *cells)
    console.print(table)
    return rows


def peak_flops(N: int, M: int, V: int) -> float:
    """Return the rate of the output layer's three products, each into memory that is already there."""
    latents_NM, weight_VM = torch.randn(N, M), torch.randn(V, M)
    logits_NV, latents2_NM, weight2_VM = torch.empty(N, V), torch.empty(N, M), torch.empty(V, M)

    def products() -> None:
        torch.mm(latents_NM, weight_VM.t(), out=logits_NV)
        torch.mm(logits_NV, weight_VM, out=latents2_NM)
        torch.mm(logits_NV.t(), latents_NM, out=weight2_VM)

    return 6 * N * M * V / best(products)


def make_step(
    V: int, R: int, T: int, B: int, cell: str = "tslm", frequent: int = 0, sampled: int = 0, **settings: Any
) -> Callable[[], None]:
    """Return a whole training step: forward, loss, backward, clipping, AdamW."""
    torch.manual_seed(0)
    vocabulary = Vocabulary(("<eos>", *(f"w{number}" for number in range(V - 1))))
    config = RecurrentConfig(
        cell=cell, rank=R, embedding=R, dropout_input=0.3, dropout_output=0.5, **settings
    )
    model = RecurrentModel(config, vocabulary).train()
    objective = Objective(ObjectiveConfig(frequent=frequent, sampled=sampled), V, torch.Generator())
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    inputs_TB, targets_TB = torch.randint(V, (T, B)), torch.randint(V, (T, B))
    cells = model.begin(B)

    def step() -> None:
        states_TBR, _ = model.read(inputs_TB, cells)
        latents_NKM, prior_NK = model.latents(states_TBR)
        loss = objective.loss(latents_NKM, prior_NK, model.output_VM, model.bias, targets_TB.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimiser.step()

    return step


def make_plain_step(V: int, R: int, T: int, B: int) -> Callable[[], None]:
    """Return the same step as users of PyTorch write it: nn.LSTM, nn.Linear, cross_entropy, AdamW."""
    embedding, lstm, linear = nn.Embedding(V, R), nn.LSTM(R, R), nn.Linear(R, V)
    linear.weight = embedding.weight
    parameters = list({id(p): p for m in (embedding, lstm, linear) for p in m.parameters()}.values())
    optimiser = torch.optim.AdamW(parameters)
    inputs_TB, targets_TB = torch.randint(V, (T, B)), torch.randint(V, (T, B))

    def step() -> None:
        states_TBR, _ = lstm(F.dropout(embedding(inputs_TB), 0.3))
        loss = F.cross_entropy(linear(F.dropout(states_TBR, 0.5)).flatten(0, 1), targets_TB.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.25)
        optimiser.step()

    return step


def measure_losses() -> dict[str, float]:
    """Return the time, in ms, of the output layer and its loss, forward and backward, by every road."""
    N, M, V = 700, 256, 10_000
    latents_NM = torch.randn(N, M, requires_grad=True)
    weight_VM, bias_V = (torch.randn(V, M) / M**0.5).requires_grad_(), torch.zeros(V, requires_grad=True)
    targets_N = torch.randint(V, (N,))
    full = Objective(ObjectiveConfig(), V, torch.Generator())
    sampled = Objective(ObjectiveConfig(frequent=1000, sampled=1000), V, torch.Generator())

    def ours(objective: Objective) -> None:
        objective.loss(latents_NM.unsqueeze(1), None, weight_VM, bias_V, targets_N).backward()

    times = {
        "linear + cross_entropy": best(
            lambda: F.cross_entropy(F.linear(latents_NM, weight_VM, bias_V), targets_N).backward()
        ),
        "linear_cross_entropy": best(
            lambda: F.linear_cross_entropy(latents_NM, weight_VM, targets_N, linear_bias=bias_V).backward()
        ),
        "tslm, full": best(lambda: ours(full)),
        "tslm, sampled": best(lambda: ours(sampled)),
    }
    times["three products alone"] = 6 * N * M * V / peak_flops(N, M, V)
    table = Table(
        title="output layer and loss, 700 tokens, 256 × 10,000, forward + backward", title_justify="left"
    )
    table.add_column("road")
    table.add_column("ms", justify="right")
    for name, seconds in times.items():
        table.add_row(name, f"{1e3 * seconds:.1f}")
    console.print(table)
    return {name: 1e3 * seconds for name, seconds in times.items()}


def measure_step() -> dict[str, Any]:
    """Return a whole PTB step against the matrix-multiply peak of the same run."""
    B, T, R, V = 20, 35, 256, 10_000
    tokens = B * T
    peak = peak_flops(tokens, R, V)
    needed = 6 * tokens * R * V + 6 * tokens * 2 * R * R
    rows = {
        "tslm, full softmax": best(make_step(V, R, T, B)),
        "tslm, sampled 1000 + 1000": best(make_step(V, R, T, B, frequent=1000, sampled=1000)),
        "nn.LSTM + nn.Linear + cross_entropy": best(make_plain_step(V, R, T, B)),
    }
    table = Table(
        title=f"training step, PTB 256 × 1, batch 20 × 35 (peak {peak / 1e9:.0f} GFLOP/s)",
        title_justify="left",
    )
    for column in ("step", "ms", "tokens/s", "share of the peak"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for name, seconds in rows.items():
        share = f"{needed / seconds / peak:.0%}" if "sampled" not in name and "LSTM" not in name else "–"
        table.add_row(name, f"{1e3 * seconds:.1f}", f"{tokens / seconds:,.0f}", share)
    console.print(table)
    return {
        "peak_gflops": peak / 1e9,
        "needed_gflop": needed / 1e9,
        "milliseconds": {name: 1e3 * seconds for name, seconds in rows.items()},
        "share_of_peak": needed / rows["tslm, full softmax"] / peak,
        "sampled_speed_up": rows["tslm, full softmax"] / rows["tslm, sampled 1000 + 1000"],
    }


def measure_profile() -> dict[str, float]:
    """Return where the time of a full-softmax step goes, by operator."""
    step = make_step(10_000, 256, 35, 20)
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(5):
            step()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    table = Table(title="where a full-softmax step spends its time", title_justify="left")
    table.add_column("operator")
    table.add_column("share", justify="right")
    shares = {event.key: event.self_cpu_time_total / total for event in events[:12]}
    for name, share in shares.items():
        table.add_row(name, f"{share:.1%}")
    console.print(table)
    return shares


def measure_growth() -> list[dict[str, Any]]:
    """Return tokens/s of the full-softmax step while one size at a time grows."""
    base = {"V": 10_000, "R": 256, "T": 35, "B": 20}
    rows = []
    for name, values in {
        "V": (2_500, 5_000, 10_000, 20_000, 40_000),
        "R": (64, 128, 256, 512),
        "T": (9, 18, 35, 70),
        "B": (5, 10, 20, 40, 80),
    }.items():
        for value in values:
            sizes = {**base, name: value}
            seconds = best(make_step(**sizes), seconds=1.0)
            rows.append(
                {"size": name, "value": value, "tokens_per_second": sizes["B"] * sizes["T"] / seconds}
            )
    _plot_growth(rows)
    return rows


def _plot_growth(rows: list[dict[str, Any]]) -> None:
    from pathlib import Path

    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 2.8), layout="constrained")
    for axes, name in zip(figure.subplots(1, 4, sharey=True), "VRTB", strict=True):
        points = [(row["value"], row["tokens_per_second"]) for row in rows if row["size"] == name]
        axes.loglog(*zip(*points, strict=True), marker="o", color="#3b7dd8")
        axes.set_xlabel(name)
        axes.grid(alpha=0.3, which="both")
    figure.axes[0].set_ylabel("tokens/s")
    path = Path(__file__).parent / "results" / "training_growth.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    console.print(f"the growth of cost: {path.name}")


PARTS = {
    "recurrence": measure_recurrence,
    "losses": measure_losses,
    "step": measure_step,
    "profile": measure_profile,
    "growth": measure_growth,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    chosen = parser.parse_args().parts or list(PARTS)
    console.print(machine())
    write_results("training", {part: PARTS[part]() for part in chosen})
