/**
 * The end of an error text. Plain JavaScript, because `./microvm` checks its command line before anything is set up.
 * @param {string} word
 * @param {readonly string[]} known
 * @param {string} otherwise
 */
export function didYouMean(word, known, otherwise) {
  const found = suggest(word, known)
  return found === undefined ? `, ${otherwise}` : `, did you mean ${JSON.stringify(found)}?`
}

/**
 * Returns the known word that `word` misspells. Ignores case, `_` and `-`.
 * @param {string} word
 * @param {readonly string[]} known
 * @returns {string | undefined}
 */
function suggest(word, known) {
  const typed = normalized(word)
  /** @type {{ word: string, distance: number } | undefined} */
  let best
  for (const candidate of known) {
    const distance = editDistance(typed, normalized(candidate))
    if (best === undefined || distance < best.distance) best = { word: candidate, distance }
  }
  const most = Math.max(1, Math.floor(typed.length / 4))
  return best !== undefined && best.distance <= most ? best.word : undefined
}

/** @param {string} name */
export function normalized(name) {
  return name.toLowerCase().replace(/[_-]/g, '')
}

/**
 * Counts insertions, deletions, replacements and exchanges of neighbours.
 * @param {string} from
 * @param {string} to
 */
export function editDistance(from, to) {
  /** @type {number[]} */
  let beforeLast = []
  let last = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (let row = 1; row <= from.length; row += 1) {
    const current = [row]
    for (let column = 1; column <= to.length; column += 1) {
      const replaced = from[row - 1] === to[column - 1] ? 0 : 1
      let least = Math.min(
        (last[column] ?? 0) + 1,
        (current[column - 1] ?? 0) + 1,
        (last[column - 1] ?? 0) + replaced,
      )
      const exchanged = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1]
      if (row > 1 && column > 1 && exchanged) least = Math.min(least, (beforeLast[column - 2] ?? 0) + 1)
      current.push(least)
    }
    beforeLast = last
    last = current
  }
  return last[to.length] ?? 0
}
