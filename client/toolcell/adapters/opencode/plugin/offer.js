// What a directory offers to OpenCode, of either version: its session, and the messages about its tools.
import { Session } from "./session.js"

/**
 * Open the session of a directory, and tell what is wrong with the tools; rejects with what is in the way.
 *
 * @param {{directory: string, options: object, tell: (level: string, message: string) => void}} place
 * @param agent as Session has it
 */
export async function attach({ directory, options, tell }, agent) {
  const session = new Session(options, directory, agent)
  try {
    await session.open()
  } catch (error) {
    const message = `Toolcell's tools are missing: ${error.message}`
    tell("error", message)
    throw new Error(message, { cause: error })
  }
  for (const { path, line, message, reason } of session.problems) {
    // What is unused has OpenCode's own tools in it, which it runs itself; remarks are for the author.
    if (reason === "unused" || reason === "remark") continue
    tell("warn", `${path}${line ? ` line ${line}` : ""}: ${message}`)
  }
  return session
}
