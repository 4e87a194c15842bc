import { readdirSync, readlinkSync } from 'node:fs'
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
