"""TT-SVD and the contraction of a 40-word chain against TensorLy and quimb; memory of decomposing 500³ entries.

All contenders get the same numbers in float64, one after the other in the same process, and the best of several turns
counts. TensorLy runs on both numpy and torch, quimb with its default search and with a path found beforehand; the
faster of each counts. Memory is the peak resident size of a process of its own, the tensor included.

    python benchmarks/tensors.py
    python benchmarks/tensors.py --quick     # without the 500³ tensor
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from report import write_results

LIMIT_GB = 4.0


def best_of(action: Callable[[], Any], turns: int) -> float:
    """Return the shortest time in milliseconds, after one turn to warm up."""
    action()
    times: list[float] = []
    for _ in range(turns):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return 1000 * min(times)


def race(contenders: dict[str, Callable[[], Any]], rounds: int, turns: int) -> dict[str, float]:
    """Run all contenders in turn, several rounds, so that a disturbance does not hit one alone."""
    found = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, action in contenders.items():
            found[name] = min(found[name], best_of(action, turns))
    return found


def race_train(shape: tuple[int, ...], rank: int) -> dict[str, Any]:
    """TT-SVD at a given rank."""
    import quimb.tensor as qtn
    import tensorly
    from tensorly.decomposition import tensor_train

    from tslm.tensors.train_svd import split_train

    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    array = tensor.numpy()
    ranks = [1, *[rank] * (len(shape) - 1), 1]

    def with_backend(backend: str, data: Any) -> Callable[[], Any]:
        def run() -> Any:
            with tensorly.backend_context(backend):
                return tensor_train(data, ranks)

        return run

    def ours() -> Any:
        return split_train(tensor, rank=rank, tolerance=None)

    def quimbs() -> Any:
        return qtn.MatrixProductState.from_dense(array.reshape(-1), dims=shape, max_bond=rank, cutoff=0.0)

    times = race(
        {
            "tslm": ours,
            "tensorly (numpy)": with_backend("numpy", array),
            "tensorly (torch)": with_backend("pytorch", tensor),
            "quimb": quimbs,
        },
        rounds=3,
        turns=2,
    )
    full = ours()[0].to_tensor()
    theirs = tensorly.tt_to_tensor(tensor_train(array, ranks))
    errors = {
        "tslm": float((full - tensor).norm()),
        "tensorly": float(np.linalg.norm(theirs - array)),
        "quimb": float(np.linalg.norm(quimbs().to_dense().reshape(shape) - array)),
    }
    return {"shape": list(shape), "rank": rank, "milliseconds": times, "error": errors, "ratio": ratio(times)}


def race_chain(words: int, rank: int, embedding: int) -> dict[str, Any]:
    """The inner product of a tensor train of 40 modes with 40 word vectors."""
    import quimb.tensor as qtn
    import tensorly
    from tensorly.tenalg import mode_dot

    from tslm.tensors import TensorNetwork, tensor_node

    generator = torch.Generator().manual_seed(0)
    bonds = [1, *[rank] * (words - 1), 1]
    cores = [
        torch.randn(bonds[t], embedding, bonds[t + 1], generator=generator, dtype=torch.float64) / rank**0.5
        for t in range(words)
    ]
    alphas = [
        torch.randn(embedding, generator=generator, dtype=torch.float64) / embedding**0.5
        for _ in range(words)
    ]
    legs = [[f"q{t}", f"d{t}", f"q{t + 1}"] for t in range(words)]
    network = TensorNetwork(
        [
            *[tensor_node(f"G{t}", core, legs[t]) for t, core in enumerate(cores)],
            *[tensor_node(f"α{t}", alpha, [f"d{t}"]) for t, alpha in enumerate(alphas)],
        ]
    )
    theirs = qtn.TensorNetwork(
        [
            *[qtn.Tensor(core.numpy(), legs[t]) for t, core in enumerate(cores)],
            *[qtn.Tensor(alpha.numpy(), [f"d{t}"]) for t, alpha in enumerate(alphas)],
        ]
    )
    ends = ("q0", f"q{words}")
    tree = theirs.contraction_tree("auto-hq", output_inds=ends)

    def chain(backend: str, cores: list[Any], alphas: list[Any]) -> Callable[[], Any]:
        def run() -> Any:
            with tensorly.backend_context(backend):
                state = mode_dot(cores[0], alphas[0], 1)
                for core, alpha in zip(cores[1:], alphas[1:], strict=True):
                    state = tensorly.dot(state, mode_dot(core, alpha, 1))
                return state

        return run

    numpys = [core.numpy() for core in cores], [alpha.numpy() for alpha in alphas]
    contenders = {
        "tslm": lambda: network.contract(),
        "tensorly (numpy)": chain("numpy", *numpys),
        "tensorly (torch)": chain("pytorch", cores, alphas),
        "quimb": lambda: theirs.contract(output_inds=ends),
        "quimb (path given)": lambda: theirs.contract(output_inds=ends, optimize=tree),
    }
    values = {
        name: float(np.asarray(getattr(action(), "data", action())).reshape(-1)[0])
        for name, action in contenders.items()
    }
    reference = values["tslm"]
    assert all(abs(value - reference) <= 1e-9 * abs(reference) for value in values.values()), values
    times = race(contenders, rounds=5, turns=10)
    return {
        "words": words,
        "rank": rank,
        "embedding": embedding,
        "milliseconds": times,
        "ratio": ratio(times),
    }


def ratio(times: dict[str, float]) -> float:
    """Return our time over that of the fastest other: at most 1 is the goal."""
    return times["tslm"] / min(time for name, time in times.items() if name != "tslm")


MEMORY_CASES = {
    "train, rank 50, float32": ("decompose_train", "float32", 50),
    "train, rank 50, float64": ("decompose_train", "float64", 50),
    "Eq. 16, rank 50, float32": ("decompose", "float32", 50),
    "Eq. 16, rank 50, float64": ("decompose", "float64", 50),
    "train, full rank, float32": ("decompose_train", "float32", 500),
}


def measure_memory(function: str, dtype: str, rank: int) -> None:
    """Decompose 500³ entries and print seconds, peak resident size and error, in a process of its own."""
    import tslm.tensors

    tensor = torch.randn(
        500, 500, 500, generator=torch.Generator().manual_seed(0), dtype=getattr(torch, dtype)
    )
    started = time.perf_counter()
    found = getattr(tslm.tensors, function)(tensor, rank=rank)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    assert found.error <= found.bound
    print(json.dumps({"seconds": seconds, "peak_gb": peak, "relative_error": found.relative_error}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="leave out the 500³ tensor")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        function, dtype, rank = arguments.memory
        measure_memory(function, dtype, int(rank))
        return
    console = Console()
    results: dict[str, Any] = {"train": [], "chain": []}
    for shape, rank in (((8,) * 6, 16), ((100, 100, 100), 20)):
        results["train"].append(race_train(shape, rank))
    for rank, embedding in ((16, 16), (32, 32), (64, 64)):
        results["chain"].append(race_chain(40, rank, embedding))
    table = Table(
        title="Milliseconds, best of several turns; ratio: tslm over the fastest other", title_justify="left"
    )
    for column in ("task", "tslm", "tensorly", "quimb", "ratio"):
        table.add_column(column, justify="left" if column == "task" else "right")
    for kind in ("train", "chain"):
        for case in results[kind]:
            times = case["milliseconds"]
            name = (
                f"TT-SVD {'×'.join(map(str, case['shape']))}, rank {case['rank']}"
                if kind == "train"
                else f"chain of {case['words']} words, r = {case['rank']}, m = {case['embedding']}"
            )
            of = {
                group: min(value for key, value in times.items() if key.startswith(group))
                for group in ("tslm", "tensorly", "quimb")
            }
            table.add_row(name, *[f"{value:.2f}" for value in of.values()], f"{case['ratio']:.2f}")
    console.print(table)
    if not arguments.quick:
        memory: dict[str, Any] = {}
        for name, case in MEMORY_CASES.items():
            command = [sys.executable, __file__, "--memory", *map(str, case)]
            memory[name] = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            console.print(
                f"500³ {name}: {memory[name]['seconds']:.1f} s, peak {memory[name]['peak_gb']:.2f} GB "
                f"(limit {LIMIT_GB:.0f} GB), relative error {memory[name]['relative_error']:.4g}",
                highlight=False,
            )
            assert memory[name]["peak_gb"] < LIMIT_GB
        results["memory_500_cubed"] = memory
    path = write_results("tensors", results)
    console.print(f"wrote {path.relative_to(path.parent.parent.parent)}")


if __name__ == "__main__":
    main()
