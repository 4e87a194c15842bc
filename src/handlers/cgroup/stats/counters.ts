/** The value reported for "no limit": the largest 64-bit number. */
export const UNLIMITED = 2n ** 64n - 1n

/** 0 for undefined, and for a text that is not a number. */
export function counter(text: string | undefined): bigint {
  const digits = text?.trim() ?? ''
  return /^\d+$/.test(digits) ? BigInt(digits) : 0n
}

/** A limit: a number, or `unlimited` for the word `max`. */
export function limit(text: string | undefined, unlimited: bigint): bigint {
  return text?.trim() === 'max' ? unlimited : counter(text)
}

/** Lines of a name and a number each, such as memory.stat. Other lines are skipped. */
export function namedCounters(text: string | undefined): { readonly [name: string]: bigint } {
  const pairs = (text ?? '').split('\n').map((line) => line.split(' '))
  return Object.fromEntries(
    pairs.flatMap(([name, value, ...rest]) =>
      name !== undefined && value !== undefined && rest.length === 0 && /^\d+$/.test(value)
        ? [[name, BigInt(value)]]
        : [],
    ),
  )
}
