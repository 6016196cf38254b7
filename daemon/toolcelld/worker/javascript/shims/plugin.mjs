// Stands for the packages of OpenCode and Atomic that declare tools, where a project has not installed them.

import { z } from "../vendor/zod.mjs";

/** Returns the definition of a tool as it is. */
export function tool(definition) {
    return definition;
}
tool.schema = z;

export { z };
export default { tool };
