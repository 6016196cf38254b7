// Text of tools for a person's screen.
const UNPRINTABLE = /[\p{Cc}\p{Cf}\s]+/gu

/** A text as one line that cannot draw in a terminal. */
export function printable(text) {
  return text.replace(UNPRINTABLE, " ").trim()
}
