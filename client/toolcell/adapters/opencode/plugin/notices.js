// What the user is told in OpenCode's terminal, and OpenCode's log.
//
// At OpenCode's start there is no screen yet that a notice could be shown on. What is told before the first message is
// therefore shown with it. That there are no tools is shown with the first message of each session.
import { printable } from "./printable.js"

const MISSING_MS = 20_000 // a reason to read, and a command to remember

/** The notices of one directory. */
export class Notices {
  #client
  #early = [] // until the first message: what was told

  constructor(client) {
    this.#client = client
  }

  /** Log a text and show it, or keep it for the first message. `level` is "warn" or "error". */
  tell(level, message) {
    // Not awaited: OpenCode answers when the plugins are there.
    this.#client.app.log({ body: { service: "toolcell", level, message } }).catch(() => {})
    if (this.#early) this.#early.push(message)
    else this.toast("Toolcell", message, level === "warn" ? "warning" : level)
  }

  /** Show a text for a moment. */
  toast(title, message, variant = "info", more = {}) {
    const body = { title, message: message.split("\n").map(printable).join("\n"), variant, ...more }
    this.#client.tui.showToast({ body }).catch(() => {})
  }

  /** Show what was told before the first message; called with each. */
  begin() {
    if (this.#early?.length) this.toast("Toolcell", this.#early.join("\n"), "warning")
    this.#early = null
  }

  /** The hooks of a plugin without tools, which say why. */
  missing(message) {
    const told = new Set()
    return {
      "chat.message": async ({ sessionID }) => {
        if (!told.has(sessionID)) this.toast("Toolcell", message, "error", { duration: MISSING_MS })
        told.add(sessionID)
      },
    }
  }
}
