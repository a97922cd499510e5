"""The FastAPI application: the static files of the page, and the API routes with their request and response models."""

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
from regard.errors import RecordError, RegardError
from regard.inspection import Record, collect
from regard.page.render import render_served_page
from regard.page.serve.intervention import Intervention, InterventionResult, NonNegativeInt, StrictModel
from regard.page.serve.limits import Limits
from regard.page.serve.middleware import RequestGuard
from regard.page.serve.queue import Work, WorkQueue
from regard.page.serve.serve_errors import ErrorResponse, ServeError, error_body, handle_error
from regard.page.serve.service import Service
from regard.page.tiles import ScoreBreakdown, TileBounds

Result = TypeVar("Result")
STATIC = Path(__file__).parent.parent / "static"
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css"}  # independent of the MIME tables of the machine
LOOPBACK = ("127.0.0.1", "localhost")
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": reason}
    for status, reason in {
        400: "Wrong Host header, or the body is not JSON.",
        403: "The request comes from another site.",
        404: "No such run, record, place or head.",
        408: "The body did not arrive in time.",
        413: "The body, or the resulting record, is too large.",
        422: "The request is invalid.",
        429: "The queue is full; see Retry-After.",
        500: "Internal server error.",
        503: "Too many clients, see Retry-After; or the server is stopping.",
        504: "The computation took too long and was cancelled.",
    }.items()
}
BINARY: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
OBJECT: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
EXACT = {"X-Exact": {"description": "1: exact, 0: an estimate.", "schema": {"enum": ["0", "1"]}}}


def make_app(
    adapters: Sequence[ModelAdapter],
    records: Mapping[str, Record | RecordError] = {},
    limits: Limits = Limits(),
    hosts: Sequence[str] = LOOPBACK,
    collect: Callable[..., Record] = collect,
) -> FastAPI:
    """An ASGI application that serves these models and records; `collect` makes a record of a model and a text. In
    place of a record that could not be read stands its error, which the list of records tells."""
    service = Service(adapters, records, limits, collect)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="regard",
        version=__version__,
        summary="Run models on text, and look at their attention.",
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
    app.include_router(make_routes(service))

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return HTMLResponse(render_served_page())

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        return static_file(name)

    return app


def static_file(name: str) -> Response:
    """A file of the page, by its exact name. (starlette's StaticFiles would serve any file of the folder.)"""
    found = {path.name: path for path in STATIC.glob("*") if path.suffix in MEDIA_TYPES and path.is_file()}
    if name not in found:
        raise ServeError("The page has no such file", where="static", status=404)
    kind = f"{MEDIA_TYPES[found[name].suffix]}; charset=utf-8"
    return Response(found[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})


def _is_unicode(text: str) -> str:
    """Refuse lone surrogates, which JSON can encode, but no tokenizer accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("text", "valid Unicode text") from None
    return text


Text = Annotated[str, AfterValidator(_is_unicode)]


class RunInfo(BaseModel):
    """A model that the server offers."""

    name: str
    kind: Kind
    description: str


class RecordInfo(BaseModel):
    """A record that the server was started with."""

    id: str
    text: str = Field(description="The first 100 characters of its text.")
    problem: str = Field(default="", description="Why it cannot be read, where it cannot.")


class LookRequest(StrictModel):
    """A text for a run. `other`: a second text, or a translation; `prefix`: the first tokens of the generated text."""

    run: Text
    text: Text
    other: Text | None = None
    prefix: list[NonNegativeInt] | None = None


class NewRecord(BaseModel):
    """The new record."""

    id: str


class HeadQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")
    place: NonNegativeInt = Field(description="Index of the place in the record.")
    head: NonNegativeInt


class TileQuery(HeadQuery):
    top: NonNegativeInt
    bottom: NonNegativeInt = Field(description="One past the last query.")
    left: NonNegativeInt
    right: NonNegativeInt = Field(description="One past the last key.")
    rows: NonNegativeInt = Field(ge=1, description="Query i is in row floor((i - top) rows / (bottom - top)).")
    cols: NonNegativeInt = Field(ge=1)


class RowQuery(HeadQuery):
    query: NonNegativeInt


class PairQuery(RowQuery):
    key: NonNegativeInt


def make_routes(service: Service) -> APIRouter:
    api = APIRouter(prefix="/api", responses=ERRORS)
    limits = service.limits

    def download(work: Work[bytes], media_type: str = "application/octet-stream") -> Response:
        return DownloadResponse(service.downloads, work, limits.download_seconds, media_type)

    @api.get("/runs")
    async def runs() -> list[RunInfo]:
        """The models."""
        return [RunInfo(name=one.name, kind=one.kind, description=one.description) for one in service.adapters.values()]

    @api.get("/records")
    async def records() -> list[RecordInfo]:
        """The records that the server was started with; the ids of later ones are known to their clients only."""
        found = [RecordInfo(id=name, text=record.title[:100]) for name, record in service.records.preloaded.items()]
        unread = service.records.unread.items()
        return found + [RecordInfo(id=name, text="", problem=error_body(error).error.message) for name, error in unread]

    about = f"Run a model on a text of at most {limits.characters:,} characters; the new record is stored for a while."

    @api.post("/look", description=about)
    async def look(body: LookRequest, request: Request) -> NewRecord:
        work = service.look(body.run, body.text, body.other, body.prefix)
        return NewRecord(id=await run_while_connected(request, work))

    @api.post("/records/{id}/intervene")
    async def intervene(id: str, intervention: Intervention, request: Request) -> InterventionResult:  # noqa: A002
        """The output of the model of a record with changed heads, compared with the original output."""
        return await run_while_connected(request, service.intervene(id, intervention.changes))

    @api.get("/records/{id}", response_class=Response, responses={200: {"content": OBJECT}})
    async def info(id: str) -> Response:  # noqa: A002
        """A record without its tensors."""
        return download(service.info(id), "application/json")

    @api.get("/records/{id}/payload", response_class=Response, responses={200: {"content": BINARY}})
    async def payload(id: str) -> Response:  # noqa: A002
        """The payload of the page, in its binary format."""
        return download(service.payload(id))

    @api.get("/records/{id}/file", response_class=Response, responses={200: {"content": BINARY}})
    async def file(id: str) -> Response:  # noqa: A002
        """The record as a safetensors file."""
        return download(service.file(id))

    about = f"Mean weights of cells: float32 (rows, cols), little-endian, at most {limits.cells} rows and columns."

    @api.get(
        "/records/{id}/tile",
        description=about,
        response_class=Response,
        responses={200: {"content": BINARY, "headers": EXACT}},
    )
    async def tile(id: str, at: Annotated[TileQuery, Query()]) -> Response:  # noqa: A002
        bounds = TileBounds(at.top, at.bottom, at.left, at.right, at.rows, at.cols)
        found, exact = await service.tile(id, at.place, at.head, bounds)
        return BinaryResponse(found, headers={"X-Exact": str(int(exact))})

    @api.get("/records/{id}/row", response_class=Response, responses={200: {"content": BINARY}})
    async def row(id: str, at: Annotated[RowQuery, Query()]) -> Response:  # noqa: A002
        """The weights of one query: float32, little-endian."""
        return BinaryResponse(await service.row(id, at.place, at.head, at.query))

    @api.get("/records/{id}/pair")
    async def pair(id: str, at: Annotated[PairQuery, Query()]) -> ScoreBreakdown:  # noqa: A002
        """The score of a query and a key, by dimension, and the weight that follows from it."""
        return await service.pair(id, at.place, at.head, at.query, at.key)

    return api


class BinaryResponse(Response):
    media_type = "application/octet-stream"


class DownloadResponse(Response):
    """A large response: it holds its slot until it has been sent, so that few are in memory at once."""

    def __init__(self, queue: WorkQueue, work: Work[bytes], seconds: float, media_type: str) -> None:
        super().__init__(media_type=media_type)
        self.queue, self.work, self.seconds = queue, work, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.queue.slot() as slot:
            body = await slot.run(self.work, self.seconds)
            await Response(body, media_type=self.media_type)(scope, receive, send)


async def run_while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of the work, which is cancelled when the client disconnects. (The guard has read the body: `receive`
    can only return the disconnect.)"""
    working, disconnect = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ServeError("Client disconnected", status=504)
        return working.result()
    finally:
        working.cancel()
        disconnect.cancel()
