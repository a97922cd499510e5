"""A training in a process of its own, to which things happen: it is killed, or its disk is full, at a chosen moment.

A moment is one of the things that the process does to its run folder, in their order: it opens a file for writing,
makes, renames or removes something, or waits for the disk. Each has a text, such as "rename state/step-00000003".
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from regard.errors import RegardError
from regard.training.recipe import PreparedTask, Recipe
from regard.training.train_run import train
from training import little

PATIENCE = 600  # seconds: only what hangs takes so long
WRITING = os.O_WRONLY | os.O_RDWR
TAKES_ROOM = ("write", "make", "sync")

PLANS: dict[str, dict[str, Any]] = {
    "averaged": {
        "optimiser": {"kind": "sgd", "momentum": 0.9},
        "weight_average": {"kind": "ema", "decay": 0.9},
        "checkpoint": {"every": 2},
    },
    "mean": {"weight_average": {"kind": "last", "count": 2}, "checkpoint": {"every": 2}, "log": {"every": 1}},
    "unexamined": {"checkpoint": {"every": 1}},
    "recurrent": {"checkpoint": {"every": 3}},
}


class Small(Recipe):
    """A training of tests/training/little.py, by name, as a task."""

    task: Literal["small"] = "small"

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        made = (little.reading if self.name == "recurrent" else little.little)(self, rank, ranks)
        if self.name != "unexamined":
            return made
        return PreparedTask(made.recipe, made.model, made.objective, made.train, None)


def small(name: str) -> Small:
    """The recipe of one of the plans: 12 steps that are saved often."""
    base = little.recipe(**PLANS[name]).model_dump() | {"task": "small", "name": name}
    return Small.model_validate(base)


class Full(OSError):
    """What a full disk says."""

    def __init__(self) -> None:
        super().__init__(errno.ENOSPC, os.strerror(errno.ENOSPC))


@dataclass(frozen=True)
class Fault:
    """What happens at a moment: the `at`-th one (from 0) whose text matches.

    "kill": the process ends there, at once. "half": it ends inside the next write, `size` bytes into a file.
    "full": from there on nothing finds room. "short": from there on the kernel lets no file grow beyond `size` bytes.
    "terminate": there and at every such moment after it, somebody sends a SIGTERM.
    """

    at: int = 0
    match: str = ""
    does: Literal["kill", "half", "full", "short", "terminate", "nothing"] = "kill"
    size: int = 0


NOTHING = Fault(does="nothing")


@dataclass
class Moments:
    """Listens to what this process does to a folder, and strikes."""

    folder: Path
    fault: Fault
    last_words: Callable[[str], None]
    seen: list[str] = field(default_factory=list)
    struck: bool = False

    def begin(self) -> None:
        wait = os.fsync

        def fsync(handle: int) -> None:
            self.hear(f"sync {self._name(os.readlink(f'/proc/self/fd/{handle}'))}")
            wait(handle)

        os.fsync = fsync  # type: ignore[assignment]
        if self.fault.does == "half":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as deadly as SIGKILL; Python ignores it otherwise
        sys.addaudithook(self.audit)

    def audit(self, event: str, details: tuple[Any, ...]) -> None:
        """Python calls this just before it does something."""
        match event, details:
            case "open", (str() | bytes() | os.PathLike(), _, flags) if flags & WRITING and self._here(details[0]):
                self.hear(f"write {self._name(details[0])}")
            case "os.mkdir" | "os.rename", (source, *_) if self._here(source):
                self.hear(f"{'make' if event == 'os.mkdir' else 'rename'} {self._name(source)}")
            case "os.remove" | "os.rmdir", (path, handle) if handle != -1 or self._here(path):
                self.hear(f"remove {self._name(path)}")

    def hear(self, text: str) -> None:
        if re.search(self.fault.match, text):
            self.seen.append(text)
            if len(self.seen) == self.fault.at + 1:
                self.strike(text)
            if self.struck and self.fault.does == "terminate":
                os.kill(os.getpid(), signal.SIGTERM)
        if self.struck and self.fault.does == "full" and text.startswith(TAKES_ROOM):
            raise Full

    def strike(self, text: str) -> None:
        self.struck = True
        if self.fault.does == "kill":
            self.last_words(text)
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault.does == "half":
            self.last_words(f"{text}, {self.fault.size} bytes later")
        if self.fault.does in ("half", "short"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.fault.size, self.fault.size))

    def _here(self, path: Any) -> bool:
        return os.fsdecode(path).startswith(str(self.folder))

    def _name(self, path: Any) -> str:
        return os.path.relpath(os.fsdecode(path), self.folder) if self._here(path) else os.fsdecode(path)


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: with a reason, with an error, or (`died`) at a moment."""

    reason: str | None = None
    error: Exception | None = None
    died: str | None = None
    moments: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def attempt(folder: Path, name: str, resume: bool, fault: Fault = NOTHING, after: float | None = None) -> Outcome:
    """Train in a new process; `after` so many seconds of training, it is killed from outside."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch.distributed.checkpoint", "torch.distributed.fsdp", "regard.training.train_run"]
    )
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_attempt, args=(folder, name, resume, fault, theirs))
    process.start()
    theirs.close()
    timer = threading.Timer(after or PATIENCE, process.kill)
    try:
        return _outcome(ours, timer, process.join)
    finally:
        timer.cancel()
        process.kill()


def _outcome(ours: Any, timer: threading.Timer, wait: Callable[[float], None]) -> Outcome:
    """What the process says, or its last words."""
    died = "before anything"
    try:
        while True:
            said = ours.recv()
            if isinstance(said, Outcome):
                wait(PATIENCE)
                return said
            if said == "training":
                timer.start()
                died = "some time"
            else:
                died = said
    except EOFError:
        wait(PATIENCE)
        return Outcome(died=died)


def _attempt(folder: Path, name: str, resume: bool, fault: Fault, theirs: Any) -> None:
    torch.set_num_threads(1)
    moments = Moments(folder, fault, theirs.send)
    told: list[str] = []
    moments.begin()
    theirs.send("training")
    try:
        ended = train(small(name), folder, resume=resume, notify=told.append)
    except RegardError as error:
        theirs.send(Outcome(error=error, moments=tuple(moments.seen), told=tuple(told)))
    except Exception as error:  # noqa: BLE001  it is shown in the test
        theirs.send(Outcome(error=RuntimeError(repr(error)), moments=tuple(moments.seen), told=tuple(told)))
    else:
        theirs.send(Outcome(ended.reason, moments=tuple(moments.seen), told=tuple(told)))
