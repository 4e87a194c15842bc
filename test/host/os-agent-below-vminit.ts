// What an agent does with vminit: it starts programs whose processes outlive them, and waits for those.

import { dirname } from 'node:path'
import { argv } from 'node:process'
import { silentLogger } from '../../src/base/log.ts'
import { linuxClock } from '../../src/os/clock.ts'
import { loadNative } from '../../src/os/native.ts'
import { linuxStreams } from '../../src/os/streams.ts'
import { linuxTools } from '../../src/os/tools.ts'
import { connectVminit } from '../../src/os/vminit.ts'

const [, , vminit = '', addon = ''] = argv
const native = loadNative(dirname(addon))
const streams = linuxStreams(native)
const clock = linuxClock(native)
const channel = Number(argv[argv.indexOf('--channel') + 1])
const { exits, supervisor } = connectVminit({ channel, native, streams, clock, log: silentLogger() })
const tools = linuxTools(vminit)

/** Starts a process that becomes an orphan at once; its pid. */
async function startOrphan(script: string): Promise<number> {
  const { stdout } = await tools.run(['/bin/sh', '-c', `(${script}) > /dev/null 2>&1 < /dev/null & echo $!`])
  return Number(stdout)
}

const watch = exits.watch()
const sleeping = await startOrphan('sleep 0.2; exit 9')
console.log(`code ${(await watch.exitOf(sleeping)).exitCode}`)

const killed = await startOrphan('exec sleep 100')
const exit = watch.exitOf(killed)
process.kill(killed, 'SIGTERM')
console.log(`signal ${(await exit).signal}`)

const quick = await startOrphan('exit 3')
// Another one's whole life lies between its end and the question.
await watch.exitOf(await startOrphan('exit 0'))
console.log(`asked for late: ${(await watch.exitOf(quick)).exitCode}`)
watch.close()
await supervisor.exitWith(42)
process.exit(0)
