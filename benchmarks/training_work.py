"""What benchmarks/training.py measures: windows of the recurrence, roads through the output layer, whole steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tslm.corpus.vocabulary import Vocabulary
from tslm.models.recurrent.cells.gated import GatedConfig
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.recurrent.scan import multiplicative_scan
from tslm.training.config import ObjectiveConfig
from tslm.training.objective import Objective

Work = Callable[[], Any]
CLIP = 0.25


def lowered() -> torch.autocast:
    """Products in bfloat16, as ``train.precision`` asks for them."""
    return torch.autocast("cpu", torch.bfloat16)


def recur(factors_TBR, transfer_BR, W_RR, b_R, normalise: bool):
    """The recurrence as one writes it for autograd."""
    states = []
    for factor_BR in factors_TBR:
        state_BR = transfer_BR * factor_BR
        if normalise:
            state_BR = state_BR / torch.sqrt(1 + state_BR.square().mean(-1, keepdim=True))
        states.append(state_BR)
        transfer_BR = state_BR @ W_RR.T + b_R
    return torch.stack(states)


def scan(factors_TBR, transfer_BR, W_RR, b_R, normalise: bool):
    return multiplicative_scan(factors_TBR, transfer_BR, W_RR, b_R, normalise=normalise)[0]


class Window:
    """One window of the recurrence, forward and backward, by several roads."""

    def __init__(self, B: int, T: int, R: int) -> None:
        self.transfer_BR, self.b_R = torch.ones(B, R), torch.ones(R, requires_grad=True)
        self.W_RR = (0.5 * torch.randn(R, R) / R**0.5).requires_grad_()
        self.U_RR = (torch.randn(R, R) / R**0.5).requires_grad_()
        self.inputs_TBR = torch.randn(T, B, R, requires_grad=True)
        self.factors_TBR = torch.randn(T, B, R).tanh().requires_grad_()
        self.gradient_TBR = torch.randn(T, B, R)
        self.networks = {"nn.RNN": nn.RNN(R, R), "nn.LSTM": nn.LSTM(R, R)}
        self.gated = GatedConfig().build(R, R)

    def alone(self, road: Callable[..., Any], normalise: bool) -> None:
        """From the words' factors."""
        self.factors_TBR.grad = self.W_RR.grad = self.b_R.grad = None
        road(self.factors_TBR, self.transfer_BR, self.W_RR, self.b_R, normalise).backward(self.gradient_TBR)

    def with_input(self, road: Callable[..., Any], normalise: bool) -> None:
        """From the words' vectors: nn.RNN and nn.LSTM project their inputs too."""
        self.inputs_TBR.grad = self.U_RR.grad = self.W_RR.grad = self.b_R.grad = None
        factors_TBR = F.linear(self.inputs_TBR, self.U_RR).tanh()
        road(factors_TBR, self.transfer_BR, self.W_RR, self.b_R, normalise).backward(self.gradient_TBR)

    def with_gates(self, low: bool = False) -> None:
        """The gated cell, from the words' vectors; its three factors are three input products."""
        self.inputs_TBR.grad = None
        self.gated.zero_grad()
        start = self.gated.start(self.inputs_TBR.shape[1])
        with lowered() if low else nullcontext():
            states_TBR = self.gated(self.inputs_TBR, start)[0]
        states_TBR.backward(self.gradient_TBR)

    def pytorch(self, name: str) -> None:
        self.inputs_TBR.grad = None
        self.networks[name].zero_grad()
        self.networks[name](self.inputs_TBR)[0].backward(self.gradient_TBR)

    def products(self) -> None:
        """The three products by W and nothing else, each in one piece: about the least a window can take."""
        T, B, R = self.factors_TBR.shape
        states_NR, following_NR = self.factors_TBR.detach().view(T * B, R), self.gradient_TBR.view(T * B, R)
        W_RR = self.W_RR.detach()
        torch.mm(states_NR, W_RR)
        torch.mm(following_NR, W_RR)
        torch.mm(following_NR.t(), states_NR)


LOSSES = ("linear + cross_entropy", "linear_cross_entropy", "tslm, full", "tslm, sampled")


def make_loss(road: str | None, N: int = 700, M: int = 256, V: int = 10_000) -> Work:
    """Return the output layer and its loss, forward and backward, by one of LOSSES; None does nothing with it."""
    torch.manual_seed(0)
    latents_NM = torch.randn(N, M, requires_grad=True)
    weight_VM, bias_V = (torch.randn(V, M) / M**0.5).requires_grad_(), torch.zeros(V, requires_grad=True)
    targets_N = torch.randint(V, (N,))
    config = ObjectiveConfig(frequent=1000, sampled=1000) if road == "tslm, sampled" else ObjectiveConfig()
    objective = Objective(config, V, torch.Generator())

    def work() -> None:
        latents_NM.grad = weight_VM.grad = bias_V.grad = None
        if road == "linear + cross_entropy":
            loss = F.cross_entropy(F.linear(latents_NM, weight_VM, bias_V), targets_N)
        elif road == "linear_cross_entropy":
            loss = F.linear_cross_entropy(latents_NM, weight_VM, targets_N, linear_bias=bias_V)
        elif road is None:
            return
        else:
            loss = objective.loss(latents_NM.unsqueeze(1), None, weight_VM, bias_V, targets_N)
        loss.backward()

    return work


def make_training(
    V: int, R: int, T: int, B: int, frequent: int = 0, sampled: int = 0, *, low: bool = False, **settings: Any
) -> tuple[RecurrentModel, Work]:
    """Return a TSLM and a whole training step of it, as the trainer does it."""
    torch.manual_seed(0)
    vocabulary = Vocabulary(("<eos>", *(f"w{number}" for number in range(V - 1))))
    config = RecurrentConfig(rank=R, embedding=R, dropout_input=0.3, dropout_output=0.5, **settings)
    model = RecurrentModel(config, vocabulary).train()
    objective = Objective(ObjectiveConfig(frequent=frequent, sampled=sampled), V, torch.Generator())
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimiser = torch.optim.AdamW(parameters, fused=True)
    inputs_TB, targets_TB = torch.randint(V, (T, B)), torch.randint(V, (T, B))
    cells = model.begin(B)

    def step() -> None:
        with lowered() if low else nullcontext():
            states_TBR, _ = model.read(inputs_TB, cells)
            loss = model.loss(states_TBR, targets_TB.flatten(), objective.loss).nats
        optimiser.zero_grad(set_to_none=False)
        loss.backward()
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = float(nn.utils.get_total_norm(gradients))
        if norm > CLIP:
            nn.utils.clip_grads_with_norm_(parameters, CLIP, torch.tensor(norm))
        optimiser.step()

    return model, step


def make_plain_step(V: int, R: int, T: int, B: int) -> Work:
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
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimiser.step()

    return step
