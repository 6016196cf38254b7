// The modules that stand for packages that a project has not installed: libraries that Toolcell has with it, and hosts.
//
// A package of a host has far more names than a tool can use without its terminal, so each name that a file imports is
// there: what tools use works, and any other throws where it is called, not where it is imported.

import path from "node:path";
import { pathToFileURL } from "node:url";

import { importsBelow } from "./imports.mjs";
import { HERE } from "./place.mjs";

const PLUGIN = "shims/plugin.mjs";
/** The files that stand for libraries, from the directory of these files; build.mjs makes them findable by NODE_PATH. */
export const LIBRARIES = new Map([
    ["toolcell", "shims/toolcell.mjs"],
    ["@opencode-ai/plugin", PLUGIN],
    ["@opencode-ai/plugin/tool", PLUGIN],
    ["@atomic/plugin", PLUGIN],
    ["@opencode/plugin", "shims/plugin2.mjs"],
    ["zod", "vendor/zod.mjs"],
    ["zod/v4", "vendor/zod.mjs"],
    ["zod/v3", "vendor/zod3.mjs"],
    ["typebox", "vendor/typebox.mjs"],
    ["@sinclair/typebox", "vendor/typebox.mjs"],
]);
const HOST =
    /^@(?:(?:oh-my-pi|mariozechner|earendil-works|bastani)\/pi-(?:coding-agent|agent-core|ai|tui|utils)|bastani\/atomic)(?:\/|$)/;
const HOST_FILE = path.join(HERE, "shims/pi.mjs");

/** Returns the file that stands for a library, or null. */
export function libraryOf(specifier) {
    const place = LIBRARIES.get(specifier);
    return place === undefined ? null : path.join(HERE, place);
}

/** Imports what stands for every package of a host. */
export function hostModule() {
    return import(HOST_FILE);
}

/** Returns whether a specifier is a package of a host. */
export function isHost(specifier) {
    return HOST.test(specifier);
}

/**
 * Returns what a file, and those of the project that it imports, import of packages of hosts: a map of specifiers to sets
 * of names. `find` returns the file that a specifier means in a file, or null.
 */
export function hostImports(file, content, find) {
    const found = new Map();
    for (const [{ specifier, names }] of importsBelow(file, content, (name, from) => (isHost(name) ? null : find(name, from)))) {
        if (!isHost(specifier)) continue;
        if (!found.has(specifier)) found.set(specifier, new Set());
        for (const name of importedNames(names)) found.get(specifier).add(name);
    }
    return found;
}

function importedNames(list) {
    return (list ?? "")
        .replace(/\/\/[^\n]*/g, "")
        .split(",")
        .map((each) => each.trim().split(/\s+as\s+/)[0])
        .filter((each) => /^[\w$]+$/.test(each) && each !== "default");
}

/** Returns the exports of a host's package, for who imports these names. */
export async function hostExports(names) {
    const host = await hostModule();
    const absent = [...names].filter((name) => !(name in host));
    return {
        default: host.absent("its default export"),
        ...host,
        ...Object.fromEntries(absent.map((name) => [name, host.absent(name)])),
    };
}

/** Returns the source of a module with the exports of a host's package, for Node. */
export async function hostSource(names) {
    const host = await hostModule();
    const absent = [...names].filter((name) => !(name in host));
    const from = `from ${JSON.stringify(pathToFileURL(HOST_FILE).href)};`;
    return [
        `import { absent } ${from}`,
        `export * ${from}`,
        ...absent.map((name) => `export const ${name} = absent("${name}");`),
        'export default absent("its default export");',
    ].join("\n");
}
