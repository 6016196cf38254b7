// The session of a directory, in a bridge that may end and be started again: its tools, and its calls.
//
// The calls of a bridge that has ended are lost, and end so. The session is opened again in the next bridge: at once where
// the last one was well for a while, else when it is next needed.
import { readFileSync } from "node:fs"
import { resolve } from "node:path"

import { Bridge, Unavailable } from "./bridge.js"

const LINGER_SECONDS = 2 // a restarted daemon is back by then; a killed host needs no longer wait
const OPEN_MS = 60_000 // the tools are described meanwhile, which runs their files; OpenCode waits for it
const DESCRIBED_SECONDS = 15 // a file that hangs takes ten; OpenCode never asks again, so what is missing now stays so
const CLOSE_MS = 15_000 // until what still runs has ended, and some
const REFRESH_MS = 3_000 // what takes longer to load comes as a change of its own
const WELL_MS = 10_000
/** Of each version of OpenCode: a name of version 1 is one of version 2 as well, so that a tool has one name in both. */
const OWN_TOOLS = JSON.parse(readFileSync(new URL("own_tools.json", import.meta.url), "utf8"))
const ELSEWHERE = /^(tls:\/\/|cluster(?![^:?]))/ // as toolcell._paths has the addresses of other machines
const NOT_UNDONE = "What it had done until then is not undone."

/** One call, until its one ending. */
class Flight {
  /** How it ended: `{ok, text, outcome}`, as `ended` has it. */
  ended
  #end
  #send

  constructor(id, request, events, send) {
    this.id = id
    this.request = request
    this.events = events
    this.#send = send
    this.ended = new Promise((end) => (this.#end = end))
  }

  /** Ask the call to stop; harmless twice. */
  abort(reason) {
    this.#send({ type: "abort", id: this.id, reason })
  }

  /** Answer a question: `{ask, allowed, reason?}`. */
  answer(answer) {
    this.#send({ type: "answer", id: this.id, ...answer })
  }

  /** Reply to a request: `{request, result}` or `{request, error}`. */
  reply(reply) {
    this.#send({ type: "reply", id: this.id, ...reply })
  }

  end(how) {
    this.#end(how)
  }
}

/** An ending that the bridge does not tell. */
function failed(kind, text) {
  return { ok: false, text, outcome: { kind, content: [], metadata: {} } }
}

/** The daemon and the directory. On another machine OpenCode's own is none, and without one it is that of the address. */
function placeOf({ socket, directory: named }, directory) {
  const elsewhere = ELSEWHERE.test(socket ?? process.env.TOOLCELL_SOCKET ?? "")
  return {
    ...(socket === undefined ? {} : { socket: elsewhere ? socket : resolve(socket) }),
    ...(elsewhere ? named && { directory: named } : { directory }),
  }
}

/** One stay with the daemon. */
export class Session {
  tools = new Map() // by the names that OpenCode has them under: {name, description, schema, destructive}
  problems = []
  #agent
  #command
  #opening
  #bridge = null
  #name = ""
  #ready = null // the opening that is under way, or done
  #settle = null // it
  #flights = new Map()
  #waits = new Set() // who waits for a `reload`
  #closed = null
  #left = false

  /**
   * @param {{socket?: string, directory?: string, start?: boolean, command?: string[], linger?: number}} options of the plugin
   * @param {string} directory that OpenCode works in, whose tools these are unless they run on another machine
   * @param {{answers: boolean, onAsk: (flight, ask) => void, onRequest: (flight, request) => void, services: string[],
   *   onCatalog?: () => void, second?: boolean}} agent who answers questions and does services, and hears of changes
   */
  constructor(options, directory, agent) {
    this.#agent = agent
    this.#command = options.command ?? ["toolcell"]
    this.#opening = {
      agent: "opencode",
      agent_title: "OpenCode",
      ...placeOf(options, directory),
      daemon: (options.start ?? true) ? "start" : "running",
      linger: options.linger ?? LINGER_SECONDS,
      wait: DESCRIBED_SECONDS,
      answers: agent.answers,
      services: agent.services,
      events: ["update", "progress", "metadata"],
      ...OWN_TOOLS[agent.second ? "second" : "first"],
    }
  }

  /** Open it; rejects with what is in the way. Returns at once where it is open. */
  open() {
    this.#ready ??= new Promise((settled, failed) => {
      const slow = new Unavailable(`Toolcell did not name its tools within ${OPEN_MS / 1000} s.`)
      const timer = setTimeout(() => this.#fail(slow), OPEN_MS)
      this.#settle = {
        done: () => (clearTimeout(timer), settled()),
        failed: (why) => (clearTimeout(timer), failed(why)),
      }
      try {
        this.#bridge = Bridge.of(this.#command)
      } catch (error) { // of a command that is none
        return queueMicrotask(() => this.#fail(new Unavailable(`The option command is wrong: ${error.message}.`)))
      }
      this.#name = this.#bridge.add(this)
      return this.#send({ type: "open", ...this.#opening })
    })
    return this.#ready
  }

  /** Abort what runs, and end the session. */
  async close() {
    this.#left = true
    if (!this.#bridge) return
    const closed = new Promise((done) => (this.#closed = done))
    const timer = setTimeout(this.#closed, CLOSE_MS)
    this.#send({ type: "close" })
    await closed
    clearTimeout(timer)
    this.#leave()
  }

  /** Start a tool; the call is on its way when this returns. `events` is called with each event. */
  call(request, events) {
    const id = this.#flights.has(request.id) ? `${request.id}.${crypto.randomUUID()}` : request.id
    const flight = new Flight(id, request, events, (message) => {
      if (this.#flights.get(id) === flight) this.#whenOpen(message)
    })
    this.#flights.set(id, flight)
    this.#whenOpen({ type: "call", ...request, id }, (why) => this.#land(flight, failed("refused", why.message)))
    return flight
  }

  /** Tell the tools what happens to OpenCode's sessions. */
  tell(sessionEvent) {
    this.#whenOpen({ type: "tell", ...sessionEvent })
  }

  /** Have the directory looked at again; returns when the tools are new, or when that takes long. */
  refresh() {
    return new Promise((resolve) => {
      const done = () => (clearTimeout(timer), this.#waits.delete(done), resolve())
      const timer = setTimeout(done, REFRESH_MS)
      this.#waits.add(done)
      this.#whenOpen({ type: "reload" }, done)
    })
  }

  // What the bridge says

  take(message) {
    const flight = this.#flights.get(message.id)
    switch (message.type) {
      case "opened":
      case "tools":
        return this.#show(message)
      case "event":
        return flight?.events(message)
      case "ask":
        return flight && this.#agent.onAsk(flight, message)
      case "request":
        return flight && this.#agent.onRequest(flight, message)
      case "ended":
        return flight && this.#land(flight, message)
      case "closed":
        return this.#closed?.()
      case "error":
        return this.#wrong(message, flight)
      default:
        return undefined // of a newer bridge
    }
  }

  /** The bridge has ended. */
  lost(why) {
    const { age } = this.#bridge
    this.#bridge = this.#ready = null
    this.#settle.failed(why)
    for (const done of [...this.#waits]) done()
    const text = `internal (connection_lost): ${why.message}\n${NOT_UNDONE}`
    for (const flight of [...this.#flights.values()]) this.#land(flight, failed("internal", text))
    this.#closed?.()
    if (!this.#left && age > WELL_MS) this.open().catch(() => {})
  }

  #show({ type, tools, problems, reloaded }) {
    this.problems = problems
    this.tools = new Map(
      tools.map(({ name, description, input_schema: schema, destructive }) => [
        name,
        { name, description, schema, destructive },
      ]),
    )
    if (type === "opened") this.#settle.done()
    this.#agent.onCatalog?.()
    if (reloaded) for (const done of [...this.#waits]) done()
  }

  #wrong({ to, message, remedy }, flight) {
    if (to === "open") this.#fail(new Unavailable(message, remedy ?? ""))
    else if (to === "call" && flight) this.#land(flight, failed("refused", remedy ? `${message}\n  ${remedy}` : message))
    else if (to === "reload") for (const done of [...this.#waits]) done()
    // An answer or an abort that crosses with the end of its call is none too many.
  }

  #fail(why) {
    this.#leave()
    this.#settle.failed(why)
  }

  #leave() {
    this.#bridge?.remove(this.#name)
    this.#bridge = this.#ready = null
  }

  #land(flight, how) {
    this.#flights.delete(flight.id)
    flight.end(how)
  }

  #send(message) {
    this.#bridge?.send({ session: this.#name, ...message })
  }

  /** Send a message in its turn, once the session is open; `failed` is called if that cannot be. */
  #whenOpen(message, failed = () => {}) {
    if (this.#left) failed(new Unavailable("The session has been left."))
    else this.open().then(() => this.#send(message), failed)
  }
}
