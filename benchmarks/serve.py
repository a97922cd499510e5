"""Load test of `regard serve`: many clients at once, response times, statuses and memory.

    python benchmarks/serve.py [--seconds 30] [--clients 200] [--pause 0]

The server runs in its own process, with a record of 512 tokens and a model with random attention. Each client keeps its
connection and sends the next request after a pause, by default none: then the server is never idle, and the response
time is the number of clients over its throughput. Requests are tiles anywhere in the map, rows, the list of runs, and
1% looks. Prints the counts of statuses (200, 429 and 503 are documented, others are failures), the times of small
requests, and the server's memory before, after and at its peak (Linux only). Writes benchmarks/results/serve.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from run_record import run_record

LENGTH, HEADS, WIDTH, PLACES = 512, 8, 32, 4
LOOKS = 0.01  # of all requests
ALLOWED = {200, 429, 503}
ID = "sample"


def dice() -> Any:
    """The adapter of a model whose attention is random; it works about as long as a small model does."""
    import torch

    from regard.adapters.torch_module import TorchAdapter
    from regard.attention.tap import Tap

    class Dice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.ModuleDict({"tap": Tap()}) for _ in range(PLACES))

        def forward(self, ids: torch.Tensor) -> None:
            for layer in self.layers:
                q, k = torch.randn(2, 1, HEADS, ids.size(1), WIDTH)
                layer["tap"](q, k)

    class Words:
        def encode(self, text: str) -> list[int]:
            return list(range(len(text.split())))

        def decode(self, ids: list[int]) -> str:
            return " ".join(f"word{number}" for number in ids)

    return TorchAdapter(Dice(), Words(), "dice", "random numbers")


def drawn(length: int) -> Any:
    """A record of this many tokens."""
    import torch

    from regard.attention.attend import attend
    from regard.inspection.record.build_place import merge_statistics, record_observe, store_qk
    from regard.inspection.record.place import PlaceRecord
    from regard.inspection.record.record import Record
    from regard.inspection.record.token_axis import TokenAxis

    places = []
    for layer in range(PLACES):
        q, k = torch.randn(2, 1, HEADS, length, WIDTH)
        calls = [attend(q, k, observe=record_observe(length))]
        kept = store_qk(calls, None)
        places.append(PlaceRecord(f"{layer}.self", layer, "self", 0, 0, HEADS, merge_statistics(calls, kept), kept))
    return Record((TokenAxis.from_tokens("text", [f"word{i}" for i in range(length)]),), tuple(places))


def run_server() -> None:
    from regard.page.serve import serve

    serve([dice()], {ID: drawn(LENGTH)}, port=0, ready=lambda address: print(address, flush=True))


class Client:
    """One client, which sends request after request."""

    def __init__(self, port: int, number: int, pause: float, found: list[tuple[str, int, float]]) -> None:
        self.port, self.pause, self.found, self.draw = port, pause, found, random.Random(number)
        self.connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask_until(self, end: float) -> None:
        while time.perf_counter() < end:
            kind, request = self.request()
            begin = time.perf_counter()
            status = await self.answer(request)
            self.found.append((kind, status, time.perf_counter() - begin))
            await asyncio.sleep(0.2 if status in (429, 503) else 2 * self.pause * self.draw.random())
        if self.connection is not None:
            self.connection[1].close()

    def request(self) -> tuple[str, bytes]:
        draw = self.draw
        if draw.random() < LOOKS:
            body = json.dumps({"run": "dice", "text": "word " * draw.randint(5, 100)}).encode()
            head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            return "look", b"POST /api/look HTTP/1.1\r\n" + head.encode() + body
        kind = draw.choice(["tile", "tile", "row", "runs"])
        spot = f"place={draw.randrange(PLACES)}&head={draw.randrange(HEADS)}"
        size = draw.choice([32, 64, 128])
        top, left = draw.randrange(LENGTH - size), draw.randrange(LENGTH - size)
        box = f"top={top}&bottom={top + size}&left={left}&right={left + size}&rows=32&cols=32"
        path = {
            "runs": "/api/runs",
            "row": f"/api/records/{ID}/row?{spot}&query={top}",
            "tile": f"/api/records/{ID}/tile?{spot}&{box}",
        }[kind]
        return kind, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    async def answer(self, request: bytes) -> int:
        """The status of the answer; 0 where none came."""
        try:
            if self.connection is None:
                self.connection = await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = self.connection
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
            fields = dict(line.split(": ", 1) for line in head[1:] if line)
            await reader.readexactly(int(fields["content-length"]))
        except (OSError, asyncio.IncompleteReadError):
            self.connection = None
            return 0
        if fields.get("connection") == "close":
            writer.close()
            self.connection = None
        return int(head[0].split()[1])


async def load(port: int, clients: int, seconds: float, pause: float = 0.0) -> list[tuple[str, int, float]]:
    found: list[tuple[str, int, float]] = []
    end = time.perf_counter() + seconds
    await asyncio.gather(*(Client(port, number, pause, found).ask_until(end) for number in range(clients)))
    return found


def memory(process: int) -> dict[str, float]:
    """Current and peak memory of a process, in megabytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[key].split()[0]) / 1000 for name, key in (("now", "VmRSS"), ("peak", "VmHWM"))}


def share(times: Sequence[float], part: float) -> float:
    """A percentile of the times, in milliseconds."""
    return 1000 * sorted(times)[min(len(times) - 1, int(part * len(times)))]


def measure(clients: int, seconds: float, pause: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--as-server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().strip().rstrip("/").rsplit(":", 1)[1])
            asyncio.run(load(port, 2, 1))  # so that what is loaded on first use is there
            before = memory(server.pid)
            found = asyncio.run(load(port, clients, seconds, pause))
            after = memory(server.pid)
        finally:
            server.terminate()
    small = [took for kind, status, took in found if kind != "look" and status == 200]
    looks = [took for kind, status, took in found if kind == "look" and status == 200]
    return {
        "clients": clients,
        "seconds": seconds,
        "pause": pause,
        "statuses": dict(sorted(Counter(str(status) for _, status, _ in found).items())),
        "looks": dict(sorted(Counter(str(status) for kind, status, _ in found if kind == "look").items())),
        "small requests a second": len(small) / seconds,
        "small, ms": {f"p{part}": share(small, part / 100) for part in (50, 95, 99)},
        "looks, ms": {f"p{part}": share(looks, part / 100) for part in (50, 95)} if looks else {},
        "memory, MB": {"before": before["now"], "after": after["now"], "peak": after["peak"]},
        "failures": sum(status not in ALLOWED for _, status, _ in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds, on average")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--as-server", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_server:
        run_server()
        return
    found = measure(given.clients, given.seconds, given.pause)
    for name, value in found.items():
        shown = "  ".join(f"{k} {v:,.5g}" for k, v in value.items()) if isinstance(value, dict) else f"{value:,.5g}"
        print(f"{name:<24} {shown}")
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "serve.json").write_text(
        json.dumps({"machine": run_record("fastapi", "uvicorn", seeds=list(range(given.clients))), **found}, indent=1)
        + "\n"
    )
    sys.exit(bool(found["failures"]))


if __name__ == "__main__":
    main()
