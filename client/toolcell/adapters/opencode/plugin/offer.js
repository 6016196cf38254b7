// What a directory offers to OpenCode, of either version: its session with the daemon, and its tools by their names there.
import { renamed, shownTools } from "./own_names.js"
import { Place } from "./place.js"
import { READ_OUTPUT } from "./reading.js"
import { Session } from "./session.js"

/**
 * Attach to the daemon, and tell what is wrong with the tools; rejects with what is in the way.
 *
 * @param {{directory: string, options: object, tell: (level: string, message: string) => void, names?}} place
 *   `names` are OpenCode's own, by default those of version 1
 * @param agent as Session has it
 */
export async function attach({ directory, options, tell, names }, agent) {
  const session = new Session(new Place(options), { directory, linger: options.linger }, agent)
  try {
    await session.open()
  } catch (error) {
    const message = `Toolcell's tools are missing: ${error.text ?? error.message}`
    tell("error", message)
    throw new Error(message, { cause: error })
  }
  for (const { path, line, message, reason } of session.problems) {
    if (reason === "unused") continue // among them OpenCode's own tools, which it runs itself
    tell("warn", `${path}${line ? ` line ${line}` : ""}: ${message}`)
  }
  renamed(session.tools, names).forEach((message) => tell("warn", message))
  // A user's own tool of that name wins.
  const offered = () => new Map([[READ_OUTPUT.name, READ_OUTPUT], ...shownTools(session.tools, names)])
  return { session, offered }
}
