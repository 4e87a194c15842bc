// Uses vminit as an agent does: starts programs whose processes outlive them, and waits for those processes.
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { argv } from 'node:process'
import { silentLogger } from '../../../src/base/log.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { linuxClock } from '../../../src/os/clock.ts'
import { loadNative } from '../../../src/os/native.ts'
import { linuxTools } from '../../../src/os/process/linux-tools.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { connectVminit } from '../../../src/os/supervisor/vminit.ts'

const [, , addon = ''] = argv
const native = loadNative(dirname(addon))
const streams = linuxStreams(native)
const clock = linuxClock(native)
const channel = Number(argv[argv.indexOf('--channel') + 1])
const { exits, supervisor } = connectVminit({
  channel: { fd: channel, storedList: undefined },
  native,
  streams,
  clock,
  log: silentLogger(),
})
const tools = linuxTools(native, streams)
const folder = makeTemporaryFolder(tmpdir())

/** The orphan waits, because a shell may reap a child that ends while the shell lives; vminit would never see its exit. */
async function startOrphan(code: number): Promise<{ pid: number; release(): Promise<unknown> }> {
  const fifo = join(folder, `release-${code}`)
  const script = `mkfifo ${fifo}; (read line < ${fifo}; exit ${code}) > /dev/null 2>&1 & echo $!`
  const { stdout } = await tools.run(['/bin/sh', '-c', script])
  return { pid: Number(stdout), release: () => tools.run(['/bin/sh', '-c', `echo > ${fifo}`]) }
}

const watch = exits.watch()
const first = await startOrphan(9)
const firstExit = watch.exitOf(first.pid)
await first.release()
console.log(`code ${(await firstExit).exitCode}`)

const killed = await startOrphan(1)
process.kill(killed.pid, 'SIGTERM')
console.log(`signal ${(await watch.exitOf(killed.pid)).signal}`)

const quick = await startOrphan(3)
const last = await startOrphan(4)
await quick.release()
await last.release()
// vminit has most likely reported this exit before the call.
await watch.exitOf(last.pid)
console.log(`asked for late: ${(await watch.exitOf(quick.pid)).exitCode}`)
watch.close()
removeTemporaryFolder(folder)
await supervisor.exitWith(42)
process.exit(0)
