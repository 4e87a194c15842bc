import { readDocument } from '../../../src/host/machine/document/document.ts'
import { type ExpandOptions, expand } from '../../../src/host/machine/expand.ts'
import type { Machine } from '../../../src/host/machine/machine.ts'

/** The machine of a document with these features, and of an administrator's `domain`. */
export function expanded(
  features: Readonly<Record<string, unknown>>,
  { domain, ...options }: Partial<ExpandOptions> & { readonly domain?: unknown } = {},
): Machine {
  const spec = { features, ...(domain !== undefined && { domain }) }
  const document = readDocument({ kind: 'VM', metadata: { name: 'web' }, spec })
  return expand(document, { isPrivileged: domain !== undefined, ...options })
}

/** `00:05.0` of a device. */
export function pciPlace({ devices }: Machine, key: string): string | undefined {
  const address = devices[key]?.address
  if (address?.type !== 'pci') return undefined
  const [bus, slot] = [address.bus, address.slot].map((number) => number.toString(16).padStart(2, '0'))
  return `${bus}:${slot}.${address.function}`
}
