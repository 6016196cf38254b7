// A session with the daemon, through drops and restarts: its catalog, its calls, and the stream that carries them.
//
// The pump opens a stream, deals with what comes down, and after a drop opens the next one with the resume token.
// Streams come and go; calls stay, and are told anew once the daemon's Welcome has said which of them it knows.
// A call that it may have had and does not know any more gets an honest ending. When a line cannot be restored within
// the linger, the open calls end and the pump rests until the next request.
import { Flight } from "./flight.js"
import { Inbox } from "./inbox.js"
import { json, readOutcome, refused as refusedBy } from "./outcome.js"
import { Refusal, refusalOf, refusalOfRpc } from "./contract.js"

const LINGER_SECONDS = 2 // a restarted daemon is back by then; a killed host needs no longer wait
const RETRY_FIRST_MS = 20
const RETRY_MAX_MS = 1_000
const OPEN_MS = 60_000 // the tools are described meanwhile, which runs their files; OpenCode waits for it
const DESCRIBED_MS = 15_000 // a file that hangs takes ten; OpenCode never asks again, so what is missing now stays so
const WELCOME_MS = 15_000 // a daemon that is alive answers at once; one that swaps may need seconds
const CLOSE_MS = 15_000 // the ladder of an abort for what still runs, and some
const REFRESH_MS = 3_000 // what takes longer to load comes as a change of its own
const ACKNOWLEDGE_AFTER_MS = 500 // how long the daemon keeps the last outcome for nothing
const ACKNOWLEDGE_AFTER_BYTES = 256 * 1024 // a quarter of what the daemon retains
const USED_MAX = 20_000 // more than the daemon remembers of a session

const LEFT = new Refusal("session_closed", "The session has been left.")
const DROPPED = new Refusal("unreachable", "The daemon ended the connection.")
const SILENT = new Refusal("unreachable", `The daemon did not answer within ${WELCOME_MS / 1000} s.`)
const SLOW = new Refusal("unreachable", `The daemon did not name its tools within ${OPEN_MS / 1000} s.`)
const RESTARTED = { reason: "", message: "The daemon was restarted while the call was under way." }
const FINAL = new Set(["superseded", "wrong_token", "session_exists", "version_mismatch"]) // asking again is no use

/** One stay with the daemon. */
export class Session {
  tools = new Map() // the catalog: by name, {name, description, schema, path, destructive, overridesBuiltin}
  problems = []
  flights = new Map()
  #place
  #opening
  #agent
  #inbox = new Inbox()
  #used = new Set() // ids of calls
  #parts = []
  #refreshes = [] // who waits for the answer to a Refresh
  #line = null // the link and its stream, while the daemon listens
  #over = null // why there will never be a line again
  #wake = null
  #opened
  #patience = null // with files that are still being described
  #pump

  /**
   * @param {import("./place.js").Place} place
   * @param {{answers: boolean, onAsk: (flight, ask) => void, onRequest: (flight, request) => void, services: string[],
   *   onCatalog?: () => void}} agent who answers questions and does services, by `flight.respond`, and hears of changes
   */
  constructor(place, { directory, linger = LINGER_SECONDS }, agent) {
    this.#place = place
    this.#agent = agent
    this.#opening = {
      protocol: 1,
      clientVersion: "the plugin for OpenCode",
      agent: "opencode",
      directory,
      lingerSeconds: linger,
      answers: agent.answers,
      follow: true,
      services: agent.services,
    }
  }

  /** Attach, and wait for the catalog; rejects with what is in the way. */
  open() {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(SLOW)
        this.close()
      }, OPEN_MS)
      this.#opened = () => (clearTimeout(timer), clearTimeout(this.#patience), resolve())
      this.#pump = this.#keepAttached().then(() => (clearTimeout(timer), clearTimeout(this.#patience), reject(this.#over)))
    })
  }

  /** Abort what runs, wait for its outcomes, and end the session. */
  async close() {
    this.#over ??= LEFT
    if (this.#line) {
      const { stream } = this.#line
      this.send({ close: {} })
      const timer = setTimeout(() => stream.cancel(), CLOSE_MS)
      await this.#pump.catch(() => {})
      clearTimeout(timer)
    } else {
      this.#wake?.()
    }
  }

  /** Start a tool; the call is on its way when this returns. */
  call(request, args, onEvent) {
    const callId = this.#unused(request.callId)
    const encoded = Buffer.from(JSON.stringify(args ?? {}))
    const flight = new Flight(this, { ...request, callId }, encoded, onEvent)
    this.flights.set(flight.id, flight)
    if (this.#over) flight.end(refusedBy(this.#over))
    else if (this.#line) this.#sendAll(flight.messages())
    else this.#wake?.()
    return flight
  }

  /** An id as it is the first time: to the daemon the same id is the same call, and some models count from 0 again. */
  #unused(id) {
    const unused = this.#used.has(id) ? `${id}.${crypto.randomUUID()}` : id
    this.#used.add(unused)
    if (this.#used.size > USED_MAX) this.#used.delete(this.#used.values().next().value)
    return unused
  }

  /** Say something; without a line it is left to the next Welcome, which has the state of each call told. */
  send(message) {
    if (!this.#line) return this.#wake?.()
    message.acknowledged = this.#inbox.acknowledge()
    return this.#line.stream.write(message)
  }

  land(flight) {
    this.flights.delete(flight.id)
  }

  /** Have the directory looked at again; returns when the catalog is new, or when that takes long. */
  refresh() {
    if (this.#over) return Promise.resolve()
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, REFRESH_MS)
      this.#refreshes.push(() => (clearTimeout(timer), resolve()))
      this.send({ refresh: {} })
    })
  }

  /** A range of an output that was cut. Rejects with a Refusal. */
  readOutput(outputId, start, length) {
    return new Promise((resolve, reject) => {
      if (!this.#line) throw new Refusal("unreachable", "The connection to the daemon is lost.", "Try again in a moment.")
      const { sessionId, resumeToken } = this.#opening
      const request = { outputId, sessionId, resumeToken, startBytes: start, lengthBytes: length }
      const parts = []
      const stream = this.#line.link.readOutput(request)
      stream.on("data", (part) => parts.push(Buffer.from(part.data))) // it is an array where it is empty
      stream.on("error", (error) => reject(refusalOfRpc(error)))
      stream.on("end", () => resolve(Buffer.concat(parts)))
    })
  }

  async #keepAttached() {
    let giveUpAt = 0
    let pause = RETRY_FIRST_MS
    for (;;) {
      const why = await this.#converse()
      if (!this.#opening.sessionId || FINAL.has(why.reason)) this.#over ??= why
      const had = this.#line !== null
      this.#line = null
      if (this.#over) {
        this.#lose(this.#over)
        return
      }
      if (had) {
        giveUpAt = Date.now() + 1000 * this.#opening.lingerSeconds
        pause = RETRY_FIRST_MS
      }
      if (Date.now() < giveUpAt) {
        await new Promise((resolve) => setTimeout(resolve, pause))
        pause = Math.min(2 * pause, RETRY_MAX_MS)
        continue
      }
      this.#lose(why)
      await new Promise((resolve) => (this.#wake = resolve))
      this.#wake = null
      giveUpAt = Date.now() + 1000 * this.#opening.lingerSeconds
      pause = RETRY_FIRST_MS
    }
  }

  /** One stream, from finding the daemon to the stream's end, and why it ended. */
  async #converse() {
    let link
    try {
      await this.#place.ready()
      link = this.#place.dial()
    } catch (error) {
      return error instanceof Refusal ? error : new Refusal("unreachable", String(error))
    }
    const stream = link.attach()
    let clock = null
    let owed = 0
    const acknowledge = () => {
      clearTimeout(clock)
      clock = null
      owed = 0
      if (this.#line?.stream === stream && this.#inbox.owes) this.send({})
    }
    try {
      return await new Promise((resolve) => {
        const welcome = setTimeout(() => (resolve(SILENT), stream.cancel()), WELCOME_MS)
        stream.on("data", (response) => {
          clearTimeout(welcome)
          try {
            for (const event of response.events) this.#deal(event, link, stream)
          } catch (error) {
            resolve(new Refusal("", `A bug in the plugin: ${error.stack}`)) // not OpenCode's to die of
            stream.cancel()
            return
          }
          owed += response.wireBytes
          if (owed >= ACKNOWLEDGE_AFTER_BYTES) acknowledge()
          else clock ??= setTimeout(acknowledge, ACKNOWLEDGE_AFTER_MS)
        })
        stream.on("error", (error) => (clearTimeout(welcome), resolve(refusalOfRpc(error))))
        stream.on("end", () => (clearTimeout(welcome), resolve(DROPPED)))
        stream.write({ open: this.#opening })
      })
    } finally {
      clearTimeout(clock)
      stream.cancel()
      link.close()
    }
  }

  #deal(event, link, stream) {
    if (event.welcome) return this.#welcome(event.welcome, link, stream)
    const whole = this.#inbox.take(event)
    if (whole === null) return undefined
    const { event: { callId, catalog, outcome, refused, accepted, ask, request }, body } = whole
    if (catalog) return this.#show(catalog)
    const flight = this.flights.get(callId)
    if (!flight) return refused && !callId ? this.#refreshed() : undefined
    if (outcome) return flight.end(readOutcome(outcome, body))
    if (refused) return flight.end(refusedBy(refusalOf(refused)))
    if (accepted) flight.accepted = true
    else if (!ask && !request) flight.onEvent(whole.event, body)
    else if (flight.isNew((ask ?? request).askId)) {
      if (ask) this.#agent.onAsk(flight, ask)
      else this.#agent.onRequest(flight, request)
    }
    return undefined
  }

  #welcome(welcome, link, stream) {
    const known = new Set(welcome.calls.map((call) => call.callId))
    this.#opening.sessionId = welcome.sessionId
    this.#opening.resumeToken = welcome.resumeToken
    this.#line = { link, stream }
    this.#parts = []
    if (!welcome.resumed) this.#inbox.restart()
    for (const flight of [...this.flights.values()]) {
      if (known.has(flight.id)) flight.accepted = true
      else if (flight.accepted || (flight.sent && !welcome.resumed)) {
        flight.lose(RESTARTED)
        continue
      } else this.#sendAll(flight.messages())
      this.#sendAll(flight.repeats())
    }
    if (this.#refreshes.length) this.send({ refresh: {} })
  }

  #show(part) {
    this.#parts.push(part)
    if (!part.last) return
    const tools = this.#parts.flatMap(({ tools }) => tools)
    this.problems = this.#parts.flatMap(({ problems }) => problems)
    this.tools = new Map(
      tools.map(({ name, description, inputSchema, path, destructive, overridesBuiltin }) => {
        const schema = json(inputSchema) ?? { type: "object", properties: {} }
        return [name, { name, description, schema, path, destructive, overridesBuiltin }]
      }),
    )
    this.#parts = []
    this.#agent.onCatalog?.()
    if (part.answers) this.#refreshed()
    if (!part.pending) this.#opened()
    else this.#patience ??= setTimeout(() => this.#opened(), DESCRIBED_MS)
  }

  #refreshed() {
    for (const done of this.#refreshes.splice(0)) done()
  }

  #sendAll(messages) {
    for (const message of messages) this.send(message)
  }

  #lose(why) {
    this.#refreshed()
    for (const flight of [...this.flights.values()]) flight.lose(why)
  }
}
