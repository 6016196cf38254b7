// The plugin: the tools of a directory as OpenCode's own, each call carried to the Toolcell daemon and back by `toolcell bridge`.
//
// OpenCode 1 calls `server`, OpenCode 2 `setup`, which is in setup.js; each ignores the other. What follows is version 1.
// OpenCode asks for the tools once, when it opens the directory. What a tool says about itself, its description and
// its schema, is told anew with every message: the files are looked at again whenever the user says something.
// A tool that is new since then is shown when the directory is opened again.
import { shownUnder } from "./limits.js"
import { Notices } from "./notices.js"
import { attach } from "./offer.js"
import { perform, QUESTION } from "./performance.js"
import { Permissions } from "./permissions.js"
import { SERVICES, Services } from "./services.js"
import { SessionEvents } from "./session_events.js"
import { setup } from "./setup.js"

/** @param {{client, directory: string}} input @param {{socket?, start?, command?, linger?}} options */
async function server({ client, directory }, options = {}) {
  const notices = new Notices(client)
  const tell = (level, message) => notices.tell(level, message)
  const toast = (title, message) => notices.toast(title, message)
  const permissions = new Permissions(client)
  const running = new Map() // by flight: the performance that answers its questions
  const services = new Services(client)
  const happened = new SessionEvents()
  let limits = shownUnder({}) // until the configuration is known, which is before the first call
  const session = await attach(
    { directory, options, tell },
    {
      answers: true,
      onAsk: (flight, ask) => running.get(flight)?.ask(ask),
      onRequest: (flight, request) =>
        request.service === QUESTION ? running.get(flight)?.confirm(request) : services.serve(flight, request),
      services: [...SERVICES, QUESTION],
    },
  ).catch((error) => error)
  if (session instanceof Error) return notices.missing(session.message)
  const announced = new Set()
  const names = [...session.tools.keys()]
  const tools = [...session.tools].map(([shown, { description, schema }]) => [
    shown,
    {
      description,
      // A version that does not know the hook below shows the properties at least, all of them as required.
      args: schema.properties ?? {},
      execute: (args, context) =>
        perform(session, shown, args, context, { limits, permissions, running, services, toast }),
    },
  ])
  return {
    tool: Object.fromEntries(tools),
    "tool.definition": ({ toolID }, output) => {
      const found = names.includes(toolID) && session.tools.get(toolID)
      if (!found) return
      output.description = found.description
      output.jsonSchema = found.schema
    },
    "chat.message": async () => {
      notices.begin()
      await session.refresh()
      const more = [...session.tools.keys()].filter((name) => !names.includes(name) && !announced.has(name))
      if (!more.length) return
      more.forEach((name) => announced.add(name))
      tell("warn", `New tools are shown when OpenCode is started again: ${more.join(", ")}`)
    },
    event: async ({ event }) => {
      services.learn(event)
      permissions.hear(event)
      const sessionEvent = happened.read(event)
      if (sessionEvent) session.tell(sessionEvent)
    },
    config: (config) => {
      limits = shownUnder(config)
      permissions.learn(config, [...session.tools].map(([shown, { destructive }]) => ({ shown, destructive })))
    },
    dispose: () => session.close(),
  }
}

export default { id: "toolcell", server, setup }
