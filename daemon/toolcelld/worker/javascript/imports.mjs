// The imports that a source has, as its text says them: before it runs, and where it does not run.

import fs from "node:fs";

const IMPORT =
    /\b(?:import|export|require)\b(?!\s+type\b)(?:\s*\(|[^"'`;{(]{0,2000}(?:\{([^}]*)\})?\s*from\b)?\s*["']([^"']+)["']/g;
const SOURCE = /\.[mc]?[jt]sx?$/;
const FILES_MAX = 500;

/** Yields {specifier, names, at} of each import: what stands in its braces, and where its specifier begins. */
export function* importsOf(source) {
    for (const found of source.matchAll(IMPORT)) {
        const [whole, names, specifier] = found;
        yield { specifier, names, at: found.index + whole.lastIndexOf(specifier) };
    }
}

/**
 * Yields [import, place, from] for the imports of a file and of those that it imports, each file once: `place` is the file
 * that is meant in `from`, or null. `find` returns it for a specifier and a file.
 */
export function* importsBelow(file, content, find) {
    const seen = new Set([file]);
    const files = [[file, content]];
    while (files.length) {
        const [from, source] = files.pop();
        for (const each of importsOf(source)) {
            const place = find(each.specifier, from);
            yield [each, place, from];
            if (place === null || seen.has(place) || !SOURCE.test(place) || seen.size === FILES_MAX) continue;
            seen.add(place);
            files.push([place, fs.readFileSync(place, "utf8")]);
        }
    }
}

/** Returns the import of a source by which a file is reached, or undefined. */
export function importOf(target, file, content, find) {
    for (const each of importsOf(content)) {
        const place = find(each.specifier, file);
        if (place === target) return each;
        if (place === null || !SOURCE.test(place)) continue;
        for (const [, below] of importsBelow(place, fs.readFileSync(place, "utf8"), find))
            if (below === target) return each;
    }
    return undefined;
}
