// node os-ending-agent.ts ADDON COMMAND END RUNS: gives vminit a command and ends; the agent number RUNS just ends with 0.
// node os-ending-agent.ts ADDON outlive: kills vminit, and says what becomes of its channel.
import { dirname } from 'node:path'
import { argv } from 'node:process'
import { silentLogger } from '../../../src/base/log.ts'
import { linuxClock } from '../../../src/os/clock.ts'
import { linuxFiles } from '../../../src/os/files/linux-files.ts'
import { loadNative } from '../../../src/os/native.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { connectVminit } from '../../../src/os/supervisor/vminit.ts'
import { COMMANDS, type Command, goneSteps } from './supervisor-steps.ts'

const [, , addon = '', command = '', end = '', runs = ''] = argv
const native = loadNative(dirname(addon))
const numberAfter = (flag: string) => Number(argv[argv.indexOf(flag) + 1])
const { supervisor } = connectVminit({
  channel: { fd: numberAfter('--channel'), storedList: numberAfter('--stored-list') },
  native,
  streams: linuxStreams(native),
  files: linuxFiles(native),
  clock: linuxClock(native),
  log: silentLogger(),
})

if (command === 'outlive') {
  const killVminit = () => process.kill(process.ppid, 'SIGKILL')
  for (const line of await goneSteps(supervisor, killVminit)) console.log(line)
  process.exit(0)
}
console.log('agent')
if (numberAfter('--restarts') + 1 === Number(runs)) process.exit(0)
// The test knows only the names of commands.
await COMMANDS[command as Command](supervisor)
if (end === 'SIGKILL') process.kill(process.pid, end)
process.exit(Number(end))
