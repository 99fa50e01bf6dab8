"""The real transformers opens our folders: same logits, same texts, every token read once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tslm
from tslm.corpus.embedded import Verses
from tslm.corpus.rule import TextRule
from tslm.corpus.subwords import Subwords
from tslm.corpus.vocabulary import EOS, UNK, Vocabulary
from tslm.corpus.words import Words
from tslm.errors import CorpusError, RunError, TslmError, UnsupportedError
from tslm.models.cached import CachedConfig, CachedModel
from tslm.models.interpolation import Interpolation, InterpolationConfig
from tslm.models.parts import Part
from tslm.models.recurrent.cells import CELLS
from tslm.models.recurrent.heads import HEADS
from tslm.models.recurrent.model import RecurrentModel
from tslm.models.registry import read_model
from tslm.runs.made import save_model

transformers = pytest.importorskip("transformers")

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    pipeline,
)

from tslm.interop.hf_cache import StateCache  # noqa: E402
from tslm.interop.hf_folder import export_hf, import_hf  # noqa: E402
from tslm.interop.hf_rules import write_fast_tokenizer  # noqa: E402
from tslm.interop.hf_tokenizer import TslmFastTokenizer, TslmTokenizer  # noqa: E402
from tslm.interop.huggingface import TslmConfig, TslmForCausalLM  # noqa: E402

PROMPT = "the old man saw the river\na woman"


NAMES = ["kn", "probabilistic", "tslm", "normalised", "gated", "lstm", "mix", "gated-mix", "cache"]


@pytest.fixture(scope="module")
def kinds(runs, tmp_path_factory) -> dict[str, Path]:
    """A run of every sort: recurrent, counted, of hidden states, two mixes, and one with a cache."""
    folder = tmp_path_factory.mktemp("kinds")
    counted, gated = tslm.open_run(runs["kn"]), tslm.open_run(runs["gated"])
    parts = [Part(run.model, run.recipe.model) for run in (counted, gated)]
    corpus = gated.open_corpus()
    mixed = Interpolation(InterpolationConfig(weights=(0.4, 0.6)), parts)
    save_model(mixed, folder / "mix", counted, corpus, parts=["ngram", "recurrent"])
    remembering = CachedModel(CachedConfig(weight=0.1, sharpness=2.0, size=20), parts[1])
    save_model(remembering, folder / "cache", gated, corpus, parts=["recurrent"])
    tslm.gate([runs["kn"], runs["gated"]], folder / "gated-mix")
    return {**runs, **{name: folder / name for name in ("mix", "gated-mix", "cache")}}


@pytest.fixture(scope="module")
def folders(kinds, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("hf")
    for name in NAMES:
        export_hf(tslm.open_run(kinds[name]), folder / name)
    return {name: folder / name for name in NAMES}


def opened(folder: Path):
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def our_logits(model, ids: list[int]) -> np.ndarray:
    """ln p of every word after each id, by our own protocol; the first id is the <eos> that a text begins with."""
    state = model.start(1)
    rows = [model.predict(state)[0]]
    for word in ids[1:]:
        _, state = model.score(np.array([[word]]), state)
        rows.append(model.predict(state)[0])
    return np.stack(rows)


@pytest.mark.parametrize("name", NAMES)
def test_same_logits_and_same_perplexity(folders, kinds, name) -> None:
    theirs, tokenizer = opened(folders[name])
    batch = tokenizer(PROMPT, return_tensors="pt")
    ids = batch["input_ids"]
    assert ids[0, 0] == tokenizer.bos_token_id == tokenizer.eos_token_id
    with torch.no_grad():
        result = theirs(**batch, labels=ids)
        last = theirs(**batch, logits_to_keep=2).logits
        unmarked = theirs(ids[:, 1:]).logits
    ours = our_logits(tslm.load(kinds[name]), ids[0].tolist())
    np.testing.assert_allclose(result.logits[0].numpy(), ours, atol=1e-5)
    np.testing.assert_allclose(last[0].numpy(), ours[-2:], atol=1e-5)
    np.testing.assert_allclose(unmarked[0].numpy(), ours[1:], atol=1e-5)
    scores = tslm.score(kinds[name], PROMPT.split("\n"), carry=True)
    # Ours counts the end of the last line too, which the prompt has not.
    nats = -scores.log_probabilities.sum() + scores[-1].log_probabilities[-1]
    assert float(result.loss) * (ids.shape[1] - 1) == pytest.approx(nats, abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_greedy_text_is_ours_and_every_token_is_read_once(folders, kinds, name, monkeypatch) -> None:
    theirs, tokenizer = opened(folders[name])
    lengths: list[int] = []
    read_rows = type(theirs).read_rows

    def counted(self, tokens_BT, states, keep):
        lengths.append(tokens_BT.shape[1])
        return read_rows(self, tokens_BT, states, keep)

    monkeypatch.setattr(type(theirs), "read_rows", counted)
    batch = tokenizer("the old man", return_tensors="pt")
    result = theirs.generate(**batch, max_new_tokens=8, do_sample=False)
    assert lengths == [4, *[1] * (result.shape[1] - 5)]
    ours = tslm.generate(kinds[name], "the old man", length=8, temperature=0.0)
    assert tokenizer.decode(result[0], skip_special_tokens=True) == str(ours[0])


class Drawn(LogitsProcessor):
    """Leaves only the word that our own sampler draws from the same logits with the same number."""

    def __init__(self, seed: int) -> None:
        self.numbers = np.random.default_rng([seed, 0]).random(64)
        self.step = 0

    def __call__(self, input_ids, scores):
        from tslm.inference.generate import Sampling, draw_words

        log_BV = scores.log_softmax(-1).double().numpy()
        words_B = draw_words(log_BV, self.numbers[self.step : self.step + 1], Sampling(top_k=5))
        self.step += 1
        return torch.full_like(scores, -torch.inf).scatter(1, torch.from_numpy(words_B)[:, None], 0.0)


@pytest.mark.parametrize("name", ["kn", "gated", "lstm", "mix"])
def test_sampled_text_is_ours_for_the_same_random_numbers(folders, kinds, name) -> None:
    theirs, tokenizer = opened(folders[name])
    batch = tokenizer("the dog", return_tensors="pt")
    drawn = LogitsProcessorList([Drawn(seed=5)])
    result = theirs.generate(**batch, max_new_tokens=8, do_sample=True, top_k=0, logits_processor=drawn)
    ours = tslm.generate(kinds[name], "the dog", length=8, top_k=5, seed=5)
    assert tokenizer.decode(result[0], skip_special_tokens=True) == str(ours[0])


@pytest.mark.parametrize("name", ["kn", "gated", "cache"])
def test_what_is_sampled_has_our_probabilities(folders, kinds, name) -> None:
    theirs, tokenizer = opened(folders[name])
    batch = tokenizer("the old", return_tensors="pt")
    transformers.set_seed(1)
    result = theirs.generate(**batch, max_new_tokens=1, do_sample=True, top_k=0, num_return_sequences=600)
    share_V = torch.bincount(result[:, -1], minlength=len(tokenizer)).numpy() / 600
    p_V = np.exp(our_logits(tslm.load(kinds[name]), batch["input_ids"][0].tolist())[-1])
    assert np.abs(share_V - p_V).max() < 4 * 0.5 / np.sqrt(600)


def beam_search(model, ids: list[int], beams: int, length: int) -> tuple[list[int], float]:
    """Plain beam search by our protocol, without ends: the best words and their ln p."""
    state = model.start(1)
    if len(ids) > 1:
        _, state = model.score(np.array([ids[1:]]), state)
    found = [(0.0, [], state)]
    for _ in range(length):
        longer = []
        for log_p, words, state in found:
            log_V = model.predict(state)[0].astype(np.float64)
            log_V[model.vocabulary.eos_id] = -np.inf
            for word in np.argsort(-log_V)[:beams]:
                longer.append((log_p + log_V[word], [*words, int(word)], state))
        best = sorted(longer, key=lambda one: -one[0])[:beams]
        found = [
            (log_p, words, model.score(np.array([[words[-1]]]), state)[1]) for log_p, words, state in best
        ]
    return found[0][1], found[0][0]


@pytest.mark.parametrize("name", ["kn", "tslm", "lstm", "mix", "cache"])
def test_beam_search_carries_the_states_with_the_beams(folders, kinds, name) -> None:
    theirs, tokenizer = opened(folders[name])
    batch = tokenizer("a woman", return_tensors="pt")
    options = {"num_beams": 4, "do_sample": False, "max_new_tokens": 6, "length_penalty": 0.0}
    result = theirs.generate(
        **batch,
        **options,
        suppress_tokens=[tokenizer.eos_token_id],
        return_dict_in_generate=True,
        output_scores=True,
    )
    words, log_p = beam_search(tslm.load(kinds[name]), batch["input_ids"][0].tolist(), 4, 6)
    assert result.sequences[0, 3:].tolist() == words
    assert float(result.sequences_scores[0]) == pytest.approx(log_p, abs=1e-4)


@pytest.mark.parametrize("name", ["kn", "gated", "cache"])
def test_padding_on_either_side_is_not_read(folders, name) -> None:
    theirs, tokenizer = opened(folders[name])
    texts = ["the cat", "the old man saw the", "a"]
    together = tokenizer(texts, return_tensors="pt", padding=True)
    assert together["attention_mask"][0, 0] == 0
    grown = theirs.generate(**together, max_new_tokens=5, do_sample=False)
    right = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
    with torch.no_grad():
        behind = theirs(**right).logits
    for row, text in enumerate(texts):
        alone = tokenizer(text, return_tensors="pt")
        expected = theirs.generate(**alone, max_new_tokens=5, do_sample=False)
        given = tokenizer.decode(grown[row], skip_special_tokens=True)
        assert given == tokenizer.decode(expected[0], skip_special_tokens=True)
        with torch.no_grad():
            logits = theirs(**alone).logits[0]
        torch.testing.assert_close(behind[row, : len(logits)], logits, atol=1e-5, rtol=0)


def test_a_cache_goes_on_where_it_was_and_cannot_go_back(folders) -> None:
    theirs, tokenizer = opened(folders["gated"])
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    cache = StateCache()
    with torch.no_grad():
        whole = theirs(ids).logits
        parts = [theirs(part, past_key_values=cache).logits for part in ids.split(3, dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=0)
    assert cache.get_seq_length() == ids.shape[1]
    with pytest.raises(UnsupportedError, match="cannot be taken back"):
        cache.crop(1)
    more = theirs.generate(
        ids, past_key_values=cache_of(theirs, ids[:, :-1]), max_new_tokens=3, do_sample=False
    )
    assert torch.equal(more, theirs.generate(ids, max_new_tokens=3, do_sample=False))


def cache_of(model, ids) -> StateCache:
    with torch.no_grad():
        return model(ids).past_key_values


@pytest.mark.parametrize("name", ["kn", "gated", "mix"])
def test_the_pipeline_writes_behind_the_prompt(folders, kinds, name) -> None:
    write = pipeline("text-generation", model=str(folders[name]))
    (result,) = write("the old man", max_new_tokens=6, do_sample=False)
    assert result["generated_text"] == str(
        tslm.generate(kinds[name], "the old man", length=6, temperature=0.0)[0]
    )
    prompts = ["the old man", "a woman saw"]
    both = write(prompts, max_new_tokens=4, do_sample=False, batch_size=2)
    for (given,), prompt in zip(both, prompts, strict=True):
        ours = tslm.generate(kinds[name], prompt, length=4, temperature=0.0)
        assert given["generated_text"] == str(ours[0])


def test_a_line_that_the_pipeline_begins_has_no_space_before_it(folders, kinds) -> None:
    write = pipeline("text-generation", model=str(folders["gated"]))
    for prompt in ("the old man\n", "the old man\n\n"):
        (result,) = write(prompt, max_new_tokens=4, do_sample=False)
        assert result["generated_text"].removeprefix(prompt)[0] not in " \n"
        (new,) = write(prompt, max_new_tokens=4, do_sample=False, return_full_text=False)
        assert prompt + new["generated_text"] == result["generated_text"]
    both = write(["the old man\n", "a"], max_new_tokens=4, do_sample=False, batch_size=2)
    assert both[0][0]["generated_text"][len("the old man\n")] != " "
    assert both[1][0]["generated_text"].startswith("a ")


@pytest.mark.parametrize("name", NAMES)
def test_there_and_back_is_the_same_model(folders, kinds, name, tmp_path) -> None:
    model = import_hf(folders[name], tmp_path / "back")
    expected = tslm.score(kinds[name], PROMPT).log_probabilities
    assert model.kind == tslm.load(kinds[name]).kind
    np.testing.assert_array_equal(tslm.score(tmp_path / "back", PROMPT).log_probabilities, expected)
    assert tslm.open_run(tmp_path / "back").summary == tslm.open_run(kinds[name]).summary
    with pytest.raises(RunError, match="holds a run already"):
        import_hf(folders[name], tmp_path / "back")


@pytest.mark.parametrize("name", ["kn", "probabilistic", "mix", "gated-mix", "cache"])
def test_what_transformers_saves_opens_again(folders, name, tmp_path) -> None:
    theirs, tokenizer = opened(folders[name])
    for _ in range(2):
        theirs.save_pretrained(tmp_path / "saved")
        tokenizer.save_pretrained(tmp_path / "saved")
    again, _ = opened(tmp_path / "saved")
    batch = tokenizer([PROMPT], return_tensors="pt")
    assert torch.equal(again(**batch).logits, theirs(**batch).logits)
    again.save_pretrained(tmp_path / "saved")  # into the folder it was opened from
    text = "the old man saw the river"
    ours = tslm.score(import_hf(tmp_path / "saved", tmp_path / "run"), text)
    assert ours.log_probabilities == tslm.score(folders[name] / "run", text).log_probabilities
    with pytest.raises(RunError, match="open it with from_pretrained"):
        type(theirs)(theirs.config).save_pretrained(tmp_path / "empty")


def test_a_folder_that_cannot_be_written_is_one_line(kinds, tmp_path, monkeypatch) -> None:
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with pytest.raises(TslmError, match="Read-only file system; choose another folder"):
            export_hf(tslm.open_run(kinds["kn"]), tmp_path / "new")


def test_training_goes_on_and_comes_back(folders, tmp_path) -> None:
    theirs, tokenizer = opened(folders["gated"])
    lines = ["the zebra saw the river", "the old man liked a house"] * 4
    before = -tslm.score(import_hf(folders["gated"], tmp_path / "before"), lines).log_probabilities.sum()
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    adam = torch.optim.AdamW(theirs.parameters(), lr=0.02)
    theirs.train()
    for _ in range(10):
        adam.zero_grad()
        theirs(**batch, labels=labels).loss.backward()
        adam.step()
    theirs.save_pretrained(tmp_path / "tuned")
    tokenizer.save_pretrained(tmp_path / "tuned")
    tuned = import_hf(tmp_path / "tuned", tmp_path / "after")
    # What was measured before is no result of these weights.
    assert tslm.open_run(tmp_path / "after").summary is None
    export_hf(tslm.open_run(tmp_path / "after"), tmp_path / "again")
    assert -tslm.score(tuned, lines).log_probabilities.sum() < 0.9 * before


SHAPES = [
    {
        "kind": "recurrent",
        "rank": 6,
        "embedding": 5,
        "layers": 2,
        "cell": {"kind": cell},
        "head": {"kind": head},
    }
    for cell in CELLS
    for head in HEADS
] + [{"kind": "recurrent", "rank": 6, "embedding": 5, "tied": False, "output_gate": "tanh"}]


@pytest.mark.parametrize("table", SHAPES, ids=lambda table: json.dumps(table.get("cell", "untied")))
def test_every_cell_and_head(table, tmp_path) -> None:
    vocabulary = Vocabulary(("the", "cat", "sat", "on", "a", "mat", "<unk>", EOS))
    config = TslmConfig(
        vocab_size=len(vocabulary),
        recipe={"model": table},
        eos_token_id=vocabulary.eos_id,
        bos_token_id=vocabulary.eos_id,
    )
    torch.manual_seed(3)
    new = AutoModelForCausalLM.from_config(config)
    new.save_pretrained(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    _, shape = read_model(table)
    ours = RecurrentModel(shape, vocabulary).eval()
    ours.load_state_dict(new.language_model.state_dict())
    for layer in range(shape.layers):
        ours.cell(layer).settle()
    ids = [vocabulary.eos_id, 0, 1, 2, 7, 3]
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0].numpy()
    np.testing.assert_allclose(logits, our_logits(ours, ids), atol=1e-5)
    theirs.train()
    theirs(torch.tensor([ids]), labels=torch.tensor([ids])).loss.backward()
    missing = [name for name, value in theirs.named_parameters() if value.grad is None]
    assert missing == []


def test_what_a_file_lacks_is_drawn_as_for_a_new_model(folders, tmp_path) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(folders["gated"], tmp_path / "hf")
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    embedding = weights.pop("language_model.embedding")
    save_file(weights, tmp_path / "hf" / "model.safetensors", metadata={"format": "pt"})
    model, info = TslmForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert set(info["missing_keys"]) == {"language_model.embedding"}
    drawn = model.language_model.embedding.detach()
    assert float(drawn.std()) == pytest.approx(embedding.shape[1] ** -0.5, rel=0.3)
    torch.testing.assert_close(model.language_model.bias.data, weights["language_model.bias"])


def tokenizer_of(rule: TextRule, words: list[str], folder: Path) -> TslmTokenizer:
    Vocabulary(tuple(dict.fromkeys([*words, EOS]))).save(folder / "vocabulary.txt")
    rule.save(folder / "text.json")
    return TslmTokenizer.from_pretrained(folder)


TEXT = (
    'He said: "Don’t pay $1,000.50 for Abel’s dog!" (naïve 日本語 🦓) <eos> a<eos>b\r\nAnd\u00a0then…\n\n end'
)


@pytest.mark.parametrize("kind", ["spaces", "words", "bpe", "asv"])
def test_the_tokenizer_is_the_rule(kind, tmp_path) -> None:
    counts = [(chunk, 3) for chunk in TEXT.split()]
    learnt = Subwords.learn(counts, lower=False, min_count=1, max_vocabulary=300)
    rules = {"spaces": TextRule(lower=True), "words": Words.make(), "bpe": learnt, "asv": Verses()}
    rule = rules[kind]
    words = rule.split_lines(TEXT)
    slow = tokenizer_of(rule, [*words, UNK, *(rule.all_words() or [])], tmp_path)
    slow.save_pretrained(tmp_path / "again")
    (tmp_path / "tokenizer.json").write_text(write_fast_tokenizer(rule, slow.vocabulary) or "")
    TslmFastTokenizer.from_pretrained(tmp_path).save_pretrained(tmp_path / "fast")
    again, fast = (
        AutoTokenizer.from_pretrained(tmp_path / name, config=TslmConfig()) for name in ("again", "fast")
    )
    assert (again.is_fast, fast.is_fast) == (False, True)
    assert len(fast) == len(again) == len(slow.vocabulary)
    assert fast("a", "b")["input_ids"] == again("a", "b")["input_ids"]
    for one in (slow, again, fast):
        ids = one(TEXT)["input_ids"]
        assert one.convert_ids_to_tokens(ids) == [EOS, *words]
        assert one.tokenize(TEXT) == words
        assert one.decode(ids, skip_special_tokens=True) == rule.join(words)
        if kind in ("spaces", "bpe"):  # the others write the marks of "a<eos>b" so that they read as <eos>
            assert one(one.decode(ids), add_special_tokens=False)["input_ids"] == ids
        # What goes on behind a text is written with its space.
        cut = next(place for place, word in enumerate(words) if word.lower().endswith("pay")) + 1
        text = one.decode(ids[:cut], skip_special_tokens=True) + one.decode(
            ids[cut:], skip_special_tokens=True
        )
        if kind in ("spaces", "bpe"):
            assert text == rule.join(words)
        else:  # a quotation that was opened before the cut is not known to be open behind it
            assert text.lower().startswith(rule.join(words[: cut + 2]).lower())
        with one.behind(ids[:cut]):
            assert one.decode(ids[:cut]).lstrip() + one.decode(ids[cut:]) == one.decode(ids).lstrip()
    # Its place in the text comes with each token.
    assert TEXT[slice(*fast(TEXT, return_offsets_mapping=True)["offset_mapping"][1])] == "He"


def test_a_vocabulary_that_the_library_cannot_follow_keeps_the_rule_itself() -> None:
    assert write_fast_tokenizer(TextRule(), Vocabulary(("the", EOS))) is None
    learnt = Subwords.learn([("cat", 3)], lower=False, min_count=1, max_vocabulary=260)
    assert write_fast_tokenizer(learnt, Vocabulary(("the", EOS, UNK))) is None


def test_a_word_without_an_unknown_to_stand_for_it(tmp_path) -> None:
    tokenizer = tokenizer_of(TextRule(), ["the", "cat"], tmp_path)
    assert tokenizer.unk_token is None
    with pytest.raises(CorpusError, match="the word 'dog' is not in the vocabulary"):
        tokenizer("the dog")


def test_the_command_line(kinds, tmp_path) -> None:
    def tslm_command(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tslm", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    hf, back = tmp_path / "hf", tmp_path / "back"
    done = tslm_command("export", "hf", kinds["gated"], hf)
    assert (done.returncode, done.stderr) == (0, "")
    assert "recurrent" in done.stdout
    assert AutoConfig.from_pretrained(hf).model_type == "tslm"
    again = tslm_command("export", "hf", kinds["gated"], hf)
    assert again.returncode == 2
    assert "is not empty" in again.stderr
    done = tslm_command("import", "hf", hf, back, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["parameters"] == tslm.load(kinds["gated"]).parameter_count
    (tmp_path / "empty").mkdir()
    wrong = tslm_command("import", "hf", tmp_path / "empty", tmp_path / "x")
    assert wrong.returncode == 2
    assert "has no config.json" in wrong.stderr
