// Ends its own process, or takes its channel from it.

import { closeSync, writeSync } from "node:fs"
import { setTimeout as wait } from "node:timers/promises"
import { tool } from "@opencode-ai/plugin"

const CHANNELS = [4, 5, 6]

export default tool({
  description: "Die so",
  args: { how: tool.schema.string() },
  async execute({ how }) {
    if (how.startsWith("SIG")) process.kill(process.pid, how)
    // The engine's own end, which no tool calls by its public name.
    if (how === "exits") (process as unknown as { reallyExit(status: number): void }).reallyExit(0)
    for (const number of CHANNELS)
      try {
        if (how === "closes") closeSync(number)
        if (how === "forges") writeSync(number, "Traceback (most recent call last):\n")
      } catch {}
    if (how === "closes") return "its result goes nowhere"
    await wait(20_000)
    return "survived"
  },
})
