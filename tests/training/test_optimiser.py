from __future__ import annotations

import pytest
import torch
from torch import nn

from tslm.errors import RecipeError
from tslm.training.checkpoint import optimiser_tensors, restore_optimiser
from tslm.training.config import TrainConfig
from tslm.training.optimiser import make_optimiser
from tslm.training.spelling import Spelling


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_matrices_decay_and_vectors_do_not(optimiser) -> None:
    model = nn.Linear(3, 2)
    config = TrainConfig(optimiser=optimiser, weight_decay=0.5, learning_rate=0.1)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    chosen = make_optimiser(config, model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    chosen.step()
    torch.testing.assert_close(model.weight.detach(), 0.95 * before["weight"])
    assert torch.equal(model.bias.detach(), before["bias"])


def words_and_rest() -> nn.ParameterList:
    torch.manual_seed(0)
    return nn.ParameterList([torch.randn(5, 3).double(), torch.randn(2, 3).double(), torch.randn(3).double()])


def step_by_the_formula(matrix, gradients, *, rate, beta2, own):
    """AdamW row by row: m and the mean of the squares, both corrected for their start from zero."""
    rows = len(matrix)
    values, means, squares = matrix.clone(), torch.zeros(rows, 3).double(), [0.0] * rows
    for step, gradient in enumerate(gradients, start=1):
        for row, g in enumerate(gradient):
            means[row] = 0.9 * means[row] + 0.1 * g
            squares[row] = beta2 * squares[row] + (1 - beta2) * float((g * g).mean())
        corrected = [square / (1 - beta2**step) for square in squares]
        for row in range(rows):
            shared = corrected[row] ** own * (sum(corrected) / rows) ** (1 - own)
            values[row] -= rate * (means[row] / (1 - 0.9**step)) / (shared**0.5 + 1e-8)
    return values


@pytest.mark.parametrize("moments", ["numbers", "words"])
def test_the_vectors_of_words_do_not_decay(moments) -> None:
    learning = words_and_rest()
    before = [parameter.detach().clone() for parameter in learning]
    config = TrainConfig(moments=moments, weight_decay=0.5, learning_rate=0.1)
    optimiser = make_optimiser(config, learning, [learning[0]])
    for parameter in learning:
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    assert torch.equal(learning[0].detach(), before[0])
    torch.testing.assert_close(learning[1].detach(), 0.95 * before[1])


@pytest.mark.parametrize("own", [1.0, 0.25, 0.0])
def test_moments_of_words_move_each_row_along_its_gradient(own, road) -> None:
    learning = words_and_rest()
    before = learning[0].detach().clone()
    config = TrainConfig(moments="words", learning_rate=0.1, beta2=0.95, weight_decay=0.2, adaptation=own)
    optimiser = make_optimiser(config, learning, [learning[0]])
    gradients = [torch.randn(5, 3).double() for _ in range(4)]
    gradients[1][2] = 0  # a word that is not seen in this step
    for gradient in gradients:
        for parameter in learning:
            parameter.grad = torch.ones_like(parameter)
        learning[0].grad = gradient.clone()
        optimiser.step()
        assert torch.equal(learning[0].grad, gradient)  # given back as it was
    expected = step_by_the_formula(before, gradients, rate=0.1, beta2=0.95, own=own)
    torch.testing.assert_close(learning[0].detach(), expected, rtol=1e-12, atol=1e-12)


def test_all_but_the_words_move_as_under_adamw() -> None:
    results = []
    for moments in ("numbers", "words"):
        learning = words_and_rest()
        optimiser = make_optimiser(TrainConfig(moments=moments, weight_decay=0.2), learning, [learning[0]])
        for number in range(3):
            for parameter in learning:
                parameter.grad = torch.sin(parameter.detach() + number)
            optimiser.step()
        results.append([parameter.detach() for parameter in learning])
    plain, words = results
    assert not torch.equal(plain[0], words[0])
    assert torch.equal(plain[1], words[1])
    assert torch.equal(plain[2], words[2])


def test_moments_of_words_are_adamws() -> None:
    with pytest.raises(RecipeError, match="is AdamW's"):
        TrainConfig(moments="words", optimiser="sgd")
    with pytest.raises(RecipeError, match=r'goes with train.moments = "words"'):
        TrainConfig(adaptation=0.5)


def test_words_spelt_alike_move_together(road) -> None:
    words = ["reports", "reported", "reporter", "the", "<unk>", "of", "a"]
    spelling = Spelling(words)
    assert spelling.parts
    torch.manual_seed(0)
    learning = nn.ParameterList([torch.randn(7, 3).double()])
    config = TrainConfig(moments="words", learning_rate=0.1, beta2=0.95, spelling=0.5, adaptation=0.25)
    optimiser = make_optimiser(config, learning, [learning[0]], spelling)
    own, shared = learning[0].detach().clone(), torch.zeros(spelling.parts, 3).double()
    matrix = spelling.spread(torch.eye(spelling.parts).double())  # words × parts
    assert torch.equal(matrix[3:], torch.zeros(4, spelling.parts).double())
    gradients = [torch.randn(7, 3).double() for _ in range(4)]
    gradients[1][:3] = 0  # none of those spelt alike is seen in this step
    gradients[2][1] = 0
    for gradient in gradients:
        learning[0].grad = gradient.clone()
        optimiser.step()
    settings = {"rate": 0.1, "beta2": 0.95}
    own = step_by_the_formula(own, gradients, own=0.25, **settings)
    shared = step_by_the_formula(
        shared, [matrix.T @ g for g in gradients], own=1.0, **settings | {"rate": 0.05}
    )
    torch.testing.assert_close(learning[0].detach(), own + matrix @ shared, rtol=1e-6, atol=1e-6)


def test_words_move_alike_on_any_number_of_threads(road) -> None:
    words = [
        stem + ending for stem in ("talk", "walk", "turn", "open") for ending in ("", "s", "ed", "ing", "er")
    ]
    spelling, threads_before, moved = Spelling(words), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            learning = nn.ParameterList([torch.randn(len(words), 37)])
            optimiser = make_optimiser(
                TrainConfig(moments="words", spelling=1.0), learning, [learning[0]], spelling
            )
            for _ in range(3):
                learning[0].grad = torch.randn(len(words), 37) * (torch.rand(len(words), 1) < 0.3)
                optimiser.step()
            moved.append(learning[0].detach())
    finally:
        torch.set_num_threads(threads_before)
    assert torch.equal(*moved)


def test_a_gradient_that_lies_in_another_order_is_read_rightly(road) -> None:
    moved = []
    for turned in (False, True):
        torch.manual_seed(0)
        learning = nn.ParameterList([torch.randn(5, 3)])
        optimiser = make_optimiser(TrainConfig(moments="words"), learning, [learning[0]])
        gradient = torch.randn(5, 3)
        learning[0].grad = gradient.t().contiguous().t() if turned else gradient
        optimiser.step()
        moved.append(learning[0].detach())
    torch.testing.assert_close(*moved)


def test_a_gradient_that_is_no_number_is_not_passed_over(road) -> None:
    learning = nn.ParameterList([torch.randn(5, 3)])
    optimiser = make_optimiser(TrainConfig(moments="words"), learning, [learning[0]])
    learning[0].grad = torch.zeros(5, 3).index_fill_(0, torch.tensor([2]), float("nan"))
    optimiser.step()
    assert learning[0].detach()[2].isnan().all()


@pytest.mark.parametrize("moments", ["numbers", "words"])
def test_words_have_a_rate_of_their_own(moments) -> None:
    moved = []
    for word_rate in (1.0, 1.5):
        learning = words_and_rest()
        before = [parameter.detach().clone() for parameter in learning]
        config = TrainConfig(moments=moments, word_rate=word_rate)
        optimiser = make_optimiser(config, learning, [learning[0]])
        for group in optimiser.param_groups:
            group["lr"] = 0.1 * group["share"]
        for parameter in learning:
            parameter.grad = torch.ones_like(parameter)
        optimiser.step()
        moved.append([now.detach() - then for now, then in zip(learning, before, strict=True)])
    torch.testing.assert_close(moved[1][0], 1.5 * moved[0][0])
    torch.testing.assert_close(moved[1][1:], moved[0][1:])


def test_moments_of_other_weights_are_refused() -> None:
    learning = words_and_rest()
    optimiser = make_optimiser(TrainConfig(), learning)
    for parameter in learning:
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    tensors = optimiser_tensors(optimiser)
    restore_optimiser(make_optimiser(TrainConfig(), words_and_rest()), tensors)
    fewer = make_optimiser(TrainConfig(), nn.ParameterList(list(words_and_rest())[:2]))
    wider = make_optimiser(TrainConfig(), nn.ParameterList([torch.zeros(5, 4), *list(words_and_rest())[1:]]))
    for other in (fewer, wider):
        with pytest.raises(ValueError, match="another shape than the weight"):
            restore_optimiser(other, tensors)
