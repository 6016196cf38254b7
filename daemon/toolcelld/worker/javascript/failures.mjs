// What an error of a tool says about its cell: the limit that it met, the host that was not reached, the package that is missing, and what it cannot do
// while it is loaded.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";

import { property } from "./thrown.mjs";
import { packageBehind } from "./unimported.mjs";
import { unreached } from "./unreached.mjs";

const CAUSES_MAX = 8; // that are looked at; an error can be its own cause
const WHILE_LOADED = "while a file is loaded to see its tools";
const LIMITS = { EMFILE: "open_files", EFBIG: "file_size" };

/** Returns the fields of a result's header for an error; `enclosure` is that of the cell. */
export function fieldsOf(error, enclosure) {
    const found = {};
    const code = property(error, "code");
    const limit = code === "ENOSPC" && wasFull(error, enclosure) ? "disk" : typeof code === "string" ? LIMITS[code] : undefined;
    if (limit !== undefined) found.limit = limit;
    const place = unreached(error);
    if (place !== undefined) found.unreached = place;
    const missing = packageBehind(error);
    if (missing) found.missing = missing;
    return found;
}

/** Returns what a cell refuses to a file that is loaded to see its tools, if that is behind an error; else "". */
export function refusedAtImport(error, enclosure) {
    if (enclosure === "none") return "";
    for (let one = error, looked = 0; one && looked < CAUSES_MAX; one = property(one, "cause"), looked += 1) {
        const said = unwritten(one);
        if (said) return said;
    }
    return unreached(error) === undefined ? "" : `There is no network ${WHILE_LOADED}. Connect in the function of a tool.`;
}

function unwritten(error) {
    const [code, place] = ["code", "path"].map((name) => property(error, name));
    if (code === "EROFS" || (code === "EACCES" && typeof place === "string" && isReadable(path.dirname(place))))
        return `${typeof place === "string" ? path.basename(place) : "It"} cannot be written ${WHILE_LOADED}. Write it in the function of a tool, or below os.tmpdir().`;
    return "";
}

function isReadable(directory) {
    try {
        fs.readdirSync(directory);
        return true;
    } catch {
        return false;
    }
}

/**
 * Returns whether the private temporary directory was full, which only a strict cell has. What filled it may be deleted
 * by now; then it was the cause if the project is not full, and a watch of a directory was not refused.
 */
function wasFull(error, enclosure) {
    if (enclosure !== "strict") return false;
    return isFull(os.tmpdir()) || (property(error, "syscall") !== "watch" && !isFull(process.cwd()));
}

function isFull(place) {
    try {
        const left = fs.statfsSync(place);
        return left.bavail === 0 || (left.files > 0 && left.ffree === 0);
    } catch {
        return false;
    }
}
