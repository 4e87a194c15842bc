// Uses vminit as an agent does: waits for processes that it did not start, stores descriptors, dies, and finds them again.
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { argv } from 'node:process'
import { silentLogger } from '../../../src/base/log.ts'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../../src/build/temporary-folder.ts'
import { linuxClock } from '../../../src/os/clock.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { loadNative } from '../../../src/os/native.ts'
import { linuxTools } from '../../../src/os/process/linux-tools.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { connectVminit } from '../../../src/os/supervisor/vminit.ts'
import { exitSteps, foundSteps, type Orphan, storeSteps } from './supervisor-steps.ts'

const [, , addon = ''] = argv
const native = loadNative(dirname(addon))
const streams = linuxStreams(native)
const numberAfter = (flag: string) => (argv.includes(flag) ? Number(argv[argv.indexOf(flag) + 1]) : undefined)
const { exits, descriptors } = connectVminit({
  channel: { fd: numberAfter('--channel') ?? -1, storedList: numberAfter('--stored-list') },
  native,
  streams,
  files: linuxFiles(native),
  clock: linuxClock(native),
  log: silentLogger(),
})

if (numberAfter('--restarts') === 0) {
  const folder = makeTemporaryFolder(tmpdir())
  const tools = linuxTools(native, streams)
  // The orphan waits, because a shell may reap a child that ends while the shell lives; vminit would never see its exit.
  const startOrphan = async (code: number): Promise<Orphan> => {
    const fifo = join(folder, `release-${code}`)
    const script = `mkfifo ${fifo}; (read line < ${fifo}; exit ${code}) > /dev/null 2>&1 & echo $!`
    const { stdout } = await tools.run(['/bin/sh', '-c', script])
    return { pid: Number(stdout), release: () => tools.run(['/bin/sh', '-c', `echo > ${fifo}`]) }
  }
  for (const line of await exitSteps(exits, startOrphan, process.kill)) console.log(line)
  for (const line of await storeSteps(descriptors, streams)) console.log(line)
  removeTemporaryFolder(folder)
  process.kill(process.pid, 'SIGKILL')
} else {
  for (const line of foundSteps(descriptors, streams)) console.log(line)
  process.exit(0)
}
