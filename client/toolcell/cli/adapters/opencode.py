"""`toolcell opencode`: the plugin, as a file among OpenCode's own plugins.

OpenCode loads each file of the directory `plugins` beside its configuration. The one that is written there asks
`toolcell` for the plugin whenever OpenCode starts. So OpenCode's configuration stays as it is, an upgrade may move the
plugin, and the file of a project is the same on every machine.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress

from toolcell._paths import address_of
from toolcell._printable import json_text
from toolcell.cli._ui.connect import CommandContext
from toolcell.cli._ui.exit_codes import Exit, Failure
from toolcell.cli.adapters.mcp_install.replace import Unchanged, change, opened

NAME = "toolcell.js"
MARK = "// Toolcell's tools in OpenCode: written by `toolcell opencode install`, which has --remove."
LOADER = """\
import { execFile } from "node:child_process"
import { promisify } from "node:util"

const options = %s
const [program, ...words] = options.command

async function plugin() {
  const { stdout } = await promisify(execFile)(program, [...words, "opencode", "path"]).catch((error) => {
    throw new Error(
      `Toolcell's tools are missing, as ${program} cannot be run: ${error.message.trim()}\\n` +
        "Where toolcell runs, run: toolcell opencode install; then start OpenCode again.",
    )
  })
  return (await import(stdout.trim())).default
}

/** The hooks of a plugin without tools, which show why with the first message of a session: there is no screen before. */
function missing(client, message) {
  const told = new Set()
  client.app.log({ body: { service: "toolcell", level: "error", message } }).catch(() => {})
  return {
    "chat.message": async ({ sessionID }) => {
      const body = { title: "Toolcell", message, variant: "error", duration: 20_000 }
      if (!told.has(sessionID)) client.tui.showToast({ body }).catch(() => {})
      told.add(sessionID)
    },
  }
}

export default {
  id: "toolcell",
  async server(input) { // OpenCode 1
    const found = await plugin().catch((error) => error)
    return found instanceof Error ? missing(input.client, found.message) : found.server(input, options)
  },
  async setup(context) { // OpenCode 2; 1.18 calls it too, but has no tools for it
    return context.tool ? (await plugin()).setup(context, options) : undefined
  },
}
"""


def install(context: CommandContext, *, project: bool, remove: bool) -> Exit:
    """Write the file for the user or for the project that the command stands in, or delete it."""
    file = _file(project=project)
    above = os.getcwd() if project else None
    try:
        changed = _delete(file, above) if remove else _write(file, _loader(context, shared=project), above)
    except (Unchanged, OSError) as error:
        why = str(error) if isinstance(error, Unchanged) else error.strerror or str(error)
        raise Failure(
            Exit.USAGE, "kept", f"{file} stays as it is: {why}.", "Rename or delete it, then try again."
        ) from error
    if remove:
        text = f"Deleted {file}." if changed else f"There is no {file}."
    else:
        text = f"Wrote {file}. Start OpenCode again." if changed else f"{file} is there already."
    return context.show({"file": file, "changed": changed}, text)


def path(context: CommandContext) -> Exit:
    """Print where the plugin is."""
    from toolcell.adapters.opencode.entry import plugin_path

    found = str(plugin_path())
    print(json_text({"path": found}) if context.as_json else found)
    return Exit.OK


def _file(*, project: bool) -> str:
    if project:
        return os.path.join(os.getcwd(), ".opencode", "plugins", NAME)
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(config, "opencode", "plugins", NAME)


def _loader(context: CommandContext, *, shared: bool) -> str:
    options: dict[str, object] = {"command": ["toolcell" if shared else _program()]}
    if context.socket is not None:
        options["socket"] = address_of(context.socket)
    return f"{MARK}\n{LOADER % json.dumps(options, ensure_ascii=False)}"


def _program() -> str:
    """The name of the running `toolcell`, or its path where another shell's PATH may not lead to it.

    A virtual environment that is activated is on the PATH of its own shell only.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "toolcell")
    named = shutil.which("toolcell")
    if not os.path.exists(beside):
        return "toolcell"
    if named is None or not os.path.samefile(named, beside):
        return beside
    return beside if named == beside and sys.prefix != sys.base_prefix else "toolcell"


def _write(file: str, text: str, project: str | None) -> bool:
    def replaced(before: str) -> str:
        if before and not before.startswith(MARK):
            raise Unchanged("it was written by another program")
        return text

    return change(file, replaced, make=True, project=project)


def _delete(file: str, project: str | None) -> bool:
    """Delete the file, and its directory if nothing else is in there."""
    directory, name = os.path.split(file)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with opened(directory, project=project) as place:
            with open(os.open(name, flags, dir_fd=place), "rb") as found:
                if not found.read(len(MARK.encode())).startswith(MARK.encode()):
                    raise Unchanged("it was written by another program")
            os.unlink(name, dir_fd=place)
    except FileNotFoundError:
        return False
    with suppress(OSError):
        os.rmdir(directory)
    return True
