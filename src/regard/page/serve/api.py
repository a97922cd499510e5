"""The routes of the API, with what they take and give; /api/docs.json tells of them."""

import asyncio
from collections.abc import Callable, Coroutine
from threading import Event
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from regard.page.serve.line import Line
from regard.page.serve.refusals import Problem, TooLong
from regard.page.serve.service import Service, Spot
from regard.page.serve.shapes import AtPair, AtQuery, AtTile, Given, Intervention, Made, Outcome, Pair, Question, Run
from regard.page.serve.tiles import Area

Found = TypeVar("Found")
BINARY = "application/octet-stream"

REASONS = {
    400: "The Host is another, or the body is no JSON.",
    403: "The page of another site has sent this.",
    404: "There is no such run, record, place or head.",
    408: "The body did not arrive in time.",
    413: "The body, or the record that it would make, is too large.",
    422: "What was asked does not fit.",
    429: "The line is full; Retry-After says when to ask again.",
    500: "The server has failed.",
    503: "Too many visitors; Retry-After says when to ask again.",
    504: "The work took too long and was given up.",
}


def routes(service: Service) -> APIRouter:
    api = APIRouter(prefix="/api")
    limits = service.limits

    @api.get("/runs", responses=_errors())
    async def runs() -> list[Run]:
        """The models that text can be put to."""
        return [Run(name=one.name, kind=one.kind, description=one.description) for one in service.subjects.values()]

    @api.get("/records", responses=_errors())
    async def records() -> list[Given]:
        """The records that the server was started with; those made since are known to who has made them."""
        given = service.records.given
        return [Given(id=name, text=record.sides[0].text[:100]) for name, record in given.items()]

    about = f"Look at a text, of at most {limits.characters:,} characters; the new record is kept for a while."

    @api.post("/look", description=about, responses=_errors(404, 408, 413, 429, 504))
    async def look(question: Question, request: Request) -> Made:
        work = service.look(question.run, question.text, question.other, question.prefix)
        return Made(id=await _while_there(request, work))

    @api.post("/records/{id}/intervene", responses=_errors(404, 408, 413, 429, 504))
    async def intervene(id: str, intervention: Intervention, request: Request) -> Outcome:  # noqa: A002
        """What the model of a record says with some of its heads changed, beside what it said."""
        work = service.intervene(id, [one.wish() for one in intervention.changes])
        return Outcome(**await _while_there(request, work))

    @api.get("/records/{id}", response_class=Response, responses=_errors(404, 429, 504) | _gives("application/json"))
    async def told(id: str) -> Response:  # noqa: A002
        """All of a record but its numbers."""
        return Download(service.downloads, service.told(id), limits.download_seconds, "application/json")

    @api.get("/records/{id}/payload", response_class=Response, responses=_errors(404, 429, 504) | _gives(BINARY))
    async def payload(id: str) -> Response:  # noqa: A002
        """What the page needs of a record, in its own container."""
        return Download(service.downloads, service.payload(id), limits.download_seconds, BINARY)

    @api.get("/records/{id}/file", response_class=Response, responses=_errors(404, 429, 504) | _gives(BINARY))
    async def file(id: str) -> Response:  # noqa: A002
        """The record as a file: safetensors."""
        return Download(service.downloads, service.file(id), limits.download_seconds, BINARY)

    about = f"Mean weights of cells, float32 (rows, cols), little-endian; at most {limits.cells} rows and columns."

    @api.get(
        "/records/{id}/tile",
        description=about,
        response_class=Response,
        responses=_errors(404, 429, 504) | _gives(BINARY, "X-Exact"),
    )
    async def tile(id: str, at: Annotated[AtTile, Query()]) -> Response:  # noqa: A002
        area = Area(at.top, at.bottom, at.left, at.right, at.rows, at.cols)
        found, exact = await service.tile(Spot(id, at.place, at.head), area)
        return Response(found, media_type=BINARY, headers={"X-Exact": str(int(exact))})

    @api.get("/records/{id}/row", response_class=Response, responses=_errors(404, 429, 504) | _gives(BINARY))
    async def row(id: str, at: Annotated[AtQuery, Query()]) -> Response:  # noqa: A002
        """The weights of one query, float32, little-endian."""
        return Response(await service.row(Spot(id, at.place, at.head), at.query), media_type=BINARY)

    @api.get("/records/{id}/pair", responses=_errors(404, 429, 504))
    async def pair(id: str, at: Annotated[AtPair, Query()]) -> Pair:  # noqa: A002
        """How the weight of one query and one key comes about."""
        return Pair(**await service.pair(Spot(id, at.place, at.head), at.query, at.key))

    return api


class Download(Response):
    """An answer that can be large: its turn ends when it has been sent, so that few are in memory at once."""

    def __init__(self, line: Line, work: Callable[[Event], bytes], seconds: float, media_type: str) -> None:
        super().__init__(media_type=media_type)
        self.line, self.work, self.seconds = line, work, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.line.turn() as turn:
            body = await turn.run(self.work, self.seconds)
            await Response(body, media_type=self.media_type)(scope, receive, send)


async def _while_there(request: Request, work: Coroutine[Any, Any, Found]) -> Found:
    """What the work finds, given up when the visitor goes away."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise TooLong("a visitor who has gone", "one who waits")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route can answer besides what it is for."""
    every = sorted({400, 403, 422, 500, 503, *statuses})
    return {status: {"model": Problem, "description": REASONS[status]} for status in every}


def _gives(media_type: str, header: str | None = None) -> dict[int | str, dict[str, Any]]:
    schema = {"type": "object"} if media_type == "application/json" else {"type": "string", "format": "binary"}
    told: dict[str, Any] = {"description": "As asked.", "content": {media_type: {"schema": schema}}}
    if header is not None:
        told["headers"] = {header: {"description": "1: exact, 0: an estimate.", "schema": {"enum": ["0", "1"]}}}
    return {200: told}
