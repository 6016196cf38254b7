// Files of data that are imported, for Node, as Bun has them: JSON, YAML and TOML are a default export, and one for each key.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

import { withoutComments } from "./aliases.mjs";
import { HERE } from "./place.mjs";

const own = createRequire(import.meta.url);
const formats = () => own(path.join(HERE, "vendor/formats.cjs"));

const READERS = {
    ".json": JSON.parse,
    ".jsonc": (text) => JSON.parse(withoutComments(text)),
    ".yaml": yaml,
    ".yml": yaml,
    ".toml": (text) => formats().toml(text),
};

/** Returns whether a file is one of data. */
export function isData(file) {
    return Object.hasOwn(READERS, path.extname(file));
}

/** Returns the source of a module for a file of data. Throws an error with `line` and `column` for a mistake in it. */
export function sourceOfData(file) {
    const text = fs.readFileSync(file, "utf8");
    let data;
    try {
        data = JSON.stringify(READERS[path.extname(file)](text)) ?? "null"; // a date is a string
    } catch (thrown) {
        const [line, column] = placeOf(thrown);
        const error = new SyntaxError(thrown.message.split("\n")[0].replace(/(, "[^]*| in JSON at position \d.*| at line \d.*)$/, ""));
        throw Object.assign(error, { line, column });
    }
    const value = JSON.parse(data);
    const isMapping = value !== null && typeof value === "object" && !Array.isArray(value);
    const keys = isMapping ? Object.keys(value).filter((key) => key !== "default" && key.isWellFormed()) : [];
    const names = keys.map(JSON.stringify);
    return [
        `const data = JSON.parse(${JSON.stringify(data)});`,
        ...names.map((name, at) => `const v${at} = data[${name}]; export { v${at} as ${name} };`),
        "export default data;",
    ].join("\n");
}

/** Several documents are a list. */
function yaml(text) {
    const documents = formats().documents(text, { merge: true });
    const wrong = documents.flatMap((each) => each.errors)[0];
    if (wrong) throw wrong;
    const values = documents.map((each) => each.toJS());
    return values.length > 1 ? values : values[0];
}

/** The line and the column that a parser tells, each in its own way; [0, 0] if it does not. */
function placeOf(error) {
    const ofYaml = error.linePos?.[0];
    if (ofYaml) return [ofYaml.line, ofYaml.col];
    if ("codeblock" in error) return [error.line, error.column]; // of TOML
    const told = /\(line (\d+) column (\d+)\)/.exec(error.message) ?? [0, 0, 0];
    return [Number(told[1]), Number(told[2])];
}
