"""What stands before the lists of `toolcell top` for a while: a question, one call or worker, the keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

REASON_LETTERS_MAX: Final = 200
"""What the daemon keeps of a reason."""


class Confirmation(ModalScreen[str | None]):
    """Asks whether something is to be done, and why; the answer is the reason, or None for no."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "no", priority=True)]
    CSS = """
    Confirmation { align: center middle; }
    Confirmation > Vertical { width: 72; max-width: 96%; height: auto; border: round $warning; padding: 0 1; background: $surface; }
    Confirmation Input { border: none; height: 1; padding: 0; background: $boost; }
    """

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(self._question))
            yield Input(placeholder="the reason, for the audit; may be empty", max_length=REASON_LETTERS_MAX)
            yield Static(Text("Enter does it, Esc leaves it.", "dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss(None)


class Look(ModalScreen[str]):
    """Shows one thing, read anew after so many seconds; the answer is the key that it was left with: "", "a", "r" or "d"."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "leave('')", "back", priority=True),
        Binding("a", "leave('a')", "abort"),
        Binding("r", "leave('r')", "restart"),
        Binding("d", "leave('d')", "disable"),
    ]
    CSS = """
    Look > Vertical { width: 100%; height: 100%; background: $background; }
    Look #title { height: 1; background: $primary; color: $text; }
    Look #keys { height: 1; color: $text-muted; }
    """

    def __init__(self, title: str, read: Callable[[], Awaitable[str]], seconds: float) -> None:
        super().__init__()
        self._title = title
        self._read = read
        self._seconds = seconds

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(self._title, no_wrap=True, overflow="ellipsis"), id="title")
            with VerticalScroll():
                yield Static(id="text", markup=False)
            yield Static(Text("↑↓ PgUp PgDn scroll  a abort  r restart  d disable  Esc back"), id="keys")

    async def on_mount(self) -> None:
        await self._refresh()
        self.set_interval(self._seconds, self._refresh)
        self.query_one(VerticalScroll).focus()

    async def _refresh(self) -> None:
        self.query_one("#text", Static).update(Text(await self._read()))

    def action_leave(self, key: str) -> None:
        self.dismiss(key)


class KeyHelp(ModalScreen[None]):
    """Says what the keys do."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "leave", "back", priority=True)
    ]
    CSS = """
    KeyHelp { align: center middle; }
    KeyHelp > Static { width: auto; height: auto; border: round $primary; padding: 0 1; background: $surface; }
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(Text(self._text))

    def action_leave(self) -> None:
        self.dismiss(None)
