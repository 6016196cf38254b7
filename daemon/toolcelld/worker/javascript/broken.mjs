// Why a tool file has no tools: the message `broken`, with the line of the file, and for a mistake in a source its place.
//
// Bun tells the place of a mistake in its error. Node keeps it to itself where it has compiled a module, so the source is
// made a script and compiled once more; a script's error tells it. What an import does not find is looked for in the text.
// A mistake in another file is shown there, and the line is that of the import which leads to it.

import fs from "node:fs";
import module from "node:module";
import { fileURLToPath } from "node:url";
import vm from "node:vm";

import { isData } from "./data.mjs";
import { importOf, importsBelow, importsOf } from "./imports.mjs";
import { attempts, dataSource, lastLoaded, loaderOf, meant, transformed } from "./modules.mjs";
import { HERE } from "./place.mjs";
import { isA, membersOf, property, textOf } from "./thrown.mjs";
import { missingPackage } from "./unimported.mjs";

const MARKED_CHARACTERS_MAX = 200; // of a line that is shown
const SCRIPT = ["(async function () {\n", "\n})"]; // in which what a module may have at its top is no mistake
const FRAME = /^\s+at (?:.*\(|async )?((?:file:\/\/)?\/.+?):(\d+)(?::\d+)?\)?$/;

/**
 * Returns the header of `broken` for what was thrown while a file with this content was loaded.
 * A place is {file, line, column, length, message}, of which only the first two are always there.
 */
export function brokenBy(thrown, file, content) {
    const text = textOf(thrown);
    const sourceOf = (place) => (place === file ? content : read(place));
    const broken = { type: "broken", stage: "import", message: text, line: 0, module: missingPackage(text) };
    let place;
    try {
        place = mistake(thrown, sourceOf);
        if (place !== null) broken.stage = "syntax";
        place ??= unresolved(thrown, file, sourceOf) ?? raised(thrown, file);
    } catch {
        return broken; // of an error that does not let itself be read
    }
    if (place === null) return broken;
    const { line, marks } = marked(place, sourceOf(place.file));
    const isOwn = place.file === file;
    const leading = isOwn ? undefined : importOf(place.file, file, content, meant);
    broken.line = isOwn ? line : leading === undefined ? 0 : linesTo(content, leading.at).length;
    const [first, ...rest] = (place.message ?? text).split("\n");
    const where = isOwn || first.includes(place.file) ? "" : ` in ${place.file} line ${line}`;
    const said = where ? first.replace(/\.$/, "") + where : first;
    broken.message = [said, ...rest, ...marks, ...circular(thrown)].join("\n");
    return broken;
}

/** What to do where a module uses another one that has not run yet, as that one imports it. */
function circular(thrown) {
    const isEarly = isA(thrown, ReferenceError) && /before initialization/.test(String(property(thrown, "message")));
    return isEarly ? ["If two files import each other, use what is imported in a function, or put it into a third file."] : [];
}

/** The place of what an engine cannot read. */
function mistake(error, sourceOf) {
    const thrown = membersOf(error)[0] ?? error; // of several, Bun tells the first one first
    const position = property(thrown, "position");
    if (position?.file) return { ...position, message: String(property(thrown, "message")) }; // of Bun
    if (!isA(thrown, SyntaxError)) return null;
    const message = String(property(thrown, "message"));
    const stack = String(property(thrown, "stack"));
    const told = attempts.get(thrown) ?? placeIn(stack, sourceOf);
    if (told !== null) return { message, ...told, column: told.isTranslated ? 0 : told.column };
    if (stack.split("\n").some((line) => FRAME.test(line) && !/<parse>/.test(line) && !line.includes(HERE))) return null; // as of JSON.parse()
    const file = lastLoaded();
    if (/^JSON Parse error/.test(message)) return mistakeInData(file, sourceOf); // of Bun
    return file === null ? null : process.versions.bun ? placeByBun(file, sourceOf(file)) : placeByScript(file, sourceOf(file), message);
}

/** The place of the first mistake in a file of data that is imported. */
function mistakeInData(file, sourceOf) {
    for (const [, place] of importsBelow(file, sourceOf(file), meant))
        try {
            if (place !== null && isData(place)) dataSource(place);
        } catch (error) {
            return attempts.get(error);
        }
    return null;
}

function placeByBun(file, source) {
    try {
        new Bun.Transpiler({ loader: loaderOf(file) }).transformSync(source);
        return null;
    } catch (error) {
        const first = membersOf(error)[0] ?? error;
        return { ...first.position, file, message: first.message };
    }
}

function placeByScript(file, source, message) {
    try {
        const { code, sourceMap } = transformed(source, file, ["imports"], { sourceMapOptions: { compiledFilename: file } });
        const script = SCRIPT.join(code.replaceAll("import.meta", "(import0())"));
        try {
            new vm.Script(script, { filename: file, lineOffset: -1 });
            return null;
        } catch (error) {
            const place = placeIn(error.stack, () => source);
            if (place.isTranslated) {
                const { originalColumn } = new module.SourceMap(sourceMap).findEntry(place.line - 1, place.column - 1);
                place.column = originalColumn + 1;
            }
            return { ...place, message: unknownTo(source, place) ?? message };
        }
    } catch (error) {
        return attempts.get(error) ?? null;
    }
}

/** The place that a stack of Node begins with; `isTranslated` says that its line is another one in the source. */
function placeIn(stack, sourceOf) {
    const found = /^((?:file:\/\/)?\/.*):(\d+)\n(.*)\n( *)(\^+)\n/.exec(stack);
    if (found === null) return null;
    const [, place, number, text, before, carets] = found;
    const file = pathOf(place);
    const line = Number(number);
    const isTranslated = sourceOf(file).split("\n")[line - 1]?.trimEnd() !== text.trimEnd();
    return { file, line, column: before.length + 1, length: carets.length, isTranslated };
}

/** What of the language Node does not know, if that is what stands at a place. */
function unknownTo(source, { line, column }) {
    const text = source.split("\n")[line - 1] ?? "";
    const what = text[column - 1] === "@" ? "a decorator" : /\baccessor\s+$/.test(text.slice(0, column - 1)) ? "`accessor`" : null;
    return what === null ? null : `has ${what}, which Node does not run; install bun, or write it as plain functions`;
}

/** The place of an import that leads nowhere, or to a module that has not what is imported. */
function unresolved(thrown, own, sourceOf) {
    const message = property(thrown, "message");
    const [, name, target] = /^Export named '(.*)' not found in module '(.*)'\.$/.exec(message) ?? []; // of Bun
    if (target !== undefined)
        for (const [{ names, at, specifier }, place, from] of importsBelow(own, sourceOf(own), meant))
            if (place === target && names?.includes(name)) return placeAt(from, sourceOf(from), at, specifier);
    const { specifier, file } = attempts.get(thrown) ?? { specifier: property(thrown, "specifier"), file: property(thrown, "referrer") };
    if (typeof specifier !== "string" || typeof file !== "string") return null;
    const source = sourceOf(file);
    const found = [...importsOf(source)].find((each) => each.specifier === specifier);
    return found === undefined ? null : placeAt(file, source, found.at, specifier);
}

function placeAt(file, source, at, specifier) {
    const before = linesTo(source, at);
    return { file, line: before.length, column: before.at(-1).length + 1, length: specifier.length };
}

/** The place where an exception was raised: in this file, if it was called from there. */
function raised(thrown, file) {
    const frames = String(property(thrown, "stack"))
        .split("\n")
        .map((line) => FRAME.exec(line))
        .filter((found) => found !== null && !found[1].includes(HERE))
        .map(([, place, line]) => ({ file: pathOf(place), line: Number(line) }));
    return frames.find((frame) => frame.file === file) ?? frames[0] ?? null;
}

/** Returns the line of a place, or the last one before it that is not empty, and marks: its text with carets below it. */
function marked({ line, column, length }, source) {
    const lines = source.split("\n", line);
    const at = column ? lines.findLastIndex((each) => each.trim()) : -1;
    if (at < 0) return { line, marks: [] };
    const text = lines[at].trimEnd();
    const shown = text.trimStart();
    const first = (at === line - 1 ? column - 1 : text.length) - (text.length - shown.length);
    const isLike = !/\p{C}/u.test(shown) && first >= 0 && first <= shown.length && shown.length <= MARKED_CHARACTERS_MAX;
    const carets = "^".repeat(Math.max(1, Math.min(length, shown.length - first)));
    return { line: at + 1, marks: isLike ? [`  ${shown}`, `  ${" ".repeat(first)}${carets}`] : [] };
}

/** The lines of a text up to a position in it. */
function linesTo(text, at) {
    return text.slice(0, at).split("\n");
}

function read(file) {
    try {
        return fs.readFileSync(file, "utf8");
    } catch {
        return "";
    }
}

function pathOf(place) {
    return place.startsWith("file:") ? fileURLToPath(place) : place;
}
