import type { Files } from '../../os/files/files.ts'

const MIB = 2n ** 20n

/** The reserve is at most this part of the guest's memory, so that a small guest has room for containers. */
const LARGEST_PART = 8n

/** The memory that containers cannot take, in bytes. */
export function reserveOf(reserveMib: number, totalBytes: bigint): bigint {
  const wanted = BigInt(reserveMib) * MIB
  const largest = totalBytes / LARGEST_PART
  return wanted < largest ? wanted : largest
}

export const MEMINFO = '/proc/meminfo'

export async function guestMemory(files: Files): Promise<ReturnType<typeof memoryOf>> {
  return memoryOf(await files.readText(MEMINFO))
}

/** MemTotal and MemAvailable of /proc/meminfo, in bytes. */
export function memoryOf(text: string): { readonly total: bigint; readonly available: bigint } {
  const bytesOf = (name: string) =>
    BigInt(new RegExp(`^${name}: +(\\d+) kB$`, 'm').exec(text)?.[1] ?? 0) * 1024n
  return { total: bytesOf('MemTotal'), available: bytesOf('MemAvailable') }
}
