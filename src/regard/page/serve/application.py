"""The application: the page's files, the API, and the guard before both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from regard import __version__
from regard.adapters import ModelAdapter
from regard.errors import RegardError
from regard.inspection.record.collect import collect
from regard.inspection.record.record import Record
from regard.page.serve.answers import tell_http, tell_invalid, tell_refusal
from regard.page.serve.api import routes
from regard.page.serve.guard import Guard
from regard.page.serve.limits import Limits
from regard.page.serve.refusals import Missing
from regard.page.serve.service import Service

STATIC = Path(__file__).parent.parent / "static"
# By ending, and not as the machine's own tables would have it.
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
LOOPBACK = ("127.0.0.1", "localhost")


def make_app(
    subjects: Sequence[ModelAdapter],
    records: Mapping[str, Record] = {},
    limits: Limits = Limits(),
    hosts: Sequence[str] = LOOPBACK,
    collect: Callable[..., Record] = collect,
) -> FastAPI:
    """An ASGI application in which visitors put text to these subjects, and look at these records, by their ids.

    `collect`: what makes a record of a subject and a text.
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
    app.add_middleware(Guard, limits=limits, hosts=hosts)
    for kind, tell in (
        (RegardError, tell_refusal),
        (HTTPException, tell_http),
        (RequestValidationError, tell_invalid),
    ):
        app.add_exception_handler(kind, tell)
    app.include_router(routes(service))

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return page_file("index.html")

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        return page_file(name)

    return app


def page_file(name: str) -> Response:
    """A file of the page, by its exact name."""
    found = {path.name: path for path in STATIC.glob("*") if path.suffix in TYPES and path.is_file()}
    if name not in found:
        raise Missing("a file that the page does not have", "one that it has", where="static")
    kind = f"{TYPES[found[name].suffix]}; charset=utf-8"
    return Response(found[name].read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})
