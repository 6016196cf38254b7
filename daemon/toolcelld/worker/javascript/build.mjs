// Builds vendor/: the worker as one file, which an engine loads faster than a dozen, and the libraries that tool files
// get where their project has none; and the library of the page of operators: node build.mjs NODE_MODULES
//
// NODE_MODULES is where the packages are installed that package.json beside this file pins. Each library becomes one
// file, beside the licences of what it contains. The first line of the worker has the digest of its sources, by which a
// test finds one that is out of date.

import crypto from "node:crypto";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

import { LIBRARIES as STAND_INS } from "./stand_ins.mjs";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const VENDOR = path.join(HERE, "vendor");
const PAGE = path.join(HERE, "../../../../client/toolcell/cli/page/files/vendor");
const LIBRARIES = {
    "zod.mjs": 'export * from "zod"; export { z as default } from "zod";',
    "zod3.mjs":
        'export * from "zod/v3"; export { z as default } from "zod/v3"; export { zodToJsonSchema } from "zod-to-json-schema";',
    "typebox.mjs": 'export * from "@sinclair/typebox";',
    "sucrase.cjs": 'export { transform } from "sucrase";',
    "formats.cjs": 'export { parseAllDocuments as documents } from "yaml"; export { parse as toml } from "smol-toml";',
};
const LICENSED = [
    "zod",
    "zod-to-json-schema",
    "@sinclair/typebox",
    "sucrase",
    "lines-and-columns",
    "ts-interface-checker",
    "yaml",
    "smol-toml",
];

const modules = path.resolve(process.argv[2]);
const esbuild = createRequire(path.join(modules, "build.js"))("esbuild");

// Zod has its messages in 50 languages; the model reads English.
const english = {
    name: "english",
    setup(build) {
        build.onLoad({ filter: /zod\/v4\/locales\/index\.js$/ }, (found) => ({
            contents: 'export { default as en } from "./en.js";',
            resolveDir: path.dirname(found.path),
        }));
    },
};

// What is there is replaced file by file: tools that run meanwhile find each one whole.
const built = new Set();
function put(file, contents) {
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(`${file}.${process.pid}`, contents);
    fs.renameSync(`${file}.${process.pid}`, file);
    built.add(file);
}
async function bundle(options) {
    const { outputFiles } = await esbuild.build({ ...options, bundle: true, write: false });
    put(options.outfile, outputFiles[0].contents);
}

for (const [name, contents] of Object.entries(LIBRARIES))
    await bundle({
        stdin: { contents, resolveDir: modules },
        outfile: path.join(VENDOR, name),
        minify: true,
        platform: "node",
        format: name.endsWith(".cjs") ? "cjs" : "esm",
        mainFields: ["module", "main"],
        nodePaths: [modules],
        plugins: [english],
        legalComments: "none",
    });
// By their names as packages, for NODE_PATH: `a` is a/index.mjs, `a/b` is a/b.mjs.
const names = [...STAND_INS.keys()];
for (const [name, place] of STAND_INS) {
    const hasDefault = "default" in (await import(pathToFileURL(path.join(HERE, place)).href));
    const isDirectory = names.some((each) => each.startsWith(`${name}/`));
    const file = path.join(VENDOR, "packages", isDirectory ? `${name}/index.mjs` : `${name}.mjs`);
    const from = JSON.stringify(path.relative(path.dirname(file), path.join(HERE, place)));
    put(file, `export * from ${from};\n${hasDefault ? `export { default } from ${from};\n` : ""}`);
}
// What the page of operators is made with, for browsers.
await bundle({
    stdin: {
        contents:
            'import { h } from "preact"; import htm from "htm"; export { render } from "preact"; ' +
            'export { useEffect, useRef, useState } from "preact/hooks"; export const html = htm.bind(h);',
        resolveDir: modules,
    },
    outfile: path.join(PAGE, "preact.js"),
    minify: true,
    platform: "browser",
    format: "esm",
    nodePaths: [modules],
    legalComments: "none",
});
// What a tool file imports as well stays a module of its own, as its classes are looked for with instanceof.
const shared = {
    name: "shared",
    setup(build) {
        build.onResolve({ filter: /\/shims\// }, (found) => ({
            path: `../shims/${path.basename(found.path)}`,
            external: true,
        }));
    },
};
const sources = fs.readdirSync(HERE).filter((name) => name.endsWith(".mjs") && name !== "build.mjs");
const digest = crypto.createHash("sha256");
for (const name of sources.sort()) digest.update(fs.readFileSync(path.join(HERE, name)));
await bundle({
    entryPoints: [path.join(HERE, "main.mjs")],
    outfile: path.join(VENDOR, "worker.mjs"),
    minifySyntax: true,
    minifyWhitespace: true, // but no names, which messages of errors have
    platform: "node",
    format: "esm",
    plugins: [shared],
    banner: { js: `// ${digest.digest("hex")}` },
});
function license(name) {
    const directory = path.join(modules, name);
    const file = fs.readdirSync(directory).find((each) => /^licen[cs]e/i.test(each));
    return `${name}\n\n${fs.readFileSync(path.join(directory, file), "utf8")}`;
}
put(path.join(VENDOR, "LICENSES.txt"), LICENSED.map(license).join("\n----\n\n"));
put(path.join(PAGE, "LICENSES.txt"), ["preact", "htm"].map(license).join("\n----\n\n"));

for (const place of [VENDOR, PAGE])
    for (const name of fs.readdirSync(place, { recursive: true })) {
        const file = path.join(place, name);
        // One of another build that runs now ends in a number.
        if (!built.has(file) && !/\.\d+$/.test(name) && fs.statSync(file, { throwIfNoEntry: false })?.isFile()) fs.rmSync(file);
    }
