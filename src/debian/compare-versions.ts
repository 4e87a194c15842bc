/**
 * The order of two versions of Debian packages (deb-version(7)): below 0 when `a` is the older one. `1.4~rc1` is older than
 * `1.4`, and `1.9` than `1.10`.
 */
export function compareVersions(a: string, b: string): number {
  const [one, other] = [split(a), split(b)]
  return (
    one.epoch - other.epoch ||
    compareParts(one.upstream, other.upstream) ||
    compareParts(one.revision, other.revision)
  )
}

function split(version: string) {
  const [, epoch = '0', upstream = '', revision = ''] = /^(?:(\d+):)?(.*?)(?:-([^-]*))?$/.exec(version) ?? []
  return { epoch: Number(epoch), upstream, revision }
}

/** Compares, in turns, what is no digit and the number after it. */
function compareParts(a: string, b: string): number {
  const [words, otherWords] = [a, b].map((part) => part.split(/(\d+)/))
  const length = Math.max(words?.length ?? 0, otherWords?.length ?? 0)
  for (let index = 0; index < length; index++) {
    const [word, other] = [words?.[index] ?? '', otherWords?.[index] ?? '']
    const order = index % 2 === 1 ? compareNumbers(word, other) : compareWords(word, other)
    if (order !== 0) return order
  }
  return 0
}

/** Digits of any length; none count as 0. */
function compareNumbers(a: string, b: string): number {
  const order = BigInt(a) - BigInt(b)
  return order < 0n ? -1 : order > 0n ? 1 : 0
}

function compareWords(a: string, b: string): number {
  const length = Math.max(a.length, b.length)
  for (let index = 0; index < length; index++) {
    const order = rank(a[index]) - rank(b[index])
    if (order !== 0) return order
  }
  return 0
}

/** A tilde comes before the end, letters come after it, and all other characters after the letters. */
function rank(character: string | undefined): number {
  if (character === '~') return -1
  if (character === undefined) return 0
  const code = character.charCodeAt(0)
  return /[A-Za-z]/.test(character) ? code : code + 256
}
