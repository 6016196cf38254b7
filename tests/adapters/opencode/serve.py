"""A real `opencode serve`, with a model of ours, and a home of its own."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from tests.adapters.openai import MODEL, Model, results
from tests.adapters.script import Use

__all__ = [
    "NODE_MODULES",
    "PASSWORD",
    "PROGRAM",
    "OpenCode",
    "Stay",
    "environment_of",
    "serving",
    "until",
]

NODE_MODULES = Path(sys.prefix, "node", "node_modules")
PROGRAM = NODE_MODULES / "opencode-ai" / "bin" / "opencode.exe"
PASSWORD = "of the server alone"
START_SECONDS_MAX = 60
"""Some five seconds; it writes a database first, and other tests may have the processors."""
SECONDS_MAX = 40
"""For a turn, which takes two seconds, and for whatever else is awaited."""
LOOK_SECONDS = 0.02


async def until(condition: Any) -> Any:
    """Wait until something is true, and return it; files and lists give no sign."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(LOOK_SECONDS)


@dataclass
class OpenCode:
    """A server that runs, for one directory."""

    url: str
    directory: Path
    model: Model
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[httpx2.AsyncClient]:
        """The HTTP interface, for the directory."""
        async with httpx2.AsyncClient(
            base_url=self.url,
            auth=("opencode", PASSWORD),
            params={"directory": str(self.directory)},
            timeout=SECONDS_MAX,
            trust_env=False,
        ) as client:
            yield client

    @asynccontextmanager
    async def notices(self) -> AsyncGenerator[list[str]]:
        """The texts that OpenCode has its terminals show for a moment, from now on."""
        shown: list[str] = []
        async with self.client() as client, client.stream("GET", "/event") as events:
            lines = events.aiter_lines()
            await anext(lines)  # the connection is heard

            async def read() -> None:
                async for line in lines:
                    event: dict[str, Any] = json.loads(line.removeprefix("data:")) if line else {}
                    if event.get("type") == "tui.toast.show":
                        shown.append(event["properties"]["message"])

            reading = asyncio.create_task(read())
            try:
                yield shown
            finally:
                reading.cancel()
                await asyncio.wait({reading})

    @asynccontextmanager
    async def stay(self, session_id: str | None = None) -> AsyncGenerator[Stay]:
        """A session, a new one or one that is there."""
        self.model.script.turns.clear()
        self.model.script.requests.clear()
        async with self.client() as client:
            if session_id is None:
                session_id = (await client.post("/session", json={})).raise_for_status().json()["id"]
            yield Stay(self, client, str(session_id))


@dataclass
class Stay:
    """A session of OpenCode's, as a test drives it."""

    opencode: OpenCode
    client: httpx2.AsyncClient
    id: str
    turns: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def turn(self, agent: str | None = None) -> None:
        """Have the model answer, until it has nothing more to do."""
        body: dict[str, Any] = {"parts": [{"type": "text", "text": "go"}]}
        if agent is not None:
            body["agent"] = agent
        (await self.client.post(f"/session/{self.id}/message", json=body)).raise_for_status()

    async def use(self, *uses: Use) -> list[str]:
        """Have the model use tools in one message; the results as it reads them, in their order."""
        self.opencode.model.script.uses(*uses)
        await self.turn()
        return self.shown(*uses)

    @asynccontextmanager
    async def using(self, *uses: Use) -> AsyncGenerator[None]:
        """Have the model use tools, and go on meanwhile; the turn has ended when the block is left."""
        self.opencode.model.script.uses(*uses)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.turn())
            yield

    def shown(self, *uses: Use) -> list[str]:
        """What the model has been shown of uses."""
        found = results(self.opencode.model.script.requests[-1])
        return [found[use.id] for use in uses]

    async def part(self, use: Use, session_id: str | None = None) -> dict[str, Any]:
        """What OpenCode keeps of a use."""
        messages = (
            (await self.client.get(f"/session/{session_id or self.id}/message")).raise_for_status().json()
        )
        (found,) = [part for message in messages for part in message["parts"] if part.get("callID") == use.id]
        return dict(found)

    async def abort(self) -> None:
        """End the turn, as Esc does."""
        (await self.client.post(f"/session/{self.id}/abort")).raise_for_status()

    async def question(self) -> dict[str, Any]:
        """The question that is put to the user, once it is."""

        async def asked() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await self.client.get("/permission")).raise_for_status().json()
            return [question for question in found if question["sessionID"] == self.id]

        return dict((await until(asked))[0])

    async def reply(self, question: Mapping[str, Any], reply: str, **more: str) -> None:
        """Answer it: "once", "always" or "reject", which may have a `message`."""
        path = f"/permission/{question['id']}/reply"
        (await self.client.post(path, json={"reply": reply, **more})).raise_for_status()


def configuration(model: Model, **more: Any) -> dict[str, Any]:
    """What it is told: our model, and to leave the world alone."""
    name = f"test/{MODEL}"
    models = {
        MODEL: {
            "name": MODEL,
            "tool_call": True,
            "attachment": True,
            "modalities": {"input": ["text", "image"], "output": ["text"]},
        }
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": model.url, "apiKey": "no key"},
        "models": models,
    }
    return {
        "model": name,
        "small_model": name,
        "provider": {"test": provider},
        "autoupdate": False,
        "share": "disabled",
        **more,
    }


def environment_of(home: Path, model: Model, **config: Any) -> dict[str, str]:
    """All that the program finds in its environment."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "LC_ALL": "C.UTF-8",
        "OPENCODE_CONFIG_CONTENT": json.dumps(configuration(model, **config)),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        # It would fetch the types of plugins, whether there are any that want them or not.
        "npm_config_registry": "http://127.0.0.1:9",
        "npm_config_fetch_retries": "0",
    }


@contextmanager
def serving(
    home: Path, directory: Path, model: Model, environment: Mapping[str, str] | None = None, **config: Any
) -> Generator[OpenCode]:
    """`opencode serve` for a directory; what is in `config` is its configuration beside the model."""
    home.mkdir(exist_ok=True)
    log = home / "log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [PROGRAM, "serve", "--hostname", "127.0.0.1", "--port", "0", "--print-logs"],
            cwd=directory,
            env={
                **environment_of(home, model, **config),
                "OPENCODE_SERVER_PASSWORD": PASSWORD,
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    with process:
        try:
            yield OpenCode(_listening(process, log), directory, model, process, log)
        finally:
            process.terminate()
            try:
                process.wait(SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def _listening(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, once it says so."""
    assert process.stdout is not None
    said = b""
    while b"listening on " not in said or not said.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS_MAX)
        more = os.read(process.stdout.fileno(), 4096) if ready else b""
        assert more, f"it does not start:\n{log.read_text()}"
        said += more
    return said.decode().split("listening on ")[1].split()[0]
