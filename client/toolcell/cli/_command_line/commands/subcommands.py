"""Setting up, by the commands with words below them: `config`, `mcp`, `opencode`, `cluster` and `service`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer
from typer import Argument, Option

from toolcell.cli._command_line import completion as completing
from toolcell.cli._command_line.declaring import (
    TokenEnv,
    TokenFile,
    entries,
    group,
    section,
    time_limit,
    verb,
)
from toolcell.cli._command_line.help import Commands
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Misuse
from toolcell.cli._ui.options import Ending, HttpOptions, command

mcp_app = typer.Typer(cls=Commands, rich_markup_mode=None, add_completion=False)


@mcp_app.callback(invoke_without_command=True)
@command
def mcp(
    context: CommandContext,
    http: Annotated[
        str | None,
        Option("--http", metavar="[HOST:]PORT|PATH", help="Serve over HTTP; clients must send the token."),
    ] = None,
    token_file: TokenFile = None,
    token_env: TokenEnv = None,
    timeout: Annotated[
        float | None,
        Option(
            metavar="S",
            parser=time_limit,
            help='Time limit of each call, for a host that gives up and does not say so: seconds, or "500ms", "2m".',
        ),
    ] = None,
) -> Ending:
    """Run an MCP server on stdin and stdout, or over HTTP."""
    from toolcell.cli.adapters import mcp

    if http is not None:
        return mcp.mcp_over_http(context, HttpOptions(http, token_file, token_env), timeout)
    if token_file is not None or token_env is not None:
        raise Misuse("A token is only used with HTTP.", "Add --http PORT.")
    return mcp.mcp(context, timeout)


@verb(mcp_app, "adapters.mcp_install.install.install")
def install(
    context: CommandContext,
    name: Annotated[
        str,
        Argument(
            metavar="HOST",
            help="claude, copilot, opencode, cursor, vscode, codex, gemini, qwen, kilo, cline, continue, vibe, crush, amp, kiro, junie, claude-desktop, windsurf, zed or goose.",
            autocompletion=completing.hosts,
        ),
    ],
    write: Annotated[
        bool, Option("--write", help="Write the entry into the host's configuration file.")
    ] = False,
    remove: Annotated[
        bool, Option("--remove", help="Remove the entry from the host's configuration file.")
    ] = False,
    project: Annotated[
        bool,
        Option(
            "--project",
            help="Use the configuration file of the project in this directory, in place of the user's.",
        ),
    ] = False,
) -> None:
    """Print the configuration that makes a host start `toolcell mcp`, or write it."""


Hosts: TypeAlias = Annotated[
    list[str] | None,
    Argument(
        metavar="[HOST]...",
        help="The hosts; default: all that mcp install knows.",
        autocompletion=completing.hosts,
        show_default=False,
    ),
]
OfProject: TypeAlias = Annotated[
    bool,
    Option("--project", help="Use the files of the project in this directory, in place of the user's."),
]


@verb(mcp_app, "operation.adopt.adopt.adopt")
def adopt(
    context: CommandContext,
    hosts: Hosts = None,
    project: OfProject = False,
    yes: Annotated[bool, Option("--yes", help="Do it without a question.")] = False,
) -> None:
    """Show the MCP servers that hosts start, and make them sources of the user's configuration."""


@verb(mcp_app, "operation.adopt.give_back.give_back", name="return")
def give_back(context: CommandContext, hosts: Hosts = None, project: OfProject = False) -> None:
    """Give hosts back the servers that were adopted."""


@verb(mcp_app, "operation.update.update")
def update(
    context: CommandContext,
    server: Annotated[str, Argument(metavar="NAME", help="The name of its source.")],
    version: Annotated[
        str | None,
        Argument(
            metavar="VERSION",
            help="The version of its package, as 1.2.3; default: the newest that the registry has.",
        ),
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Do it without a question.")] = False,
) -> None:
    """Try another version of an MCP server in a cell, show what changes, and write it into the configuration."""


opencode_app = group("Make the tools native tools of OpenCode, by a plugin.")


@verb(opencode_app, "adapters.opencode.install", name="install")
def install_plugin(
    context: CommandContext,
    project: Annotated[
        bool, Option("--project", help="Write it for the project in this directory, to .opencode/plugins.")
    ] = False,
    remove: Annotated[bool, Option("--remove", help="Delete the file that the command has written.")] = False,
) -> None:
    """Write a file that makes OpenCode load the plugin, for all projects or for this one."""


@verb(opencode_app, "adapters.opencode.path")
def path(context: CommandContext) -> None:
    """Print the path of the plugin."""


config_app = group("Show the configuration, check it, or change it.")


@verb(config_app, "operation.config.show")
def show(context: CommandContext) -> None:
    """Print every value of the configuration, and the file and line that sets it."""


@verb(config_app, "operation.config.check", name="check")
def check_config(
    context: CommandContext,
    files: Annotated[
        list[str] | None,
        Argument(help="Check these files in place of the user's; a later one overrides an earlier one."),
    ] = None,
) -> None:
    """Report errors in the configuration, and what is allowed but probably a mistake."""


@verb(config_app, "operation.config.set_key", name="set")
def set_key(
    context: CommandContext,
    key: Annotated[str, Argument(help="The key, dotted: tool.NAME.memory.")],
    value: Annotated[str, Argument(help="The value, as TOML has it; text needs no quotes.")],
) -> None:
    """Set a key of the user's configuration, and have a running daemon read it."""


service_app = group("Run the daemon as a service of systemd: yours, or one that root installs.")

OfUser: TypeAlias = Annotated[
    str | None,
    Option(
        "--user", metavar="NAME", help="The service that root's systemd runs for this user, without a login."
    ),
]
OfSystem: TypeAlias = Annotated[
    bool, Option("--system", help="The service of the account `toolcell`, for programs of this machine.")
]


@verb(service_app, "operation.service.install", name="install")
def install_service(context: CommandContext, user: OfUser = None, system: OfSystem = False) -> None:
    """Write the unit with the paths of this installation, and start it now and at each login, or with the machine."""


@verb(service_app, "operation.service.uninstall", name="uninstall")
def uninstall_service(context: CommandContext, user: OfUser = None, system: OfSystem = False) -> None:
    """Stop the service and delete its unit."""


@verb(service_app, "operation.service.status", name="status")
def service_status(context: CommandContext, user: OfUser = None, system: OfSystem = False) -> None:
    """Show whether the service is installed and active, and how often it was restarted."""


@verb(service_app, "operation.service.logs", name="logs")
def service_logs(
    context: CommandContext,
    user: OfUser = None,
    system: OfSystem = False,
    follow: Annotated[bool, Option("-f", "--follow", help="Keep printing new lines.")] = False,
    entries: Annotated[
        int | None, Option("-n", metavar="N", parser=entries, help="Show the last N lines; default: 100.")
    ] = None,
) -> None:
    """Show what the service has logged to the journal, also before it started to serve."""


Invited: TypeAlias = Annotated[
    list[str] | None,
    Option("--invite", metavar="TENANT", help="Print a code for a client of this tenant; may come again."),
]

cluster_app = group("Run sessions on several machines: Placement says on which.")


@verb(cluster_app, "operation.cluster.serve", name="serve")
def serve_cluster(
    context: CommandContext,
    file: Annotated[str, Argument(metavar="FILE", help="The nodes and the tenants.")],
    invite: Invited = None,
) -> None:
    """Run Placement in the foreground, for the nodes of a file."""


@verb(cluster_app, "operation.cluster.up", name="up")
def cluster_up(
    context: CommandContext,
    file: Annotated[str, Argument(metavar="FILE", help="The Ray cluster and the tenants.")],
    invite: Invited = None,
) -> None:
    """Start a daemon on each node of a Ray cluster, and Placement in the background."""


@verb(cluster_app, "operation.cluster.down", name="down")
def cluster_down(
    context: CommandContext,
    file: Annotated[str, Argument(metavar="FILE", help="The file that it was started with.")],
) -> None:
    """End what `up` has started; calls that run get the time of the drain."""


@verb(cluster_app, "operation.cluster.join", name="join")
def join_cluster(
    context: CommandContext,
    address: Annotated[str, Argument(metavar="HOST:PORT", help="Where Placement listens.")],
    code: Annotated[
        str, Argument(metavar="CODE", help="What `toolcell cluster serve --invite` printed there.")
    ],
) -> None:
    """Become a client of a cluster, whose address is `cluster` from then on."""


@verb(cluster_app, "operation.cluster.status", name="status")
def cluster_status(context: CommandContext) -> None:
    """Show which cluster was joined, and how it is."""


@verb(cluster_app, "operation.cluster.nodes", name="nodes")
def cluster_nodes(context: CommandContext) -> None:
    """List the nodes that have a directory of yours; for an operator of the cluster all nodes."""


@verb(cluster_app, "operation.cluster.drain", name="drain")
def drain_node(
    context: CommandContext,
    node: Annotated[str, Argument(metavar="NODE", help="The name of the node.")],
    off: Annotated[bool, Option("--off", help="Have it take sessions again.")] = False,
    reason: Annotated[str, Option(metavar="TEXT", help="Told to clients, and logged.")] = "",
) -> None:
    """Place no sessions on a node, and have those that it has move when no call of theirs runs."""


app = section("Set up")
for name, words in (
    ("config", config_app),
    ("mcp", mcp_app),
    ("opencode", opencode_app),
    ("cluster", cluster_app),
    ("service", service_app),
):
    app.add_typer(words, name=name, rich_help_panel=app.rich_help_panel)
