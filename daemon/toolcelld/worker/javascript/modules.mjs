// How the imports of a tool file are resolved, and how TypeScript becomes JavaScript.
//
// The engine resolves first, so what a project has installed is used. What it does not find is looked for where Toolcell
// has installed packages for the project (to Bun NODE_PATH says where), then among the libraries that Toolcell has with it, and, as bundlers do, under the endings that an import leaves out. Bun does the
// latter and the translation itself; Node gets both from here.

import fs from "node:fs";
import module, { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { aliased } from "./aliases.mjs";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const PLUGIN = "shims/plugin.mjs";
const PI = "shims/pi.mjs";
const STAND_INS = new Map([
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
    ...["@oh-my-pi", "@mariozechner", "@earendil-works"].flatMap((scope) =>
        ["pi-coding-agent", "pi-ai", "pi-tui"].map((name) => [`${scope}/${name}`, PI]),
    ),
]);
const TYPESCRIPT = /\.([mc]?ts|tsx|jsx)$/;
const SOURCE = /\.([mc]?[jt]s|[jt]sx)$/;
const TEXT = /\.(txt|md)$/;
const ENDINGS = [".ts", ".tsx", ".mts", ".js", ".mjs", ".cjs", ".json"];
const INDICES = ["index.ts", "index.tsx", "index.mts", "index.js", "index.mjs"];
const PACKAGE = /^(@|[a-z0-9][^:]*$)/i; // and no path or address
const MODULE_SYNTAX = /^\s*(import|export)\b/m;

const own = createRequire(import.meta.url);
const loaded = new Set(); // the paths of the files that were imported

/** Imports a library that Toolcell has with it: "zod", "zod3" or "typebox". */
export function vendored(name) {
    return import(`./vendor/${name}.mjs`);
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
    if (!process.versions.bun) prepareNode(file, content, packages);
    else if (await prepareBun(file, content.toString())) return compiled(file, content.toString());
    return import(pathToFileURL(file).href);
}

/** Returns whether the file is to be compiled from here, because Bun takes a content for modules alone. */
async function prepareBun(file, content) {
    const directory = path.dirname(file);
    const missing = [...STAND_INS].filter(([name]) => {
        try {
            Bun.resolveSync(name, directory);
            return false;
        } catch {
            return true;
        }
    });
    await Bun.plugin({
        name: "toolcell",
        setup(build) {
            for (const [name, place] of missing)
                build.module(name, async () => ({
                    exports: await import(path.join(HERE, place)),
                    loader: "object",
                }));
            const loader = path.extname(file).slice(1).replace(/^[mc]/, "");
            build.onLoad({ filter: exactly(file) }, () => ({ contents: content, loader }));
        },
    });
    return formatOf(file, content) === "commonjs";
}

function compiled(file, content) {
    const own = new module.Module(file);
    own.filename = file;
    own._compile(translated(content, file), file);
    const exported = own.exports;
    return exported !== null && typeof exported === "object"
        ? { ...exported, default: exported }
        : { default: exported };
}

function exactly(file) {
    return new RegExp(`^${file.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")}$`);
}

function prepareNode(file, content, packages) {
    const url = pathToFileURL(file).href;
    const beside = packages.map((place) => pathToFileURL(path.join(path.dirname(place), "_.mjs")).href);
    module.registerHooks({
        resolve(specifier, context, next) {
            if (specifier === url) return { url, shortCircuit: true }; // it may be gone by now
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
                const found = unfinished(specifier, context.parentURL) ?? standIn(specifier);
                if (found === null) throw error;
                return { url: pathToFileURL(found).href, shortCircuit: true };
            }
        },
        load(url, context, next) {
            if (!url.startsWith("file:")) return next(url, context);
            const place = fileURLToPath(url);
            loaded.add(place);
            if (TEXT.test(place) || context.importAttributes?.type === "text")
                return {
                    format: "module",
                    source: `export default ${JSON.stringify(fs.readFileSync(place, "utf8"))}`,
                    shortCircuit: true,
                };
            const isOwn = place === file;
            if (!TYPESCRIPT.test(place) && !isOwn) return next(url, context);
            const source = translated((isOwn ? content : fs.readFileSync(place)).toString(), place);
            return { format: formatOf(place, source), source, shortCircuit: true };
        },
    });
}

function standIn(specifier) {
    const place = STAND_INS.get(specifier);
    return place === undefined ? null : path.join(HERE, place);
}

/** Returns the file that a specifier means to TypeScript and to bundlers, or null. */
function unfinished(specifier, parent) {
    if (specifier.startsWith("file:")) return completed(fileURLToPath(specifier));
    if (!parent?.startsWith("file:")) return null;
    const from = fileURLToPath(parent);
    if (/^(\.{1,2})?\//.test(specifier)) return completed(path.resolve(path.dirname(from), specifier));
    for (const file of aliased(specifier, from)) {
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
    if (!TYPESCRIPT.test(file)) return source;
    // Node's own translation keeps the import of a name that is a type only, which then fails.
    const { transform } = own("./vendor/sucrase.cjs");
    const transforms = file.endsWith("x") ? ["typescript", "jsx"] : ["typescript"];
    return transform(source, {
        transforms,
        disableESTransforms: true,
        filePath: file,
        jsxRuntime: "automatic",
        production: true,
    }).code;
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
