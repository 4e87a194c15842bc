// Preloaded into a program, which dies before its call of number DIE_AT_CALL to a file, a registry, a holder or QEMU, or
// before its first command DIE_AT_COMMAND to QEMU.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { Socket } from 'node:net'
import { DatabaseSync } from 'node:sqlite'

type Call = (this: unknown, ...words: unknown[]) => unknown

const FILES = ['open', 'writeFile', 'mkdir', 'rename', 'rm', 'unlink', 'chown', 'chmod', 'copyFile']
const BLOCKING = ['writeFileSync', 'mkdirSync', 'renameSync', 'chownSync', 'chmodSync']

const dies = Number(process.env.DIE_AT_CALL)
const deadly = process.env.DIE_AT_COMMAND && `{"execute":"${process.env.DIE_AT_COMMAND}"`
let calls = 0
const replace = (
  object: Record<string, Call>,
  name: string,
  counts: (words: readonly unknown[]) => boolean,
) => {
  const call = object[name]
  if (call === undefined) throw new Error(`${name}: not found`)
  object[name] = function (...words) {
    if (counts(words) && (++calls === dies || (deadly && words.some((word) => `${word}`.startsWith(deadly)))))
      process.kill(process.pid, 'SIGKILL')
    return call.apply(this, words)
  }
}
const isOfState = ([path]: readonly unknown[]) => String(path).includes('/state')
for (const name of FILES) replace(fs.promises as unknown as Record<string, Call>, name, isOfState)
for (const name of BLOCKING) replace(fs as unknown as Record<string, Call>, name, isOfState)
replace(
  DatabaseSync.prototype as unknown as Record<string, Call>,
  'exec',
  ([statement]) => statement === 'BEGIN IMMEDIATE',
)
// The client of QMP writes so where the socket takes it.
replace(fs as unknown as Record<string, Call>, 'writeSync', ([, data]) => `${data}`.startsWith('{"execute"'))
// Those to the log are to a stream of another kind.
replace(
  Socket.prototype as unknown as Record<string, Call>,
  'write',
  ([data]) => !`${data}`.startsWith('{"msg"'),
)
syncBuiltinESMExports()
