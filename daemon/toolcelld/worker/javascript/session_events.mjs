// What happens to a session, told to the tools of a file: `onSession(event, context)` of a tool, or an export of that name.

import { hostContext } from "./host.mjs";

/** The name of the export; no tool can have it. */
export const ON_SESSION = "on_session()";

/** Returns the handlers of a module and of its tools, each once. */
export function handlersOf(exported, tools) {
    const own = typeof exported.onSession === "function" ? [exported.onSession] : [];
    const bound = tools.filter((tool) => typeof tool.onSession === "function");
    return [...own, ...bound.map((tool) => tool.onSession.bind(tool))];
}

/** Returns the export that tells all of them; it throws with what went wrong once all have been told. */
export function teller(handlers) {
    async function execute({ reason, data }, context) {
        const failures = [];
        let first;
        for (const handler of handlers) {
            try {
                await handler({ ...data, reason }, hostContext(context));
            } catch (error) {
                first ??= error;
                failures.push(String(error?.stack ?? error).slice(0, 1_000));
            }
        }
        if (failures.length) throw new Error(failures.join("; "), { cause: first });
    }
    return { name: ON_SESSION, execute, input: { parse: async (value) => ({ value }) } };
}
