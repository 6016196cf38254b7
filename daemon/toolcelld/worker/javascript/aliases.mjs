// Names that a project gives to its directories: `paths` of the nearest tsconfig.json, which Node does not read.

import fs from "node:fs";
import path from "node:path";

const STRING = String.raw`("(?:[^"\\]|\\.)*")`;
const COMMENTS = new RegExp(String.raw`${STRING}|//[^\n]*|/\*[^]*?\*/`, "g");
const LAST_COMMAS = new RegExp(String.raw`${STRING}|,(?=\s*[}\]])`, "g");

const found = new Map(); // by directory: {base, patterns} of its tsconfig.json, or null

/** Yields the paths that a specifier may mean in a file, in order. */
export function* aliased(specifier, file) {
    let directory = path.dirname(file);
    while (!configIn(directory)) {
        if (directory === path.dirname(directory)) return;
        directory = path.dirname(directory);
    }
    const { base, patterns } = configIn(directory);
    for (const [pattern, targets] of patterns) {
        const [before, after] = pattern.split("*");
        const fits =
            after === undefined
                ? specifier === pattern
                : specifier.length >= before.length + after.length &&
                  specifier.startsWith(before) &&
                  specifier.endsWith(after);
        if (!fits || !Array.isArray(targets)) continue;
        const rest =
            after === undefined ? "" : specifier.slice(before.length, specifier.length - after.length);
        for (const target of targets)
            yield path.resolve(
                base,
                String(target).replace("*", () => rest),
            );
    }
}

/** Returns JSON without the comments and the last commas that some files have. */
export function withoutComments(text) {
    return text.replace(COMMENTS, (whole, kept) => kept ?? whole.replace(/[^\n]/g, " ")).replace(LAST_COMMAS, "$1");
}

function configIn(directory) {
    if (!found.has(directory)) found.set(directory, read(directory));
    return found.get(directory);
}

function read(directory) {
    try {
        const text = fs.readFileSync(path.join(directory, "tsconfig.json"), "utf8");
        const { baseUrl = ".", paths = {} } = JSON.parse(withoutComments(text)).compilerOptions ?? {};
        return { base: path.resolve(directory, baseUrl), patterns: Object.entries(paths) };
    } catch {
        return null; // it is not there, or has a mistake that the project's own compiler names
    }
}
