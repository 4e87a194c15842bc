import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'

/** The sealed memory of a template, among the files of its keeper or of the QEMU of a clone. */
export function memoryOfClone(pid: number): string {
  const folder = `/proc/${pid}/fd`
  for (const name of readdirSync(folder)) {
    const path = join(folder, name)
    if (readlinkSync(path).startsWith('/memfd:')) return path
  }
  throw new Error(`process ${pid}: no memory`)
}

/** How much of its guest's memory a QEMU has for itself alone, in MiB: of a copy, all of it. */
export function ownMemoryMib(pid: number): number {
  let [isMemory, kib] = [false, 0]
  for (const line of readFileSync(`/proc/${pid}/smaps`, 'utf8').split('\n')) {
    if (/^[0-9a-f]+-[0-9a-f]+ /.test(line)) isMemory = line.includes('/memfd:')
    const [, size] = /^Private_(?:Clean|Dirty): +(\d+) kB$/.exec(line) ?? []
    if (isMemory && size !== undefined) kib += Number(size)
  }
  return Math.round(kib / 102.4) / 10
}
