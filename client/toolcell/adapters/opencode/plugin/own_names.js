// Tools that are named like one of OpenCode's own; the rule is that of client/toolcell/adapters/own_names.py.
// `kept` has names that OpenCode leaves to no other tool, whatever the configuration says.
import { ownTools, ownTools2, prefix } from "toolcell:texts"

const first = { own: new Set(ownTools), kept: new Set() }
/** OpenCode 2's; a name of version 1 is one of version 2 as well, so that a tool has one name in both. */
export const SECOND = { own: new Set([...ownTools, ...ownTools2]), kept: new Set(["execute"]) }

const clashing = ({ own, kept }) => ({ name, overridesBuiltin }) => kept.has(name) || (own.has(name) && !overridesBuiltin)

/** The tools by the names that OpenCode has them under; each has its own name still. */
export function shownTools(tools, names = first) {
  const clashes = clashing(names)
  const shown = [...tools.values()].map((tool) => [clashes(tool) ? prefix + tool.name : tool.name, tool])
  return new Map(shown.filter(([name, tool]) => name === tool.name || !tools.has(name)))
}

/** What a user is told about each tool that has another name in OpenCode. */
export function renamed(tools, names = first) {
  return [...tools.values()].filter(clashing(names)).map(({ name, path }) => {
    const kept = tools.has(prefix + name)
      ? `is not offered, as there is a ${prefix}${name} too`
      : `is offered as ${prefix}${name}`
    const told = `${path}: OpenCode has a tool ${name} of its own, which is kept; this one ${kept}.`
    if (names.kept.has(name)) return told
    return `${told} To replace OpenCode's: [tool.${name}] overrides_builtin = true in ~/.config/toolcell/config.toml`
  })
}
