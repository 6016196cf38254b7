// Tools that a file exports together: a list, an object, a factory that makes or registers them, or a plugin of OpenCode.

import { argumentsFor, hostFor } from "./host.mjs";
import { hasFirstPlugins, isPlugin, toolsOfFirstPlugins, toolsOfPlugin } from "./plugins.mjs";

const NAMES = ["tools", "TOOLS", "default", "factory"];
const NO_TOOL = "it has not both a function execute() and a description or a schema of its arguments";

/**
 * Yields [name, tool, five] for each tool that is exported together with others: its key in an object, or "", and
 * whether its `execute` takes the five arguments of oh-my-pi. For what is no tool, tool is an Error that says so.
 * `isTool` and `isHalf` say what of an object is a tool, and what was to be one; `pending` keeps actions that wait.
 */
export async function* exportedTogether(exported, source, isTool, isHalf, pending) {
    if (hasFirstPlugins(source) && !Object.values(exported).some(isTool)) {
        for (const [name, tool] of await toolsOfFirstPlugins(exported))
            yield isTool(tool) ? [name, tool, false] : [name, new TypeError(NO_TOOL), false];
        return;
    }
    for (const export_ of NAMES) {
        const value = exported[export_];
        if (value === undefined || value === null || isTool(value)) continue;
        if (isPlugin(value)) {
            for (const [name, tool] of await toolsOfPlugin(value)) yield [name, tool, false];
        } else if (isFactory(export_, value)) {
            const made = await madeBy(value, pending);
            if (made === undefined && /\bregister\w+\(|\.on\(/.test(String(value))) continue; // what it registers is no tool
            const hooks = made?.tool; // of a plugin of OpenCode 1
            if (hooks !== null && typeof hooks === "object" && !isTool(made)) {
                for (const [name, tool] of Object.entries(hooks)) if (isTool(tool)) yield [name, tool, false];
                continue;
            }
            const several = severalOf(made, isTool);
            if (several === null)
                throw new TypeError(
                    `${export_}() returned ${made === null ? "null" : typeof made}; a factory returns a tool, or several in a list or an object; for a tool that does what it does: export default tool({ description, args, execute })`,
                );
            for (const [name, tool] of several) {
                if (isTool(tool)) yield [name, tool, true];
                else yield [name, new TypeError(`${export_}() made something without execute(): ${NO_TOOL}`), true];
            }
        } else if (typeof value === "object") {
            const several = severalOf(value, isTool);
            if (!several?.some(([, each]) => isTool(each))) continue;
            for (const [at, [name, tool]] of several.entries()) {
                if (isTool(tool)) yield [name, tool, tool.execute.length > 2];
                else if (Array.isArray(value) || isHalf(tool))
                    yield [name, new TypeError(`${export_} has an invalid tool at index ${at}: ${NO_TOOL}`), false];
            }
        }
    }
}

/** Returns a function of the arguments and the context that calls `execute` with the five of oh-my-pi. */
export function withFive(tool) {
    return (values, context) => tool.execute(...argumentsFor(tool.execute, values, context));
}

function isFactory(name, value) {
    if (typeof value !== "function" || /^class\b/.test(Function.prototype.toString.call(value))) return false;
    return value.length === 1 || (value.length === 0 && name.toLowerCase() === "tools");
}

async function madeBy(factory, pending) {
    const registered = [];
    const made = await factory(await hostFor((tool) => void registered.push(tool), pending));
    if (registered.length === 0) return made;
    return made === undefined || made === null ? registered : [made, ...registered].flat();
}

function severalOf(value, isTool) {
    if (isTool(value)) return [["", value]];
    if (Array.isArray(value)) return value.map((each) => ["", each]);
    return value !== null && typeof value === "object" ? Object.entries(value) : null;
}
