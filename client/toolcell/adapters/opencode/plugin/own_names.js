// Tools that are named like one of OpenCode's own; the rule is that of client/toolcell/adapters/own_names.py.
import { ownTools, prefix } from "toolcell:texts"

const own = new Set(ownTools)
const clashes = ({ name, overridesBuiltin }) => own.has(name) && !overridesBuiltin

/** The tools by the names that OpenCode has them under; each has its own name still. */
export function shownTools(tools) {
  const shown = [...tools.values()].map((tool) => [clashes(tool) ? prefix + tool.name : tool.name, tool])
  return new Map(shown.filter(([name, tool]) => name === tool.name || !tools.has(name)))
}

/** What a user is told about each tool that has another name in OpenCode. */
export function renamed(tools) {
  return [...tools.values()].filter(clashes).map(({ name, path }) => {
    const kept = tools.has(prefix + name)
      ? `is not offered, as there is a ${prefix}${name} too`
      : `is offered as ${prefix}${name}`
    return (
      `${path}: OpenCode has a tool ${name} of its own, which is kept; this one ${kept}. To replace OpenCode's:` +
      ` [tool.${name}] overrides_builtin = true in ~/.config/toolcell/config.toml`
    )
  })
}
