// The process `toolcell bridge`: one for each command that starts it, for all directories that OpenCode opens.
//
// It speaks JSON lines (docs/bridge.md): the client of the daemon, with its drops, restarts and starts, is the one in Python.
import { spawn } from "node:child_process"

const PROTOCOL = 1
const LAST_WORDS_BYTES = 4096
const LAST_WORDS_LINES = 8
const SHOWN_CHARACTERS_MAX = 200
const INSTALL_IT = "Where toolcell runs, run: toolcell opencode install; then start OpenCode again."

const bridges = new Map() // by command: the one that runs

/** Why there are no tools, or why a call was not made: a message for people, and what to do where that is known. */
export class Unavailable extends Error {
  constructor(message, remedy = "") {
    super(remedy ? `${message}\n${remedy}` : message)
  }
}

/** A running process, and the receivers of its messages. */
export class Bridge {
  #child
  #command
  #sessions = new Map() // by name: the receiver of its messages
  #count = 0
  #rest = [] // of a line that is not whole
  #lastWords = ""
  #startedAt = performance.now()

  /** The one that a command has started; starts it where none runs. */
  static of(command) {
    const key = JSON.stringify(command)
    if (!bridges.has(key)) bridges.set(key, new Bridge(command, key))
    return bridges.get(key)
  }

  constructor(command, key) {
    this.#command = command
    const [program, ...words] = command
    this.#child = spawn(program, [...words, "bridge"], {
      cwd: "/",
      detached: true, // a ^C in the terminal is OpenCode's; the bridge ends with its input
      env: ours(process.env),
    })
    const forget = (why) => {
      if (bridges.get(key) === this) bridges.delete(key)
      const sessions = [...this.#sessions.values()]
      this.#sessions.clear()
      for (const session of sessions) session.lost(why)
    }
    this.#child.on("error", (error) =>
      forget(new Unavailable(`${command.join(" ")} cannot be run: ${error.message}.`, INSTALL_IT)),
    )
    // "close" and not "exit": by then it has been read to its end.
    this.#child.on("close", (code, signal) =>
      forget(new Unavailable(`Toolcell's bridge has ended: ${signal ?? `exit ${code}`}.${this.#said()}`)),
    )
    this.#child.stdin.on("error", () => {}) // it has ended, which is told above
    this.#child.stderr.on("data", (data) => (this.#lastWords = (this.#lastWords + data).slice(-LAST_WORDS_BYTES)))
    this.#child.stdout.on("data", (data) => this.#read(data))
    this.end = () => {
      if (bridges.get(key) === this) bridges.delete(key)
      this.#child.stdin.end()
    }
  }

  /** Milliseconds since its start. */
  get age() {
    return performance.now() - this.#startedAt
  }

  /** Have somebody hear what is said of a session, by `take` and `lost`; returns the session's name. */
  add(session) {
    const name = String(++this.#count)
    this.#sessions.set(name, session)
    return name
  }

  /** Forget a session; the process ends with the last one. */
  remove(name) {
    this.#sessions.delete(name)
    if (!this.#sessions.size) this.end()
  }

  send(message) {
    this.#child.stdin.write(`${JSON.stringify(message)}\n`)
  }

  #read(data) {
    let begin = 0
    for (let end = data.indexOf(0x0a); end >= 0; end = data.indexOf(0x0a, begin)) {
      const line = Buffer.concat([...this.#rest.splice(0), data.subarray(begin, end)])
      begin = end + 1
      try {
        this.#take(JSON.parse(line.toString()))
      } catch (error) { // not OpenCode's to die of
        this.#lastWords = `${error.message}, in: ${line.toString().slice(0, SHOWN_CHARACTERS_MAX)}`
        this.#child.kill()
      }
    }
    if (begin < data.length) this.#rest.push(data.subarray(begin))
  }

  #take(message) {
    if (message.type === "hello" && message.protocol !== PROTOCOL) {
      this.#lastWords = `${this.#command.join(" ")} is of another version than the plugin: ${message.version}.`
      this.end()
    }
    this.#sessions.get(message.session)?.take(message)
  }

  /** The end of what it wrote to stderr, indented. */
  #said() {
    const lines = this.#lastWords.trimEnd().split("\n").filter(Boolean).slice(-LAST_WORDS_LINES)
    return lines.map((line) => `\n  ${line}`).join("")
  }
}

/** The environment without OpenCode's password and keys: a daemon that is started gets it, and serves others as well. */
function ours(environment) {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !name.startsWith("OPENCODE")))
}
