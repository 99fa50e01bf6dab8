"""OpenAI's completions endpoint, so that clients written for it work: a token is a word as it is written."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from tslm.corpus.vocabulary import EOS
from tslm.files import finite
from tslm.inference.explain import explain_words
from tslm.inference.generate import Draw, Generation
from tslm.serve import schemas
from tslm.serve.api import STREAM, check_length, find_model, limits, stream_events, workers
from tslm.serve.limits import Refused
from tslm.serve.models import ServedModel, gather_samples

router = APIRouter(prefix="/v1")


@router.post("/completions", responses=STREAM, response_model=schemas.CompletionResponse)
async def complete(
    body: schemas.CompletionRequest, request: Request
) -> schemas.CompletionResponse | StreamingResponse:
    """Complete prompts as OpenAI's API does. Text ends at ``<eos>``, at ``stop`` or after ``max_tokens`` words."""
    model = find_model(request, body.model)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    number = body.n or 1
    if not 1 <= len(prompts) * number <= limits(request).samples:
        raise Refused(
            422, f"{len(prompts)} prompts × {number} are not between 1 and {limits(request).samples}"
        )
    for prompt in prompts:
        check_length(request, model, prompt)
    head = {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model.name,
    }
    generations = [_generation(model, body, prompt, number) for prompt in prompts]
    if generations[0] is not None:
        model.check_generation(generations[0], limits(request), times=len(prompts))
    if body.stream:
        if body.logprobs is not None or body.echo:
            raise Refused(422, "stream cannot be combined with logprobs or echo")
        events = _chunks(request, head, generations, number)
        return await stream_events(events, last="[DONE]")
    choices: list[schemas.Choice] = []
    written = 0
    for place, (prompt, generation) in enumerate(zip(prompts, generations, strict=True)):
        texts: list[list[Draw]] = [[] for _ in range(number)]
        if generation is not None:
            texts = await workers(request).compute(partial(gather_samples, generation))
        reasons = ["length"] * number if generation is None else generation.reasons
        for sample, (draws, reason) in enumerate(zip(texts, reasons, strict=True)):
            words = [draw.word for draw in draws]
            table = None
            if body.logprobs is not None:
                top = body.logprobs
                table = await workers(request).compute(
                    lambda prompt=prompt, words=words, top=top: _table(
                        model, prompt, words, top, bool(body.echo)
                    )
                )
            text = "" if generation is None else generation.write(words)
            written += len(words)
            choices.append(
                schemas.Choice.model_validate(
                    {
                        "text": (prompt if body.echo else "") + text,
                        "index": place * number + sample,
                        "logprobs": table,
                        "finish_reason": reason,
                    }
                )
            )
    read = sum(len(model.model.rule.split(prompt)) for prompt in prompts)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return schemas.CompletionResponse.model_validate({**head, "choices": choices, "usage": usage})


def _generation(
    model: ServedModel, body: schemas.CompletionRequest, prompt: str, number: int
) -> Generation | None:
    """Set up the samples of one prompt, or nothing where no word is asked for."""
    length = 16 if body.max_tokens is None else body.max_tokens
    if length == 0:
        return None
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return model.generation(
        prompt,
        number=number,
        length=length,
        stop=[EOS, *stop],
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=secrets.randbits(62) if body.seed is None else body.seed,
    )


async def _chunks(
    request: Request,
    head: dict[str, Any],
    generations: Sequence[Generation | None],
    number: int,
) -> AsyncGenerator[dict[str, Any], None]:
    for place, generation in enumerate(generations):
        ends = [""] * number
        if generation is not None:
            writers = [generation.writer() for _ in range(number)]
            async with aclosing(workers(request).compute_steps(generation.__iter__)) as steps:
                async for draws in steps:
                    for draw in draws:
                        text = writers[draw.sample].add(draw.word)
                        yield _chunk(head, place * number + draw.sample, text, None)
            ends = [writer.end() for writer in writers]
        for sample in range(number):
            reason = "length" if generation is None else generation.reasons[sample]
            yield _chunk(head, place * number + sample, ends[sample], reason)


def _chunk(head: dict[str, Any], index: int, text: str, reason: str | None) -> dict[str, Any]:
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": reason}
    return {**head, "choices": [choice]}


def _table(model: ServedModel, prompt: str, words: list[str], top: int, echo: bool) -> dict[str, Any]:
    """Return the log-probabilities of the words, those of the prompt before them where it is echoed."""
    given = model.model.rule.split_lines(prompt)
    reports = explain_words(model.model, [*given, *words], top=top)[0 if echo else len(given) :]
    writer = model.model.rule.writer(before=() if echo else given)
    tokens: list[str] = []
    offsets: list[int] = []
    best: list[dict[str, float]] = []
    position = 0 if echo else len(prompt)
    for report in reports:
        # An alternative is written as it would stand among the tokens.
        shown = {writer.show(entry.word): _log(entry.probability) for entry in report.alternatives}
        best.append({text: value for text, value in shown.items() if value is not None})
        tokens.append(writer.add(report.word))
        offsets.append(position)
        position += len(tokens[-1])
    return {
        "tokens": tokens,
        "token_logprobs": [finite(report.log_probability) for report in reports],
        "top_logprobs": best if top else None,
        "text_offset": offsets,
    }


def _log(probability: float) -> float | None:
    return math.log(probability) if probability > 0 else None
