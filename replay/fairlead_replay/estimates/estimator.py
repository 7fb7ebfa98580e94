"""The estimator from the outside: its process is started, fed with the log, asked, and stopped where an answer takes too long.

The process for the past owns it. It starts with the first question, or when the owner has run for a while: most local stacks never
need it. Its state is kept in a file from time to time; a file that cannot be read is as if it were not there. Start at `Estimator`.
"""

import asyncio
import contextlib
import hashlib
import os
import sys
from pathlib import Path

import structlog

from fairlead_bus.log import LogReader, identity
from fairlead_bus.port import Bus, BusError, LogDamaged
from fairlead_replay.estimates.frames import FRAME_MAX, LENGTH, Ask, Commits, Dump, Frame, Restore, encode_frame
from fairlead_schemas.queries.estimates import ANSWER_S, EstimatesAnswer
from fairlead_schemas.wire import subjects

#: Without a question it starts after this time: a stack at rest, or one of a test, does not pay for it.
START_S = 1800.0
#: Pause between two reads of a few commits.
READ_S = 0.2
#: After a fault it starts again after this time, or with the next question.
AGAIN_S = 5.0
#: Commits between two files.
KEEP_COMMITS = 50_000
#: Questions that may wait.
WAITING_MAX = 16
#: Longest time to start, restore or dump.
SLOW_S = 60.0
_DIGEST = 32

log = structlog.get_logger()


class EstimatorGone(Exception):
    """The process has ended, or was stopped."""


class Estimator:
    """Process that estimates starts, and who feeds it."""

    def __init__(self, bus: Bus, directory: Path, *, start_s: float = START_S, answer_s: float = ANSWER_S) -> None:
        self._bus, self._directory = bus, directory
        self._start_s, self._answer_s = start_s, answer_s
        self._process: asyncio.subprocess.Process | None = None
        self._pipe = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._asked: set[asyncio.Task[bytes]] = set()
        self._waiting = 0
        self._path: Path | None = None
        #: Sequence up to which the process was fed, and the log's end as it was last asked for.
        self.fed = self.last = 0
        self.answered = self.refused = 0

    @property
    def pid(self) -> int | None:
        """PID of the process; None: it does not run."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def run(self) -> None:
        """Feed the process until cancelled; a process that ends is started anew."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._start_s):
                    await self._wanted.wait()
            while True:
                try:
                    await self._feed_while_alive()
                except (EstimatorGone, OSError, TimeoutError, BusError) as error:
                    log.warning("estimator ended, it is started anew", reason=str(error) or type(error).__name__)
                self._wanted.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_S):
                        await self._wanted.wait()
        except LogDamaged as error:
            log.error("estimator stopped: the log is damaged", reason=str(error))
        finally:
            await asyncio.gather(*self._asked, return_exceptions=True)

    async def ask(self, question: bytes, sequence: int) -> EstimatesAnswer | bytes:
        """Return the answer's bytes, or why there is none. `sequence`: the answer is of this or a later one."""
        self._wanted.set()
        if self._waiting >= WAITING_MAX:
            return self._refuse("busy", f"{WAITING_MAX} questions wait already; ask again")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._answer_s):
                while not self.pid or self.fed < max(sequence, self.last):  # noqa: ASYNC110 -- a wait is rare and short
                    await asyncio.sleep(0.02)
                asked = asyncio.create_task(self._answer(question))
                self._asked.add(asked)
                asked.add_done_callback(self._asked.discard)
                answer = await asyncio.shield(asked)
        except TimeoutError:
            if self.pid and self.fed >= max(sequence, self.last):
                return self._refuse("slow", f"the answer took more than {self._answer_s:g} s; ask again")
            folded = f"the log is folded up to {self.fed} of {max(self.last, sequence)}"
            return self._refuse("behind", f"the estimator has just started, and {folded}; ask again")
        except (EstimatorGone, OSError):
            return self._refuse("busy", "the estimator has ended and starts anew; ask again")
        finally:
            self._waiting -= 1
        self.answered += 1
        return answer

    async def _answer(self, question: bytes) -> bytes:
        """Return the answer, however long it takes: who asked may have gone, but the pipe has to be read. A process that hangs is
        stopped."""
        try:
            async with asyncio.timeout(SLOW_S):
                return await self._exchange(Ask(question))
        except TimeoutError:
            self._kill()
            raise EstimatorGone("a question has hung") from None

    def _refuse(self, error: str, message: str) -> EstimatesAnswer:
        self.refused += 1
        return EstimatesAnswer(error=error, message=message)

    # ------------------------------------------------------------------ feeding

    async def _feed_while_alive(self) -> None:
        self.fed = 0
        self._process = process = await self._started()
        feeding, ended = asyncio.create_task(self._feed()), asyncio.create_task(process.wait())
        try:
            await asyncio.wait((feeding, ended), return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                feeding.result()
            raise EstimatorGone(f"exit code {process.returncode}")
        finally:
            self.fed = 0
            feeding.cancel()
            self._kill()
            await asyncio.gather(feeding, ended, return_exceptions=True)

    async def _started(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "fairlead_replay.estimates.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            limit=1 << 20,
        )

    async def _feed(self) -> None:
        log_id = await identity(self._bus)
        self._path = self._directory / f"estimates-{log_id[:16]}.state"
        after = await self._restored(self._path)
        self.last = (await self._bus.state(subjects.LOG)).last
        if after > self.last:
            raise LogDamaged(self.last, f"a kept state of estimates is of sequence {after}")
        self.fed = after
        reader = LogReader(self._bus, after=after, anchored=False, pause_s=READ_S)
        kept = after
        try:
            while True:
                messages = await reader.messages()
                for stored in messages:
                    reader.check_envelope(stored)
                await self._send(Commits([(each.sequence, each.payload) for each in messages]))
                self.fed = messages[-1].sequence
                self.last = max(self.last, self.fed)
                if self.fed >= kept + KEEP_COMMITS and self.fed >= self.last:
                    kept = self.fed
                    await self._keep(self._path)
        finally:
            await reader.close()

    async def _restored(self, path: Path) -> int:
        state = await asyncio.to_thread(_read, path)
        if state is None:
            return 0
        async with asyncio.timeout(SLOW_S):
            return int(await self._exchange(Restore(state)))

    async def _keep(self, path: Path) -> None:
        async with asyncio.timeout(SLOW_S):
            state = await self._exchange(Dump())
        try:
            await asyncio.to_thread(_write, path, state)
        except OSError as error:
            log.warning("state of estimates cannot be kept", reason=str(error))

    async def _send(self, frame: Frame) -> None:
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            raise EstimatorGone("the process has ended")
        process.stdin.write(encode_frame(frame))
        await process.stdin.drain()

    async def _exchange(self, frame: Frame) -> bytes:
        async with self._pipe:
            await self._send(frame)
            process = self._process
            if process is None or process.stdout is None:
                raise EstimatorGone("the process has ended")
            try:
                (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
                if size > FRAME_MAX:
                    raise EstimatorGone("what came is no answer")
                return await process.stdout.readexactly(size)
            except asyncio.IncompleteReadError as error:
                raise EstimatorGone("the process has ended") from error

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()


def _read(path: Path) -> bytes | None:
    try:
        found = path.read_bytes()
    except OSError:
        return None
    digest, state = found[:_DIGEST], found[_DIGEST:]
    return state if hashlib.sha256(state).digest() == digest else None


def _write(path: Path, state: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(hashlib.sha256(state).digest() + state)
    part.replace(path)
