// What an import that failed says besides its message: while a file is loaded, and in a call. The daemon says how to get a
// package, as only it knows what the project asks for.

import { dirname, relative } from "node:path";

import { isA, membersOf, property, textOf } from "./thrown.mjs";

const MODULE_CHARACTERS_MAX = 200;
const WRAPPERS_MAX = 12; // errors that are looked at
const NOT_FOUND = new Set(["ERR_MODULE_NOT_FOUND", "MODULE_NOT_FOUND"]);
const NO_LIBRARY = /([\w.+-]+\.so[.\d]*): cannot open shared object file: No such file/;

/** Returns the name of the package that the text of an error says is missing; "" for a file, and for any other error. */
export function missingPackage(text) {
    const name = /Cannot find (?:package|module) ['"]([^'"]+)['"]/.exec(text)?.[1] ?? "";
    return /^[./]|^file:/.test(name) ? "" : name.slice(0, MODULE_CHARACTERS_MAX);
}

/** Returns the name of the package that an import did not find which is behind an error of a call; "" for any other. */
export function packageBehind(error) {
    const pending = [error];
    for (let looked = 0; pending.length && looked < WRAPPERS_MAX; looked += 1) {
        const one = pending.shift();
        if (NOT_FOUND.has(property(one, "code"))) return missingPackage(textOf(one));
        if (isA(one, Error)) pending.push(...membersOf(one), property(one, "cause"));
    }
    return "";
}

/** Returns the text of an error with what to do for a file of the author's that is not there, or a library of the system. */
export function explainedImport(text, path) {
    const [found, name, from] = /^Cannot find module '([./][^']*)'(?: imported from (.+))?$/m.exec(text) ?? [];
    if (found !== undefined && (from ?? path) === path) {
        const near = name.startsWith(".") ? name : `./${relative(dirname(path), name)}`.replace(/^\.\/\.\./, "..");
        const said = text.replace(found, () => `it imports ${near}, which is not there`);
        return `${said}\nPut the files that it imports where it looks for them, too.`;
    }
    const library = NO_LIBRARY.exec(text)?.[1];
    if (library === undefined) return text;
    return `${text}\n${library} is a library of the system, which is not there, or not where the cell of this tool can read: install the package of your distribution that contains it.`;
}
