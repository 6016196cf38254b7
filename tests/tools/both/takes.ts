// Tells the arguments that it got.

import { tool } from "@opencode-ai/plugin"

const z = tool.schema

export default tool({
  description: "Tell the arguments",
  args: {
    n: z.number().int(),
    text: z.string().default("none"),
    unit: z.enum(["m", "s"]).default("m"),
    tags: z.array(z.string()).optional(),
    free: z.looseObject({}).optional(),
  },
  execute: async (args) => args as unknown as string,
})
