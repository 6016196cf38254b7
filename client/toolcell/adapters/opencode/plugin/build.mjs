// Builds the plugin into one file, and writes down whose work it contains:
//   node build.mjs NODE_MODULES PROTO TEXTS TARGET
//
//   NODE_MODULES  where esbuild, protobufjs and @grpc/grpc-js are installed, as package.json beside this file pins them
//   PROTO...      directories of .proto files: ours, and google/rpc of googleapis-common-protos, joined by ":"
//   TEXTS         the texts of the Python client that the plugin uses, as a JSON object
//   TARGET        the file to write; the licenses are written beside it
import { readFileSync, writeFileSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, join, resolve } from "node:path"
import { fileURLToPath } from "node:url"

const [modules, protos, texts, target] = process.argv.slice(2)
const require = createRequire(join(resolve(modules), "any.js"))
const esbuild = require("esbuild")
const protobuf = require("protobufjs")

/** The contract as protobufjs reads it at run time. */
function descriptors() {
  const root = new protobuf.Root()
  root.resolvePath = (_origin, path) => {
    for (const directory of protos.split(":")) {
      const candidate = join(directory, path)
      try {
        readFileSync(candidate)
        return candidate
      } catch {
        continue
      }
    }
    return path // one that protobufjs brings along
  }
  root.loadSync(["toolcell_proto/v1/toolcell.proto", "google/rpc/error_details.proto"])
  return root.toJSON()
}

const instead = {
  name: "instead",
  setup(build) {
    build.onResolve({ filter: /^toolcell:/ }, ({ path }) => ({ path, namespace: "toolcell" }))
    build.onLoad({ filter: /.*/, namespace: "toolcell" }, ({ path }) => ({
      contents: path === "toolcell:texts" ? texts : JSON.stringify(descriptors()),
      loader: "json",
    }))
    // grpc-js loads .proto files only for services that it offers itself.
    build.onResolve({ filter: /^@grpc\/proto-loader$/ }, ({ path }) => ({ path, namespace: "nothing" }))
    build.onLoad({ filter: /.*/, namespace: "nothing" }, () => ({ contents: "module.exports = {}" }))
  },
}

const { metafile } = await esbuild.build({
  absWorkingDir: dirname(fileURLToPath(import.meta.url)),
  entryPoints: ["index.js"],
  outfile: resolve(target),
  bundle: true,
  minify: true,
  platform: "node",
  format: "esm",
  target: "es2022",
  charset: "utf8",
  nodePaths: [resolve(modules)],
  plugins: [instead],
  metafile: true,
  banner: {
    js:
      "// Built from the sources in plugin/, with the libraries that toolcell-plugin.licenses.txt names.\n" +
      'import { createRequire as toolcellRequire } from "node:module";' +
      "const require = toolcellRequire(import.meta.url);",
  },
})

const packages = new Set(
  Object.keys(metafile.inputs)
    .map((path) => path.match(/.*node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1])
    .filter(Boolean),
)
const licenses = new Map()
for (const name of [...packages].sort()) {
  const directory = join(modules, name)
  const { version, license } = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))
  const text = ["LICENSE", "LICENSE.md", "LICENSE.txt"].flatMap((file) => {
    try {
      return [readFileSync(join(directory, file), "utf8").trim()]
    } catch {
      return []
    }
  })[0]
  if (!text) throw new Error(`${name} has no license text`)
  licenses.set(text, [...(licenses.get(text) ?? []), `${name} ${version} (${license})`])
}
const notes = [...licenses].map(([text, names]) => `${names.join("\n")}\n\n${text}\n`)
writeFileSync(
  resolve(target).replace(/\.js$/, ".licenses.txt"),
  `toolcell-plugin.js contains these libraries.\n\n${notes.join(`\n${"=".repeat(80)}\n\n`)}`,
)
