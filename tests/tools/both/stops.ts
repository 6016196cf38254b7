// Waits in several ways; each says that it is there, and ends by itself after half a minute.

import { spawn, spawnSync } from "node:child_process"
import { setTimeout as wait } from "node:timers/promises"
import { tool } from "@opencode-ai/plugin"

const MILLISECONDS = 30_000

export default tool({
  description: "Wait in that way",
  args: { kind: tool.schema.string(), mark: tool.schema.string().default("30") },
  async execute({ kind, mark }, { abort }) {
    console.log("there")
    if (kind === "listens") await wait(MILLISECONDS, null, { signal: abort })
    if (kind === "half") {
      await wait(MILLISECONDS, null, { signal: abort }).catch(() => {})
      return "half"
    }
    if (kind === "child") await new Promise((done) => spawn("sleep", [mark], { signal: abort }).on("error", () => {}).on("close", done))
    if (kind === "children") {
      spawn("sleep", [mark], { detached: true, stdio: "ignore" }).unref()
      await wait(MILLISECONDS, null, { signal: abort })
    }
    if (kind === "deaf") for (const end = Date.now() + MILLISECONDS; Date.now() < end;);
    abort.throwIfAborted()
    return "whole"
  },
})
