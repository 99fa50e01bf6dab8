from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch

import tslm
from tslm.corpus.vocabulary import Vocabulary
from tslm.errors import CorpusError, SizeLimitError, UnsupportedError
from tslm.inference.cuts import KEPT, Moments, MomentStep, OperatorStep, Parts
from tslm.inference.drawing import draw_model
from tslm.inference.explain import explain
from tslm.models.recurrent.cells.gated import GatedConfig
from tslm.models.recurrent.cells.tslm import TslmConfig
from tslm.models.recurrent.config import RecurrentConfig
from tslm.models.recurrent.heads.mixture import MixtureConfig
from tslm.models.recurrent.model import RecurrentModel

WORDS = ("a", "<eos>", "b", "<unk>")


def small(variant, **more) -> RecurrentModel:
    torch.manual_seed(3)
    cell = (
        GatedConfig(split=variant == "split")
        if variant in ("gated", "split")
        else TslmConfig(variant=variant)
    )
    config = RecurrentConfig(rank=5, embedding=more.pop("embedding", 5), cell=cell, **more)
    model = RecurrentModel(config, Vocabulary(WORDS)).double().eval()
    with torch.no_grad():
        model.bias.copy_(torch.randn(4))
        for cell in model.cells:
            cell.W.add_(0.3 * torch.randn_like(cell.W))
    return model


def logits_behind(model, factors) -> torch.Tensor:
    """Eqs. 19, 20, straight: the state after some factors, the <eos> that begins a text before them."""
    cell = model.cell(0)
    alphas = model.embedding * math.sqrt(model.config.embedding)
    g = torch.ones(model.config.rank, dtype=torch.float64)
    for factor in [*cell.factors(alphas[model.vocabulary.eos_id]), *factors]:
        h = g * factor
        if cell.variant == "normalised":
            h = h / (1 + h.pow(2).mean()).sqrt()
        g = cell.recurrent_weight() @ h + cell.b
    latent = h if model.head.projection is None else model.head.projection(h)
    return model.output_VM @ latent + model.bias


@pytest.mark.parametrize("name", ["kn", "tslm", "lstm"])
def test_words_are_told_as_the_model_predicts_them(runs, name) -> None:
    model = tslm.load(runs[name])
    explanation = explain(model, "the cat sat on a zebra", top=4)
    state = model.start(1)
    for word in explanation.words:
        log_V = model.predict(state)[0].astype(np.float64)
        number = int(model.vocabulary.encode([word.word])[0])
        assert word.log_probability == pytest.approx(float(log_V[number]), rel=1e-5)
        assert word.surprise == pytest.approx(-float(log_V[number]) / math.log(2), rel=1e-5)
        assert word.rank == int((log_V > log_V[number]).sum()) + 1
        assert word.entropy == pytest.approx(-(np.exp(log_V) * log_V).sum() / math.log(2), rel=1e-5)
        best = np.exp(np.sort(log_V)[::-1][:4]).tolist()
        assert [entry.probability for entry in word.alternatives] == pytest.approx(best, rel=1e-5)
        for entry in word.alternatives:
            assert entry.probability == pytest.approx(
                float(np.exp(log_V[model.vocabulary.ids[entry.word]])), rel=1e-5
            )
        _, state = model.score(np.array([[number]]), state)
    assert [word.known for word in explanation.words] == [True] * 5 + [False, True]
    assert explanation.as_json()["words"][5]["unknown"] is True


@torch.no_grad()
@pytest.mark.parametrize("variant", ["pure", "biased", "bounded", "normalised"])
@pytest.mark.parametrize("reference", ["mean", "ones"])
def test_effects_equal_the_recursion_with_one_factor_replaced(variant, reference) -> None:
    model = small(variant, embedding=4)
    model.bias.data[:] = torch.randn(4)
    sentence = ["a", "b", "b", "a"]
    explanation = explain(model, " ".join(sentence), reference=reference)
    cell = model.cell(0)
    (all_VR,) = cell.factors(model.embedding * math.sqrt(model.config.embedding))
    replacement = all_VR.mean(0) if reference == "mean" else torch.ones_like(all_VR[0])
    ids = model.vocabulary.encode([*sentence, "<eos>"]).tolist()
    factors = [all_VR[number] for number in ids[:-1]]
    matrix = explanation.effects.matrix
    for s, t in itertools.product(range(5), range(5)):
        if s >= t:
            assert matrix[s, t] == 0
            continue
        changed = [*factors[:s], replacement, *factors[s + 1 : t]]
        before = logits_behind(model, factors[:t]).log_softmax(0)[ids[t]]
        after = logits_behind(model, changed).log_softmax(0)[ids[t]]
        assert matrix[s, t] == pytest.approx(float(before - after), abs=1e-9)
    assert explanation.effects.exact == (variant != "normalised")


@pytest.mark.parametrize("variant", ["pure", "biased", "bounded"])
def test_the_mean_word_contracts_the_network_over_all_words(variant) -> None:
    """Eq. 14: replacing a word by the mean is averaging the logits over every word in its place, exactly."""
    model = small(variant)
    cell = model.cell(0)
    (all_VR,) = cell.factors(model.embedding * math.sqrt(model.config.embedding))
    averaged = torch.stack([logits_behind(model, [all_VR[0], factor, all_VR[2]]) for factor in all_VR]).mean(
        0
    )
    torch.testing.assert_close(logits_behind(model, [all_VR[0], all_VR.mean(0), all_VR[2]]), averaged)


@torch.no_grad()
@pytest.mark.parametrize("gate", ["none", "linear"])
@pytest.mark.parametrize("variant", ["pure", "biased", "bounded", "gated", "split"])
def test_cut_ranks_equal_those_of_the_whole_matrix(variant, gate) -> None:
    """Every sentence of three words is run, and the matrix that the definition asks for is decomposed as a whole."""
    model = small(variant, output_gate=gate)
    explanation = explain(model, "a b a")
    ids = model.vocabulary.encode(["a", "b", "a"]).tolist()
    V, begin = len(WORDS), model.vocabulary.eos_id

    def chance(places, words) -> float:
        return math.prod(
            (1 - KEPT) / V + (KEPT if word == ids[place] else 0)
            for place, word in zip(places, words, strict=True)
        )

    def centred_logits(words) -> torch.Tensor:
        outputs_TBR, _ = model.read(torch.tensor([[begin], *[[word] for word in words]]), model.begin(1))
        # A softmax knows logits up to a constant: ln p has the same centre.
        log_V = model.head.predict(outputs_TBR[-1], model.output_VM, model.bias)[0]
        return log_V - log_V.mean()

    for cut in (1, 2, 3):
        lefts = list(itertools.product(range(V), repeat=cut))
        rights = list(itertools.product(range(V), repeat=3 - cut))
        rows = [
            torch.cat(
                [
                    centred_logits((*left, *right)) * math.sqrt(chance(range(cut, 3), right))
                    for right in rights
                ]
            )
            for left in lefts
        ]
        matrix = torch.stack(rows)
        weights = torch.tensor([chance(range(cut), left) for left in lefts], dtype=torch.float64)
        matrix = (matrix - weights @ matrix) * weights.sqrt().unsqueeze(1)
        shares = torch.linalg.svdvals(matrix) ** 2
        shares = shares / shares.sum()
        expected = math.exp(-float(torch.special.xlogy(shares, shares).sum()))
        assert explanation.cuts.ranks[cut - 1] == pytest.approx(expected, rel=1e-6)
    assert explanation.cuts.exact


def test_a_mean_by_moments_is_the_mean_of_the_matrices() -> None:
    torch.manual_seed(1)
    W = torch.randn(4, 4, dtype=torch.float64)
    own, others = (Parts(*torch.randn(3, count, 4, dtype=torch.float64)) for count in (1, 6))
    fast = MomentStep(W, own, Moments.of(others), 0.7)
    slow = OperatorStep(W, own, others, 0.7)
    root = torch.randn(4, 4, dtype=torch.float64)
    left = root @ root.mT, torch.randn(4, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    for one, other in zip(fast.push(left), slow.push(left), strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(fast.pull(left[0]), slow.pull(left[0]))


def test_many_words_with_gates_on_both_sides_are_represented_by_some(monkeypatch) -> None:
    monkeypatch.setattr("tslm.inference.chain.SPREAD", 3)
    monkeypatch.setattr("tslm.inference.cuts.SPREAD", 3)
    cuts = explain(small("split"), "a b a").cuts
    assert not cuts.exact
    assert "any of 3 words" in cuts.method


def test_what_is_infinite_has_no_number_in_json() -> None:
    model = small("biased", embedding=3)
    with torch.no_grad():
        model.cell(0).W.mul_(1e150)
    described = explain(model, "a b a b").as_json()
    json.dumps(described, allow_nan=False)
    assert None in described["state_norms"]


def test_norms_and_what_is_not_exact_says_so() -> None:
    model = small("normalised", embedding=3)
    explanation = explain(model, "a b a b")
    assert len(explanation.state_norms) == len(explanation.cuts.ranks) == 4
    assert not explanation.effects.exact
    assert not explanation.cuts.exact
    assert "held at this sentence's value" in explanation.cuts.method
    tokens = model.vocabulary.encode(["a", "b", "a", "b"])[None]
    _, state = model.score(tokens, model.start(1))
    assert explanation.state_norms[-1] == pytest.approx(float(state.output_BR.norm()), rel=1e-9)
    deep = explain(small("bounded", layers=2), "a b a b")
    assert not deep.effects.exact
    assert deep.cuts is None
    mixture = explain(small("bounded", head=MixtureConfig(experts=2)), "a b a b")
    assert not mixture.effects.exact
    assert len(mixture.cuts.ranks) == 4


@torch.no_grad()
@pytest.mark.parametrize("variant", ["pure", "biased", "bounded", "gated", "split"])
@pytest.mark.parametrize("gate", ["none", "linear"])
def test_contributions_of_an_exact_cell_add_up_to_the_logits(variant, gate) -> None:
    model = small(variant, embedding=4, output_gate=gate)
    sentence = ["a", "b", "b", "a"]
    contributions = explain(model, " ".join(sentence)).contributions
    assert contributions.exact
    ids = model.vocabulary.encode([*sentence, "<eos>"])
    state = model.start(1)
    mean_bias = float(model.bias.mean())
    for t, number in enumerate(ids.tolist()):
        # A softmax knows logits up to a constant: compared with their mean.
        log_V = model.predict(state)[0]
        expected = log_V[number] - log_V.mean() - float(model.bias[number]) + mean_bias
        assert contributions.matrix[:, t].sum() == pytest.approx(expected, abs=1e-9)
        assert (contributions.matrix[t + 1 :, t] == 0).all()
        _, state = model.score(np.array([[number]]), state)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["pure", "bounded", "gated", "split"])
def test_contributions_through_products_are_shapley_values(variant) -> None:
    """Each word's share is what it adds in the mean over all orders in which the words' terms may come in."""
    model = small(variant, embedding=4, output_gate="product")
    assert model.product is not None
    model.product.add_(0.5 * torch.randn_like(model.product))
    sentence = ["a", "b", "b", "a"]
    explanation = explain(model, " ".join(sentence))
    assert explanation.contributions.exact
    assert "half is each one's" in explanation.contributions.method
    assert not explanation.effects.exact
    assert "read out through products" in explanation.effects.method
    ids = model.vocabulary.encode(["<eos>", *sentence, "<eos>"])
    words_TM = model.embed(torch.from_numpy(ids[:-1].astype(np.int64)))
    A_TRR, c_TR, first_TR = model.cell(0).operators(words_TM)
    weight_VM = model.output_VM - model.output_VM.mean(0)
    terms: list[torch.Tensor] = []
    for t, number in enumerate(ids[1:].tolist()):
        terms = [A_TRR[t] @ term for term in terms] + [first_TR[0] if t == 0 else c_TR[t]]

        def logit(players, t=t, number=number, terms=terms) -> float:
            state_R = sum((terms[s] for s in players), torch.zeros_like(terms[0]))
            read_R = model.open_gate(words_TM[t]) * state_R * (1 + model.product @ state_R)
            return float(weight_VM[number] @ model.head(read_R[None])[0][0, 0])

        shares = np.zeros(t + 1)
        orders = list(itertools.permutations(range(t + 1)))
        for order in orders:
            for place, player in enumerate(order):
                shares[player] += (logit(order[: place + 1]) - logit(order[:place])) / len(orders)
        np.testing.assert_allclose(explanation.contributions.matrix[: t + 1, t], shares, atol=1e-10)
        assert (explanation.contributions.matrix[t + 1 :, t] == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("variant", ["bounded", "gated"])
def test_a_stack_that_adds_up_has_the_first_layers_contributions(variant) -> None:
    model = small(variant, embedding=4, output_gate="linear", layers=2, skip=True)
    sentence = ["a", "b", "b", "a"]
    explanation = explain(model, " ".join(sentence))
    assert not explanation.contributions.exact
    assert "in the first layer" in explanation.contributions.method
    assert explanation.cuts is None
    ids = model.vocabulary.encode(["<eos>", *sentence, "<eos>"])
    words_TM = model.embed(torch.from_numpy(ids[:-1].astype(np.int64)))
    states_TBR, _ = model.cell(0)(words_TM.unsqueeze(1), model.cell(0).start(1))
    latents_TM = model.head(model.read_out(states_TBR[:, 0], words_TM))[0][:, 0]
    for t, number in enumerate(ids[1:].tolist()):
        logits_V = model.output_VM @ latents_TM[t]
        expected = float(logits_V[number] - logits_V.mean())
        assert explanation.contributions.matrix[:, t].sum() == pytest.approx(expected, abs=1e-9)
    without = explain(small(variant, embedding=4, output_gate="linear", layers=2), " ".join(sentence))
    assert without.contributions is None
    # The layers' states meet in products: no share is the first one's alone.
    mixed = small(variant, embedding=4, output_gate="product", layers=2, skip=True)
    assert explain(mixed, " ".join(sentence)).contributions is None


def cascade(variant, gate) -> RecurrentModel:
    model = small(variant, embedding=4, output_gate=gate, layers=3, cascade=True)
    with torch.no_grad():
        # Large enough for the highest powers to show.
        for name, parameter in model.named_parameters():
            if name.startswith(("feeds", "product")):
                parameter.add_(torch.randn_like(parameter))
    return model


def read_slowly(model, words_TM, parts, keep=None) -> list[torch.Tensor]:
    """Return what is read out behind words that bring a part of what they add; ``keep``: one that changes nothing."""
    R = model.config.rank
    states, read = [torch.zeros(R, dtype=torch.float64) for _ in model.cells], []
    for t, word_M in enumerate(words_TM):
        fed, total = torch.zeros(R, dtype=torch.float64), torch.zeros(R, dtype=torch.float64)
        for layer, cell in enumerate(model.cells):
            A_RR, c_R, _ = (part[0] for part in cell.operators(word_M[None]))
            free_R = 1 - torch.sigmoid(cell.U[:R] @ word_M + cell.c[:R])
            free_R = free_R.sqrt() if cell.split else free_R
            if t != keep:
                states[layer] = A_RR @ states[layer] + parts[t] * c_R + free_R * fed
            last = layer == len(model.feeds)
            gate, Q_RR = (
                (model.gate, model.product) if last else (model.feeds[layer].gate, model.feeds[layer].product)
            )
            out_R = states[layer] * (1 if Q_RR is None else 1 + Q_RR @ states[layer])
            if gate is not None:
                out_R = 1.3 * torch.sigmoid(gate.weight @ word_M + gate.bias) * out_R
            total = total + out_R
            fed = torch.zeros_like(fed) if last else model.feeds[layer].A @ out_R
        read.append(total)
    return read


@torch.no_grad()
@pytest.mark.parametrize(("variant", "gate"), [("split", "linear"), ("gated", "product")])
def test_contributions_of_a_cascade_are_what_words_add_while_all_come_in_together(variant, gate) -> None:
    model = cascade(variant, gate)
    sentence = ["a", "b", "b", "a"]
    explanation = explain(model, " ".join(sentence))
    assert explanation.contributions.exact
    assert explanation.cuts is None
    matrix = explanation.contributions.matrix
    ids = model.vocabulary.encode(["<eos>", *sentence, "<eos>"])
    words_TM = model.embed(torch.from_numpy(ids[:-1].astype(np.int64)))
    weight_VM = model.output_VM - model.output_VM.mean(0)

    def logits(parts) -> np.ndarray:
        latents_TM = model.head(torch.stack(read_slowly(model, words_TM, parts)))[0][:, 0]
        return (weight_VM[ids[1:].astype(np.int64)] * latents_TM).sum(-1).numpy()

    np.testing.assert_allclose(matrix.sum(0), logits(np.ones(5)), atol=1e-9)
    # The integral by more nodes than can be needed, the slopes by differences.
    (nodes, weights), little = np.polynomial.legendre.leggauss(6), 1e-5
    expected = np.zeros((5, 5))
    for s in range(5):
        for node, weight in zip(nodes, weights / 2, strict=True):
            parts = np.full((2, 5), (node + 1) / 2)
            parts[:, s] += [little, -little]
            expected[s] += weight * (logits(parts[0]) - logits(parts[1])) / (2 * little)
    np.testing.assert_allclose(matrix, expected, rtol=1e-6, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("reference", ["mean", "ones"])
def test_effects_in_a_cascade_equal_reading_with_a_stand_in(reference) -> None:
    model = cascade("gated", "product")
    sentence = ["a", "b", "a"]
    matrix = explain(model, " ".join(sentence), reference=reference).effects.matrix
    ids = model.vocabulary.encode(["<eos>", *sentence, "<eos>"])
    words_TM = model.embed(torch.from_numpy(ids[:-1].astype(np.int64)))
    assert (np.tril(matrix) == 0).all()

    def score(outputs_R, word) -> float:
        return float(model.head.predict(outputs_R[None], model.output_VM, model.bias)[0, word])

    true = read_slowly(model, words_TM, np.ones(4))
    for s in range(1, 4):
        if reference == "ones":
            for t in range(s, 4):
                found = read_slowly(model, words_TM, np.ones(4), keep=s)
                expected = score(true[t], ids[t + 1]) - score(found[t], ids[t + 1])
                assert matrix[s - 1, t] == pytest.approx(expected, abs=1e-9)
            continue
        # The mean of the states after each word, then the sentence's own words.
        _, before = model.read(torch.from_numpy(ids[:s].astype(np.int64))[:, None], model.begin(1))
        each = [model.read(torch.tensor([[v]]), before)[1] for v in range(4)]
        state = tuple((sum(after[layer][0] for after in each) / 4,) for layer in range(3))
        for t in range(s + 1, 4):
            outputs_TBR, state = model.read(torch.tensor([[int(ids[t])]]), state)
            expected = score(true[t], ids[t + 1]) - score(outputs_TBR[0, 0], ids[t + 1])
            assert matrix[s - 1, t] == pytest.approx(expected, abs=1e-9)


@torch.no_grad()
@pytest.mark.parametrize("variant", ["gated", "split"])
@pytest.mark.parametrize("gate", ["none", "linear"])
def test_effects_in_a_cascade_read_out_linearly_average_the_logits(variant, gate) -> None:
    """Eq. 14, by brute force: every word of the vocabulary in one place, and the mean of the logits behind it."""
    model = cascade(variant, gate)
    explanation = explain(model, "a b a")
    assert explanation.effects.exact
    assert explanation.effects.method.startswith("exact contraction of the logits")
    ids = model.vocabulary.encode(["<eos>", "a", "b", "a", "<eos>"]).astype(np.int64).tolist()

    def outputs(read) -> torch.Tensor:
        return model.read(torch.tensor(read)[:, None], model.begin(1))[0][-1, 0]

    for s, t in [(1, 2), (1, 3), (2, 3)]:
        read = ids[: t + 1]
        mean_R = torch.stack([outputs([*read[:s], v, *read[s + 1 :]]) for v in range(4)]).mean(0)
        true_V, mean_V = (
            model.head.predict(outputs_R[None], model.output_VM, model.bias)[0]
            for outputs_R in (outputs(read), mean_R)
        )
        expected = float(true_V[ids[t + 1]] - mean_V[ids[t + 1]])
        assert explanation.effects.matrix[s - 1, t] == pytest.approx(expected, abs=1e-9)


def test_a_sentence_is_explained_without_dropout() -> None:
    model = small("gated", embedding=4, layers=2, cascade=True, output_gate="product", dropout_input=0.5)
    expected = explain(model, "a b a")
    found = explain(model.train(), "a b a")
    assert model.training
    np.testing.assert_array_equal(found.effects.matrix, expected.effects.matrix)
    np.testing.assert_array_equal(found.contributions.matrix, expected.contributions.matrix)


def test_a_cascade_with_a_mixture_or_tanh_has_no_exact_shares() -> None:
    for more in ({"output_gate": "tanh"}, {"output_gate": "product", "head": MixtureConfig(experts=2)}):
        explanation = explain(small("gated", embedding=4, layers=2, cascade=True, **more), "a b")
        assert explanation.contributions is None
        assert explanation.effects is not None


@torch.no_grad()
@pytest.mark.parametrize("variant", ["gated", "split"])
def test_effects_of_a_gated_cell_average_the_logits_over_all_words(variant) -> None:
    """Eq. 14, by brute force: every word of the vocabulary in one place, and the mean of the logits behind it."""
    model = small(variant, output_gate="linear")
    words = model.embed(torch.arange(4))
    ids = model.vocabulary.encode(["a", "b", "a", "<eos>"]).tolist()
    matrix = explain(model, "a b a").effects.matrix

    def logits(places):
        states_TBR, _ = model.cell(0)(words[places].unsqueeze(1), model.cell(0).start(1))
        # The gate belongs to the word that is read last in the sentence itself.
        return states_TBR[-1, 0]

    for s, t in [(0, 2), (1, 2), (0, 3)]:
        read = [model.vocabulary.eos_id, *ids[:t]]
        state_R = torch.stack([logits([*read[: s + 1], v, *read[s + 2 :]]) for v in range(4)]).mean(0)
        after_V = model.head.predict(
            model.read_out(state_R, words[read[-1]])[None], model.output_VM, model.bias
        )[0]
        before_V = model.head.predict(
            model.read_out(logits(read), words[read[-1]])[None], model.output_VM, model.bias
        )[0]
        assert matrix[s, t] == pytest.approx(float(before_V[ids[t]] - after_V[ids[t]]), abs=1e-9)


def test_a_tanh_on_the_way_out_is_said(runs) -> None:
    explanation = explain(small("gated", output_gate="tanh"), "a b")
    assert not explanation.effects.exact
    assert "read out through tanh" in explanation.effects.method
    assert not explanation.contributions.exact
    assert not explanation.cuts.exact
    assert "the last state" in explanation.cuts.method


def test_other_models_read_the_sentence_again_with_unk(runs) -> None:
    model = tslm.load(runs["kn"])
    words = ["the", "cat", "sat", "on"]
    explanation = explain(model, " ".join(words))
    assert explanation.state_norms is None
    assert explanation.cuts is None
    assert "<unk>" in explanation.effects.method
    assert not explanation.effects.exact
    ids = model.vocabulary.encode([*words, "<eos>"])
    whole, _ = model.score(ids[None], model.start(1))
    ids[1] = model.vocabulary.unk_id
    changed, _ = model.score(ids[None], model.start(1))
    np.testing.assert_allclose(
        explanation.effects.matrix[1, 2:], (whole - changed)[0, 2:], rtol=1e-9, atol=1e-12
    )


def test_wrong_sentences_are_refused(runs) -> None:
    model = tslm.load(runs["kn"])
    with pytest.raises(CorpusError, match="no word"):
        explain(model, "  ")
    with pytest.raises(SizeLimitError, match="201 words"):
        explain(model, "the " * 201)
    with pytest.raises(UnsupportedError, match="no chain of tensors"):
        draw_model(model, "the cat")


def test_network_is_drawn_with_its_real_sizes(runs) -> None:
    svg = draw_model(tslm.load(runs["tslm"]), "the <script>alert(1)</script> sat")
    assert "r = 12" in svg
    assert "m = 10" in svg
    assert "<script" not in svg
    with pytest.raises(SizeLimitError):
        draw_model(tslm.load(runs["tslm"]), "the " * 25)
    with pytest.raises(CorpusError):
        draw_model(tslm.load(runs["tslm"]), "")
