// Tells its secret everywhere.

import { writeSync } from "node:fs"
import { tool } from "@opencode-ai/plugin"

export default tool({
  description: "Tell it there",
  args: { where: tool.schema.string() },
  async execute({ where }, context: any) {
    const token = process.env.TOKEN!
    if (where === "prints") {
      console.log("out", token)
      console.error("err", token)
      for (const letter of token) process.stdout.write(letter)
    }
    if (where === "returns") return { deep: [token], text: `a ${token} b` } as any
    if (where === "long") return ("x".repeat(1000) + token + "\n").repeat(2000)
    if (where === "raises") throw new Error(`bad token ${token}`)
    if (where === "speaks") {
      context.metadata({ metadata: { token } })
      context.progress(1, 2, token)
      context.update(token)
      return { content: "done", details: { token }, title: token } as any
    }
    if (where === "dies") {
      writeSync(2, token)
      ;(process as any).reallyExit(3)
    }
    return "done"
  },
})
