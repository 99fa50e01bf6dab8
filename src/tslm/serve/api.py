"""The API of our own: models, score, generate, fill, explain."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from tslm.errors import TslmError, nearest
from tslm.inference.generate import Draw, Generation
from tslm.memory import giving_back
from tslm.serve import schemas
from tslm.serve.limits import Limits, Refused, error_body
from tslm.serve.models import ServedModel, gather_samples
from tslm.serve.workers import Workers

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Error, "description": "The body is not JSON"},
    403: {"model": schemas.Error, "description": "Asked under another name, or from a stranger's page"},
    404: {"model": schemas.Error, "description": "No such model"},
    408: {"model": schemas.Error, "description": "The request did not arrive in time"},
    413: {"model": schemas.Error, "description": "Too long, or too much work"},
    415: {"model": schemas.Error, "description": "The body is not said to be JSON"},
    422: {"model": schemas.Error, "description": "A value is wrong, or the model cannot do this"},
    429: {"model": schemas.Error, "description": "Too many requests are waiting"},
    500: {"model": schemas.Error, "description": "A fault of the server"},
    503: {"model": schemas.Error, "description": "It took too long"},
}
STREAM: dict[int | str, dict[str, Any]] = {
    **ERRORS,
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
}

logger = logging.getLogger("uvicorn.error")

router = APIRouter(prefix="/v1")


@router.get("/models")
async def list_models(request: Request) -> schemas.ModelList:
    """List the models."""
    models: dict[str, ServedModel] = request.app.state.models
    return schemas.ModelList(data=[schemas.ModelCard(**model.describe()) for model in models.values()])


@router.get("/health")
async def health() -> dict[str, str]:
    """Say that the server lives."""
    return {"status": "ok"}


@router.post("/score", responses=ERRORS)
async def score(body: schemas.ScoreRequest, request: Request) -> schemas.ScoreResponse:
    """Give every word of every line its probability and its surprise."""
    model = find_model(request, body.model)
    check_text(request, model, body.text)
    report = await workers(request).compute(
        lambda: model.score(body.text, body.alternatives, carry=body.carry)
    )
    return schemas.ScoreResponse(**report)


@router.post("/explain", responses=ERRORS)
async def explain(body: schemas.ExplainRequest, request: Request) -> schemas.ExplainResponse:
    """Explain one sentence: alternatives, effects of words on words, ranks of the cuts."""
    model = find_model(request, body.model)
    check_text(request, model, body.text, limits(request).explained_words)
    options = {"top": body.alternatives, "reference": body.replace, "network": body.network}
    report = await workers(request).compute(lambda: model.explain(body.text, **options))
    return schemas.ExplainResponse(**report)


@router.post("/fill", responses=ERRORS)
async def fill(body: schemas.FillRequest, request: Request) -> schemas.FillResponse:
    """Fill the blanks (``?``) of a sentence, exactly; n-gram models can."""
    model = find_model(request, body.model)
    check_text(request, model, body.pattern, limits(request).explained_words)
    parsed = model.parse(body.pattern, limits(request))

    def work() -> dict[str, Any]:
        return model.fill(parsed, span=body.span, top=body.top, samples=body.samples, seed=body.seed)

    report = await workers(request).compute(lambda: giving_back(work))
    return schemas.FillResponse(**report)


@router.post("/generate", responses=STREAM, response_model=schemas.GenerateResponse)
async def generate(
    body: schemas.GenerateRequest, request: Request
) -> schemas.GenerateResponse | StreamingResponse:
    """Go on with a text; with ``stream``, each event is a word and the sample it belongs to."""
    model = find_model(request, body.model)
    check_length(request, model, body.prompt)
    generation = model.generation(
        body.prompt,
        number=body.number,
        length=min(body.length, limits(request).generated_words),
        stop=body.stop,
        unk=body.unk,
        temperature=body.temperature,
        top_k=body.top_k,
        top_p=body.top_p,
        seed=body.seed,
    )
    model.check_generation(generation, limits(request))
    if body.stream:
        return await stream_events(_events(workers(request).compute_steps(generation.__iter__), generation))
    texts = await workers(request).compute(lambda: gather_samples(generation))
    return schemas.GenerateResponse(
        model=model.name,
        prompt=body.prompt,
        samples=[
            schemas.Sample.model_validate(
                {
                    "text": generation.write(draw.word for draw in draws),
                    "log_probability": sum(draw.log_probability for draw in draws),
                    "reason": reason,
                }
            )
            for draws, reason in zip(texts, generation.reasons, strict=True)
        ],
    )


async def _events(
    steps: AsyncGenerator[list[Draw], None], generation: Generation
) -> AsyncGenerator[dict[str, Any], None]:
    writers = [generation.writer() for _ in generation.reasons]
    async with aclosing(steps):
        async for draws in steps:
            for draw in draws:
                text = writers[draw.sample].add(draw.word)
                yield {
                    "sample": draw.sample,
                    "word": draw.word,
                    "text": text,
                    "log_probability": draw.log_probability,
                }
    yield {"done": True, "reasons": generation.reasons}


async def stream_events(
    events: AsyncGenerator[dict[str, Any], None], last: str | None = None
) -> StreamingResponse:
    """Return server-sent events. The first is waited for, so that a refusal is still an error status."""
    first = await anext(events, None)

    async def lines() -> AsyncIterator[str]:
        async with aclosing(events):
            if first is not None:
                yield f"data: {json.dumps(first, ensure_ascii=False)}\n\n"
                # The status has been sent; what goes wrong from here on is said in the stream.
                try:
                    async for event in events:
                        yield f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
                except Refused as refused:
                    yield f"data: {json.dumps(error_body(refused.status, refused.message))}\n\n"
                    return
                except TslmError as error:
                    yield f"data: {json.dumps(error_body(422, str(error)))}\n\n"
                    return
                except Exception as error:
                    logger.exception("a stream broke off")
                    yield f"data: {json.dumps(error_body(500, f'a fault of the server ({type(error).__name__})'))}\n\n"
                    return
            if last is not None:
                yield f"data: {last}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"cache-control": "no-store"})


def workers(request: Request) -> Workers:
    """Return the threads of the server."""
    return request.app.state.workers


def limits(request: Request) -> Limits:
    """Return the limits of the server."""
    return request.app.state.limits


def find_model(request: Request, name: str | None) -> ServedModel:
    """Return the model of a name, or the first.

    Raises:
        Refused: there is none of that name (404).
    """
    models: dict[str, ServedModel] = request.app.state.models
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise Refused(404, f"no model {name[:100]!r}: {nearest(name, models)}")
    return models[name]


def check_text(request: Request, model: ServedModel, text: str, most: int | None = None) -> None:
    """Raise unless a text has at least one word and not too many."""
    if not text.split():
        raise Refused(422, "the text has no word; give at least one")
    check_length(request, model, text, most)


def check_length(request: Request, model: ServedModel, text: str, most: int | None = None) -> None:
    """Raise a 413 for a text of too many words, counted as the model reads them."""
    most = most or limits(request).words
    count = len(model.model.rule.split(text))
    if count > most:
        raise Refused(413, f"the text has {count:,} words; at most {most:,} are taken here")
