from __future__ import annotations

import shutil

import pytest
import torch
from torch.nn import functional as F

from tslm.errors import RecipeError
from tslm.models.recurrent import kernel
from tslm.training.config import ObjectiveConfig
from tslm.training.objective import Objective, draw_chances, draw_systematically


def make(N=30, K=1, M=6, V=40, dtype=torch.float64):
    torch.manual_seed(K)
    latents_NKM = torch.randn(N, K, M, dtype=dtype, requires_grad=True)
    prior_NK = torch.randn(N, K, dtype=dtype, requires_grad=True)
    weight_VM = torch.randn(V, M, dtype=dtype, requires_grad=True)
    bias_V = torch.randn(V, dtype=dtype, requires_grad=True)
    return (latents_NKM, prior_NK, weight_VM, bias_V), torch.randint(V, (N,))


def loss_slowly(inputs, targets_N):
    latents_NKM, prior_NK, weight_VM, bias_V = inputs
    log_NKV = F.log_softmax(latents_NKM @ weight_VM.T + bias_V, -1) + F.log_softmax(prior_NK, -1).unsqueeze(
        -1
    )
    return F.nll_loss(log_NKV.logsumexp(1), targets_N)


def loss_of(objective, inputs, targets_N):
    latents_NKM, prior_NK, weight_VM, bias_V = inputs
    return objective.loss(latents_NKM, F.log_softmax(prior_NK, -1), weight_VM, bias_V, targets_N)


@pytest.fixture(params=[False, True], ids=["plain", "compiled"], autouse=True)
def softmax(request):
    """Every test runs with both softmaxes."""
    before = kernel.active()
    if request.param and shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    kernel.accelerate(request.param)
    yield request.param
    kernel.accelerate(before is not None)


@pytest.mark.parametrize("K", [1, 3])
def test_full_loss_and_gradients_equal_autograds(K, monkeypatch) -> None:
    monkeypatch.setattr("tslm.training.cross_entropy.CandidateCrossEntropy.chunk_rows", 7)
    inputs, targets_N = make(K=K)
    objective = Objective(ObjectiveConfig(), 40, torch.Generator())
    slow, fast = loss_slowly(inputs, targets_N), loss_of(objective, inputs, targets_N)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    gradients = zip(torch.autograd.grad(fast, inputs), torch.autograd.grad(slow, inputs), strict=True)
    for ours, autograds in gradients:
        torch.testing.assert_close(ours, autograds, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("share", [0.25, 0.75])
def test_loss_beside_counts_and_gradients_equal_autograds(K, share, monkeypatch) -> None:
    monkeypatch.setattr("tslm.training.cross_entropy.CandidateCrossEntropy.chunk_rows", 7)
    inputs, targets_N = make(K=K)
    targets_N[::4] = -100
    keep = targets_N >= 0
    counted_N2 = torch.randn(len(targets_N), 2, dtype=torch.float64) - 3
    counted_N2.requires_grad_()
    objective = Objective(ObjectiveConfig(counts=share), 40, torch.Generator())
    latents_NKM, prior_NK, weight_VM, bias_V = inputs
    fast = objective.loss(latents_NKM, F.log_softmax(prior_NK, -1), weight_VM, bias_V, targets_N, counted_N2)
    log_NKV = F.log_softmax(latents_NKM @ weight_VM.T + bias_V, -1)
    log_NV = (log_NKV + F.log_softmax(prior_NK, -1).unsqueeze(-1)).logsumexp(1)
    log_n = log_NV[keep].gather(1, targets_N[keep].unsqueeze(1)).squeeze(1)
    mixed_n = (counted_N2[keep, 0].exp() + counted_N2[keep, 1].exp() * log_n.exp()).log()
    slow = -((1 - share) * log_n + share * mixed_n).mean()
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-12)
    for ours, autograds in zip(
        torch.autograd.grad(fast, (*inputs, counted_N2)),
        torch.autograd.grad(slow, (*inputs, counted_N2)),
        strict=True,
    ):
        torch.testing.assert_close(ours, autograds, rtol=1e-10, atol=1e-12)


def test_softmax_head_needs_no_prior_and_padding_is_left_out() -> None:
    (latents_NKM, _, weight_VM, bias_V), targets_N = make()
    objective = Objective(ObjectiveConfig(), 40, torch.Generator())
    padded_N = targets_N.clone()
    padded_N[::3] = -100
    keep = padded_N >= 0
    ours = objective.loss(latents_NKM, None, weight_VM, bias_V, padded_N)
    expected = F.cross_entropy((latents_NKM[:, 0] @ weight_VM.T + bias_V)[keep], targets_N[keep])
    torch.testing.assert_close(ours, expected)
    ours_NKM, expected_NKM = (torch.autograd.grad(loss, latents_NKM)[0] for loss in (ours, expected))
    torch.testing.assert_close(ours_NKM, expected_NKM)


@pytest.mark.parametrize("config", [ObjectiveConfig(), ObjectiveConfig(frequent=5, sampled=5)])
def test_nothing_but_padding_has_no_gradient(config) -> None:
    inputs, targets_N = make()
    objective = Objective(config, 40, torch.Generator())
    # Memory that nobody has written is then NaN.
    torch.use_deterministic_algorithms(True)
    try:
        loss = loss_of(objective, inputs, torch.full_like(targets_N, -100))
        gradients = torch.autograd.grad(loss, inputs)
    finally:
        torch.use_deterministic_algorithms(False)
    assert loss.item() == 0
    assert all(bool((gradient.to_dense() == 0).all()) for gradient in gradients)


@pytest.mark.parametrize("K", [1, 3])
def test_sampled_gradient_is_close_to_the_full_one_in_expectation(K) -> None:
    inputs, targets_N = make(K=K, V=400)
    with torch.no_grad():
        inputs[0].mul_(0.3)  # mild logits, as a model in training has them
    objective = Objective(ObjectiveConfig(frequent=100, sampled=200), 400, torch.Generator().manual_seed(0))
    draws = 400
    sums = [torch.zeros_like(tensor) for tensor in inputs]
    losses = 0.0
    for _ in range(draws):
        loss = loss_of(objective, inputs, targets_N)
        losses += float(loss.detach())
        for total, gradient in zip(sums, torch.autograd.grad(loss, inputs), strict=True):
            total += gradient
    full = loss_slowly(inputs, targets_N)
    assert losses / draws == pytest.approx(float(full.detach()), rel=2e-3)
    for total, gradient, name in zip(sums, torch.autograd.grad(full, inputs), "zpVb", strict=True):
        if K == 1 and name == "p":
            continue  # a single expert has no choice of prior
        assert float((total / draws - gradient).norm() / gradient.norm()) < 0.03, name


def test_a_sample_of_nearly_everything_is_nearly_exact() -> None:
    inputs, targets_N = make(V=40)
    sampled = Objective(ObjectiveConfig(frequent=1, sampled=38), 40, torch.Generator().manual_seed(0))
    # 38 of 39 rare words are drawn: only the weight 39/38 and one missing word stand between it and the full loss.
    assert loss_of(sampled, inputs, targets_N).item() == pytest.approx(
        loss_slowly(inputs, targets_N).item(), rel=0.05
    )


def test_each_word_is_drawn_with_its_own_chance_and_none_twice() -> None:
    counts_V = torch.tensor([400, 90, 50, 20, 9, 5, 2, 2, 1, 1, 0, 0])
    chance_V = draw_chances(counts_V, 5, 0.5)
    assert chance_V.sum().item() == pytest.approx(5)
    assert chance_V[0] == 1, "certain"
    free = chance_V < 1
    expected = (counts_V[free].double() + 1).sqrt()
    torch.testing.assert_close(chance_V[free] / chance_V[free].sum(), expected / expected.sum())
    generator = torch.Generator().manual_seed(0)
    seen, draws = torch.zeros(len(counts_V)), 4000
    for _ in range(draws):
        words_S = draw_systematically(chance_V, generator)
        assert len(words_S) == len(set(words_S.tolist())) == 5
        seen[words_S] += 1
    torch.testing.assert_close(seen / draws, chance_V.float(), atol=0.03, rtol=0)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_a_weighted_sample_estimates_the_partition_function_without_bias(power) -> None:
    counts_V = torch.arange(400, 0, -1) ** 2
    config = ObjectiveConfig(frequent=20, sampled=80, power=power)
    objective = Objective(config, 400, torch.Generator().manual_seed(0), counts_V)
    logits_V = torch.randn(400, generator=torch.Generator().manual_seed(1)).double()
    found = []
    for _ in range(3000):
        drawn = objective.draw()
        terms_C = logits_V[drawn.words_C].exp()
        terms_C[drawn.frequent :] *= drawn.log_weight_S.exp()
        found.append(terms_C.sum().item())
    assert sum(found) / len(found) == pytest.approx(logits_V.exp().sum().item(), rel=0.01)


@pytest.mark.parametrize(("frequent", "sampled"), [(10, 30), (50, 50), (40, 1)])
def test_a_vocabulary_smaller_than_its_sample_is_summed_whole(frequent, sampled) -> None:
    inputs, targets_N = make(V=40)
    objective = Objective(ObjectiveConfig(frequent=frequent, sampled=sampled), 40, torch.Generator())
    torch.testing.assert_close(loss_of(objective, inputs, targets_N), loss_slowly(inputs, targets_N))


@pytest.mark.parametrize("K", [1, 2])
def test_a_hopeless_target_has_a_large_loss_not_an_infinite_one(K) -> None:
    weight_VM = torch.tensor([[0.0], [300.0], [10.0]], requires_grad=True)
    latents_NKM = torch.ones(2, K, 1, requires_grad=True)
    prior_NK = torch.zeros(2, K, requires_grad=True)
    inputs, targets_N = (
        (latents_NKM, prior_NK, weight_VM, torch.zeros(3, requires_grad=True)),
        torch.tensor([0, 2]),
    )
    objective = Objective(ObjectiveConfig(), 3, torch.Generator())
    loss = loss_of(objective, inputs, targets_N)
    torch.testing.assert_close(loss, loss_slowly(inputs, targets_N))
    for ours, autograds in zip(
        torch.autograd.grad(loss, inputs),
        torch.autograd.grad(loss_slowly(inputs, targets_N), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, autograds)


def test_wrong_settings_name_the_way_out() -> None:
    with pytest.raises(RecipeError, match="set both, or neither"):
        ObjectiveConfig(frequent=10)
