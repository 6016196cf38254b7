// Types that no JSON value fills: a parameter of one could be described, and never be given.

const INSTEAD = {
    function: "take a string that names what is to be done",
    map: "take an object (z.record)",
    set: "take an array",
    date: "take a string that is a date (z.iso.datetime(), or z.coerce.date())",
    bigint: "take an integer, or a string of digits (z.coerce.bigint())",
    symbol: "take a string, or an enum",
    undefined: "leave it out, or take null",
    void: "leave it out, or take null",
    never: "leave it out",
    nan: "take a number",
    file: "take a string with the path of the file",
    promise: "take what it promises",
    regexp: "take a string with the pattern",
    uint8array: "take a string in base64",
    iterator: "take an array",
    asynciterator: "take an array",
    constructor: "take a string that names what is to be made",
};
const OF_CLASS = "take an object with its fields, or a string";
const ABSENT = ["undefined", "void", "never"]; // as optional ones they forbid a parameter
const TYPES = ["string", "number", "integer", "boolean", "null", "object", "array"];
const DEPTH_MAX = 32; // a schema can have itself in it

/**
 * Returns what is wrong with arguments that have such a type, or null. `isWhole` says that they are one JSON Schema, which
 * else is in each of their fields.
 */
export function unfillable(declared, isWhole) {
    const look = (schema, path) => (isZod(schema) ? find(schema, path) : "~standard" in schema ? null : findJson(schema, path));
    const fields = Object.entries(declared).filter(([, field]) => field !== null && typeof field === "object");
    const found = isWhole || isZod(declared) ? look(declared, "") : firstOf(fields, ([name, field]) => look(field, name));
    if (found === null) return null;
    const [path, type, ofClass] = found;
    const known = Object.hasOwn(INSTEAD, type.toLowerCase()) ? INSTEAD[type.toLowerCase()] : `take one of ${TYPES.join(", ")}`;
    return `${path ? `parameter '${path}' has` : "its arguments have"} a type that JSON cannot fill: ${type}; ${ofClass ?? known}`;
}

function isZod(value) {
    return "_zod" in value || "_def" in value;
}

/** Returns [path, type] of what cannot be filled in a schema of Zod 4 or 3, or null. */
function find(schema, path, depth = 0) {
    const def = schema?._zod?.def ?? schema?._def;
    if (!def || def.coerce || depth > DEPTH_MAX) return null;
    const inside = (inner, below = path) => find(inner, below, depth + 1);
    const kind = def.typeName ? def.typeName.slice("Zod".length).toLowerCase() : def.type;
    switch (kind) {
        case "any":
        case "unknown":
        case "catch":
            return null;
        case "optional": {
            const found = inside(def.innerType);
            return found?.[0] === path && ABSENT.includes(found[1]) ? null : found;
        }
        case "object":
            return firstOf(Object.entries(typeof def.shape === "function" ? def.shape() : def.shape), ([key, each]) => inside(each, path ? `${path}.${key}` : key));
        case "array":
            return inside(def.element ?? def.type, `${path}[]`);
        case "tuple":
            return firstOf([...def.items, def.rest], (each, at) => inside(each, `${path}[${at}]`));
        case "record":
            return inside(def.valueType, `${path}[]`);
        case "union":
        case "discriminatedunion": {
            const found = [...def.options].map((each) => inside(each));
            return found.every((each) => each !== null) ? (found[0] ?? null) : null;
        }
        case "intersection":
            return inside(def.left) ?? inside(def.right);
        case "lazy":
            return inside(def.getter());
        case "pipe":
        case "pipeline":
            return inside(def.in);
        case "effects":
            return def.effect.type === "preprocess" ? null : inside(def.schema);
        case "literal": {
            const odd = [...(def.values ?? [def.value])].filter((each) => ["bigint", "undefined", "symbol"].includes(typeof each));
            return odd.length === (def.values ?? [def.value]).length ? [path, typeof odd[0]] : null;
        }
        case "custom":
            return schema._zod?.bag?.Class ? [path, schema._zod.bag.Class.name, OF_CLASS] : null;
        case "promise":
        case "branded":
            return inside(def.innerType ?? def.type);
        default:
            return def.innerType ? inside(def.innerType) : Object.hasOwn(INSTEAD, kind) ? [path, kind] : null;
    }
}

/** The same of a JSON Schema, as TypeBox makes one, or of an object of them. */
function findJson(schema, path, depth = 0) {
    if (schema === null || typeof schema !== "object" || depth > DEPTH_MAX) return null;
    const inside = (inner, below = path) => findJson(inner, below, depth + 1);
    if (typeof schema.type === "string" && !TYPES.includes(schema.type)) return [path, schema.type];
    const some = (schema.anyOf ?? schema.oneOf ?? []).map?.((each) => inside(each)) ?? [];
    if (some.length && some.every((each) => each !== null)) return some[0];
    return (
        firstOf(Object.entries(schema.properties ?? {}), ([key, each]) => {
            const below = path ? `${path}.${key}` : key;
            const isNever = each?.not && Object.keys(each.not).length === 0 && schema.required?.includes?.(key);
            return isNever ? [below, "never"] : inside(each, below);
        }) ?? inside(schema.items, `${path}[]`)
    );
}

function firstOf(list, look) {
    for (const [at, each] of list.entries()) {
        const found = look(each, at);
        if (found) return found;
    }
    return null;
}
