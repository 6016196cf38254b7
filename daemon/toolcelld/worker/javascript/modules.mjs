// How the imports of a tool file are resolved, and how TypeScript becomes JavaScript.
//
// The engine resolves first, so what a project has installed is used, by each file and each package what is nearest to it.
// What it does not find is looked for where Toolcell has installed packages for the project, then among the libraries that
// Toolcell has with it, and, as bundlers do, under the endings that an import leaves out. To Bun NODE_PATH says both
// places, and it does the latter and the translation itself; Node gets all of that from here.

import fs from "node:fs";
import module, { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { aliased } from "./aliases.mjs";
import { isData, sourceOfData } from "./data.mjs";
import { HERE } from "./place.mjs";
import { hostExports, hostImports, hostSource, isHost, libraryOf } from "./stand_ins.mjs";

const HOST = "toolcell-host:"; // the modules of Node that stand for packages of hosts
const TYPESCRIPT = /\.([mc]?ts|tsx|jsx)$/;
const SOURCE = /\.([mc]?[jt]s|[jt]sx)$/;
const TEXT = /\.(txt|md)$/;
const ENDINGS = [".ts", ".tsx", ".mts", ".js", ".mjs", ".cjs", ".json"];
const INDICES = ["index.ts", "index.tsx", "index.mts", "index.js", "index.mjs"];
const PACKAGE = /^(@|[a-z0-9][^:]*$)/i; // and no path or address
// What Bun has in modules, too, and Node in CommonJS alone.
const SCOPE = {
    require: 'process.getBuiltinModule("module").createRequire(import.meta.url)',
    __filename: "import.meta.filename",
    __dirname: "import.meta.dirname",
};
const MODULE_SYNTAX = /^\s*(import|export)\b/m;

const own = createRequire(import.meta.url);
const loaded = new Set(); // the paths of the files that were imported
let last = null; // of them, which failed if compiling a module has

/** By error: {file, specifier} of the import that has failed, or {file, line, column, message} of a mistake in a source. */
export const attempts = new WeakMap();

/** Returns the path of the file that was loaded last, or null. */
export function lastLoaded() {
    return last;
}

/** Imports a library that Toolcell has with it: "zod", "zod3" or "typebox". */
export function vendored(name) {
    return import(path.join(HERE, "vendor", `${name}.mjs`));
}

/** Returns the paths of the files that the tool file has imported so far. */
export function imported() {
    if (process.versions.bun) for (const file of Object.keys(own.cache)) loaded.add(file);
    return [...loaded].filter((file) => !file.startsWith(HERE));
}

/** Imports a file with this content, whatever is at its path by now; `packages` are directories like `node_modules`. */
export async function importFile(file, content, packages) {
    if (!isFile(path.join(HERE, "vendor", "zod.mjs")))
        throw new Error(
            "Toolcell was built without its libraries for TypeScript; run make engines and install it again",
        );
    const source = content.toString();
    const imports = hostImports(file, source, meant);
    last = file;
    if (!process.versions.bun) await prepareNode(file, source, imports, packages);
    else if (await prepareBun(file, source, imports)) return compiled(file, source);
    return import(pathToFileURL(file).href);
}

/** Returns whether the file is to be compiled from here, because Bun takes a content for modules alone. */
async function prepareBun(file, content, imports) {
    const directory = path.dirname(file);
    const isMissing = (name) => {
        try {
            Bun.resolveSync(name, directory);
            return false;
        } catch {
            return true;
        }
    };
    await Bun.plugin({
        name: "toolcell",
        setup(build) {
            // Such a module takes the place of what packages have, too; so libraries, of which a package may have a
            // copy of its own, are none: Bun finds them by NODE_PATH.
            for (const [name, names] of imports)
                if (isMissing(name))
                    build.module(name, async () => ({ exports: await hostExports(names), loader: "object" }));
            build.onLoad({ filter: exactly(file) }, () => ({ contents: content, loader: loaderOf(file) }));
        },
    });
    return formatOf(file, content) === "commonjs";
}

function compiled(file, content) {
    const own = new module.Module(file);
    own.filename = file;
    own._compile(translated(content, file).replace(/^#!/, "//"), file);
    const exported = own.exports;
    return exported !== null && typeof exported === "object"
        ? { ...exported, default: exported }
        : { default: exported };
}

/** Returns what Bun calls the language of a file. */
export function loaderOf(file) {
    return path.extname(file).slice(1).replace(/^[mc]/, "");
}

function exactly(file) {
    return new RegExp(`^${file.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}$`);
}

async function prepareNode(file, content, imports, packages) {
    const url = pathToFileURL(file).href;
    const beside = packages.map((place) => pathToFileURL(path.join(path.dirname(place), "_.mjs")).href);
    const hosts = new Map();
    for (const [name, names] of imports) hosts.set(name, await hostSource(names));
    function resolved(specifier, context, next) {
        if (specifier === "bun" || specifier.startsWith("bun:"))
            throw new Error(`imports ${specifier}, which is part of Bun, and Node runs it; install bun`);
        try {
            return next(specifier, context);
        } catch (error) {
            for (const parentURL of PACKAGE.test(specifier) ? beside : [])
                try {
                    return next(specifier, { ...context, parentURL });
                } catch {
                    continue; // the first error names the file that imports it
                }
            const found = unfinished(specifier, context.parentURL) ?? libraryOf(specifier);
            if (found === null && isHost(specifier))
                return { url: HOST + specifier, format: "module", shortCircuit: true };
            if (found === null) {
                if (context.parentURL?.startsWith("file:"))
                    attempts.set(error, { specifier, file: fileURLToPath(context.parentURL) });
                throw error;
            }
            return { url: pathToFileURL(found).href, shortCircuit: true };
        }
    }
    const isImport = (context) => context.conditions.includes("import");
    module.registerHooks({
        resolve(specifier, context, next) {
            if (specifier === url) return { url, shortCircuit: true }; // it may be gone by now
            const found = resolved(specifier, context, next);
            if (!isImport(context) || !isDataFile(found.url)) return found;
            return { ...found, format: "module", importAttributes: {} }; // it is a module of ours, whatever it was to be
        },
        load(url, context, next) {
            if (url.startsWith(HOST))
                return { format: "module", source: hosts.get(url.slice(HOST.length)) ?? "", shortCircuit: true };
            if (!url.startsWith("file:")) return next(url, context);
            const place = fileURLToPath(url);
            loaded.add(place);
            if (!place.startsWith(HERE)) last = place;
            if (TEXT.test(place) || context.importAttributes?.type === "text")
                return {
                    format: "module",
                    source: `export default ${JSON.stringify(fs.readFileSync(place, "utf8"))}`,
                    shortCircuit: true,
                };
            if (context.format === "module" && isData(place))
                return { format: "module", source: dataSource(place), shortCircuit: true };
            const isOwn = place === file;
            if (!TYPESCRIPT.test(place) && !isOwn) return next(url, context);
            const source = translated(isOwn ? content : fs.readFileSync(place, "utf8"), place);
            const format = formatOf(place, source);
            return { format, source: format === "module" ? scoped(source) : source, shortCircuit: true };
        },
    });
}

function isDataFile(url) {
    return url.startsWith("file:") && isData(fileURLToPath(url));
}

/** Returns the source of a module for a file of data; a mistake in it throws an error that is among the attempts. */
export function dataSource(file) {
    try {
        return sourceOfData(file);
    } catch (error) {
        const { line, column, message } = error;
        attempts.set(error, { file, length: 1, message, ...(line ? { line, column } : placeInJson(file)) });
        throw error;
    }
}

/** The place of a mistake in a file of JSON, which engines do not always tell: read as JavaScript, it is one as well. */
function placeInJson(file) {
    const text = fs.readFileSync(file, "utf8");
    try {
        transformed(`(${text}\n)`, "");
        const before = text.slice(0, text.search(/,(?=\s*[}\]])/) + 1).split("\n"); // a last comma
        return { line: before.length, column: before.at(-1).length };
    } catch (error) {
        const { line = 1, column = 0 } = attempts.get(error) ?? {};
        return { line, column: line === 1 ? column - 1 : column };
    }
}

/** Returns the file that a specifier means to TypeScript and to bundlers, or null. */
function unfinished(specifier, parent) {
    if (specifier.startsWith("file:")) return completed(fileURLToPath(specifier));
    return parent?.startsWith("file:") ? meant(specifier, fileURLToPath(parent)) : null;
}

/** Returns the file that a path, or a name of the project's, means in a file; null for a package. */
export function meant(specifier, from) {
    const isPath = /^(\.{1,2})?\//.test(specifier);
    for (const file of isPath ? [path.resolve(path.dirname(from), specifier)] : aliased(specifier, from)) {
        const whole = isFile(file) ? file : completed(file);
        if (whole !== null) return whole;
    }
    return null;
}

function completed(file) {
    const typed = /\.[mc]?jsx?$/.test(file)
        ? [file.replace(/js(x?)$/, "ts$1"), file.replace(/\.js$/, ".tsx")]
        : [];
    const others = [
        ...ENDINGS.map((ending) => file + ending),
        ...INDICES.map((name) => path.join(file, name)),
    ];
    return [...typed, ...others].find(isFile) ?? null;
}

function isFile(file) {
    return fs.statSync(file, { throwIfNoEntry: false })?.isFile() ?? false;
}

function translated(source, file) {
    return TYPESCRIPT.test(file) ? transformed(source, file).code : source;
}

/** Returns {code, sourceMap} of a source in JavaScript, with more transforms and options of sucrase. */
export function transformed(source, file, more = [], options = {}) {
    // Node's own translation keeps the import of a name that is a type only, which then fails.
    const { transform } = own(path.join(HERE, "vendor/sucrase.cjs"));
    const transforms = [...(TYPESCRIPT.test(file) ? ["typescript"] : []), ...(file.endsWith("x") ? ["jsx"] : []), ...more];
    try {
        return transform(source, {
            transforms,
            disableESTransforms: true,
            filePath: file,
            jsxRuntime: "automatic",
            production: true,
            ...options,
        });
    } catch (error) {
        const message = error.message.replace(/^Error transforming .*?: /, "").replace(/ \(\d+:\d+\)$/, "");
        if (error.loc) attempts.set(error, { file, ...error.loc, length: 1, message });
        throw error;
    }
}

/** Returns a module that has the names of CommonJS which it uses and does not declare, in its first line. */
function scoped(source) {
    const own = Object.entries(SCOPE).filter(
        ([name]) =>
            new RegExp(`(?<![.\\w$])${name}\\b`).test(source) &&
            !new RegExp(`\\b(?:const|let|var|function)\\s+${name}\\b|\\bimport\\b[^;"']*\\b${name}\\b`).test(source),
    );
    return own.map(([name, value]) => `const ${name} = ${value}; `).join("") + source;
}

function formatOf(file, source) {
    if (/\.c[jt]s$/.test(file)) return "commonjs";
    if (/\.m[jt]s$/.test(file)) return "module";
    return MODULE_SYNTAX.test(source) || !/\bmodule\.exports\b|\bexports\.\w/.test(source)
        ? "module"
        : "commonjs";
}

/** Returns whether a file is one that an engine runs. */
export function isSource(file) {
    return SOURCE.test(file);
}
