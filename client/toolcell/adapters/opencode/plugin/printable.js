// Text of tools for a person's screen.
const UNPRINTABLE = /[\p{Cc}\p{Cf}\s\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]+/gu

/** A text as one line that cannot draw in a terminal. */
export function printable(text) {
  return text.replace(UNPRINTABLE, " ").trim()
}
