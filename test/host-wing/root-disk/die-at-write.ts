// Prepares a root disk and dies before the write of number argument 1 to the disk, its record or a folder; 0 lives. Prints
// a JSON line for each write when it begins and when it ends. Arguments 2 to 5 are
// the URL, the disk, the record and the bytes between two records.
import fs, { writeSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { prepareRootDisk } from '../../../src/host/root-disk/prepare-root-disk.ts'

type Call = (this: { fd?: number }, ...words: unknown[]) => Promise<unknown>

const [, , dies = '0', url = '', disk = '', stateFile = '', checkpointBytes] = process.argv
let writes = 0

const handle = await fs.promises.open('/dev/null')
const prototype: Record<string, Call> = Object.getPrototypeOf(handle)
await handle.close()
for (const name of ['write', 'writeFile', 'truncate', 'sync', 'datasync']) replace(prototype, name)
replace(fs.promises as unknown as Record<string, Call>, 'rename')
syncBuiltinESMExports()

await prepareRootDisk({ url, disk, stateFile, limits: { checkpointBytes: Number(checkpointBytes) } })

function replace(object: Record<string, Call>, name: string): void {
  const call = object[name]
  if (call === undefined) throw new Error(`${name}: not found`)
  object[name] = async function (...words) {
    writes += 1
    if (writes === Number(dies)) process.kill(process.pid, 'SIGKILL')
    const path = this?.fd === undefined ? undefined : fs.readlinkSync(`/proc/self/fd/${this.fd}`)
    const record = name === 'rename' ? fs.readFileSync(String(words[0]), 'utf8') : undefined
    const what = { write: writes, name, path, position: name === 'write' ? words[3] : undefined, record }
    say({ ...what, when: 'begin' })
    const result = await call.apply(this, words)
    say({ ...what, when: 'end' })
    return result
  }
}

/** Written before the process can die. */
function say(event: object): void {
  writeSync(1, `${JSON.stringify(event)}\n`)
}
