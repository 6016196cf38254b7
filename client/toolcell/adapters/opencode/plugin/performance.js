// One call of OpenCode's: what it tells and asks on the way, and how it ends.
import { printable } from "./printable.js"
import { reasonOf } from "./services.js"
import { currentTrace } from "./trace.js"

export const QUESTION = "ui.question" // what context.ui uses, and the forms of MCP servers

const BY = "by OpenCode"
const TELL_EVERY_MS = 100 // each is a write to OpenCode's database
const SHOW_EVERY_MS = 1_000 // a call that takes less shows nothing
const TOAST_CHARACTERS_MAX = 300
const ID_CHARACTERS_MAX = 200 // the bridge's bound

/**
 * Run a tool for OpenCode, by the name that it has there: the result, or an error with the text for the model.
 * Returns when the tool has stopped. `toast` shows a title and a text to the user for a moment.
 */
export async function perform(session, tool, args, context, { limits, permissions, running, services, toast }) {
  const traceparent = currentTrace() // before anything is awaited
  await permissions.askToRun(context, tool)
  if (context.abort.aborted) throw new Error(`aborted: ${BY}, before it was sent`)
  const request = {
    id: (context.callID || crypto.randomUUID()).slice(0, ID_CHARACTERS_MAX),
    tool,
    arguments: args,
    session_id: context.sessionID,
    message_id: context.messageID,
    agent_name: context.agent,
    limits,
    parent: services.ownerOf(context.sessionID),
    traceparent,
  }
  const telling = new Telling(context, (text) => toast(tool, text))
  const flight = session.call(request, (event) => telling.take(event))
  const asking = new Asking(flight, context, permissions, tool)
  running.set(flight, asking)
  const abort = () => {
    asking.end()
    flight.abort(BY)
  }
  context.abort.addEventListener("abort", abort, { once: true })
  try {
    const { ok, text, outcome } = await flight.ended
    if (outcome.kind === "denied" && asking.denial) throw asking.denial // OpenCode knows what to do with its own
    if (!ok) throw new Error(text)
    const { title = "", ...values } = outcome.metadata
    const metadata = { ...telling.metadata, ...values }
    return { title, output: text, metadata, attachments: attachmentsOf(outcome) }
  } finally {
    context.abort.removeEventListener("abort", abort)
    running.delete(flight)
    telling.end()
    asking.end()
  }
}

/** The pictures and other files of a result, as OpenCode attaches files. */
function attachmentsOf(outcome) {
  return outcome.content
    .filter(({ type }) => type === "image" || type === "file")
    .map(({ type, mime_type: mime, data, name }) => {
      const url = `data:${mime};base64,${data}`
      return { type: "file", mime, url, ...(type === "file" ? { filename: name } : {}) }
    })
}

/** What a call tells about itself, as OpenCode's metadata and to its user; when there is much of it, the newest. */
class Telling {
  metadata = {}
  #title = ""
  #context
  #timer = null
  #toast
  #news = ""
  #showing = null

  constructor(context, toast) {
    this.#context = context
    this.#toast = toast
  }

  take({ event, title, values, done, total, message, content }) {
    if (event === "metadata") {
      this.#title = title || this.#title
      Object.assign(this.metadata, values)
      this.#show(title)
    } else if (event === "progress") {
      this.metadata.progress = { done, ...(total == null ? {} : { total }), message }
      this.#show([total == null ? done : `${done}/${total}`, message].filter(Boolean).join(" "))
    } else if (event === "update") {
      this.#show(content.map(({ text = "" }) => text).join("\n"))
      return
    } else return
    this.#timer ??= setTimeout(() => this.#tell(), TELL_EVERY_MS)
  }

  end() {
    clearTimeout(this.#timer)
    clearTimeout(this.#showing)
  }

  #tell() {
    this.#timer = null
    // 1.18 makes an effect of it that nothing runs (anomalyco/opencode#50313); the result has it all the same.
    this.#context.metadata({ title: this.#title, metadata: { ...this.metadata } })
  }

  /** Have the user see it, as 1.18 has no place for it beside the call. */
  #show(text = "") {
    this.#news = printable(text).slice(-TOAST_CHARACTERS_MAX) || this.#news
    this.#showing ??= setTimeout(() => {
      this.#showing = null
      if (this.#news) this.#toast(this.#news)
    }, SHOW_EVERY_MS)
  }
}

/** The questions of a call, put to OpenCode's user. */
class Asking {
  denial = null
  #flight
  #context
  #permissions
  #shown
  #over = new AbortController()

  constructor(flight, context, permissions, shown) {
    this.#flight = flight
    this.#context = context
    this.#permissions = permissions
    this.#shown = shown
  }

  async ask(question) {
    const { ask } = question
    try {
      await this.#permissions.ask(this.#context, this.#over.signal, this.#shown, question)
      this.#flight.answer({ ask, allowed: true })
    } catch (error) {
      this.denial = error
      this.#flight.answer({ ask, allowed: false, reason: reasonOf(error?.message || "OpenCode's user said no.") })
    }
  }

  /** Have the user say yes or no to a question; OpenCode has no dialog for another value. */
  async confirm({ request, arguments: { kind, message } }) {
    if (kind !== "confirm" || typeof message !== "string") {
      const error = "OpenCode lets a plugin ask its user for yes or no, and not for another value"
      this.#flight.reply({ request, error })
      return
    }
    const question = { question: message, permission: "", patterns: [], always: [], details: {}, anew: true }
    const value = await this.#permissions.ask(this.#context, this.#over.signal, this.#shown, question).then(
      () => true,
      () => false,
    )
    this.#flight.reply({ request, result: { value } })
  }

  /** Take back what is still open; harmless where nothing is. */
  end() {
    this.#over.abort()
  }
}
