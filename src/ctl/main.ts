import { Interruptions } from '../client/terminal/interruptions.ts'
import { runCtl } from './run-ctl.ts'

const { env, stderr, stdout } = process
const io = {
  // Most commands do not read stdin, and loading it takes a tenth of their start.
  get stdin() {
    return process.stdin
  },
  stdout,
  stderr,
}
const interruptions = new Interruptions()
interruptions.listen()
void runCtl(process.argv.slice(2), { io, env, interruptions }).then(
  // An open stdin would keep the process alive.
  (status) => process.exit(status),
)
