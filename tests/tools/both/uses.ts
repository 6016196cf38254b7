// Uses too much of one thing, within bounds: 800 MiB, 100 processes, 20 seconds.

import { spawn } from "node:child_process"
import { closeSync, openSync, unlinkSync, writeFileSync, writeSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as wait } from "node:timers/promises"
import { tool } from "@opencode-ai/plugin"

const MIB = 2 ** 20

export default tool({
  description: "Use too much of that",
  args: { what: tool.schema.string() },
  async execute({ what }) {
    const held: unknown[] = []
    const until = Date.now() + 20_000
    if (what === "memory")
      for (let i = 0; i < 80; i++) {
        held.push(Buffer.alloc(10 * MIB, 1 + i))
        await wait(10)
      }
    if (what === "processes")
      for (let i = 0; i < 100; i++) {
        held.push(spawn("sleep", ["20"]).on("error", () => {}))
        await wait(5)
      }
    while (["memory", "processes", "time"].includes(what) && Date.now() < until) await wait(100)
    while (what === "cpu" && Date.now() < until);
    if (what === "file") {
      const file = openSync("large", "w")
      for (let i = 0; i < 40; i++) writeSync(file, Buffer.alloc(MIB))
      closeSync(file)
    }
    if (what === "disk") {
      const path = join(tmpdir(), "large")
      try {
        writeFileSync(path, Buffer.alloc(40 * MIB))
      } finally {
        unlinkSync(path) // before anything can ask how full the disk is
      }
    }
    return "survived"
  },
})
