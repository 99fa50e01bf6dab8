"""What the API takes and gives."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def _check_characters(text: str) -> str:
    """Refuse half of a character: it can be read from JSON, but not be written as UTF-8 again."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"character {error.start + 1} is a lone surrogate, half of a character") from error
    return text


Text = Annotated[str, AfterValidator(_check_characters)]
"""Any text that can be sent back."""


class Request(BaseModel):
    """Takes no key it does not know and turns no string into a number."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: Text | None = Field(
        default=None, max_length=200, description="One of /v1/models; the first where left out."
    )


class ScoreRequest(Request):
    """Sentences to score, one per line."""

    text: Text = Field(min_length=1, max_length=60_000)
    alternatives: int = Field(
        default=0, ge=0, le=20, description="How many likely words to give in each place."
    )
    carry: bool = Field(
        default=False, description="Read the lines as one text: what was read of one is known in the next."
    )


class GenerateRequest(Request):
    """Text to go on with."""

    prompt: Text = Field(default="", max_length=60_000)
    number: int = Field(default=1, ge=1, le=16)
    length: int = Field(default=50, ge=1, le=1000)
    temperature: float = Field(default=1.0, ge=0, le=100)
    top_k: int = Field(default=0, ge=0, le=1_000_000)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = Field(default=1, ge=0, le=2**63)
    stop: list[Text] = Field(default=["<eos>"], max_length=8, description="End a sample before any of these.")
    unk: bool = Field(default=True, description="Whether <unk> may be drawn.")
    stream: bool = Field(default=False, description="Send words as server-sent events as they are drawn.")


class FillRequest(Request):
    """A sentence with blanks."""

    pattern: Text = Field(min_length=1, max_length=60_000)
    span: Literal["sentence", "prefix", "suffix", "fragment"] = "sentence"
    top: int = Field(default=5, ge=1, le=20)
    samples: int = Field(default=0, ge=0, le=16)
    seed: int = Field(default=1, ge=0, le=2**63)


class ExplainRequest(Request):
    """A sentence to explain."""

    text: Text = Field(min_length=1, max_length=60_000)
    alternatives: int = Field(default=5, ge=0, le=20)
    replace: Literal["mean", "ones"] = "mean"
    network: bool = Field(
        default=False, description="Also draw the sentence's tensor network (TSLM, up to 24 words)."
    )


class CompletionRequest(BaseModel):
    """A request of OpenAI's completions endpoint; keys that mean nothing here are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)

    model: Text | None = Field(default=None, max_length=200)
    prompt: Text | list[Text] = Field(default="", description="A prompt or several; token ids are not taken.")
    max_tokens: int | None = Field(default=16, ge=0, le=1000)
    temperature: float | None = Field(default=1.0, ge=0, le=100)
    top_p: float | None = Field(default=1.0, gt=0, le=1)
    n: int | None = Field(default=1, ge=1, le=16)
    seed: int | None = Field(default=None, ge=0, le=2**63)
    stop: Text | list[Text] | None = None
    stream: bool | None = False
    logprobs: int | None = Field(default=None, ge=0, le=20)
    echo: bool | None = False
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    suffix: Text | None = None

    @model_validator(mode="after")
    def _refuse_unknown_wishes(self) -> CompletionRequest:
        """Refuse what would change the answer and is not offered here, instead of answering as if it were."""
        if self.best_of not in (None, 1, self.n):
            raise ValueError("best_of is not offered: ask for n samples and choose by their logprobs")
        for key in ("presence_penalty", "frequency_penalty", "logit_bias", "suffix"):
            if getattr(self, key):
                raise ValueError(f"{key} is not offered; leave it out")
        return self


class ModelCard(BaseModel):
    """A model that is being served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "tslm"
    kind: str
    parameters: int
    vocabulary: int
    fills: bool
    """Whether it can fill blanks."""
    network: bool
    """Whether its sentences are tensor networks that can be drawn."""
    cache: bool = False
    """Whether it, or a part of it, remembers the words that it has just read; ``carry`` lets it do so across lines."""
    example: str = ""
    """A sentence to begin with, of the text that it was made for."""


class ModelList(BaseModel):
    """All models that are being served."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Alternative(BaseModel):
    """A word that could have stood here."""

    word: str
    text: str | None = None
    """What would be written for it here, a space before it where one belongs; in scored lines."""
    probability: float


class Word(BaseModel):
    """A word with its score; null stands for minus infinity."""

    word: str
    text: str | None = None
    """What is written for it here; a scored line's texts, one after the other, are the line."""
    unknown: bool
    log_probability: float | None
    probability: float
    rank: int
    surprise: float | None
    uncached: float | None = None
    """The surprise without the cache, for a model that has one; null for others."""
    entropy: float
    alternatives: list[Alternative]


class Sentence(BaseModel):
    """A scored line; its last word is ``<eos>``."""

    log_probability: float | None
    words: list[Word]


class ScoreResponse(BaseModel):
    """Scored lines and their total."""

    model: str
    perplexity: float | None
    perplexity_per_word: float | None
    """Per word between white space, each line's end counted as one, whatever the model's text rule."""
    bits_per_byte: float | None
    tokens: int
    unknown: int
    sentences: list[Sentence]


class Sample(BaseModel):
    """A generated text without its prompt."""

    text: str
    """What goes on from the prompt, with a space at its beginning where one belongs."""
    log_probability: float
    reason: Literal["stop", "length"]


class GenerateResponse(BaseModel):
    """Generated texts."""

    model: str
    prompt: str
    samples: list[Sample]


class Blank(BaseModel):
    """A blank and its best words."""

    place: int
    best: list[Alternative]


class Filled(BaseModel):
    """One way to fill all blanks."""

    words: list[str]
    text: str
    probability: float


class FillResponse(BaseModel):
    """What a model says about a pattern; ``log_probability`` is null where it is impossible."""

    model: str
    log_probability: float | None
    blanks: list[Blank]
    fillings: list[Filled]
    samples: list[str] = []


class EffectMatrix(BaseModel):
    """Row s, column t: how many nats word s adds to ln p of word t."""

    method: str
    exact: bool
    matrix: list[list[float | None]]


class CutRanks(BaseModel):
    """The effective rank behind each word, and what the two sides say of each other in bits."""

    method: str
    exact: bool
    ranks: list[float]
    information: list[float] | None = None


class Emitted(BaseModel):
    """A word and its probability from a state."""

    word: str
    probability: float


class HiddenState(BaseModel):
    """A hidden state, its probability given the whole sentence, and what it emits most."""

    number: int
    probability: float
    words: list[Emitted]


class WordStates(BaseModel):
    """The likeliest hidden states of a word, and the words that share them."""

    cluster: int
    cluster_words: list[str]
    states: list[HiddenState]


class ExplainResponse(BaseModel):
    """A sentence explained; what a model cannot say is null."""

    model: str
    log_probability: float | None
    words: list[Word]
    effects: EffectMatrix | None
    contributions: EffectMatrix | None
    """Row s, column t: what place s (the beginning of the text, then the words) adds to the logit of word t."""
    state_norms: list[float] | None
    cuts: CutRanks | None
    states: list[WordStates] | None = None
    """For a probabilistic model."""
    network: str | None = None
    """The tensor network of the sentence as SVG."""


class LogProbabilities(BaseModel):
    """OpenAI's form of log-probabilities."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class Choice(BaseModel):
    """One completion."""

    text: str
    index: int
    logprobs: LogProbabilities | None = None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    """How many words were read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionResponse(BaseModel):
    """OpenAI's form of a completion."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    code: int


class Error(BaseModel):
    """The body of every answer that is not 200."""

    error: ErrorDetail
