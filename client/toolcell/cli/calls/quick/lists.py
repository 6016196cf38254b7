"""`toolcell calls`, `ps` and `status`: one request, whose answer is printed as the whole command prints it."""

from __future__ import annotations

import sys

from toolcell.client._grpc import wire

from .plan import Unserved
from .request import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .plan import QuickPlan

_OPERATOR = "/toolcell.v1.Operator"


def show(plan: QuickPlan) -> int:
    """Run the command; return its exit code. Raises Unserved, and then nothing was printed."""
    address, token, _ = plan.addressed(operator=True)

    def answer(method: str, table: wire.Table, request: bytes = b"") -> wire.WireMessage:
        return ask(address, token, f"{_OPERATOR}/{method}", request, table)

    if plan.command == "status":
        found = answer("GetStatus", wire.GET_STATUS_RESPONSE)
    elif plan.command == "ps":
        found = answer("ListWorkers", wire.LIST_WORKERS_RESPONSE)
    elif plan.call_id is None:
        found = answer("ListCalls", wire.LIST_CALLS_RESPONSE)
    else:
        try:
            request = wire.encode(wire.GET_CALL_REQUEST, {"call_id": plan.call_id})
        except UnicodeEncodeError as error:
            raise Unserved from error
        found = answer("GetCall", wire.GET_CALL_RESPONSE, request)

    from toolcell.cli._ui import answers

    if plan.command == "status":
        from toolcell.cli._ui.terminal import Terminal

        answers.print_status(found, Terminal(quiet=plan.quiet))
    elif plan.command == "ps":
        answers.print_workers(found)
    elif plan.call_id is None:
        answers.print_calls(found.calls)
        if found.records_fault:
            from toolcell.cli._ui.terminal import Terminal

            sys.stdout.flush()
            answers.say_fault_of_records(Terminal(quiet=plan.quiet), found.records_fault)
    else:
        answers.print_story(found)
    sys.stdout.flush()
    return 0
