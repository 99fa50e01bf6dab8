from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tslm.models.recurrent.heads.base import log_probabilities, score_targets
from tslm.models.recurrent.heads.mixture import MixtureConfig
from tslm.models.recurrent.heads.softmax import SoftmaxConfig


def mix_slowly(latents_NKM, log_prior_NK, weight_VM, bias_V):
    probability_NV = torch.zeros(len(latents_NKM), len(weight_VM), dtype=latents_NKM.dtype)
    for n in range(len(latents_NKM)):
        for k in range(latents_NKM.shape[1]):
            softmax_V = F.softmax(weight_VM @ latents_NKM[n, k] + bias_V, dim=0)
            probability_NV[n] += log_prior_NK[n, k].exp() * softmax_V
    return probability_NV.log()


@pytest.mark.parametrize("experts", [1, 3])
def test_distribution_and_scores_equal_the_slow_mixture(experts) -> None:
    torch.manual_seed(0)
    latents_NKM = torch.randn(7, experts, 4, dtype=torch.float64)
    log_prior_NK = torch.randn(7, experts, dtype=torch.float64).log_softmax(-1)
    weight_VM, bias_V = torch.randn(9, 4, dtype=torch.float64), torch.randn(9, dtype=torch.float64)
    expected_NV = mix_slowly(latents_NKM, log_prior_NK, weight_VM, bias_V)
    torch.testing.assert_close(log_probabilities(latents_NKM, log_prior_NK, weight_VM, bias_V), expected_NV)
    targets_N = torch.randint(9, (7,))
    # Fewer rows at a time than tokens: the chunks must join.
    scores_N = score_targets(latents_NKM, log_prior_NK, weight_VM, bias_V, targets_N, logits=4 * len(bias_V))
    torch.testing.assert_close(scores_N, expected_NV.gather(1, targets_N.unsqueeze(1)).squeeze(1))


def test_mixture_of_one_identity_expert_is_the_softmax() -> None:
    torch.manual_seed(0)
    states_NR = torch.randn(5, 4)
    weight_VM, bias_V = torch.randn(9, 4), torch.randn(9)
    mixture = MixtureConfig(experts=1, latent="identity").build(4, 4)
    with torch.no_grad():
        mixture.latent.weight.copy_(torch.eye(4))
        mixture.latent.bias.zero_()
    torch.testing.assert_close(
        log_probabilities(*mixture(states_NR), weight_VM, bias_V),
        log_probabilities(*SoftmaxConfig().build(4, 4)(states_NR), weight_VM, bias_V),
    )


def test_a_mixture_escapes_the_rank_limit_of_the_softmax() -> None:
    torch.manual_seed(0)
    states_NR = torch.randn(40, 3, dtype=torch.float64)
    weight_VM, bias_V = torch.randn(30, 3, dtype=torch.float64), torch.randn(30, dtype=torch.float64)
    mixture = MixtureConfig(experts=4).build(3, 3).double()
    with torch.no_grad():
        mixture.latent.weight.mul_(5)
    softmax_NV = log_probabilities(*SoftmaxConfig().build(3, 3)(states_NR), weight_VM, bias_V)
    mixture_NV = log_probabilities(*mixture(states_NR), weight_VM, bias_V)
    # Rank M + 2: M latents, the bias, and the normaliser of each row.
    assert torch.linalg.matrix_rank(softmax_NV) <= 5
    assert torch.linalg.matrix_rank(mixture_NV) > 10


def test_a_readout_is_a_matrix_between_state_and_output() -> None:
    torch.manual_seed(0)
    states_NR, weight_VM, bias_V = torch.randn(5, 4), torch.randn(7, 4), torch.randn(7)
    head = SoftmaxConfig(readout=True).build(4, 4)
    assert SoftmaxConfig().build(4, 4).projection is None
    assert head.projection is not None
    # V of Eq. 20 is then the product of the output matrix and the readout.
    V_VR = weight_VM @ head.projection.weight
    expected_NV = (states_NR @ V_VR.T + bias_V).log_softmax(-1)
    torch.testing.assert_close(log_probabilities(*head(states_NR), weight_VM, bias_V), expected_NV)
