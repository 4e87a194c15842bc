/** The numbers of lines such as `VmRSS:   1234 kB` or `pgfault 17`, by name and without their units. */
export function namedNumbers(text: string): Map<string, bigint> {
  const numbers = new Map<string, bigint>()
  for (const line of text.split('\n')) {
    const [, name, digits] = /^([^\s:]+):?\s+([0-9]+)(?:\s|$)/.exec(line) ?? []
    if (name !== undefined && digits !== undefined) numbers.set(name, BigInt(digits))
  }
  return numbers
}
