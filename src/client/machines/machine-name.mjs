/**
 * Plain JavaScript, because `./microvm` checks its command line before anything is set up.
 * @param {string} text
 */
export function isMachineName(text) {
  return /^[a-z0-9][a-z0-9-]{0,31}$/.test(text)
}
