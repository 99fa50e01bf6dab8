from __future__ import annotations

import openai
import pytest

import tslm
from tslm.inference.score import score_lines


@pytest.fixture(scope="module")
def openai_client(server):
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_openai_package_lists_models(openai_client) -> None:
    assert [model.id for model in openai_client.models.list().data] == ["kn", "tslm", "lstm"]


def test_openai_package_completes(openai_client) -> None:
    options = {"model": "tslm", "prompt": "the cat", "max_tokens": 7, "seed": 3}
    done = openai_client.completions.create(n=2, **options)
    assert [choice.index for choice in done.choices] == [0, 1]
    assert done.choices[0].finish_reason in ("stop", "length")
    assert done.usage.prompt_tokens == 2
    assert done.usage.completion_tokens == sum(len(choice.text.split()) for choice in done.choices)
    chunks = list(openai_client.completions.create(stream=True, n=2, **options))
    for index in (0, 1):
        parts = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(part.text for part in parts) == done.choices[index].text
        assert parts[-1].finish_reason == done.choices[index].finish_reason


def test_log_probabilities_are_those_of_the_model(openai_client, runs) -> None:
    prompt = "the cat sat on the mat"
    done = openai_client.completions.create(model="kn", prompt=prompt, max_tokens=0, echo=True, logprobs=2)
    [choice] = done.choices
    assert choice.text == prompt
    [expected] = score_lines(tslm.load(runs["kn"]), [prompt])
    assert choice.logprobs.token_logprobs == pytest.approx(expected.log_probabilities[:-1].tolist())
    assert "".join(choice.logprobs.tokens) == prompt
    assert [prompt[offset:].split()[0] for offset in choice.logprobs.text_offset] == prompt.split()
    assert all(len(best) == 2 for best in choice.logprobs.top_logprobs)
    # An alternative is written as the token in its place: a likeliest token is found among them as it stands.
    for token, score, best in zip(
        choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True
    ):
        assert all(key.startswith(" ") == token.startswith(" ") for key in best if key != "\n")
        if score >= max(best.values()) - 1e-9:
            assert best[token] == pytest.approx(score)


def test_several_prompts_and_a_stop(openai_client) -> None:
    done = openai_client.completions.create(
        model="kn", prompt=["the cat", "a man"], max_tokens=30, stop=["the", "a"], seed=1
    )
    assert len(done.choices) == 2
    for choice in done.choices:
        assert not {"the", "a"} & set(choice.text.split())
        assert choice.finish_reason == "stop"


def test_errors_are_openai_errors(openai_client) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gpt'"):
        openai_client.completions.create(model="gpt", prompt="a")
    with pytest.raises(openai.UnprocessableEntityError):
        openai_client.completions.create(model="kn", prompt="a", max_tokens=10**9)


@pytest.mark.parametrize(
    "wish", [{"best_of": 3}, {"presence_penalty": 0.5}, {"logit_bias": {"a": 1.0}}, {"suffix": "b"}]
)
def test_wishes_that_are_not_offered_are_refused(openai_client, wish) -> None:
    (name,) = wish
    with pytest.raises(openai.UnprocessableEntityError, match=f"{name} is not offered"):
        openai_client.completions.create(model="kn", prompt="a", **wish)


def test_wishes_that_ask_for_nothing_are_met(openai_client) -> None:
    neutral = {"best_of": 2, "presence_penalty": 0.0, "frequency_penalty": 0, "logit_bias": {}, "user": "x"}
    assert len(openai_client.completions.create(model="kn", prompt="a", n=2, **neutral).choices) == 2
