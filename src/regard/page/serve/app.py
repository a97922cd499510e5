"""The FastAPI application: the page's files, and the routes of the API with what they take and give."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from regard import __version__
from regard.adapters import Kind, ModelAdapter
from regard.errors import RegardError
from regard.inspection import Record, collect
from regard.page.render import served_page
from regard.page.serve.intervention import Intervention, Number, Outcome, Strict
from regard.page.serve.limits import Limits
from regard.page.serve.middleware import RequestGuard
from regard.page.serve.queue import Work, WorkQueue
from regard.page.serve.serve_errors import Problem, ServeError, handle_error
from regard.page.serve.service import Service
from regard.page.tiles import Area, Pair

Found = TypeVar("Found")
STATIC = Path(__file__).parent.parent / "static"
TYPES = {".js": "text/javascript", ".css": "text/css"}  # not as the machine's own tables say
LOOPBACK = ("127.0.0.1", "localhost")
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": reason}
    for status, reason in {
        400: "The Host is another, or the body is no JSON.",
        403: "The page of another site has sent this.",
        404: "There is no such run, record, place or head.",
        408: "The body did not arrive in time.",
        413: "The body, or the record that it would make, is too large.",
        422: "What was asked does not fit.",
        429: "The queue is full; Retry-After says when to ask again.",
        500: "The server has failed.",
        503: "Too many clients; Retry-After says when to ask again.",
        504: "The work took too long and was cancelled.",
    }.items()
}
BINARY: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
OBJECT: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
EXACT = {"X-Exact": {"description": "1: exact, 0: an estimate.", "schema": {"enum": ["0", "1"]}}}


def make_app(
    subjects: Sequence[ModelAdapter],
    records: Mapping[str, Record] = {},
    limits: Limits = Limits(),
    hosts: Sequence[str] = LOOPBACK,
    collect: Callable[..., Record] = collect,
) -> FastAPI:
    """An ASGI application in which clients put text to these models, and look at these records, by their ids.

    `collect`: what makes a record of a model and a text.
    """
    service = Service(subjects, records, limits, collect)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="regard",
        version=__version__,
        summary="Put text to models, and look at what they attend to.",
        openapi_url="/api/docs.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(RequestGuard, limits=limits, hosts=hosts)
    for kind in (RegardError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, handle_error)
    app.include_router(routes(service))

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return HTMLResponse(served_page())

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        return page_file(name)

    return app


def page_file(name: str) -> Response:
    """A file of the page, by its exact name. (starlette's StaticFiles gives out whatever lies in the folder.)"""
    found = {path.name: path for path in STATIC.glob("*") if path.suffix in TYPES and path.is_file()}
    if name not in found:
        raise ServeError("a file that the page does not have", "one that it has", where="static", status=404)
    kind = f"{TYPES[found[name].suffix]}; charset=utf-8"
    return Response(found[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})


def _is_unicode(text: str) -> str:
    """Half of a pair of surrogates, which JSON can spell, is no character, and no tokenizer takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("text", "characters of Unicode alone") from None
    return text


Text = Annotated[str, AfterValidator(_is_unicode)]


class Run(BaseModel):
    """A model that text can be put to."""

    name: str
    kind: Kind
    description: str


class Given(BaseModel):
    """A record that the server was started with."""

    id: str
    text: str = Field(description="How its text begins.")


class Question(Strict):
    """A text, and for which run. `other`: a second text, or a translation; `prefix`: tokens that the writing begins
    with."""

    run: Text
    text: Text
    other: Text | None = None
    prefix: list[Number] | None = None


class Made(BaseModel):
    """The new record."""

    id: str


class AtHead(BaseModel):
    model_config = ConfigDict(extra="forbid")
    place: Number = Field(description="Number of the place, as the record lists them.")
    head: Number


class AtTile(AtHead):
    top: Number
    bottom: Number = Field(description="One past the last query.")
    left: Number
    right: Number = Field(description="One past the last key.")
    rows: Number = Field(ge=1, description="Query i is in row floor((i - top) rows / (bottom - top)).")
    cols: Number = Field(ge=1)


class AtQuery(AtHead):
    query: Number


class AtPair(AtQuery):
    key: Number


def routes(service: Service) -> APIRouter:
    api = APIRouter(prefix="/api", responses=ERRORS)
    limits = service.limits

    def download(work: Work[bytes], media_type: str = "application/octet-stream") -> Response:
        return Download(service.downloads, work, limits.download_seconds, media_type)

    @api.get("/runs")
    async def runs() -> list[Run]:
        """The models that text can be put to."""
        return [Run(name=one.name, kind=one.kind, description=one.description) for one in service.subjects.values()]

    @api.get("/records")
    async def records() -> list[Given]:
        """The records that the server was started with; those made since are known to who has made them."""
        given = service.records.given
        return [Given(id=name, text=record.sides[0].text[:100]) for name, record in given.items()]

    about = f"Look at a text, of at most {limits.characters:,} characters; the new record is kept for a while."

    @api.post("/look", description=about)
    async def look(question: Question, request: Request) -> Made:
        work = service.look(question.run, question.text, question.other, question.prefix)
        return Made(id=await unless_disconnected(request, work))

    @api.post("/records/{id}/intervene")
    async def intervene(id: str, intervention: Intervention, request: Request) -> Outcome:  # noqa: A002
        """What the model of a record says with some of its heads changed, beside what it said."""
        return await unless_disconnected(request, service.intervene(id, intervention.changes))

    @api.get("/records/{id}", response_class=Response, responses={200: {"content": OBJECT}})
    async def told(id: str) -> Response:  # noqa: A002
        """All of a record but its numbers."""
        return download(service.told(id), "application/json")

    @api.get("/records/{id}/payload", response_class=Response, responses={200: {"content": BINARY}})
    async def payload(id: str) -> Response:  # noqa: A002
        """What the page needs of a record, in its own container."""
        return download(service.payload(id))

    @api.get("/records/{id}/file", response_class=Response, responses={200: {"content": BINARY}})
    async def file(id: str) -> Response:  # noqa: A002
        """The record as a file: safetensors."""
        return download(service.file(id))

    about = f"Mean weights of cells, float32 (rows, cols), little-endian; at most {limits.cells} rows and columns."

    @api.get(
        "/records/{id}/tile",
        description=about,
        response_class=Response,
        responses={200: {"content": BINARY, "headers": EXACT}},
    )
    async def tile(id: str, at: Annotated[AtTile, Query()]) -> Response:  # noqa: A002
        area = Area(at.top, at.bottom, at.left, at.right, at.rows, at.cols)
        found, exact = await service.tile(id, at.place, at.head, area)
        return Binary(found, headers={"X-Exact": str(int(exact))})

    @api.get("/records/{id}/row", response_class=Response, responses={200: {"content": BINARY}})
    async def row(id: str, at: Annotated[AtQuery, Query()]) -> Response:  # noqa: A002
        """The weights of one query, float32, little-endian."""
        return Binary(await service.row(id, at.place, at.head, at.query))

    @api.get("/records/{id}/pair")
    async def pair(id: str, at: Annotated[AtPair, Query()]) -> Pair:  # noqa: A002
        """How the weight of one query and one key comes about."""
        return await service.pair(id, at.place, at.head, at.query, at.key)

    return api


class Binary(Response):
    media_type = "application/octet-stream"


class Download(Response):
    """An answer that can be large: it keeps its slot until it has been sent, so that few are in memory at once."""

    def __init__(self, queue: WorkQueue, work: Work[bytes], seconds: float, media_type: str) -> None:
        super().__init__(media_type=media_type)
        self.queue, self.work, self.seconds = queue, work, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.queue.slot() as slot:
            body = await slot.run(self.work, self.seconds)
            await Response(body, media_type=self.media_type)(scope, receive, send)


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, Found]) -> Found:
    """What the work finds; it is cancelled when the client disconnects. (The guard has read the body: all that
    `receive` can still bring is the disconnect.)"""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ServeError("a client that has disconnected", "one that waits", status=504)
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
