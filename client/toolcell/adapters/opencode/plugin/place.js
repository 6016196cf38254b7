// Where the daemon is: its socket, the token beside it, and how it is started where it does not run.
//
// A program that could replace the socket or the token could impersonate the daemon, so nothing is sent before their
// directory is known to be ours alone.
import { spawn } from "node:child_process"
import { closeSync, constants, fstatSync, mkdirSync, openSync, readFileSync, readSync, statSync } from "node:fs"
import { connect } from "node:net"
import { homedir } from "node:os"
import { dirname, isAbsolute, join, resolve } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"

import { Link, Refusal } from "./contract.js"

const START_MS = 20_000 // a cold disk and a busy machine; a warm start takes half a second
const LOOK_MS = 20 // a socket has no event for "is listening now"
const IDLE_EXIT_SECONDS = 600
const LOG_TAIL_BYTES = 4096
const LOG_TAIL_LINES = 8
const START_IT = "Start the daemon: toolcell serve"

/** There is no daemon to talk to; the text says what happened and what to do. */
export class Unavailable extends Refusal {
  constructor(message, remedy = START_IT) {
    super("unreachable", message, remedy)
  }
}

/** One daemon's place. */
export class Place {
  /**
   * @param {{socket?: string, start?: boolean, command?: string[]}} options
   *   of the plugin: another socket than the user's own; `start: false` to start nothing; the command to start with
   */
  constructor(options, environment = process.env) {
    this.socket = resolve(options.socket ?? usersSocket(environment))
    this.mayStart = options.start ?? true
    this.command = options.command ?? ["toolcell"]
    this.environment = environment
  }

  /** Return when it may be dialled; starts it where that is wanted. */
  async ready() {
    if (!this.mayStart || (await this.answers())) return
    if (await this.startService()) {
      await this.untilAnswers(() => null)
      return
    }
    const log = openLog(join(stateDirectory(this.environment), "daemon.log"))
    const begin = fstatSync(log).size
    let ended = null
    try {
      const [program, ...words] = this.command
      const serve = ["serve", "--socket", this.socket, "--idle-exit", String(IDLE_EXIT_SECONDS), "--detach"]
      const child = spawn(program, [...words, ...serve], {
        cwd: "/",
        detached: true, // a session of its own; `--detach` takes the daemon out of the process tree as well
        env: without(this.environment),
        stdio: ["ignore", log, log],
      })
      child.on("error", (error) => (ended = () => `${this.command.join(" ")} cannot be run: ${error.message}`))
      child.on("exit", (code, signal) => {
        // 0: the daemon serves, or this one lost the race for the daemon's lock and the winner is about to answer.
        if (code !== 0) ended ??= () => `The daemon did not start: ${signal ?? `exit ${code}`}.\n${tail(log, begin)}`
      })
      child.unref()
      await this.untilAnswers(() => ended?.() ?? null)
    } finally {
      closeSync(log)
    }
  }

  /** A channel; connects when it is first used. */
  dial() {
    this.checkDirectory()
    return new Link(this.socket, this.token())
  }

  checkDirectory() {
    const directory = dirname(this.socket)
    let found
    try {
      found = statSync(directory)
    } catch (error) {
      if (error.code === "ENOENT") throw new Unavailable(`No daemon runs here: there is no ${directory}.`)
      throw new Unavailable(`The daemon's directory ${directory} cannot be looked at: ${error.message}.`, "")
    }
    if (!found.isDirectory() || found.uid !== process.getuid() || (found.mode & 0o077) !== 0) {
      throw new Unavailable(
        `${directory} is not safe: the directory of the socket must be owned by user ` +
          `${process.getuid()} with mode 0700.`,
        `If it is yours: chmod 700 ${directory}`,
      )
    }
  }

  token() {
    const path = join(dirname(this.socket), "agent.token")
    try {
      return readFileSync(path, "ascii").trim()
    } catch (error) {
      if (error.code === "ENOENT") throw new Unavailable(`No daemon runs here: there is no token at ${path}.`)
      throw new Unavailable(`The token at ${path} cannot be read: ${error.message}.`, "")
    }
  }

  /** Whether a daemon listens; a connection to a local socket succeeds or fails at once. */
  answers() {
    return new Promise((done) => {
      const probe = connect(this.socket)
      probe.once("connect", () => (probe.destroy(), done(true)))
      probe.once("error", () => (probe.destroy(), done(false)))
    })
  }

  async untilAnswers(ended) {
    const deadline = Date.now() + START_MS
    while (!(await this.answers())) {
      const why = ended()
      if (why !== null) throw new Unavailable(why)
      if (Date.now() > deadline) {
        throw new Unavailable(`The daemon did not answer on ${this.socket} within ${START_MS / 1000} s.`)
      }
      await sleep(LOOK_MS)
    }
  }

  /** Start the user's service; false where none is installed, or where the socket is not the service's. */
  startService() {
    if (this.socket !== `/run/user/${process.getuid()}/toolcell/daemon.sock`) return Promise.resolve(false)
    return new Promise((done) => {
      const words = ["--user", "start", "toolcelld.service"]
      const child = spawn("systemctl", words, { stdio: "ignore", timeout: START_MS })
      child.once("error", () => done(false))
      child.once("exit", (code) => done(code === 0))
    })
  }
}

function usersSocket(environment) {
  if (environment.TOOLCELL_SOCKET) return environment.TOOLCELL_SOCKET
  const runtime = absolute(environment.XDG_RUNTIME_DIR)
  if (runtime) return join(runtime, "toolcell", "daemon.sock")
  return `/tmp/toolcell-${process.getuid()}/daemon.sock`
}

function stateDirectory(environment) {
  return join(absolute(environment.XDG_STATE_HOME) || join(homedir(), ".local", "state"), "toolcell")
}

/** A directory of XDG; "" where it is relative, which its specification has ignored. */
function absolute(path) {
  return path && isAbsolute(path) ? path : ""
}

/** The environment for a daemon: it serves others as well, and has no business with OpenCode's password and keys. */
function without(environment) {
  const ours = Object.entries(environment).filter(([name]) => !name.startsWith("OPENCODE"))
  return Object.fromEntries(ours)
}

/** The daemon's log, to write and to read; throws Unavailable, also where it is no file: to open a FIFO may take for ever. */
function openLog(path) {
  const directory = dirname(path)
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_APPEND | constants.O_NONBLOCK
  let log
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 })
    const { uid, mode } = statSync(directory)
    if (uid !== process.getuid() || mode & 0o002) throw new Error("other users can write in its directory (chmod 700)")
    log = openSync(path, flags, 0o600)
  } catch (error) {
    throw unwritable(path, error.message)
  }
  if (fstatSync(log).isFile()) return log
  closeSync(log)
  throw unwritable(path, "it is no file")
}

function unwritable(path, why) {
  const remedy = "Name another state directory with XDG_STATE_HOME."
  return new Unavailable(`The daemon cannot be started: its log ${path} cannot be written: ${why}.`, remedy)
}

/** The end of what was written since. */
function tail(log, begin) {
  const end = fstatSync(log).size
  const start = Math.max(begin, end - LOG_TAIL_BYTES)
  const bytes = Buffer.alloc(Math.max(0, end - start))
  const lines = bytes.subarray(0, readSync(log, bytes, 0, bytes.length, start)).toString().trimEnd().split("\n")
  return lines.slice(-LOG_TAIL_LINES).map((line) => `  ${line}`).join("\n")
}
