import { Interruptions } from '../client/terminal/interruptions.ts'
import { runCtl } from './run-ctl.ts'

const { env, stderr, stdout } = process
const io = {
  // Most commands read none, and Node loads a tenth of their start for it.
  get stdin() {
    return process.stdin
  },
  stdout,
  stderr,
}
const interruptions = new Interruptions()
interruptions.listen()
void runCtl(process.argv.slice(2), { io, env, interruptions }).then(
  // Not before: stdin may be open for ever.
  (status) => process.exit(status),
)
