// Does what its cell is to prevent; what it returns or throws says whether it could.

import { execFileSync } from "node:child_process"
import { readFileSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { tool } from "@opencode-ai/plugin"

const reaching = (target: { path: string } | { host: string; port: number }) =>
  new Promise<string>((done, fail) => {
    const socket = connect(target as { path: string }, () => {
      socket.destroy()
      done("connected")
    }).on("error", fail)
  })

const acts: Record<string, (at: string) => unknown> = {
  reads: (at) => readFileSync(at, "utf8"),
  reads_through_a_program: (at) => execFileSync("cat", [at], { encoding: "utf8" }),
  reads_through_a_link: (at) => {
    symlinkSync(at, "/tmp/link")
    return readFileSync("/tmp/link", "utf8")
  },
  writes: (at) => writeFileSync(at, "planted"),
  removes: (at) => unlinkSync(at),
  connects: (at) => reaching({ path: at }),
  dials: (at) => reaching({ host: "127.0.0.1", port: Number(at) }),
  signals: (at) => (process.kill(Number(at), "SIGTERM"), "sent"),
  looks: (at) => readFileSync(`/proc/${at}/environ`, "utf8"),
  inherits: () => JSON.stringify(process.env),
}

export default tool({
  description: "Do that",
  args: { act: tool.schema.string(), at: tool.schema.string().default("") },
  execute: async ({ act, at }) => (await acts[act](at)) as string,
})
