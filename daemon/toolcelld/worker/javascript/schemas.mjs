// The arguments of a tool: their JSON Schema, and the function that reads them.
//
// What a schema is, is seen from the value and not from a package: Zod 4 has `_zod`, Zod 3 has `_def` and `safeParse`,
// others have `~standard`, and what is left is JSON Schema, which TypeBox is, too. The schema that the file made parses
// the arguments, so its defaults and transforms hold. What has `~standard` is never taken for JSON Schema, although it
// may have a `type`: nothing else of it would be enforced.

import { vendored } from "./modules.mjs";
import { unfillable } from "./unfillable.mjs";

const OWN = ["description", "title", "examples", "deprecated"];
const PROBLEMS_MAX = 20;
const TYPES = ["string", "number", "integer", "boolean", "array", "object"];
const SHOWN_CHARACTERS_MAX = 40;

/** The schema of a tool's arguments cannot be used. */
export class SchemaError extends Error {}

/**
 * Returns {schema, parse}: the JSON Schema, null without `describe`, and a function of a value that gives {value} or
 * {problems}. Throws SchemaError.
 */
export async function argumentsOf(declared, describe) {
    if (describe && isMapping(declared)) {
        const why = unfillable(declared, isStandard(declared) || isJsonSchema(declared));
        if (why !== null) throw new SchemaError(why);
    }
    const read = await readerOf(declared);
    return { schema: describe ? withoutVersion(await read.schema()) : null, parse: safely(read.parse) };
}

/** Returns {schema, parse} of a schema of any library: a function that makes the JSON Schema, and that which parses. */
async function readerOf(declared) {
    if (declared === undefined || declared === null) return ofJsonSchema({ type: "object", properties: {} });
    if (typeof declared !== "object" && typeof declared !== "function")
        throw new SchemaError(`its arguments are a ${typeof declared}, not a schema`);
    const values = Object.values(declared);
    const all = (test) => values.length > 0 && values.every(test);
    if (isZod4(declared)) return ofZod4(declared);
    if (isZod3(declared)) return ofZod3(declared);
    if (isStandard(declared)) return ofStandard(declared["~standard"]);
    if (all(isZod4)) return ofZod4((await vendored("zod")).z.object(declared));
    if (all(isZod3)) return ofFields(declared, ofZod3Field);
    if (all(isStandard)) return ofFields(declared, (field) => ofStandard(field["~standard"]));
    if (isJsonSchema(declared)) return ofJsonSchema(plain(declared));
    if (all((value) => value !== null && typeof value === "object")) {
        const fields = Object.entries(plain(declared));
        const optional = ([, field]) => "default" in field || field.optional === true;
        return ofJsonSchema({
            type: "object",
            properties: Object.fromEntries(fields),
            required: fields.filter((field) => !optional(field)).map(([name]) => name),
            additionalProperties: false,
        });
    }
    if (values.length === 0) return ofJsonSchema({ type: "object", properties: {} });
    const [name, value] = Object.entries(declared).find(([, each]) => each === null || typeof each !== "object");
    const type = TYPES.find((each) => each === value || each === value?.name?.toLowerCase()) ?? "string";
    const shown =
        typeof value === "string" ? JSON.stringify(value.slice(0, SHOWN_CHARACTERS_MAX)) : value && `a ${typeof value}`;
    throw new SchemaError(`its argument ${name} is ${shown}, and no schema; write { type: "${type}" }`);
}

function isZod4(value) {
    return value !== null && typeof value === "object" && "_zod" in value;
}

function isZod3(value) {
    return (
        value !== null &&
        typeof value === "object" &&
        "_def" in value &&
        typeof value.safeParse === "function" &&
        !isZod4(value)
    );
}

function isStandard(value) {
    const known = value !== null && (typeof value === "object" || typeof value === "function");
    return known && typeof value["~standard"]?.validate === "function";
}

function isJsonSchema(value) {
    if (typeof value.type === "string" || typeof value.$ref === "string") return true;
    if (["type", "anyOf", "oneOf", "allOf"].some((key) => Array.isArray(value[key]))) return true;
    // An argument may be called so, too; its schema has a type.
    return isMapping(value.properties) && typeof value.properties.type !== "string";
}

function isMapping(value) {
    return value !== null && typeof value === "object" && !Array.isArray(value);
}

function plain(value) {
    return JSON.parse(JSON.stringify(value));
}

async function ofZod4(whole) {
    const { z } = await vendored("zod");
    const schema = () =>
        z.toJSONSchema(whole, {
            io: "input",
            unrepresentable: "any",
            // Zod keeps descriptions in a registry of the copy that made the schema, which may be another one than ours.
            override({ zodSchema, jsonSchema }) {
                const meta = zodSchema.meta?.() ?? {};
                for (const key of OWN) if (meta[key] !== undefined) jsonSchema[key] ??= meta[key];
                if (zodSchema.description !== undefined) jsonSchema.description ??= zodSchema.description;
            },
        });
    return { schema, parse: (value) => whole.safeParseAsync(value) };
}

async function ofZod3(whole) {
    const { zodToJsonSchema } = await vendored("zod3");
    const schema = () => zodToJsonSchema(whole, { $refStrategy: "none", pipeStrategy: "input" });
    return { schema, parse: (value) => whole.safeParseAsync(value) };
}

async function ofZod3Field(field) {
    let inner = field;
    while (inner._def.typeName === "ZodOptional") inner = inner._def.innerType;
    const { schema } = await ofZod3(inner);
    function described() {
        const found = schema();
        if (field.description !== undefined) found.description ??= field.description;
        return found;
    }
    return { schema: described, parse: (value) => field.safeParseAsync(value) };
}

/** Of an object of schemas, each of which is read by itself: one that takes nothing is optional, unknown ones are dropped. */
async function ofFields(declared, readerOfField) {
    const fields = [];
    for (const [name, field] of Object.entries(declared)) fields.push([name, await readerOfField(field)]);
    async function schema() {
        const properties = {};
        const required = [];
        for (const [name, field] of fields) {
            try {
                properties[name] = withoutVersion(field.schema());
            } catch (error) {
                throw new SchemaError(`parameter '${name}' has no JSON Schema: ${error.message}`);
            }
            if (!(await field.parse(undefined)).success) required.push(name);
        }
        return { type: "object", properties, required };
    }
    async function parse(value) {
        const read = {};
        const issues = [];
        for (const [name, field] of fields) {
            const result = await field.parse(Object.hasOwn(value, name) ? value[name] : undefined);
            if (!result.success)
                issues.push(
                    ...result.error.issues.map((issue) => ({ ...issue, path: [name, ...(issue.path ?? [])] })),
                );
            else if (result.data !== undefined) read[name] = result.data;
        }
        return issues.length ? { success: false, error: { issues } } : { success: true, data: read };
    }
    return { schema, parse };
}

function ofStandard(standard) {
    if (typeof standard.jsonSchema?.input !== "function")
        throw new SchemaError(
            `its arguments are a schema of ${standard.vendor} without "~standard".jsonSchema, so no model could be told of them` +
                (standard.vendor === "valibot" ? "; toStandardJsonSchema of @valibot/to-json-schema adds it" : ""),
        );
    async function parse(value) {
        const { issues, value: data } = await standard.validate(value);
        return issues ? { success: false, error: { issues } } : { success: true, data };
    }
    return { schema: () => plain(standard.jsonSchema.input({ target: "draft-2020-12" })), parse };
}

async function ofJsonSchema(schema) {
    const { z } = await vendored("zod");
    let check;
    try {
        check = z.fromJSONSchema(schema);
    } catch (error) {
        throw new SchemaError(`its JSON Schema cannot be used: ${error.message}`);
    }
    return { schema: () => schema, parse: (value) => check.safeParseAsync(value) };
}

function withoutVersion(schema) {
    const { $schema: _, ...rest } = schema;
    if (rest.type === undefined && rest.properties !== undefined) rest.type = "object";
    return rest;
}

function safely(parse) {
    return async (value) => {
        if (!isMapping(value))
            return { problems: "the arguments are not a JSON object, the tool did not run." };
        const result = await parse(value);
        return result.success ? { value: result.data } : { problems: complaint(result.error.issues) };
    };
}

function complaint(issues) {
    const count = issues.length;
    const lines = issues.slice(0, PROBLEMS_MAX).map((issue) => {
        const path = (issue.path ?? [])
            .map((step) => (step !== null && typeof step === "object" ? step.key : step))
            .join(".");
        return `  ${path || "all together"}: ${issue.message}`;
    });
    if (count > lines.length) lines.push(`  and ${count - lines.length} more`);
    return [
        `${count} ${count === 1 ? "argument is" : "arguments are"} wrong, the tool did not run.`,
        ...lines,
    ].join("\n");
}
